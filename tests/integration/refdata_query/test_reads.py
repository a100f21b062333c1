"""What is answered to whom asks for an entry, for some, for all, for the version, or for each new version."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import resource
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from app.refdata import commands
from tests import patience
from tests.integration.refdata.platform import chunk
from tests.integration.refdata_query.conftest import SHELF, Pods
from tests.integration.refdata_query.serving import Serving, World, new_tenant, place
from tests.integration.refdata_query.wire import Answer
from tests.integration.threads import wait_until

LARGEST = 2**63 - 1
JSON = "application/json"


def item(key: str, tenant: str = "shelf") -> str:
    return place(tenant, f"items/{quote(key, safe='')}")


def items(*keys: str, tenant: str = "shelf") -> str:
    return place(tenant, "items?keys=" + ",".join(quote(key, safe="") for key in keys))


def everything(serving: Serving, tenant: str, code: str = "NOTES") -> dict[str, Any]:
    found: dict[str, Any] = serving.get(place(tenant, "all", code=code)).json["items"]
    return found


# -- an entry, some, all


def test_an_entry_is_its_payload(serving: Serving, shelf: str, world: World) -> None:
    answer = serving.get(item("k42"))
    assert (answer.status, answer.body, answer["Content-Type"]) == (200, b'{"n": 42}', JSON)
    assert (answer.version, answer["X-Dict-Epoch"]) == (1, world.epoch())
    assert answer["X-Data-Source"] == "memory"
    assert answer["Cache-Control"] == "no-cache"


def test_every_answer_says_what_it_is_of(serving: Serving, shelf: str, world: World) -> None:
    for rest in ("items/k1", "items/none", "items?keys=k1", "all", "all?limit=5", "version", "watch"):
        answer = serving.head(place("shelf", rest))
        told = (answer.version, answer["X-Dict-Epoch"], answer["X-Data-Source"])
        assert told == (1, world.epoch(), "memory"), rest
        assert answer.status == 404 or answer["Cache-Control"] == "no-cache", rest
        if rest.startswith(("items", "all")):
            assert (answer["ETag"] is None) == (answer.status == 404), rest


def test_an_entry_that_is_not_there_is_told_with_the_version_that_lacks_it(
    serving: Serving, shelf: str, world: World
) -> None:
    answer = serving.get(item("none"))
    assert answer.refusal == (404, "UNKNOWN_KEY")
    told = (answer.version, answer["X-Dict-Epoch"], answer["X-Data-Source"])
    assert told == (1, world.epoch(), "memory")
    assert answer["ETag"] is None


def test_some_entries_are_in_the_order_asked_each_once(serving: Serving, shelf: str) -> None:
    answer = serving.get(items("k7", "zz", "k3", "k7", "aa", "k30", "zz"))
    assert (answer.status, answer["Content-Type"]) == (200, JSON)
    assert answer.json == {
        "version": 1, "items": {"k7": {"n": 7}, "k3": {"n": 3}, "k30": {"n": 30}}, "missing": ["zz", "aa"],
    }  # fmt: skip
    assert list(answer.json["items"]) == ["k7", "k3", "k30"]


def test_several_lists_of_keys_add_up(serving: Serving, shelf: str) -> None:
    answer = serving.get(place("shelf", "items?keys=k5,k1&keys=k1&keys=k9,none"))
    assert list(answer.json["items"]) == ["k5", "k1", "k9"]
    assert answer.json["missing"] == ["none"]


@pytest.mark.parametrize(("count", "status"), [(1, 200), (1000, 200), (1001, 400)])
def test_at_most_a_thousand_keys_are_asked_for(count: int, status: int, serving: Serving, shelf: str) -> None:
    answer = serving.get(items(*(f"k{n}" for n in range(count))))
    assert answer.status == status
    if status == 200:
        assert len(answer.json["items"]) + len(answer.json["missing"]) == count
    else:
        assert answer.code == "too_many_keys"


def test_all_is_all_in_the_order_of_bytes(serving: Serving, world: World, tenant: str) -> None:
    keys = ["b", "a", "ä", "Z", "aa", "a-", "10", "9", "\uffee", "😀", "ß", "_"]  # UTF-16 has another order
    version = world.write(tenant, {key: {"key": key} for key in keys})
    serving.await_version(tenant, version)
    answer = serving.get(place(tenant, "all"))
    assert (answer.status, answer["Content-Type"]) == (200, JSON)
    assert list(answer.json) == ["version", "items"]
    assert answer.json["version"] == answer.version == version
    assert list(answer.json["items"]) == sorted(keys, key=str.encode)
    assert answer.json["items"] == {key: {"key": key} for key in keys}


def test_whoever_never_wrote_has_an_empty_dictionary_of_version_0(
    serving: Serving, world: World, tenant: str
) -> None:
    answer = serving.get(place(tenant, "all"))
    assert (answer.status, answer.json) == (200, {"version": 0, "items": {}})
    assert (answer.version, answer["X-Dict-Epoch"]) == (0, world.epoch())
    assert serving.get(item("k1", tenant)).refusal == (404, "UNKNOWN_KEY")
    assert serving.get(items("k1", tenant=tenant)).json == {"version": 0, "items": {}, "missing": ["k1"]}
    told = serving.get(place(tenant)).json
    assert (told["version"], told["items"]) == (0, 0)


def test_the_version_is_told(serving: Serving, world: World, shelf: str) -> None:
    answer = serving.get(place("shelf"))
    told = json.loads(answer.body)
    age = told.pop("ageSeconds")
    assert re.fullmatch("[0-9a-f]{16}", told.pop("checksum"))
    assert told == {
        "tenantId": "shelf", "dictCode": "NOTES", "version": 1, "epoch": world.epoch(), "items": 100,
        "source": "memory",
    }  # fmt: skip
    assert isinstance(age, int | float) and 0 <= age < 60
    assert (answer.version, answer["X-Dict-Epoch"]) == (1, world.epoch())
    assert (answer["X-Data-Source"], answer["Content-Type"]) == ("memory", JSON)


def test_dictionaries_are_read_wherever_their_tables_are(serving: Serving, world: World, tenant: str) -> None:
    world.write(tenant, {"AT": {"name": "Austria"}, "BE": {"name": "Belgium"}}, code="COUNTRY")
    world.write(tenant, {"EUR": {"name": "Euro", "digits": 2}}, code="CURRENCY")
    for code in ("COUNTRY", "CURRENCY"):
        serving.await_version(tenant, 1, code=code)
    euro = serving.get(place(tenant, "items/EUR", code="CURRENCY"))
    assert euro.body == b'{"name": "Euro", "digits": 2}'  # the order of jsonb
    assert euro["X-Dict-Epoch"] == world.epoch(second=True) != world.epoch()
    countries = everything(serving, tenant, "COUNTRY")
    assert {key: one["name"] for key, one in countries.items()} == {"AT": "Austria", "BE": "Belgium"}


@pytest.mark.parametrize("code", ["NOTES", "CURRENCY"])  # which load all, and what has changed
def test_every_kind_of_change_is_seen(code: str, serving: Serving, world: World, tenant: str) -> None:
    def entry(n: int) -> dict[str, Any]:
        return {"name": f"name {n}", "digits": n}

    def sees(version: int, expected: dict[str, int]) -> None:
        serving.await_version(tenant, version, code=code)
        answer = serving.get(place(tenant, "all", code=code))
        assert answer.version == version
        assert {key.strip(): one["digits"] for key, one in answer.json["items"].items()} == expected

    sees(world.write(tenant, {"AAA": entry(1), "BBB": entry(2)}, code=code), {"AAA": 1, "BBB": 2})
    sees(world.write(tenant, {"BBB": entry(3), "CCC": entry(4)}, code=code), {"AAA": 1, "BBB": 3, "CCC": 4})
    sees(world.write(tenant, {"AAA": None, "CCC": entry(5)}, code=code), {"BBB": 3, "CCC": 5})
    snapshot = chunk(code, str(uuid.uuid4()), 1, 1, {"CCC": entry(6), "DDD": entry(7)}, tenantId=tenant)
    version = world.take(snapshot)
    world.announce()
    sees(version, {"CCC": 6, "DDD": 7})
    sees(world.write(tenant, {"EEE": entry(8)}, code=code), {"CCC": 6, "DDD": 7, "EEE": 8})
    assert serving.get(place(tenant, "items/BBB", code=code)).refusal == (404, "UNKNOWN_KEY")


# -- keys


KEYS = {
    # key as it is            in an address
    "a": "a",
    "a b": "a%20b",
    "a+b": "a+b",  # a plus is a plus: addresses are no forms
    "a/b": "a%2Fb",
    "a,b": "a%2Cb",
    "a%b": "a%25b",
    "a%2Fb": "a%252Fb",
    "a?b": "a%3Fb",
    "a#b": "a%23b",
    "a&b=c": "a%26b%3Dc",
    "a;b": "a;b",
    '"': "%22",
    '","x":"': "%22%2C%22x%22:%22",
    "\\": "%5C",
    '\\"': "%5c%22",
    "'": "'",
    ".": ".",
    "..": "..",
    "...": "%2e%2E%2e",
    "../../k1": "..%2F..%2Fk1",
    "~!$'()*:@": "~!$'()*:@",
    "\u00e9": "%C3%A9",
    "e\u0301": "e%CC%81",  # it looks the same, and is another key
    "中文": "%E4%B8%AD%E6%96%87",
    "😀": "%F0%9F%98%80",
    "👩\u200d👩": "%F0%9F%91%A9%E2%80%8D%F0%9F%91%A9",
    "\U0010ffff": "%F4%8F%BF%BF",
    "\ufeff": "%EF%BB%BF",
    "\u2028": "%E2%80%A8",
    " ": "%20",
    "\t": "%09",
    "\r\nX-Evil: 1": "%0D%0AX-Evil:%201",
    "\x01\x7f": "%01%7F",
    "null": "null",
    "items": "items",
    "x" * 1024: "x" * 1024,
    "é" * 512: "%C3%A9" * 512,
}


@pytest.fixture(scope="module")
def keyed(world: World) -> str:
    """A tenant with an entry for each of these keys, some of which no command would be let in with."""
    tenant = "keyed"
    rows = world.platform.sql(f"SELECT 1 FROM refdata.dictionary_item WHERE tenant_id = '{tenant}' LIMIT 1")
    if not rows:
        for n, key in enumerate(KEYS):
            text = f"convert_from('\\x{key.encode().hex()}', 'UTF8')"
            world.platform.sql(
                "INSERT INTO refdata.dictionary_item"
                f" VALUES ('{tenant}', 'NOTES', {text}, jsonb_build_object('of', {text}, 'n', {n}),"
                " false, now())"
            )
        world.write(tenant, {"last": {}})
    return tenant


@pytest.mark.parametrize("key", KEYS)
def test_a_key_may_be_anything(key: str, serving: Serving, keyed: str) -> None:
    serving.await_version(keyed, 1)
    answer = serving.get(place(keyed, f"items/{KEYS[key]}"))
    assert (answer.status, answer.json["of"]) == (200, key), answer
    assert all(name.lower() != "x-evil" for name, _ in answer.headers)
    some = serving.get(place(keyed, f"items?keys={KEYS[key]}"))
    assert some.json["missing"] == []
    assert list(some.json["items"]) == [key]
    assert some.json["items"][key]["of"] == key


def test_all_has_each_of_these_keys(serving: Serving, keyed: str) -> None:
    serving.await_version(keyed, 1)
    found = everything(serving, keyed)
    as_json = {key: json.dumps(key, ensure_ascii=False).encode() for key in (*KEYS, "last")}
    assert list(found) == sorted(as_json, key=as_json.__getitem__)
    assert all(found[key]["of"] == key for key in KEYS)
    pages = list(pages_of(serving, keyed, 1))
    assert [key for page in pages for key in page.json["items"]] == list(found)


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key_is_told_as_it_was_asked(key: str, serving: Serving, shelf: str) -> None:
    answer = serving.get(place("shelf", f"items?keys={KEYS[key]}"))
    assert answer.json == {"version": 1, "items": {}, "missing": [key]}


NO_KEYS = {
    "nothing": "",
    "a percent sign": "%",
    "half a byte": "%4",
    "no hexadecimal": "%GG",
    "a number in Unicode": "%u0041",
    "a percent sign at the end": "abc%",
    "a continuation alone": "%80",
    "half a character": "%E2%82",
    "no UTF-8 at all": "%FF",
    "an overlong slash": "%C0%AF",
    "an overlong NUL": "%C0%80",
    "half a surrogate pair": "%ED%A0%80",
    "beyond Unicode": "%F4%90%80%80",
    "Latin-1": "caf%E9",
    "1,025 bytes": "x" * 1025,
    "1,026 bytes in 513 characters": "%C3%A9" * 513,
}


@pytest.mark.parametrize("case", NO_KEYS)
def test_what_is_no_key_is_refused(case: str, serving: Serving, shelf: str) -> None:
    key = NO_KEYS[case]
    assert serving.get(place("shelf", f"items/{key}")).refusal == (400, "invalid_key")
    assert serving.get(place("shelf", f"items?keys={key}")).refusal == (400, "invalid_key")
    assert serving.get(place("shelf", f"items?keys=k1,{key}")).refusal == (400, "invalid_key")
    assert serving.get(place("shelf", f"items?keys={key},k1")).refusal == (400, "invalid_key")


def test_a_key_with_a_nul_is_a_key_that_is_not_there(serving: Serving, shelf: str) -> None:
    assert serving.get(place("shelf", "items/k1%00")).refusal == (404, "UNKNOWN_KEY")
    assert serving.get(place("shelf", "items?keys=k1%00,k1")).json["missing"] == ["k1\x00"]


def test_bytes_beyond_ascii_in_an_address_are_no_key(serving: Serving, shelf: str) -> None:
    for target in (place("shelf", "items/"), place("shelf", "items?keys=")):
        with serving.wire() as wire:
            wire.send(serving.request(target.encode() + "é".encode()))
            assert wire.answer().status == 400


# -- payloads


PAYLOADS = {
    "empty": "{}",
    "numbers": '{"a": 1.10, "b": 1e3, "c": 123456789012345678901234567890, "d": 0.1, "e": -0.0, "f": 1.0}',
    "beyond floats": '{"a": 1e400, "b": 1E-400, "c": 9007199254740993, "d": 3.1415926535897932384626}',
    "escapes": r'{"a": "\"\\\/\b\f\n\r\t", "b": "\u00e9\u2028\u007f\u0001", "c": "\ud83d\ude00"}',
    "what ends a script": '{"a": "</script><!-- &amp; --> \' "}',
    "keys in another order": '{"zz": 1, "b": {"y": 1, "x": [1, 2, {}, [], null]}, "a": true}',
    "keys that are odd": r'{"": 1, "\"": 2, "version": 3, "items": {"k": 4}, "missing": []}',
    "a text": '"text"',
    "a number": "12.50",
    "false": "false",
    "an array": '[1, "2", null, {"a": []}]',
    "deep": '{"a": ' * 60 + "1" + "}" * 60,
    "long": json.dumps({"a": "ü" * 100_000}),
}


@pytest.fixture(scope="module")
def stored(world: World) -> tuple[str, dict[str, str]]:
    """A tenant with each of these payloads, and the database's own text of them."""
    tenant = new_tenant()
    raw = ",".join(
        f'{{"key": {json.dumps(key)}, "op": "UPSERT", "payload": {text}}}' for key, text in PAYLOADS.items()
    )
    body = (
        f'{{"eventId": "{uuid.uuid4()}", "tenantId": "{tenant}", "source": "REST", "dictCode": "NOTES",'
        f' "eventType": "DELTA", "items": [{raw}]}}'
    )
    world.take(commands.decode(body.encode(), now=datetime.now(UTC)))
    world.announce()
    found = world.stored(tenant)
    assert set(found) == set(PAYLOADS)
    return tenant, found


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_is_as_the_database_has_it(
    name: str, serving: Serving, stored: tuple[str, dict[str, str]]
) -> None:
    tenant, texts = stored
    serving.await_version(tenant, 1)
    assert serving.get(item(name, tenant)).body == texts[name].encode()
    member = json.dumps(name).encode() + b":" + texts[name].encode()
    assert (
        serving.get(items(name, tenant=tenant)).body
        == b'{"version":1,"items":{' + member + b'},"missing":[]}'
    )
    assert member in serving.get(place(tenant, "all")).body


