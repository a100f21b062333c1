"""The documentation holds together: links, anchors, paths, settings; and every command is accounted for."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app import cli
from reference import commands as reference_commands
from reference import settings
from tests import documents
from tests.documents import PAGES, ROOT, Block

FOLDERS = {
    "app",
    "benchmarks",
    "deploy",
    "docs",
    "etl_ops",
    "fuzz",
    "reference",
    "scripts",
    "sql",
    "tests",
    "workers",
    ".ci",
}
ELSEWHERE = {"docker", "helm", "kubectl"}
"""Programs that only the pages of operations may use."""

OPERATIONS = re.compile(r"docs/(deploy|runbook|sre-checklist|backup|threat-model|metrics|fuzzing)\b.*")
SETTING = re.compile(r"\b(?:HEADWORKS|REFDATA)_[A-Z][A-Z0-9_]*[A-Z0-9]\b")
every_page = pytest.mark.parametrize("page", PAGES, ids=documents.name)


def test_there_is_something_to_look_at() -> None:
    found = {documents.name(page) for page in PAGES}
    assert {"README.md", "docs/README.md", "docs/tutorial.md", "docs/reference/settings.md"} <= found
    assert sum(len(documents.commands(page)) for page in PAGES) > 20


@every_page
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    dead = []
    for link in documents.links(page):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (page.parent / target).resolve() if target else page
        if not there.exists() or (anchor and anchor not in documents.anchors(there)):
            dead.append(link)
    assert dead == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in documents.links(index)}
    assert [documents.name(page) for page in PAGES if page not in linked | {index, ROOT / "README.md"}] == [
        "docs/samples/README.md"
    ]


@every_page
def test_paths_in_backticks_exist(page: Path) -> None:
    assert [span for span in documents.spans(page) if not exists(span)] == []


def exists(span: str) -> bool:
    """Whether a path of the repository is there; whatever else stands in backticks is."""
    path, _, test = span.partition("::")
    if re.fullmatch(r"test_\w+\.py", path):
        return any((ROOT / "tests").rglob(path))
    if path.partition("/")[0].removeprefix("./") not in FOLDERS or not re.fullmatch(
        r"[\w.*/-]+/[\w.*/-]*", path
    ):
        return True
    found = list(ROOT.glob(path.rstrip("/")))
    return bool(found) and (
        not test or f"def {test.partition('[')[0]}(" in found[0].read_text(encoding="utf-8")
    )


def test_a_path_that_is_gone_is_seen() -> None:
    assert exists("app/web.py") and exists("tests/test_documents.py::exists") and exists("HEADWORKS_URL")
    assert exists("docs/*.md") and exists("a/b")
    assert not any(
        map(exists, ("app/gone.py", "docs/*.gone", "test_gone.py", "tests/test_documents.py::gone"))
    )


@cache
def of_tests() -> frozenset[str]:
    """Variables that tests, scripts and benchmarks read."""
    read = (
        path.read_text(encoding="utf-8", errors="replace")
        for folder in ("tests", "benchmarks", "scripts")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in ("", ".py", ".sh", ".yaml") and path != Path(__file__)
    )
    return frozenset(name for text in read for name in SETTING.findall(text))


@every_page
def test_settings_that_are_named_exist(page: Path) -> None:
    named = set(SETTING.findall(documents.text_of(page)))
    assert named - settings.names() - of_tests() == set()


# -- commands


def all_commands() -> list[Block]:
    return [block for page in PAGES for block in documents.commands(page)]


def test_what_is_not_run_says_why_and_the_reasons_are_few() -> None:
    reasons = {block.marker for block in all_commands() if block.marker}
    assert reasons - {documents.INSTANCE} <= documents.NOT_RUN
    marked = re.compile(r"<!-- *(not run|instance)")
    for page in PAGES:
        heeded = [block for block in documents.commands(page) if block.marker]
        assert len(marked.findall(documents.text_of(page))) == len(heeded), (
            f"{documents.name(page)}: a marker of no block"
        )


NOT_RUN_HERE = {
    "README.md": ["takes minutes"],
}
"""Why some blocks of the product's own pages are not run; those of operations have reasons of their own."""


