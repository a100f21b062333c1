"""What commands do to dictionaries, versions, requests and announcements."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from app.refdata import store
from app.refdata.provider import Numbered, PostgresSqlProvider
from tests.integration.refdata.platform import TENANT, Platform, chunk, command

A, B, C = ({"name": name} for name in ("Austria", "Belgium", "Chile"))
EURO = {"name": "Euro", "digits": 2}


def test_one_artefact_serves_two_databases_that_have_nothing_in_common(platform: Platform) -> None:
    assert platform.statuses(
        command("COUNTRY", {"AT": A, "BE": B}),
        command("CURRENCY", {"EUR": EURO, "JPY": {"name": "Yen", "digits": 0}}),
        command("NOTES", {"x": {"any": ["thing", 1.10]}}),
        command("COUNTRY", {"AT": None}),
    ) == [("COMMITTED", 1, None), ("COMMITTED", 1, None), ("COMMITTED", 1, None), ("COMMITTED", 2, None)]
    assert platform.countries() == {"BE": "Belgium"}
    assert platform.currencies() == {"EUR": ("Euro", 2), "JPY": ("Yen", 0)}
    assert platform.notes() == {"x": {"any": ["thing", 1.10]}}
    assert [(one["dictCode"], one["version"]) for one in platform.announcements()] == [
        ("COUNTRY", 1), ("NOTES", 1), ("COUNTRY", 2)
    ]  # fmt: skip
    assert [
        (one["dictCode"], one["version"], one["keys"]) for one in platform.announcements(second=True)
    ] == [("CURRENCY", 1, ["EUR", "JPY"])]


def test_a_dictionary_is_added_by_configuration_alone_while_it_runs(platform: Platform) -> None:
    late = command("PLANETS", {"mars": {"moons": 2}})
    assert platform.statuses(late) == [("FAILED", None, "UNKNOWN_DICTIONARY")]
    platform.sql("CREATE TABLE planets (tenant text, name text, moons int, PRIMARY KEY (tenant, name))")
    platform.config.write_text(
        platform.config.read_text()
        + """
    - code: PLANETS
      loadSql: select name as k, jsonb_build_object('moons', moons) as v from planets where tenant = :tenantId
      apply:
        upsertSql: insert into planets values (:tenantId, :key, cast(:payload->>'moons' as int))
        deleteSql: delete from planets where tenant = :tenantId and name = :key