def test_numbers_keep_every_digit(serving: Serving, stored: tuple[str, dict[str, str]]) -> None:
    tenant, _ = stored
    serving.await_version(tenant, 1)
    assert b'"a": 1.10' in serving.get(item("numbers", tenant)).body
    assert b"123456789012345678901234567890" in serving.get(place(tenant, "all")).body
    assert b"1" + b"0" * 400 in serving.get(item("beyond floats", tenant)).body


# -- pages


def pages_of(serving: Serving, tenant: str, limit: int) -> Iterator[Answer]:
    target = place(tenant, f"all?limit={limit}")
    while target:
        page = serving.get(target)
        assert page.status == 200, page
        assert set(page.json) == {"version", "items", "next"}
        assert page.json["version"] == page.version
        yield page
        cursor = page.json["next"]
        target = (
            place(tenant, f"all?limit={limit}&after={quote(cursor, safe='')}") if cursor is not None else ""
        )


@pytest.mark.parametrize("limit", [1, 7, 50, 99, 100, 101, 100_000])
def test_all_pages_are_the_whole(limit: int, serving: Serving, shelf: str) -> None:
    pages = [page.json["items"] for page in pages_of(serving, shelf, limit)]
    assert [key for page in pages for key in page] == sorted(SHELF)
    assert {key: value for page in pages for key, value in page.items()} == SHELF
    assert all(len(page) == limit for page in pages[:-1])
    assert 0 < len(pages[-1]) <= limit