def test_the_product_s_own_pages_are_run_but_for_a_few_blocks() -> None:
    found = {
        documents.name(page): reasons
        for page in PAGES
        if not OPERATIONS.fullmatch(documents.name(page))
        if (
            reasons := [
                one.marker for one in documents.commands(page) if one.marker not in ("", documents.INSTANCE)
            ]
        )
    }
    assert found == NOT_RUN_HERE


@pytest.mark.parametrize("block", all_commands(), ids=lambda block: block.place)
def test_commands_can_be_typed(block: Block) -> None:
    checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert not re.search(r"^\s*\$ ", block.text, re.MULTILINE), "a prompt"
    programs = {words[0] for words in lines_of(block.text)}
    assert OPERATIONS.fullmatch(documents.name(block.page)) or not programs & ELSEWHERE
    for words in lines_of(block.text):
        if words[0].rpartition("/")[2] == "headworks":
            understood(words[1:])


NESTED = re.compile(r"\$\(([^()]*)\)")
HERE_DOCUMENT = re.compile(r"<<-? *'?(\w+)'?(.*?)\n.*?^\1$", re.MULTILINE | re.DOTALL)
QUOTED_OR_COMMENT = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*")|(?<!\S)#[^\n]*""")
ENDS = re.compile(r"[;|&()\n]+")


def lines_of(text: str) -> Iterator[list[str]]:
    """The simple commands of a block, each as its words; what stands in quotes is one of them."""
    text = HERE_DOCUMENT.sub(r"\2", text.replace("\\\n", " "))
    text = QUOTED_OR_COMMENT.sub(lambda found: found[1] or "", text)
    for inner in NESTED.findall(text):
        yield from lines_of(inner)
    lexer = shlex.shlex(NESTED.sub("$NESTED", text), posix=True, punctuation_chars=";|&()<>\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
    words: list[str] = []
    for word in [*lexer, "\n"]:
        if not ENDS.fullmatch(word):
            words.append(word)
            continue
        if words := [one for one in words if not re.match(r"\w+=", one)]:
            yield words
        words = []


class Anything(tuple[object, ...]):
    """Choices that a variable or a word in capitals may stand for."""

    def __contains__(self, value: object) -> bool:
        return super().__contains__(value) or bool(re.match(r"\$|[A-Z]+$", str(value)))


def lenient(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser takes variables wherever something of a type is expected."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                lenient(child)
        else:
            action.type = None
            action.choices = Anything(action.choices) if action.choices else None
    return parser


def understood(words: list[str]) -> None:
    """The command line takes these words; else the test fails with what it says."""
    if redirected := [at for at, word in enumerate(words) if re.match("[<>]", word)]:
        words = words[: redirected[0] - (words[redirected[0] - 1] == "2")]
    try:
        lenient(cli.command_line()).parse_args(words)
    except SystemExit as error:
        if error.code not in (0, None):
            pytest.fail(f"headworks {shlex.join(words)} is not understood")


@cache
def known_commands() -> dict[str, frozenset[str]]:
    """Every command with its options."""
    return {
        path: frozenset(parser._option_string_actions)
        for path, _, parser in reference_commands.walk(cli.command_line())
    }


@every_page
def test_commands_within_sentences_exist(page: Path) -> None:
    wrong = []
    for span in documents.spans(page):
        if re.match(r"(\.venv/bin/)?headworks [a-z]", span) and not re.search(r"[…|{[\]]", span):
            path = re.sub(r"^\.venv/bin/", "", span)
            command = next((one for one in known_commands() if f"{path} ".startswith(f"{one} ")), None)
            group = any(one.startswith(f"{path} ") for one in known_commands())
            options = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", path))
            if not (group or (command and options <= known_commands()[command])):
                wrong.append(span)
    assert wrong == []


def test_a_command_that_is_none_is_seen() -> None:
    understood(["requeue", "$UPLOAD_ID", "--reason", "mended"])
    for words in (["uploads", "shoe", "1"], ["requeue", "1"], ["catalog", "run", "JOB-R-99"]):
        with pytest.raises(pytest.fail.Exception):
            understood(words)
    typed = """KEY="$(headworks keys list)" # all of Ann's
        echo a#b "c # d" $#
        A=1 headworks uploads show "a; b" 2>&1 | wc -l
    """
    assert list(lines_of(typed)) == [
        ["headworks", "keys", "list"],
        ["echo", "a#b", "c # d", "$#"],
        ["headworks", "uploads", "show", "a; b", "2", ">&", "1"],
        ["wc", "-l"],
    ]
