"""No regular expression of the product takes more than linear time, whatever text is made for it.

Every pattern is attacked where it repeats something: with a beginning that leads there, what is repeated
many times, and an end that does not fit. Twice as much text may take twice as long, and not four times.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import app
from app.suppliers.reading import cells as cells_of_lists
from app.suppliers.reading.binary_parts import BinaryParts

ROOT = Path(__file__).parents[2]
SEARCHING = ("search", "sub", "subn", "findall", "finditer", "split")
LONGEST = 1 << 13
ENOUGH_SECONDS = 0.02
"""Of this process: enough to tell how it grows, and another's work counts for nothing."""

LONGEST_SECONDS = 1.0

MOST_GROWTH = 3.0
"""Of the time when the text is doubled: 2 is linear, 4 quadratic."""

ELSEWHERE = {
    # pattern                        why its text is none of a stranger's, or short
    ("app.openapi.viewer", "_IMAGE"): "the files of the viewer, which come with the package",
    ("app.refdata.templates", "_TOKEN"): "SQL of the operator's own configuration",
    ("app.catalog.replay.recordings", ""): "recordings that come with the package",
}

Pattern = re.Pattern[Any]


# -- every pattern there is


@cache
def patterns() -> dict[tuple[str, str], list[Pattern]]:
    """By module and name: the compiled ones of each module, and those that stand in a call."""
    found: dict[tuple[str, str], list[Pattern]] = {}
    for module in pkgutil.walk_packages(app.__path__, "app."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            if some := list(_patterns_in(value)):
                found[module.name, name] = some
        source = Path(str(loaded.__file__)).read_text(encoding="utf-8")
        if some := [re.compile(text, flags) for text, flags in _in_calls(source)]:
            found[module.name, ""] = some
    found["app.suppliers.reading.cells", "_spelling()"] = [cells_of_lists._spelling(",", ".")]
    parts = object.__new__(BinaryParts)
    parts._masks = {1: 2, 12: 3}
    mask = parts._mask_pattern()
    assert mask
    found["app.suppliers.reading.workbook_parts", "_mask_pattern()"] = [mask]
    return found


def _patterns_in(value: Any) -> Iterator[Pattern]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            if isinstance(one, re.Pattern):
                yield one


def _in_calls(source: str) -> Iterator[tuple[str | bytes, int]]:
    """The literal patterns of `re.search("…")` and its like."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            if is_re and node.func.attr in ("match", "fullmatch", *SEARCHING):
                if isinstance(node.args[0], ast.Constant):
                    yield node.args[0].value, 0


@cache
def uses(name: str) -> frozenset[str]:
    """The methods by which the code uses a pattern of this name."""
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "app").rglob("*.py")))
    return frozenset(re.findall(rf"\b{re.escape(name.strip('()'))}\b(?:\[[^\]]*\])?\.(\w+)\(", code))


# -- texts that are made for a pattern


def sample(nodes: Any) -> str:
    """A text that these nodes match, or nearly so."""
    return "".join(_sample(kind, value) for kind, value in nodes)


def _sample(kind: Any, value: Any) -> str:
    if kind is op.LITERAL:
        return chr(value)
    if kind is op.NOT_LITERAL or kind is op.ANY:
        return "a" if kind is op.ANY or value != ord("a") else "b"
    if kind is op.IN:
        return next(_letters(value), "a")
    if kind is op.BRANCH:
        return max((sample(branch) for branch in value[1]), key=len, default="")
    if kind is op.SUBPATTERN:
        return sample(value[-1])
    if kind is op.ATOMIC_GROUP:
        return sample(value)
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return sample(value[2]) * max(value[0], 1)
    return ""


def _letters(members: Any) -> Iterator[str]:
    """Some members of a set of letters."""
    denied = members and members[0][0] is op.NEGATE
    listed = {chr(value) for kind, value in members if kind is op.LITERAL}
    for kind, value in members:
        if kind is op.LITERAL and not denied:
            yield chr(value)
        elif kind is op.RANGE and not denied:
            yield chr(value[0])
        elif kind is op.CATEGORY:
            yield {op.CATEGORY_DIGIT: "1", op.CATEGORY_SPACE: " ", op.CATEGORY_WORD: "a"}.get(value, "-")
    if denied:
        yield from (letter for letter in "a1 -" if letter not in listed)


def repeats(nodes: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Every part that may be repeated without end: what leads to it, and what is repeated."""
    for kind, value in nodes:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            if value[1] > 16:
                yield from ((before, pump) for pump in _pumps(value[2]))
            yield from repeats(value[2], before)
        elif kind is op.SUBPATTERN:
            yield from repeats(value[-1], before)
        elif kind is op.ATOMIC_GROUP:
            yield from repeats(value, before)
        elif kind is op.BRANCH:
            for branch in value[1]:
                yield from repeats(branch, before)
        before += _sample(kind, value)


def _pumps(nodes: Any) -> Iterator[str]:
    yield sample(nodes)
    if len(nodes) == 1 and nodes[0][0] is op.IN:
        yield from itertools.islice(_letters(nodes[0][1]), 12)


def attacks(pattern: Pattern) -> set[tuple[str, str, str]]:
    """Beginning, what is repeated, end."""
    text = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    tree = _parser.parse(text, pattern.flags & ~re.UNICODE & ~re.LOCALE)
    found: set[tuple[str, str, str]] = set()
    for before, pump in repeats(tree):
        whole = before + pump
        for start, middle in ((before, pump), ("", pump), ("", whole), (before, f" {pump}"), (before, " ")):
            found |= {(start, middle, end) for end in ("\x00", "x\x00", "") if middle}
    return found


# -- how long they take


def _seconds(do: Callable[[Any], Any], text: Any) -> float:
    """The best of three; infinity when it does not come to an end."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_SECONDS)
        try:
            do(text)
        except TimeoutError:
            return float("inf")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        best = min(best, time.process_time() - began)
        if best < ENOUGH_SECONDS / 4:
            break
    return best


@pytest.fixture(autouse=True)
def _no_end() -> Iterator[None]:
    def ring(_number: int, _frame: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, ring)
    yield
    signal.signal(signal.SIGVTALRM, before)


def growth(do: Callable[[Any], Any], attack: tuple[str, str, str], *, as_bytes: bool) -> float:
    """By how much the time grows when the text is doubled, once it can be told; at most of three looks."""
    start, pump, end = attack
    times, size = 16, 0
    before = 0.0
    while size < LONGEST:
        text = start + pump * times + end
        size = len(text)
        spent = _seconds(do, text.encode("latin-1", "replace") if as_bytes else text)
        if spent > ENOUGH_SECONDS:
            return spent / before if before else spent / ENOUGH_SECONDS
        before, times = spent, times * 2
    return 1.0


def slowest(pattern: Pattern, methods: frozenset[str]) -> tuple[float, Any]:
    """The growth of a pattern and the attack that shows it: the first that is too much, else the worst."""
    ways: list[Callable[[Any], Any]] = []
    if not methods or methods & {"match", "fullmatch"}:
        ways.append(pattern.fullmatch if methods == {"fullmatch"} else pattern.match)
    if methods & {*SEARCHING}:
        ways.append(lambda text: list(itertools.islice(pattern.finditer(text), 1 << 20)))
    worst: tuple[float, Any] = (0.0, None)
    for way, attack in itertools.product(ways, sorted(attacks(pattern))):
        as_bytes = isinstance(pattern.pattern, bytes)
        found = growth(way, attack, as_bytes=as_bytes)
        if MOST_GROWTH < found < float("inf"):  # a machine that was busy for a moment is not so three times
            found = min(growth(way, attack, as_bytes=as_bytes) for _ in range(3))
        worst = max(worst, (found, attack), key=lambda one: one[0])
        if found > MOST_GROWTH:
            break
    return worst


CHECKED = sorted(name for name in patterns() if name not in ELSEWHERE)


@pytest.mark.parametrize("name", CHECKED, ids=[".".join(name) for name in CHECKED])
def test_no_text_takes_a_pattern_more_than_linear_time(name: tuple[str, str]) -> None:
    methods = uses(name[1]) if name[1] and not name[1].endswith("()") else frozenset(SEARCHING)
    for pattern in patterns()[name]:
        found, attack = slowest(pattern, methods)
        assert found <= MOST_GROWTH, f"{pattern.pattern!r} grows by {found:.1f} at {attack}"


def test_patterns_are_found_in_modules_and_in_calls() -> None:
    assert len(CHECKED) > 50
    assert ("app.uploads.reading.numbers", "_AMOUNT") in CHECKED
    assert ("app.refdata.commands", "") in CHECKED
    assert set(ELSEWHERE) <= set(patterns())


@pytest.mark.parametrize(
    "slow",
    [
        r"^(?:a+)+$", r"^\s*(?:x)?\s*(?:y)?\s*\d$", r"[ab]+c$", r"^(.+?)\s+-\s+(.+)$", r"<!--.*-->",
        r"^\(?\s*[-+]?\s*(?:USD)?\s*\d[\d.,' ]*\s*(?:USD)?\s*\)?$", r"\s*\[([^\]]*)\]$",
    ],
)  # fmt: skip
def test_a_pattern_that_tries_again_and_again_is_found(slow: str) -> None:
    found, _ = slowest(re.compile(slow, re.DOTALL), frozenset({"search"}))
    assert found > MOST_GROWTH