def test_pages_of_nothing_are_one(serving: Serving, tenant: str) -> None:
    [page] = pages_of(serving, tenant, 10)
    assert page.json == {"version": 0, "items": {}, "next": None}


def test_pages_stay_in_their_version_while_writes_go_on(serving: Serving, world: World, tenant: str) -> None:
    expected = {f"k{n:02}": {"n": n} for n in range(60)}
    serving.await_version(tenant, world.write(tenant, expected))
    found: dict[str, Any] = {}
    for at, page in enumerate(pages_of(serving, tenant, 10)):
        assert page.version == 1
        found |= page.json["items"]
        # Before, within and behind where the reader is; as many versions as are kept for sure.
        change = {"k00": {"n": -at}, f"k{at}1": None, "k59": {"n": -at}, f"z{at}": {}}
        serving.await_version(tenant, world.write(tenant, change))
    assert found == expected
    assert [page.version for page in pages_of(serving, tenant, 10)] == [7] * 6


def test_a_page_goes_on_in_the_version_of_its_cursor_whatever_else_is_asked(
    serving: Serving, world: World, tenant: str
) -> None:
    serving.await_version(tenant, world.write(tenant, {key: {"n": 1} for key in "abcdef"}))
    first = serving.get(place(tenant, "all?limit=2"))
    serving.await_version(tenant, world.write(tenant, {key: {"n": 2} for key in "abcdef"}))
    rest = serving.get(place(tenant, f"all?limit=100&after={quote(first.json['next'], safe='')}"))
    assert (rest.version, rest.json["next"]) == (1, None)
    assert rest.json["items"] == {key: {"n": 1} for key in "cdef"}


