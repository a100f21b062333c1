"""The pages of the documentation, taken apart: blocks of commands, links, names in backticks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NOT_RUN = {
    # why a block of commands is not run by the tests
    "needs a cluster",
    "needs Docker",
    "needs servers of your own",
    "needs an accident",
    "stops the instance",
    "takes minutes",
}
INSTANCE = "instance"
"""Marks the block that starts the instance under which all others are run."""

FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^\1\2 *$\n?", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"<!-- (?:not run: ([^\n]+?)|(instance)) -->\n\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block: what it holds, where, and what is said of it."""

    page: Path
    line: int
    language: str
    text: str
    marker: str  # why it is not run, or `instance`; empty: it is run
    output: str | None = None  # of the block of text right behind it

    @property
    def place(self) -> str:
        """For people: file and line."""
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    """The page as the repository names it."""
    return page.relative_to(ROOT).as_posix()


@cache
def text_of(page: Path) -> str:
    """What the page says."""
    return page.read_text(encoding="utf-8")


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """All fenced blocks of the page, in their order."""
    text = text_of(page)
    matches = list(FENCE.finditer(text))
    found = []
    for match, after in zip_longest(matches, matches[1:]):
        marker = MARKER.search(text, 0, match.start())
        follows = after and after[3] == "text" and not text[match.end() : after.start()].strip()
        found.append(
            Block(
                page,
                text.count("\n", 0, match.start()) + 1,
                match[3],
                match[4],
                (marker[1] or marker[2]) if marker else "",
                after[4] if after and follows else None,
            )
        )
    return tuple(found)


def commands(page: Path) -> list[Block]:
    """The blocks that a reader types."""
    return [block for block in blocks(page) if block.language == "sh"]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return FENCE.sub("\n", text_of(page))


def spans(page: Path) -> Iterator[str]:
    """What stands in backticks."""
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(page))


def links(page: Path) -> list[str]:
    """Where the page's links lead."""
    without_code = re.sub(r"`[^`\n]*`", "", prose(page))
    return re.findall(r"\]\(([^)\s]+)\)", without_code)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    slugs = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        times = found.get(slug, 0)
        found[slug] = times + 1
        slugs.add(f"{slug}-{times}" if times else slug)
    return frozenset(slugs)
