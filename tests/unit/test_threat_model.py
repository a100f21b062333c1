"""The threat model names a test for each control, and each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^\[(\w+)\]: \.\./(\S+)$", PAGE, re.MULTILINE))
NAMED = sorted(set(re.findall(r"\[(test_\w+)\]\[(\w+)\]", PAGE)))
ROWS = re.findall(r"^\| ([STRIDE]) \|(.+)\|$", PAGE, re.MULTILINE)


FEWER_WAYS = {"Logs, metrics, problems": 2, "Packages and the repository": 3}
"""They are no way in: what may come out, and what was put in before."""


def names_in(path: str) -> set[str]:
    """The names of the tests in a file."""
    return set(re.findall(r"^def (test_\w+)\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize(("test", "key"), NAMED, ids=[f"{key}-{test}" for test, key in NAMED])
def test_a_named_test_is_there(test: str, key: str) -> None:
    assert test in names_in(FILES[key])


def test_every_threat_has_a_control_and_a_test() -> None:
    assert len(ROWS) > 60
    for letter, row in ROWS:
        threat, control, held = (cell.strip() for cell in row.split(" | "))
        assert threat and control, row
        assert re.fullmatch(r"(\[test_\w+\]\[\w+\](, )?)+", held), f"{letter} {threat}"


def test_no_file_is_listed_for_nothing() -> None:
    assert set(FILES) == {key for _, key in NAMED}


@pytest.mark.parametrize("section", re.findall(r"^### (.+)$", PAGE, re.MULTILINE))
def test_an_entry_point_has_been_looked_at_in_every_way_that_it_can_be(section: str) -> None:
    text = PAGE.partition(f"### {section}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    letters = {letter for letter, _ in re.findall(r"^\| ([STRIDE]) \|(.+)\|$", text, re.MULTILINE)}
    assert len(letters) >= FEWER_WAYS.get(section, 5), letters