def test_pages_go_on_in_any_process_of_a_pod(pods: Pods, world: World, shelf: str) -> None:
    serving = pods(world, readers=3)
    for _ in range(3):
        assert [len(page.json["items"]) for page in pages_of(serving, shelf, 9)] == [9] * 11 + [1]


def test_a_cursor_of_a_version_that_a_pod_never_had_is_gone_there(
    serving: Serving, pods: Pods, world: World, tenant: str
) -> None:
    serving.await_version(tenant, world.write(tenant, {key: {"n": 1} for key in "abcdef"}))
    cursor = quote(serving.get(place(tenant, "all?limit=2")).json["next"], safe="")
    serving.await_version(tenant, world.write(tenant, {"a": {"n": 2}}))
    younger = pods(world, profile=serving.profile)
    assert younger.get(place(tenant, f"all?after={cursor}")).refusal == (410, "VERSION_GONE")


# -- an exact version


def test_the_last_eight_versions_are_kept(serving: Serving, world: World, tenant: str) -> None:
    for n in range(1, 13):
        serving.await_version(tenant, world.write(tenant, {"a": {"n": n}, f"k{n}": {}}))
    for n in range(5, 13):
        one = serving.get(item("a", tenant) + f"?version={n}")
        assert (one.status, one.version, one.json) == (200, n, {"n": n})
        some = serving.get(items("a", f"k{n}", f"k{n + 1}", tenant=tenant) + f"&version={n}")
        assert some.json == {"version": n, "items": {"a": {"n": n}, f"k{n}": {}}, "missing": [f"k{n + 1}"]}
        whole = serving.get(place(tenant, f"all?version={n}"))
        assert (whole.version, len(whole.json["items"])) == (n, n + 1)
    for n in range(1, 5):
        old = serving.get(item("a", tenant) + f"?version={n}")
        assert old.status == 410 or (old.version, old.json) == (n, {"n": n})
    assert len({serving.get(item("a", tenant) + f"?version={n}")["ETag"] for n in range(5, 13)}) == 8


def test_a_version_that_is_not_kept_is_gone(serving: Serving, pods: Pods, world: World, tenant: str) -> None:
    for n in range(3):
        world.write(tenant, {"a": {"n": n}})
    younger = pods(world, profile=serving.profile)
    for rest in ("items/a?version=2", "items?keys=a&version=2", "all?version=1", "version?version=2"):
        assert younger.get(place(tenant, rest)).refusal == (410, "VERSION_GONE")
    assert younger.get(place(tenant, "items/a?version=3")).json == {"n": 2}


# -- ETag


def test_the_tag_is_of_the_version(serving: Serving, world: World, tenant: str) -> None:
    tags = []
    for n in range(3):
        serving.await_version(tenant, world.write(tenant, {"a": {"n": n}, "b": {}}))
        found = {
            serving.get(target)["ETag"]
            for target in (
                item("a", tenant),
                item("b", tenant),
                items("a", "b", tenant=tenant),
                place(tenant, "all"),
            )
        }
        assert len(found) == 1
        tags += found
    assert len(set(tags)) == 3
    assert all(re.fullmatch(r'"[!#-~]+"', tag or "") for tag in tags), tags


def test_tenants_with_the_same_version_have_tags_of_their_own(serving: Serving, world: World) -> None:
    tags = []
    for n in range(2):
        tenant = new_tenant()
        serving.await_version(tenant, world.write(tenant, {"a": {"n": n}}))
        tags.append(serving.get(item("a", tenant))["ETag"])
    assert tags[0] != tags[1]


MATCHES = {
    # If-None-Match, with the tag for {}       matches
    "{}": True,
    "W/{}": True,
    "*": True,
    '"other", {}': True,
    '"other",W/{} , "more"': True,
    '"with, comma", {}': True,
    '"other"': False,
    'W/"other"': False,
    '"other", "more"': False,
    "": False,
}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("rest", ["items/k1", "items?keys=k1,none", "all", "all?limit=3"])
@pytest.mark.parametrize("wanted", MATCHES)
def test_what_is_known_already_is_not_sent_again(
    wanted: str, rest: str, method: str, serving: Serving, shelf: str, world: World
) -> None:
    target = place("shelf", rest)
    whole = serving.get(target)
    answer = serving.get(target, method=method, If_None_Match=wanted.format(whole["ETag"]))
    assert answer.status == (304 if MATCHES[wanted] else 200)
    assert answer.body == (whole.body if answer.status == 200 and method == "GET" else b"")
    for name in ("ETag", "X-Dict-Version", "X-Dict-Epoch", "X-Data-Source", "Cache-Control"):
        assert answer[name] == whole[name] is not None
    assert answer["Vary"] == whole["Vary"]