"""
    )
    assert platform.services.live.reload()
    assert platform.statuses(command("PLANETS", {"mars": {"moons": 2}})) == [("COMMITTED", 1, None)]
    assert platform.sql("SELECT * FROM planets") == [(TENANT, "mars", 2)]
    platform.sql("DROP TABLE planets")


def test_an_event_that_comes_again_changes_nothing(platform: Platform) -> None:
    one = command("COUNTRY", {"AT": A})
    other = command("COUNTRY", {"AT": B})
    assert platform.statuses(one, one, other, one) == [
        ("COMMITTED", 1, None), ("COMMITTED", 1, None), ("COMMITTED", 2, None), ("COMMITTED", 1, None)
    ]  # fmt: skip
    assert platform.statuses(one) == [("COMMITTED", 1, None)]
    assert platform.countries() == {"AT": "Belgium"}
    assert len(platform.announcements()) == 2


def test_another_command_under_the_same_id_is_refused_and_the_first_one_stays(platform: Platform) -> None:
    one = command("COUNTRY", {"AT": A})
    thief = command("COUNTRY", {"AT": B}, eventId=str(one.event_id))
    elsewhere = command("NOTES", {"AT": B}, eventId=str(one.event_id))
    assert platform.statuses(one, thief) == [("COMMITTED", 1, None), ("FAILED", None, "EVENT_ID_REUSED")]
    assert platform.statuses(thief, elsewhere, one) == [
        ("FAILED", None, "EVENT_ID_REUSED"), ("FAILED", None, "EVENT_ID_REUSED"), ("COMMITTED", 1, None)
    ]  # fmt: skip
    assert platform.countries() == {"AT": "Austria"}
    assert platform.notes() == {}


def test_another_tenants_event_of_the_same_id_is_another_event(platform: Platform) -> None:
    one = command("COUNTRY", {"AT": A})
    theirs = command("COUNTRY", {"AT": B}, eventId=str(one.event_id), tenantId="tenant-b")
    assert platform.statuses(one, theirs) == [("COMMITTED", 1, None), ("COMMITTED", 1, None)]
    assert (platform.countries(), platform.countries("tenant-b")) == ({"AT": "Austria"}, {"AT": "Belgium"})


@pytest.mark.parametrize("together", [True, False])
def test_a_stale_revision_is_refused(together: bool, platform: Platform) -> None:
    ones = [
        command("COUNTRY", {"AT": A}, sourceRevision=5),
        command("COUNTRY", {"AT": B}, sourceRevision=5),
        command("COUNTRY", {"AT": B}, sourceRevision=4),
        command("COUNTRY", {"BE": B}),
        command("COUNTRY", {"AT": C}, sourceRevision=6),
    ]
    expected = [
        ("COMMITTED", 1, None), ("FAILED", None, "STALE_REVISION"), ("FAILED", None, "STALE_REVISION"),
        ("COMMITTED", 2, None), ("COMMITTED", 3, None),
    ]  # fmt: skip
    found = platform.statuses(*ones) if together else [platform.statuses(one)[0] for one in ones]
    assert found == expected
    assert platform.countries() == {"AT": "Chile", "BE": "Belgium"}


def test_a_command_that_is_refused_takes_no_other_with_it(platform: Platform) -> None:
    bad = command("COUNTRY", {"AT": A, "XX": {"name": "Atlantis"}})
    found = platform.apply(command("COUNTRY", {"BE": B}), bad, command("COUNTRY", {"CL": C}))
    assert [(one.status, one.version, one.error_code) for one in found] == [
        ("COMMITTED", 1, None), ("FAILED", None, "ITEM_REFUSED"), ("COMMITTED", 2, None)
    ]  # fmt: skip
    assert "XX" in str(found[1].sentence) and "mdm_country" in str(found[1].sentence)
    assert platform.countries() == {"BE": "Belgium", "CL": "Chile"}
    assert [one["version"] for one in platform.announcements()] == [1, 2]
    assert platform.statuses(bad) == [("FAILED", None, "ITEM_REFUSED")]


def test_items_of_one_command_have_their_effect_in_their_order(platform: Platform) -> None:
    items: list[Any] = [
        {"key": "k", "op": "UPSERT", "payload": A}, {"key": "k", "op": "DELETE"},
        {"key": "k", "op": "UPSERT", "payload": B}, {"key": "l", "op": "UPSERT", "payload": A},
        {"key": "l", "op": "DELETE"},
    ]  # fmt: skip
    platform.apply(command("COUNTRY", items), command("NOTES", items))
    assert platform.countries() == {"k": "Belgium"}
    assert platform.notes() == {"k": B}


@pytest.mark.parametrize(
    ("code", "members"),
    [
        ("LAWS", {}),
        ("LAWS", {"eventType": "SNAPSHOT"}),
        ("OLD", {}),
        ("NEVER", {}),
    ],
)
def test_what_a_dictionary_does_not_take_is_refused(
    code: str, members: dict[str, str], platform: Platform
) -> None:
    expected = "READ_ONLY_DICTIONARY" if code == "LAWS" else "UNKNOWN_DICTIONARY"
    assert platform.statuses(command(code, {"x": {}}, **members)) == [("FAILED", None, expected)]


def test_sql_that_does_not_run_fails_its_command_and_says_so(platform: Platform) -> None:
    text = platform.config.read_text().replace("insert into mdm_country(", "insert into no_such_table(")
    platform.config.write_text(text)
    assert platform.services.live.reload()
    [found] = platform.apply(command("COUNTRY", {"AT": A}))
    assert (found.error_code, "no_such_table" in str(found.sentence)) == ("TEMPLATE_FAILED", True)


@pytest.mark.parametrize("alone", [True, False])
def test_a_mistake_of_ours_refuses_its_command_and_no_other(
    alone: bool, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PostgresSqlProvider.apply_deltas

    def apply_deltas(self: PostgresSqlProvider, conn: Any, deltas: Sequence[Numbered]) -> None:
        if any(one.items[0].key == "broken" for one, _ in deltas):
            raise KeyError("broken")
        real(self, conn, deltas)

    monkeypatch.setattr(PostgresSqlProvider, "apply_deltas", apply_deltas)
    ones = [command("COUNTRY", {"broken": A}), *([] if alone else [command("COUNTRY", {"BE": B})])]
    found = platform.statuses(*ones)
    assert found == [("FAILED", None, "INTERNAL_ERROR"), *([] if alone else [("COMMITTED", 1, None)])]
    assert platform.countries() == ({} if alone else {"BE": "Belgium"})


# -- snapshots


@pytest.mark.parametrize("code", ["COUNTRY", "CURRENCY", "NOTES"])
def test_a_snapshot_replaces_everything_whatever_the_order_of_its_chunks(
    code: str, platform: Platform
) -> None:
    there = {"COUNTRY": platform.countries, "CURRENCY": platform.currencies, "NOTES": platform.notes}[code]
    parts: list[dict[str, Any]] = [
        {"AAA": {"name": "a", "digits": 1}},
        {"BBB": {"name": "b", "digits": 2}, "CCC": {"name": "c", "digits": 3}},
        {},
    ]
    platform.apply(command(code, {"OLD": {"name": "old", "digits": 0}, "AAA": {"name": "x", "digits": 9}}))
    for version, order in enumerate(itertools.permutations((1, 2, 3)), start=2):
        snapshot_id = str(uuid.uuid4())
        before = there()
        ones = [chunk(code, snapshot_id, index, 3, parts[index - 1]) for index in order]
        for one in ones[:2]:
            assert platform.statuses(one, one) == [("PENDING", None, None)] * 2
            assert there() == before
        assert platform.statuses(ones[2]) == [("COMMITTED", version, None)]
        assert sorted(there()) == ["AAA", "BBB", "CCC"]
        assert platform.statuses(*ones) == [("COMMITTED", version, None)] * 3
    last = platform.announcements(second=code == "CURRENCY")
    assert [one["version"] for one in last] == list(range(1, 8))


def test_snapshots_that_come_at_once_do_not_mix(platform: Platform) -> None:
    one, other = str(uuid.uuid4()), str(uuid.uuid4())
    ones = [
        chunk("NOTES", one, 1, 2, {"a": {"of": 1}}), chunk("NOTES", other, 2, 2, {"b": {"of": 2}}),
        command("NOTES", {"c": {"of": 0}}), chunk("NOTES", other, 1, 2, {"a": {"of": 2}}),
        chunk("NOTES", one, 2, 2, {"d": {"of": 1}}),
    ]  # fmt: skip
    assert [status[1] for status in platform.statuses(*ones)] == [None, None, 1, 2, 3]
    assert platform.notes() == {"a": {"of": 1}, "d": {"of": 1}}


@pytest.mark.parametrize(
    ("second", "code"),
    [
        ({"items": {"b": {}}, "index": 1}, "CHUNK_CONFLICT"),
        ({"items": {"b": {}}, "index": 2, "total": 3}, "SNAPSHOT_MISMATCH"),
        ({"items": {"b": {}}, "index": 2, "sourceRevision": 8}, "SNAPSHOT_MISMATCH"),
        ({"items": {"a": {}}, "index": 2}, "DUPLICATE_KEY"),
    ],
)
def test_a_chunk_that_does_not_fit_is_refused_and_the_snapshot_can_still_be_whole(
    second: dict[str, Any], code: str, platform: Platform
) -> None:
    snapshot_id = str(uuid.uuid4())
    platform.apply(chunk("NOTES", snapshot_id, 1, 2, {"a": {}}, sourceRevision=7))
    members = {"sourceRevision": 7} | {
        name: value for name, value in second.items() if name == "sourceRevision"
    }
    wrong = chunk("NOTES", snapshot_id, second["index"], second.get("total", 2), second["items"], **members)
    assert platform.statuses(wrong) == [("FAILED", None, code)]
    assert platform.notes() == {}
    right = chunk("NOTES", snapshot_id, 2, 2, {"z": {}}, sourceRevision=7)
    assert platform.statuses(right) == [("COMMITTED", 1, None)]
    assert platform.notes() == {"a": {}, "z": {}}


def test_a_snapshot_that_is_overtaken_by_a_newer_revision_is_stale(platform: Platform) -> None:
    snapshot_id = str(uuid.uuid4())
    assert platform.statuses(
        chunk("NOTES", snapshot_id, 1, 2, {"a": {}}, sourceRevision=7),
        command("NOTES", {"b": {}}, sourceRevision=8),
        chunk("NOTES", snapshot_id, 2, 2, {"c": {}}, sourceRevision=7),
    ) == [("PENDING", None, None), ("COMMITTED", 1, None), ("FAILED", None, "STALE_REVISION")]
    assert platform.notes() == {"b": {}}


def test_a_snapshot_that_is_never_whole_expires_and_its_requests_fail(platform: Platform) -> None:
    db = platform.services.databases["postgres"]
    one = chunk("NOTES", str(uuid.uuid4()), 1, 2, {"a": {}})
    store.add_request(db, one, content=one.encoded(), digest=one.digest, awaited=False, traceparent=None)
    platform.apply(one)
    assert store.expire_snapshots(db, 60) == []
    platform.sql("UPDATE refdata.snapshot SET updated_at = now() - interval '61 s'")
    assert [row.snapshot_id for row in store.expire_snapshots(db, 60)] == [
        one.chunk and one.chunk.snapshot_id
    ]
    request = store.request(db, TENANT, one.event_id)
    assert (request.status, request.error_code) == ("FAILED", "SNAPSHOT_EXPIRED")
    assert platform.sql("SELECT count(*) FROM refdata.snapshot_chunk") == [(0,)]
    assert platform.statuses(one) == [("FAILED", None, "SNAPSHOT_EXPIRED")]


# -- requests


def test_a_request_has_the_end_of_its_own_command(platform: Platform) -> None:
    db = platform.services.databases["postgres"]
    mine = command("COUNTRY", {"AT": A})
    other = command("COUNTRY", {"AT": B}, eventId=str(mine.event_id), source="KAFKA")
    added = store.add_request(
        db, mine, content=mine.encoded(), digest=mine.digest, awaited=False, traceparent=None
    )
    assert (added.added, added.status) == (True, "PENDING")
    platform.apply(other)  # it came first, and has nothing to do with the request
    assert store.request(db, TENANT, mine.event_id).status == "PENDING"
    platform.apply(mine)
    request = store.request(db, TENANT, mine.event_id)
    assert (request.status, request.error_code, request.committed_version) == (
        "FAILED",
        "EVENT_ID_REUSED",
        None,
    )


def test_whole_snapshots_end_the_requests_of_every_chunk(platform: Platform) -> None:
    db = platform.services.databases["postgres"]
    snapshot_id = str(uuid.uuid4())
    ones = [chunk("NOTES", snapshot_id, index, 3, {str(index): {}}) for index in (1, 2, 3)]
    for one in ones:
        store.add_request(db, one, content=one.encoded(), digest=one.digest, awaited=False, traceparent=None)
    platform.apply(*ones[:2])
    assert {store.request(db, TENANT, one.event_id).status for one in ones} == {"PENDING"}
    platform.apply(ones[2])
    requests = [store.request(db, TENANT, one.event_id) for one in ones]
    assert {(one.status, one.committed_version) for one in requests} == {("COMMITTED", 1)}
    assert platform.sql("SELECT count(*) FROM refdata.update_request WHERE command IS NOT NULL") == [(0,)]


@pytest.mark.parametrize("seed", range(3))
def test_any_deliveries_end_in_the_tables_of_one_delivery_in_order(seed: int, platform: Platform) -> None:
    """Commands of three dictionaries, delivered at random sizes and over and over: as if each came once."""
    source = random.Random(seed)
    ones = [
        command(
            source.choice(["COUNTRY", "NOTES", "CURRENCY"]),
            {source.choice("ABC") * 3: source.choice([None, {"name": str(index), "digits": index}])},
        )
        for index in range(60)
    ]
    expected: dict[str, dict[str, Any]] = {"COUNTRY": {}, "NOTES": {}, "CURRENCY": {}}
    for one in ones:
        for item in one.items:
            expected[one.dict_code].pop(item.key, None)
            if item.payload is not None:
                expected[one.dict_code][item.key] = item.payload
    at = 0
    while at < len(ones):
        size = source.randrange(1, 15)
        platform.apply(*ones[max(0, at - source.randrange(0, 10)) : at + size])  # the last ones come again
        at += size
    assert set(platform.countries()) == set(expected["COUNTRY"])
    assert set(platform.notes()) == set(expected["NOTES"])
    assert set(platform.currencies()) == set(expected["CURRENCY"])
    for code, second in (("COUNTRY", False), ("NOTES", False), ("CURRENCY", True)):
        versions = [
            one["version"] for one in platform.announcements(second=second) if one["dictCode"] == code
        ]
        assert versions == list(range(1, sum(one.dict_code == code for one in ones) + 1))
