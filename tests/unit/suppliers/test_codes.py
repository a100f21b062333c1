"""The registry of reason codes: whole, in both languages, neither short of a code nor with one too many."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

import app.suppliers
from app.suppliers import alerts, codes, extract
from app.suppliers.failures import SupplierFailure

PACKAGE = Path(app.suppliers.__file__).parent
REGISTRY = PACKAGE / "reason_codes.yaml"
CODE = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
KINDS = {"fail", "bad", "skipped", "alert"}
STAGES = {"config", "gate", "dq", "publish"}


def used() -> set[str]:
    """The codes that programs and pages give."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.html"):
        found.update(re.findall(r"\bcodes\['(\w+)'\]", path.read_text(encoding="utf-8")))
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                found.add(node.value)
    return found - set(extract.ENVIRONMENT)


def test_every_code_that_is_given_is_registered_and_every_registered_one_is_given() -> None:
    given = used()
    assert given - set(codes.registry()) == set(), "given and not registered"
    assert set(codes.registry()) - given == set(), "registered and never given"


@pytest.mark.parametrize("code", sorted(codes.registry()))
def test_each_code_says_what_it_means_and_what_to_do_in_both_languages(code: str) -> None:
    entry = codes.registry()[code]
    assert CODE.fullmatch(code) and entry.code == code
    assert entry.kind in KINDS
    # A list fails at a stage; a row and an alert have none.
    assert (entry.stage in STAGES) if entry.kind == "fail" else (entry.stage is None)
    for sentence in (entry.meaning, entry.supplier_action, entry.supplier_action_ru):
        assert re.fullmatch(r"\S.*\S\.", sentence) and "  " not in sentence, sentence
        assert not CODE.search(sentence), "a sentence names no other code"
    assert re.search("[а-яё]", entry.supplier_action_ru)
    for sentence in (entry.meaning, entry.supplier_action):
        assert re.search("[a-z]", sentence) and not re.search("[а-яё]", sentence)


def test_no_code_stands_twice_in_the_registry() -> None:
    names = re.findall(r"^  ([A-Z_]+):$", REGISTRY.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert set(names) == set(codes.registry())


def test_the_registry_holds_what_stands_in_its_file_and_cannot_be_changed() -> None:
    written = yaml.safe_load(REGISTRY.read_text(encoding="utf-8"))
    assert {name: entry["class"] for name, entry in written["codes"].items()} == {
        name: entry.kind for name, entry in codes.registry().items()
    }
    with pytest.raises(TypeError):
        codes.registry()["NEW_CODE"] = codes.registry()["FILE_EMPTY"]  # type: ignore[index]


def test_nobody_invents_a_code() -> None:
    with pytest.raises(KeyError):
        codes.of_kind("NO_SUCH_CODE", "fail")
    with pytest.raises(KeyError):
        SupplierFailure("NO_SUCH_CODE", stage="gate")
    with pytest.raises(KeyError):
        alerts.Alert("NO_SUCH_CODE")


def test_a_code_is_given_for_what_it_is_there_for() -> None:
    with pytest.raises(KeyError):
        SupplierFailure("QTY_EMPTY", stage="gate")  # of a row
    with pytest.raises(KeyError):
        alerts.Alert("FILE_EMPTY")
    with pytest.raises(KeyError):
        codes.of_kind("SHEET_UNKNOWN", "bad")
    assert codes.of_kind("QTY_EMPTY", "bad").kind == "bad"


def test_the_registry_that_people_read_is_the_one_that_programs_read() -> None:
    shown = PACKAGE.parents[1] / "docs" / "etl" / "reason_codes.yaml"
    assert shown.resolve(strict=True) == REGISTRY.resolve()