def test_a_304_has_no_body_behind_it(serving: Serving, shelf: str) -> None:
    with serving.wire() as wire:
        conditional = serving.request(place("shelf", "all"), headers={"If-None-Match": "*"})
        wire.send(conditional * 3 + serving.request(item("k1")))
        assert [wire.answer().status for _ in range(3)] == [304] * 3
        assert wire.answer().body == b'{"n": 1}'


def test_a_tag_does_not_hide_what_is_not_there(serving: Serving, shelf: str) -> None:
    tag = serving.get(item("k1"))["ETag"]
    for known in (tag, "*"):
        assert serving.get(item("none"), If_None_Match=known).refusal == (404, "UNKNOWN_KEY")
        behind = serving.get(item("k1"), If_None_Match=known, X_Min_Version="99")
        assert behind.refusal == (409, "VERSION_NOT_COMMITTED")


def test_a_tag_of_yesterday_is_sent_what_is_new(serving: Serving, world: World, tenant: str) -> None:
    serving.await_version(tenant, world.write(tenant, {"a": {"n": 1}}))
    old = serving.get(item("a", tenant))["ETag"]
    serving.await_version(tenant, world.write(tenant, {"a": {"n": 2}}))
    answer = serving.get(item("a", tenant), If_None_Match=old)
    assert (answer.status, answer.body) == (200, b'{"n": 2}')


# -- gzip


ENCODINGS = {
    # Accept-Encoding            gzip?
    None: False,
    "": False,
    "gzip": True,
    "GZIP": True,
    "gzip, deflate, br, zstd": True,
    "br;q=1.0, gzip;q=0.8, *;q=0.1": True,
    "deflate, gzip;q=1.0": True,
    "gzip;q=0.001": True,
    "gzip ; q=0.5": True,
    "identity;q=0, gzip": True,
    "*;q=0, gzip": True,
    "gzip;q=0": False,
    "gzip;q=0.0, br": False,
    "gzip;q=0.000": False,
    "*;q=0.5, gzip;q=0": False,
    "identity": False,
    "br": False,
    "deflate, br": False,
    "gzipped": False,
    "x-not-gzip": False,
    "identity;q=1, gzip;q=0.5": False,
}


def varies(answer: Answer) -> bool:
    return (answer["Vary"] or "").lower() == "accept-encoding"


@pytest.mark.parametrize("accepted", ENCODINGS)
def test_all_is_compressed_for_whom_takes_it(accepted: str | None, serving: Serving, shelf: str) -> None:
    target = place("shelf", "all")
    plain = serving.get(target)
    answer = serving.get(target, Accept_Encoding=accepted)
    assert answer.status == 200
    assert varies(plain) and varies(answer)
    if ENCODINGS[accepted]:
        assert answer["Content-Encoding"] == "gzip"
        assert gzip.decompress(answer.body) == plain.body
        assert len(answer.body) < len(plain.body)
        assert answer["ETag"] == (plain["ETag"] or "")[:-1] + '-gzip"'
        assert answer["Content-Type"] == JSON
    else:
        assert (answer["Content-Encoding"], answer.body) == (None, plain.body)
        assert answer["ETag"] == plain["ETag"]


def test_several_lines_of_encodings_are_one_list(serving: Serving, shelf: str) -> None:
    with serving.wire() as wire:
        lines = [("Accept-Encoding", "br"), ("Accept-Encoding", "gzip")]
        wire.send(serving.request(place("shelf", "all"), headers=lines))
        assert wire.answer()["Content-Encoding"] == "gzip"


def test_only_all_is_compressed(serving: Serving, shelf: str) -> None:
    for target in (item("k1"), items("k1"), place("shelf")):
        assert serving.get(target, Accept_Encoding="gzip")["Content-Encoding"] is None


def test_what_is_known_is_known_in_its_encoding(serving: Serving, shelf: str) -> None:
    target = place("shelf", "all")
    plain, packed = serving.get(target)["ETag"], serving.get(target, Accept_Encoding="gzip")["ETag"]
    for accepted, tag, status in (
        (None, plain, 304), ("gzip", packed, 304), (None, packed, 200), ("gzip", plain, 200),
        ("gzip", f"{plain}, {packed}", 304), (None, f"W/{packed}, W/{plain}", 304),
    ):  # fmt: skip
        answer = serving.get(target, Accept_Encoding=accepted, If_None_Match=tag)
        assert answer.status == status and varies(answer)
        assert answer["ETag"] == (packed if accepted else plain)
        assert answer["Content-Encoding"] == ("gzip" if accepted and status == 200 else None)


def test_pages_may_be_taken_compressed(serving: Serving, shelf: str) -> None:
    target = place("shelf", "all?limit=50")
    answer = serving.get(target, Accept_Encoding="gzip")
    body = gzip.decompress(answer.body) if answer["Content-Encoding"] else answer.body
    assert body == serving.get(target).body and varies(answer)


def test_a_large_dictionary_is_whole_either_way(serving: Serving, big: str) -> None:
    plain = serving.get(place(big, "all"), seconds=60)
    packed = serving.get(place(big, "all"), seconds=60, Accept_Encoding="gzip")
    assert gzip.decompress(packed.body) == plain.body
    found = json.loads(plain.body)["items"]
    assert len(found) == 80_000
    assert list(found) == sorted(found)
    assert all(found[f"k{n}"]["n"] == n for n in range(80_000))


# -- watching


class Watch:
    """What a watcher is sent, event by event."""

    def __init__(self, serving: Serving, tenant: str, **more: Any) -> None:
        self._wire = serving.wire(seconds=20)
        self._wire.send(serving.request(place(tenant, "watch"), **more))
        self.head, _ = self._wire.head()
        self._text = b""

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: Any) -> None:
        self._wire.socket.close()

    def block(self) -> list[str]:
        """The lines of the next event or comment."""
        while b"\n\n" not in self._text:
            self._text += self._part()
        found, _, self._text = self._text.partition(b"\n\n")
        return found.decode().split("\n")

    def event(self) -> dict[str, Any]:
        """The next version; comments are passed."""
        while True:
            lines = self.block()
            if all(line.startswith(":") for line in lines):
                continue
            fields = dict(line.split(": ", 1) for line in lines)
            assert list(fields) == ["id", "event", "data"], lines
            data = json.loads(fields["data"])
            assert fields["event"] == "version"
            assert set(data) == {"version", "epoch"}
            assert fields["id"] == str(data["version"])
            found: dict[str, Any] = data
            return found

    def is_silent(self, seconds: float) -> bool:
        """Whether there is no version for so long."""
        self._wire.socket.settimeout(seconds)
        try:
            return self.event() is None
        except TimeoutError:
            return True
        finally:
            self._wire.socket.settimeout(20)

    def _part(self) -> bytes:
        if (self.head["Transfer-Encoding"] or "").lower() == "chunked":
            found = self._wire.chunk()
        else:
            found = self._wire.piece()
        assert found, "the watch has ended"
        return found


