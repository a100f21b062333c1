"""The upload's state machine: the pairs that the specification allows, and no other."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from app.kernel.states import Edge, Machine
from app.uploads.states import ACTIVE, MAX_ACTIVE_PER_WORKSPACE, UPLOAD

ROOT = Path(__file__).parents[3]
SCHEMA = (ROOT / "sql" / "schema" / "10_uploads.sql").read_text(encoding="utf-8")

# D6.6 §4.3, and pending → failed as drawn in §4.2
AUTOMATIC = {
    ("pending", "processing"),
    ("processing", "staging_complete"),
    ("processing", "failed"),
    ("staging_complete", "promoting"),
    ("staging_complete", "failed"),
    ("promoting", "completed"),
    ("promoting", "partial"),
    ("promoting", "failed"),
    ("pending", "failed"),
}
MANUAL = {("failed", "pending"), ("partial", "staging_complete")}


@pytest.mark.parametrize(("source", "target"), list(itertools.product(UPLOAD.states, repeat=2)))
def test_an_edge_exists_when_the_specification_has_it(source: str, target: str) -> None:
    assert UPLOAD.allows(source, target) == ((source, target) in AUTOMATIC)
    assert UPLOAD.allows(source, target, manual=True) == ((source, target) in MANUAL)


def test_the_terminal_states_are_those_that_nothing_leaves_by_itself() -> None:
    assert UPLOAD.terminal == ("completed", "partial", "failed")


def test_a_machine_with_an_edge_to_an_unknown_state_is_refused() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        Machine("here", ("here",), (Edge("here", "nowhere", "nobody", "never"),))


def test_the_check_of_the_schema_has_the_same_states() -> None:
    check = re.search(r"status\s+text NOT NULL DEFAULT '(\w+)' CHECK \(status IN \((.*?)\)\)", SCHEMA, re.S)
    assert check is not None
    assert check[1] == UPLOAD.initial
    assert tuple(re.findall(r"'(\w+)'", re.sub("--.*", "", check[2]))) == UPLOAD.states


def test_the_slots_of_the_schema_are_those_of_the_active_states() -> None:
    check = re.search(r"data_uploads_slot CHECK.*?status IN \((.*?)\)", SCHEMA, re.S)
    assert check is not None
    assert tuple(re.findall(r"'(\w+)'", check[1])) == ACTIVE
    assert f"slot BETWEEN 0 AND {MAX_ACTIVE_PER_WORKSPACE - 1}" in SCHEMA
