"""What keeps a bad version from being one, and the way back from one that was."""

from __future__ import annotations

from typing import Any

import pytest

from app import cli
from tests.integration.refdata.chain import applying
from tests.integration.refdata.platform import TENANT, Platform, chunk, command
from tests.integration.refdata.test_cli import operator

__all__ = ["operator"]

RULES = """
    - code: {code}
      apply: {{mode: DICTIONARY_ITEM}}
      validation: {{minItems: 2, maxDropPercent: 50, requiredKeys: [a, "the key"]}}
"""
FOUR: dict[str, Any] = {"a": 1, "the key": 2, "c": 3, "d": 4}


@pytest.fixture
def strict(platform: Platform) -> Platform:
    """A dictionary STRICT with rules, and four entries."""
    platform.config.write_text(platform.config.read_text() + RULES.format(code="STRICT"))
    assert platform.services.live.reload()
    assert platform.statuses(command("STRICT", FOUR)) == [("COMMITTED", 1, None)]
    return platform


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        ({"a": 1, "the key": 2, "c": 3, "d": 4, "e": 5}, None),
        ({"a": 1, "the key": 2}, None),
        ({"a": 1}, "would have 1 entries instead of 4, and needs 2"),
        ({}, "would have 0 entries"),
        ({"a": 1, "c": 3, "d": 4}, "lack the key the key"),
    ],
)
def test_a_snapshot_that_breaks_the_rules_has_no_effect(
    items: dict[str, Any], sentence: str | None, strict: Platform
) -> None:
    [found] = strict.apply(command("STRICT", items, eventType="SNAPSHOT"))
    if sentence is None:
        assert (found.error_code, found.version, strict.notes()) == (None, 2, items)
    else:
        assert (found.error_code, found.version) == ("VALIDATION_FAILED", None)
        assert sentence in str(found.sentence)
        assert strict.notes() == FOUR
        assert [one["version"] for one in strict.announcements()] == [1]
    assert strict.statuses(command("STRICT", {"z": 1}))[0][0] == "COMMITTED"


def test_of_deltas_in_one_transaction_the_one_that_breaks_the_rules_is_refused(strict: Platform) -> None:
    assert strict.statuses(
        command("STRICT", {"e": 5}), command("STRICT", {"the key": None}), command("STRICT", {"f": 6}),
        command("STRICT", {"c": None, "d": None, "e": None, "f": None}),
    ) == [
        ("COMMITTED", 2, None), ("FAILED", None, "VALIDATION_FAILED"), ("COMMITTED", 3, None),
        ("FAILED", None, "VALIDATION_FAILED"),
    ]  # fmt: skip
    assert strict.notes() == FOUR | {"e": 5, "f": 6}


def test_rules_hold_for_tables_of_ones_own(platform: Platform) -> None:
    text = platform.config.read_text()
    platform.config.write_text(
        text.replace("      enabled: true\n", "      enabled: true\n      validation: {minItems: 1}\n", 1)
    )
    assert platform.services.live.reload(), platform.services.live.refused
    assert platform.statuses(
        command("COUNTRY", {"AT": {"name": "Austria"}}), command("COUNTRY", {"AT": None}),
        command("COUNTRY", {}, eventType="SNAPSHOT"),
    ) == [
        ("COMMITTED", 1, None), ("FAILED", None, "VALIDATION_FAILED"), ("FAILED", None, "VALIDATION_FAILED")
    ]  # fmt: skip
    assert platform.countries() == {"AT": "Austria"}


@pytest.mark.parametrize("code", ["NOTES", "COUNTRY"])
def test_before_a_snapshot_the_dictionary_is_kept_and_can_be_had_again(
    code: str, platform: Platform, operator: None, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"AT": {"name": "Austria"}, 'B"\\': {"name": "Belgium"}}
    platform.apply(command(code, first))
    platform.apply(command(code, {"AT": {"name": "Atlantis, sunk"}}, eventType="SNAPSHOT"))
    capsys.readouterr()
    assert cli.main(["refdata", "versions", TENANT, code]) == 0
    now, kept = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert (now[:2], kept[0], kept[2]) == (["2", "now"], "1", "2 entries")
    with applying(platform.services):
        assert cli.main(["refdata", "rollback", TENANT, code, "--to", "1"]) == 0
    assert "Version 3 has the entries of version 1." in capsys.readouterr().out
    names = {key: value["name"] for key, value in first.items()}
    if code == "NOTES":
        assert {key: value["name"] for key, value in platform.notes().items()} == names
    else:
        assert platform.countries() == names
    assert [one["version"] for one in platform.announcements()] == [1, 2, 3]
    assert cli.main(["refdata", "rollback", TENANT, code, "--to", "9"]) == 1
    assert "Version 9 is not kept; these are: 1, 2." in capsys.readouterr().err