def test_a_watcher_is_told_the_version_and_each_newer_one(
    serving: Serving, world: World, tenant: str
) -> None:
    world.write(tenant, {"a": {}})
    serving.await_version(tenant, 1)
    with Watch(serving, tenant) as watch:
        assert (watch.head.status, watch.head["Content-Type"]) == (200, "text/event-stream")
        assert watch.head["Content-Length"] is None
        assert watch.event() == {"version": 1, "epoch": world.epoch()}
        for n in range(2, 6):
            world.write(tenant, {"a": {"n": n}})
            begun = time.monotonic()
            assert watch.event() == {"version": n, "epoch": world.epoch()}
            assert time.monotonic() - begun < 1 * patience.PATIENCE
            assert serving.get(item("a", tenant)).json == {"n": n}  # what is told can be read


def test_versions_only_grow_for_a_watcher(serving: Serving, world: World, tenant: str) -> None:
    with Watch(serving, tenant) as watch:
        assert watch.event()["version"] == 0
        writer = threading.Thread(target=lambda: [world.write(tenant, {"a": {"n": n}}) for n in range(40)])
        writer.start()
        seen = [0]
        while seen[-1] < 40:
            seen.append(watch.event()["version"])
        writer.join()
    assert seen == sorted(set(seen))


def test_whoever_comes_back_is_not_told_what_it_knows(serving: Serving, world: World, tenant: str) -> None:
    serving.await_version(tenant, world.write(tenant, {"a": {}}))
    with Watch(serving, tenant, headers={"Last-Event-ID": "1"}) as watch:
        assert watch.is_silent(0.7)
        world.write(tenant, {"b": {}})
        assert watch.event()["version"] == 2
    with Watch(serving, tenant, headers={"Last-Event-ID": "1"}) as watch:
        assert watch.event()["version"] == 2
    with Watch(serving, tenant, headers={"Last-Event-ID": "77"}) as watch:  # of another history
        assert watch.event()["version"] == 2


def test_to_watch_needs_http_1_1(serving: Serving, shelf: str) -> None:
    with serving.wire() as wire:
        wire.send(serving.request(place(shelf, "watch"), protocol="HTTP/1.0"))
        answer = wire.answer()
    assert answer.refusal == (505, "http_version_not_supported")


def test_a_watch_says_every_15_seconds_that_it_lives(serving: Serving, shelf: str) -> None:
    with Watch(serving, shelf) as watch:
        watch.event()
        begun = time.monotonic()
        lines = watch.block()
        assert time.monotonic() - begun < 17 * patience.PATIENCE
        assert all(line.startswith(":") for line in lines)


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may have as many connections as a thousand watchers are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_has_a_thousand_watchers_at_most(many_files: None, serving: Serving, shelf: str) -> None:
    with contextlib.ExitStack() as open_ones:

        def is_let_in() -> bool:
            watch = Watch(serving, shelf)
            if watch.head.status != 200:
                watch.__exit__()
                return False
            open_ones.enter_context(watch)
            return True

        for _ in range(1000):
            wait_until(is_let_in, seconds=20)  # those of other tests may be there still
        refused = serving.get(place(shelf, "watch"))
        assert refused.refusal == (503, "too_many_watchers")
        assert int(refused["Retry-After"] or "") >= 1
        assert serving.get(item("k1")).status == 200


def test_watchers_that_have_gone_are_not_counted(many_files: None, serving: Serving, shelf: str) -> None:
    for _ in range(2):
        with contextlib.ExitStack() as open_ones:
            for _ in range(1000):
                open_ones.enter_context(Watch(serving, shelf))
        wait_until(lambda: serving.head(place(shelf, "watch")).status == 200, seconds=2)


# -- refusals


UNKNOWN_ADDRESSES = [
    "/", "//", "/v1", "/v1/", "/v1/tenants", "/v1/tenants/shelf", "/v1/tenants/shelf/dictionaries",
    "/v1/tenants/shelf/dictionaries/NOTES", "/v1/tenants/shelf/dictionaries/NOTES/",
    place("shelf", "item/k1"), place("shelf", "items/k1/more"), place("shelf", "items/k1/"),
    place("shelf", "all/"), place("shelf", "version/"), place("shelf", "ALL"), place("shelf", "watch/1"),
    "/v2/tenants/shelf/dictionaries/NOTES/all", "/V1/tenants/shelf/dictionaries/NOTES/all",
    "/v1/tenants/shelf/updates", "/v1/tenants//dictionaries/NOTES/more", "/actuator", "/actuator/",
    "/actuator/env", "/actuator/health/", "/actuator/health/nothing", "/actuator/../actuator/health",
    "/metrics", "/favicon.ico",
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("target", UNKNOWN_ADDRESSES)
def test_an_unknown_address_is_told(target: str, method: str, serving: Serving) -> None:
    for authorization in ({}, {"Authorization": None}):  # which says nothing of who asks
        answer = serving.get(target, method=method, **authorization)
        assert answer.status == 404
        assert answer["Content-Type"] == "application/problem+json"
        if method != "HEAD":
            assert answer.code == "not_found"


KNOWN_ADDRESSES = [
    item("k1"), items("k1"), place("shelf", "all"), place("shelf"), place("shelf", "watch"),
    place("shelf", "all", code="NEVER"), "/actuator/health", "/actuator/health/readiness",
    "/actuator/health/liveness", "/actuator/prometheus",
]  # fmt: skip


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("target", KNOWN_ADDRESSES)
def test_there_is_nothing_but_reading(target: str, method: str, serving: Serving) -> None:
    answer = serving.get(target, method=method)
    assert (answer.status, answer["Allow"]) == (405, "GET, HEAD")
    assert answer.code


NO_NUMBERS = [
    "-1", "+1", "1.0", "1e3", "abc", "0x1", "1 2", "1,2", "", "1_000", str(LARGEST + 1), "9" * 100, "NaN",
]  # fmt: skip


@pytest.mark.parametrize("rest", ["items/k1", "items?keys=k1", "all", "version"])
@pytest.mark.parametrize("text", [*NO_NUMBERS, "\xb2", "\xd9\xa1"])
def test_what_is_no_version_is_refused(text: str, rest: str, serving: Serving, shelf: str) -> None:
    answer = serving.get(place("shelf", rest), X_Min_Version=text)
    assert answer.refusal == (400, "invalid_version")


@pytest.mark.parametrize("rest", ["items/k1?", "items?keys=k1&", "all?", "version?"])
@pytest.mark.parametrize("text", [*NO_NUMBERS, "%D9%A1", "%EF%BC%91"])
def test_what_is_no_exact_version_is_refused(text: str, rest: str, serving: Serving, shelf: str) -> None:
    answer = serving.get(place("shelf", f"{rest}version={text.replace(' ', '%20')}"))
    assert answer.refusal == (400, "invalid_version")


def test_two_versions_at_once_are_none(serving: Serving, shelf: str) -> None:
    with serving.wire() as wire:
        lines = [("X-Min-Version", "1"), ("X-Min-Version", "0")]
        wire.send(serving.request(item("k1"), headers=lines))
        assert wire.answer().refusal == (400, "invalid_version")


@pytest.mark.parametrize("text", ["0", "1", str(LARGEST), " 1", "1 "])
def test_what_is_a_version_is_taken(text: str, serving: Serving, shelf: str) -> None:
    answer = serving.get(item("k1"), X_Min_Version=text)
    assert answer.status == (409 if text == str(LARGEST) else 200)


BAD = {
    # what                               target, headers                                     status, code
    "an epoch that is none": (item("k1"), {"X-Min-Version": "1", "X-Dict-Epoch": "x"}, 400, "invalid_epoch"),
    "half an epoch": (item("k1"), {"X-Min-Version": "1", "X-Dict-Epoch": "1234-5678"}, 400, "invalid_epoch"),
    "an empty epoch": (item("k1"), {"X-Min-Version": "1", "X-Dict-Epoch": ""}, 400, "invalid_epoch"),
    "limit 0": (place("shelf", "all?limit=0"), {}, 400, "invalid_limit"),
    "limit 100,001": (place("shelf", "all?limit=100001"), {}, 400, "invalid_limit"),
    "limit -1": (place("shelf", "all?limit=-1"), {}, 400, "invalid_limit"),
    "limit +1": (place("shelf", "all?limit=%2B1"), {}, 400, "invalid_limit"),
    "limit 1.5": (place("shelf", "all?limit=1.5"), {}, 400, "invalid_limit"),
    "limit of letters": (place("shelf", "all?limit=abc"), {}, 400, "invalid_limit"),
    "limit of nothing": (place("shelf", "all?limit="), {}, 400, "invalid_limit"),
    "limit of another script": (place("shelf", "all?limit=%D9%A1"), {}, 400, "invalid_limit"),
    "a cursor of letters": (place("shelf", "all?limit=5&after=abc"), {}, 400, "invalid_cursor"),
    "a cursor of nothing": (place("shelf", "all?limit=5&after="), {}, 400, "invalid_cursor"),
    "a cursor that looks like one": (
        place("shelf", "all?limit=5&after=AAAAAAAAAAAAAAAAAAAAAAAAAAAA"), {}, 400, "invalid_cursor",
    ),
    "a cursor of bytes": (place("shelf", "all?limit=5&after=%FF%00"), {}, 400, "invalid_cursor"),
    "a cursor without end": (place("shelf", f"all?after={'A' * 50_000}"), {}, 400, "invalid_cursor"),
    "no keys at all": (place("shelf", "items"), {}, 400, "invalid_key"),
    "keys of nothing": (place("shelf", "items?keys="), {}, 400, "invalid_key"),
    "keys with a hole": (place("shelf", "items?keys=k1,,k2"), {}, 400, "invalid_key"),
    "keys of commas": (place("shelf", "items?keys=,,"), {}, 400, "invalid_key"),
    "another parameter only": (place("shelf", "items?key=k1"), {}, 400, "invalid_key"),
    "another dictionary": (place("shelf", "items/k1", code="NEVER"), {}, 404, "UNKNOWN_DICTIONARY"),
    "one that is not enabled": (place("shelf", "items/k1", code="OLD"), {}, 404, "UNKNOWN_DICTIONARY"),
    "one in lower case": (place("shelf", "items/k1", code="notes"), {}, 404, "UNKNOWN_DICTIONARY"),
    "one with a blank": (place("shelf", "items/k1", code="NO%20TES"), {}, 404, "UNKNOWN_DICTIONARY"),
    "one with a NUL": (place("shelf", "items/k1", code="NOTES%00"), {}, 404, "UNKNOWN_DICTIONARY"),
    "one of 100 letters": (place("shelf", "items/k1", code="N" * 100), {}, 404, "UNKNOWN_DICTIONARY"),
    "a watch of another dictionary": (place("shelf", "watch", code="NEVER"), {}, 404, "UNKNOWN_DICTIONARY"),
    "the version of another": (place("shelf", "version", code="OLD"), {}, 404, "UNKNOWN_DICTIONARY"),
    "a tenant with a blank": (place("a%20b", "items/k1"), {}, 422, "invalid_request"),
    "a tenant with a slash": (place("a%2Fb", "items/k1"), {}, 422, "invalid_request"),
    "a tenant with a colon": (place("a:b", "items/k1"), {}, 422, "invalid_request"),
    "a tenant of 65 letters": (place("t" * 65, "items/k1"), {}, 422, "invalid_request"),
    "a tenant beyond ASCII": (place("%C3%A9", "items/k1"), {}, 422, "invalid_request"),
    "a tenant that is no UTF-8": (place("%FF", "items/k1"), {}, 422, "invalid_request"),
    "a tenant with a line end": (place("shelf%0A", "items/k1"), {}, 422, "invalid_request"),
    "a version beyond": (item("k1"), {"X-Min-Version": "2"}, 409, "VERSION_NOT_COMMITTED"),
    "an exact version beyond": (item("k1") + "?version=2", {}, 409, "VERSION_NOT_COMMITTED"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_refusal_says_why(case: str, serving: Serving, shelf: str) -> None:
    target, headers, status, code = BAD[case]
    answer = serving.get(target, **{name.replace("-", "_"): value for name, value in headers.items()})
    assert answer.refusal == (status, code)


WRONG = [
    # kind      what is wrong; of two the first one here is told                              status, code
    ("address", {"rest": "nothing"}, (404, "not_found")),
    ("method", {"method": "PUT"}, (405, None)),
    ("caller", {"headers": {"Authorization": "Bearer nobody"}}, (401, "unauthorized")),
    ("header", {"headers": {"X-Min-Version": "x"}}, (400, "invalid_version")),
    ("dictionary", {"code": "NEVER"}, (404, "UNKNOWN_DICTIONARY")),
    ("version", {"headers": {"X-Min-Version": "99"}}, (409, "VERSION_NOT_COMMITTED")),
    ("key", {"rest": "items/none"}, (404, "UNKNOWN_KEY")),
]


@pytest.mark.parametrize("first", range(len(WRONG)))
@pytest.mark.parametrize("second", range(len(WRONG)))
def test_of_two_wrongs_the_first_is_told(first: int, second: int, serving: Serving, shelf: str) -> None:
    made: dict[str, Any] = {"rest": "items/k1", "code": "NOTES", "method": "GET", "headers": {}}
    kinds = {WRONG[first][0], WRONG[second][0]}
    if kinds in ({"header", "version"}, {"address", "key"}):
        kinds = {WRONG[min(first, second)][0]}  # they cannot both be
    for kind, change, _ in reversed(WRONG):
        if kind in kinds:
            headers = made["headers"] | change.get("headers", {})
            made |= {**change, "headers": headers}
    status, code = next(told for kind, _, told in WRONG if kind in kinds)
    target = place("shelf", made["rest"], code=made["code"])
    with serving.wire() as wire:
        wire.send(serving.request(target, method=made["method"], headers=made["headers"]))
        answer = wire.answer()
    assert answer.status == status
    assert code in (None, answer.code)


# -- the process itself


@pytest.mark.parametrize("authorization", [None, "Bearer nobody"])
def test_health_is_told_to_anybody(authorization: str | None, serving: Serving) -> None:
    for part in ("", "/readiness", "/liveness"):
        answer = serving.get(f"/actuator/health{part}", Authorization=authorization)
        assert (answer.status, json.loads(answer.body)["status"]) == (200, "UP")
        assert "json" in (answer["Content-Type"] or "")


METRICS = (
    "dict_version_lag", "cache_reload_duration", "cache_reload_errors", "redis_stream_lag",
    "postgres_fallback_reads", "headworks_refdata_reads_total", "headworks_refdata_staleness_seconds",
)  # fmt: skip


def metrics(serving: Serving) -> str:
    answer = serving.get("/actuator/prometheus", Authorization=None)
    assert (answer.status, (answer["Content-Type"] or "").split(";")[0]) == (200, "text/plain")
    return answer.body.decode()


@pytest.mark.parametrize("name", METRICS)
def test_what_is_measured_is_told_to_anybody(name: str, serving: Serving, shelf: str) -> None:
    serving.get(item("k1"))
    assert re.search(rf"^(# (HELP|TYPE) )?{name}", metrics(serving), re.MULTILINE)


def count_of(text: str, name: str) -> float:
    return sum(
        float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? ([0-9.e+]+)$", text, re.MULTILINE)
    )


def test_reads_and_reloads_are_counted(serving: Serving, world: World, tenant: str) -> None:
    before = metrics(serving)
    for _ in range(10):
        assert serving.get(item("k1")).status == 200
    serving.await_version(tenant, world.write(tenant, {"a": {}}))

    def grew(name: str, by: float) -> bool:
        return count_of(metrics(serving), name) >= count_of(before, name) + by

    wait_until(lambda: grew("headworks_refdata_reads_total", 10))
    wait_until(lambda: grew("cache_reload_duration(?:_seconds)?_count", 1))
    assert re.search(r'^headworks_refdata_reads_total\{[^}]*kind="', metrics(serving), re.MULTILINE)
    assert re.search(r'^headworks_refdata_reads_total\{[^}]*status="', metrics(serving), re.MULTILINE)


def test_a_wire_is_told_the_same_by_both_profiles(pods: Pods, world: World, shelf: str) -> None:
    safe, fast = (pods(world, profile=profile) for profile in ("safe", "fast"))

    def told(answer: Answer) -> tuple[Any, ...]:
        skipped = {"date", "server"}
        headers = {name.lower(): value for name, value in answer.headers if name.lower() not in skipped}
        return answer.status, headers, answer.body

    targets = [(target, {}) for target in (*KNOWN_ADDRESSES, *UNKNOWN_ADDRESSES, item("none"))]
    targets += [(target, headers) for target, headers, _, _ in BAD.values()]
    for target, headers in targets:
        if "version" in target or "watch" in target or "prometheus" in target:
            continue  # which tell of time
        named = {name.replace("-", "_"): value for name, value in headers.items()}
        assert told(safe.get(target, **named)) == told(fast.get(target, **named)), target


@pytest.mark.parametrize("spelling", ["a", "%61"])
def test_keys_are_counted_as_they_are_asked_for(spelling: str, serving: Serving, shelf: str) -> None:
    thousand = ",".join(["a"] * 999 + [spelling])
    assert serving.get(place(shelf, f"items?keys={thousand}")).json["missing"] == ["a"]
    more = serving.get(place(shelf, f"items?keys={thousand},a"))
    assert more.refusal == (400, "too_many_keys")