def test_so_many_versions_are_kept_as_are_configured(platform: Platform) -> None:
    for number in range(6):
        platform.apply(command("NOTES", {"n": number}, eventType="SNAPSHOT"))
        platform.apply(command("NOTES", {"n": -number}, tenantId="tenant-b", eventType="SNAPSHOT"))
    rows = platform.sql(
        "SELECT tenant_id, version, items #>> '{0,payload}' FROM refdata.archived_chunk ORDER BY 1, 2"
    )
    assert rows == [
        (tenant, version, str(sign * (version - 1)))
        for tenant, sign in (("tenant-a", 1), ("tenant-b", -1)) for version in (3, 4, 5)
    ]  # fmt: skip


def test_a_large_dictionary_is_kept_in_chunks_as_commands_have_them(
    platform: Platform, operator: None
) -> None:
    many = {f"k{n}": n for n in range(10_000)}
    platform.apply(command("NOTES", many), command("NOTES", {"and": 1, "more": 2}))
    platform.apply(command("NOTES", {}, eventType="SNAPSHOT"))
    assert platform.sql("SELECT chunk_index, entries FROM refdata.archived_chunk ORDER BY 1") == [
        (1, 10_000), (2, 2)
    ]  # fmt: skip
    with applying(platform.services):
        assert cli.main(["refdata", "rollback", TENANT, "NOTES", "--to", "2"]) == 0
    assert platform.notes() == many | {"and": 1, "more": 2}


def test_a_pinned_dictionary_takes_no_changes(
    platform: Platform, operator: None, capsys: pytest.CaptureFixture[str]
) -> None:
    platform.apply(command("NOTES", {"a": 1}))
    assert cli.main(["refdata", "pin", TENANT, "NOTES", "--reason", "the supplier sends nonsense"]) == 0
    half = "11111111-1111-4111-8111-111111111111"
    assert platform.statuses(
        command("NOTES", {"a": 2}), command("NOTES", {"b": 1}, eventType="SNAPSHOT"),
        chunk("NOTES", half, 1, 2, {"c": 1}), command("NOTES", {"a": 3}, tenantId="tenant-b"),
    ) == [
        ("FAILED", None, "DICTIONARY_PINNED"), ("FAILED", None, "DICTIONARY_PINNED"),
        ("FAILED", None, "DICTIONARY_PINNED"), ("COMMITTED", 1, None),
    ]  # fmt: skip
    assert platform.notes() == {"a": 1}
    capsys.readouterr()
    cli.main(["refdata", "versions", TENANT, "NOTES"])
    assert "the supplier sends nonsense" in capsys.readouterr().out
    assert cli.main(["refdata", "unpin", TENANT, "NOTES"]) == 0
    assert platform.statuses(command("NOTES", {"a": 4})) == [("COMMITTED", 2, None)]


def test_back_to_a_version_and_pinned_to_it(platform: Platform, operator: None) -> None:
    platform.apply(command("NOTES", {"a": "good"}))
    platform.apply(command("NOTES", {"a": "bad"}, eventType="SNAPSHOT"))
    with applying(platform.services):
        assert cli.main(["refdata", "rollback", TENANT, "NOTES", "--to", "1", "--pin"]) == 0
    assert platform.notes() == {"a": "good"}
    assert platform.statuses(command("NOTES", {"a": "bad"})) == [("FAILED", None, "DICTIONARY_PINNED")]
    with applying(platform.services):  # it is pinned, and goes back nevertheless
        assert cli.main(["refdata", "rollback", TENANT, "NOTES", "--to", "2"]) == 0
    assert platform.notes() == {"a": "bad"}


@pytest.mark.parametrize("name", ["versions", "rollback", "pin", "unpin"])
def test_whoever_names_what_is_not_there_is_told(
    name: str, platform: Platform, operator: None, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--to", "1"] if name == "rollback" else []
    assert cli.main(["refdata", name, TENANT, "NOWHERE", *more]) == 1
    assert "No dictionary is called NOWHERE." in capsys.readouterr().err
