"""The replayed API, over real HTTP."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from app.catalog.replay import faults, invented, packing, recordings, server, shapes

CODE = "book:17924463"
ITEM = "/ichibams/api/IchibaItem/Search/20260701"
RANKING = "/ichibaranking/api/IchibaItem/Ranking/20220601"
GENRE = "/ichibagt/api/IchibaGenre/Search/20260701"
TAG = "/ichibagt/api/IchibaTag/Search/20140222"
OLD_ITEM = "/services/api/IchibaItem/Search/20170706"
KEYS = {"applicationId": "an-application"}
ACCESS = {"accessKey": "pk_a-key"}


class Caller:
    """Requests on one kept-alive connection, as an application with its keys makes them."""

    def __init__(self, url: str) -> None:
        self.pool = urllib3.connection_from_url(url, maxsize=1, block=True, retries=False, timeout=10)

    def get(self, path: str, **query: str) -> urllib3.BaseHTTPResponse:
        return self.send(path, {**KEYS, **query}, ACCESS)

    def send(self, path: str, query: dict[str, str], headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        return self.pool.request("GET", path, fields=query, headers=headers)

    def flat(self, path: str, **query: str) -> Any:
        answer = self.get(path, formatVersion="2", **query)
        assert answer.status == 200, answer.data
        return answer.json()


@pytest.fixture
def api() -> Iterator[server.ReplayServer]:
    with server.ReplayServer() as replay:
        yield replay


@pytest.fixture
def caller(api: server.ReplayServer) -> Iterator[Caller]:
    caller = Caller(api.url)
    yield caller
    caller.pool.close()


def refusal(answer: urllib3.BaseHTTPResponse) -> tuple[int, str]:
    return answer.status, answer.json()["error_description"]


# The recordings


def test_every_recording_is_the_one_that_its_hash_names() -> None:
    with zipfile.ZipFile(recordings.ARCHIVE) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert {*archive.namelist()} == {"NOTICE", "manifest.json", *(entry["path"] for entry in manifest)}
        notice = archive.read("NOTICE").decode()
    assert {entry["path"]: entry["sha256"] for entry in manifest} == {
        one.path: hashlib.sha256(one.body).hexdigest() for one in recordings.answers()
    }
    assert len(manifest) == 125
    for entry in manifest:
        assert set(entry) == set(packing.KEPT)
        if entry["licence"] == "MIT":
            assert "/".join(entry["source"].split("/")[:5]) in notice
    assert notice.count("Permission is hereby granted, free of charge") == 3


def test_packing_the_recordings_again_gives_the_same_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(recordings.ARCHIVE) as archive:
        archive.extractall(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    (tmp_path / "MANIFEST.json").write_text(json.dumps([{**one, "exists": True} for one in manifest[::-1]]))
    packed = packing.pack(tmp_path)
    for file in tmp_path.rglob("*.json"):
        os.utime(file, (1, 1))
    assert packed == packing.pack(tmp_path)
    assert members(packed) == members(recordings.ARCHIVE.read_bytes())


def members(archive: bytes) -> list[tuple[str, tuple[int, ...], int, int, int]]:
    """Without the compressed bytes, which another zlib may choose otherwise."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return [
            (one.filename, one.date_time, one.CRC, one.compress_type, one.external_attr)
            for one in file.infolist()
        ]


def test_a_file_that_the_manifest_does_not_mean_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "MANIFEST.json").write_text('[{"path": "a.json", "sha256": "0", "source": "https://x"}]')
    with pytest.raises(ValueError, match=r"a\.json"):
        packing.pack(tmp_path)


def test_the_recordings_are_taken_apart() -> None:
    index = recordings.index()
    every = {
        item["itemCode"]
        for one in recordings.answers()
        if one.status == 200 and one.entity in ("item", "ranking")
        for item in shapes.flat(json.loads(one.body)).get("Items", [])
    }
    assert set(index.items) == every
    assert len(every) == 994
    assert {
        code for code, versions in index.items.items() for one in versions if one["itemCode"] != code
    } == set()
    assert {type(one["itemPrice"]) for versions in index.items.values() for one in versions} == {int}
    assert index.genres["201351"][-1]["current"]["genreName"] == "水・ミネラルウォーター"
    # known only as a child of the root
    assert index.genres["100371"][-1]["current"] == {
        "genreId": 100371,
        "genreName": "レディースファッション",
        "genreLevel": 1,
    }
    water = index.genres["100316"][-1]  # a child in one answer, a parent in another
    assert (len(water["brothers"]), len(water["children"]), water["parents"]) == (35, 10, [])
    [group] = index.tags["1003703"][-1]["tagGroups"]
    assert (group["tagGroupName"], [tag["tagName"] for tag in group["tags"]]) == (
        "水のブランド",
        ["エビアン"],
    )


def test_the_versions_of_an_item_stand_in_the_order_of_their_recording() -> None:
    index = recordings.index()
    naruto = {
        item["itemCode"]
        for one in recordings.answers()
        if one.uri and "keyword=Naruto" in one.uri and "carrier" not in one.uri and one.status == 200
        for item in json.loads(one.body)["Items"]
    }
    # in 70 minutes one got a review, and one a sale
    changed = {code for code in naruto if len(index.items[code]) > 1}
    assert changed == {"sai-marche-de-sanuki:10000139", "surugaya-a-too:142417727"}
    assert [one["endTime"] for one in index.items["surugaya-a-too:142417727"]] == ["", "2019-10-23 23:59"]
    years = [int(re.findall(r"20\d\d", ranking["lastBuildDate"])[0]) for ranking in index.rankings["0"]]
    assert years == [2013, 2013, 2017, 2019, 2019]


# The keys


def test_a_request_without_an_application_is_refused(caller: Caller) -> None:
    answer = caller.send(ITEM, {"itemCode": CODE}, ACCESS)
    assert refusal(answer) == (400, "specify valid applicationId")
    assert answer.data == recordings.error("400_wrong_parameter_applicationId").body


def test_a_request_without_an_access_key_is_refused(caller: Caller) -> None:
    answer = caller.send(ITEM, {**KEYS, "itemCode": CODE}, {})
    assert refusal(answer) == (400, "accessKey must be present as a query parameter or in the header")


@pytest.mark.parametrize("query,headers", [(KEYS, ACCESS), ({**KEYS, **ACCESS}, {})])
def test_the_access_key_may_stand_in_a_header_or_in_the_query(
    caller: Caller, query: dict[str, str], headers: dict[str, str]
) -> None:
    assert caller.send(ITEM, {**query, "itemCode": CODE}, headers).json()["count"] == 1


def test_the_old_host_wants_no_access_key(caller: Caller) -> None:
    assert caller.send(OLD_ITEM, {**KEYS, "itemCode": CODE}, {}).json()["count"] == 1
    assert caller.send(OLD_ITEM, {"itemCode": CODE}, {}).status == 400


@pytest.mark.parametrize("path", [ITEM, RANKING, GENRE, TAG, OLD_ITEM])
def test_a_retired_version_is_not_found(caller: Caller, path: str) -> None:
    answer = caller.get(f"{path.rpartition('/')[0]}/20060101", itemCode=CODE)
    assert refusal(answer) == (400, "API Configuration not found")


def test_the_item_search_that_was_retired_in_2026_is_retired(caller: Caller) -> None:
    answer = caller.get("/ichibams/api/IchibaItem/Search/20220601", itemCode=CODE)
    assert answer.data == recordings.error("400_retired_version").body


def test_a_service_that_does_not_exist_is_not_found(caller: Caller) -> None:
    assert caller.get("/ichibams/api/IchibaItem/Sell/20260701").status == 404


# Items


def test_a_search_for_an_item_finds_it_in_a_whole_envelope(caller: Caller) -> None:
    [recorded] = [json.loads(one.body) for one in recordings.answers() if "200_itemCode-book" in one.path]
    assert caller.flat(ITEM, itemCode=CODE, availability="0", hits="1") == recorded


def test_an_unknown_item_is_no_error(caller: Caller) -> None:
    [nothing] = [json.loads(one.body) for one in recordings.answers() if "purchaseType" in one.path]
    assert nothing["Items"] == []
    assert caller.flat(ITEM, itemCode="book:1", availability="0") == nothing


def test_an_item_that_is_sold_out_is_hidden_unless_all_are_asked_for(caller: Caller) -> None:
    code = "toucher-home:10001410"
    assert caller.flat(ITEM, itemCode=code)["Items"] == []
    assert caller.flat(ITEM, itemCode=code, availability="1")["Items"] == []
    [item] = caller.flat(ITEM, itemCode=code, availability="0")["Items"]
    assert (item["itemCode"], item["availability"]) == (code, 0)


def test_an_item_that_only_a_ranking_knows_is_found_with_numbers_as_numbers(caller: Caller) -> None:
    code = "girls-web:10000087"
    [item] = caller.flat(ITEM, itemCode=code)["Items"]
    assert (item["itemPrice"], type(item["reviewAverage"])) == (3980, float)
    assert {"rank", "carrier", "tagIds"} & set(item) == set()


def test_format_version_1_wraps_items_and_images_and_is_the_default(caller: Caller) -> None:
    [entry] = caller.get(ITEM, itemCode=CODE).json()["Items"]
    assert list(entry) == ["Item"]
    image = "https://thumbnail.image.rakuten.co.jp/@0_mall/book/cabinet/3202/4534530093202.jpg"
    assert entry["Item"]["smallImageUrls"] == [{"imageUrl": f"{image}?_ex=64x64"}]
    assert entry["Item"]["mediumImageUrls"] == [{"imageUrl": f"{image}?_ex=128x128"}]


def test_a_recorded_search_is_answered_as_it_was(caller: Caller) -> None:
    [recorded] = [json.loads(one.body) for one in recordings.answers() if "shopCode-book" in one.path]
    assert caller.flat(ITEM, keyword="Naruto", shopCode="book") == recorded
    assert caller.flat(ITEM, keyword="Sasuke")["count"] == 0


def test_a_search_for_nothing_and_a_page_that_is_none_are_refused(caller: Caller) -> None:
    answer = caller.get(ITEM)
    assert answer.data == recordings.error("400_wrong_parameter_no_condition").body
    for path in (ITEM, RANKING):
        assert refusal(caller.get(path, keyword="Naruto", page="0")) == (400, "page must be over 1")


# Rankings, genres, tags


def test_a_ranking_is_the_newest_that_was_recorded(caller: Caller) -> None:
    [recorded] = [json.loads(one.body) for one in recordings.answers() if "carrier-0_115332" in one.path]
    assert caller.flat(RANKING, genreId="0") == recorded
    assert caller.flat(RANKING) == recorded


@pytest.mark.parametrize("key,value", [("sex", "1"), ("age", "20"), ("period", "realtime"), ("page", "2")])
def test_a_ranking_of_some_people_or_further_pages_is_a_recorded_one(
    caller: Caller, key: str, value: str
) -> None:
    found = caller.flat(RANKING, **{key: value})
    assert len(found["Items"]) == 30
    assert found != caller.flat(RANKING)


def test_a_genre_without_a_ranking_is_not_found(caller: Caller) -> None:
    assert refusal(caller.get(RANKING, genreId="999999")) == (404, "This genre data does not exist")
    assert caller.get(RANKING, genreId="0", age="90").status == 404


@pytest.mark.parametrize("version,name", [("1", "aab1a62"), ("2", "0ab2af6")])
def test_a_genre_comes_in_both_shapes_as_it_was_recorded_in_both(
    caller: Caller, version: str, name: str
) -> None:
    [recorded] = [
        json.loads(one.body) for one in recordings.answers() if f"parents_genre_search_{name}" in one.path
    ]
    assert caller.get(GENRE, genreId="201351", formatVersion=version).json() == recorded


def test_an_unknown_genre_is_refused_as_each_host_does(caller: Caller) -> None:
    old = "/services/api/IchibaGenre/Search/20140222"
    for query in ({}, {"genreId": "999999"}):
        assert refusal(caller.get(GENRE, **query)) == (400, "genreId is a 6 digit integer, or 0")
        assert refusal(caller.get(old, **query)) == (400, "wrong genreId format")


def test_tags_come_in_their_groups_and_unknown_ones_are_left_out(caller: Caller) -> None:
    answer = caller.flat(TAG, tagId="1003703,1000317,999,1003706")
    assert [(one["tagGroupId"], [tag["tagId"] for tag in one["tags"]]) for one in answer["tagGroups"]] == [
        (1000190, [1003703, 1003706]),
        (1000041, [1000317]),
    ]
    assert caller.flat(TAG, tagId="999") == {"tagGroups": []}


@pytest.mark.parametrize("version,name", [("1", "6cd2cfa"), ("2", "0ab2af6")])
def test_a_tag_comes_in_both_shapes_as_it_was_recorded_in_both(
    caller: Caller, version: str, name: str
) -> None:
    [recorded] = [json.loads(one.body) for one in recordings.answers() if f"tag_search_{name}" in one.path]
    assert caller.get(TAG, tagId="1000317", formatVersion=version).json() == recorded


def test_more_than_ten_tags_and_none_are_refused(caller: Caller) -> None:
    ten = ",".join(str(1003698 + number) for number in range(10))
    assert len(caller.flat(TAG, tagId=ten)["tagGroups"][0]["tags"]) == 10
    for wrong in (f"{ten},1003708", "0", "", "x", "1000317,"):
        assert caller.get(TAG, tagId=wrong).json()["error"] == "wrong_parameter", wrong


def test_both_format_versions_of_every_record_say_the_same(api: server.ReplayServer, caller: Caller) -> None:
    asked = [(ITEM, "itemCode", code) for code in api.ids("item")[::9]]
    asked += [(RANKING, "genreId", genre) for genre in api.ids("ranking")]
    asked += [(GENRE, "genreId", genre) for genre in api.ids("genre")]
    asked += [(TAG, "tagId", tag) for tag in api.ids("tag")]
    for path, key, record_id in asked:
        query = {key: record_id, "availability": "0"}
        wrapped, flat = caller.get(path, **query, formatVersion="1").json(), caller.flat(path, **query)
        assert shapes.flat(wrapped) == flat, record_id
        assert shapes.wrapped(flat) == wrapped, record_id


# What tests change


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_record_that_is_put_is_answered_at_once(
    api: server.ReplayServer, caller: Caller, version: str
) -> None:
    def price() -> int:
        answer = caller.get(ITEM, itemCode=CODE, formatVersion=version).json()
        return int(shapes.flat(answer)["Items"][0]["itemPrice"])

    assert price() == 3520
    item = {**api.record("item", CODE), "itemPrice": 3000}
    api.put("item", CODE, item)
    item["itemPrice"] = 1  # not put
    assert price() == 3000
    api.put("item", CODE, item)
    assert price() == 1


def test_each_entity_can_be_put_and_removed(api: server.ReplayServer, caller: Caller) -> None:
    tag = {"tagGroups": [{"tagGroupId": 7, "tagGroupName": "色", "tags": [{"tagId": 77, "tagName": "赤"}]}]}
    genre = {"parents": [], "current": {"genreId": 123456}, "children": []}
    goods = list(invented.items(3))
    ranking = invented.ranking("123456", goods)
    for entity, record_id, record, path, key in (
        ("tag", "77", tag, TAG, "tagId"),
        ("genre", "123456", genre, GENRE, "genreId"),
        ("ranking", "123456", ranking, RANKING, "genreId"),
    ):
        before = caller.get(path, **{key: record_id}).data
        api.put(entity, record_id, record)
        assert caller.flat(path, **{key: record_id}) == record
        api.remove(entity, record_id)
        assert caller.get(path, **{key: record_id}).data == before
    api.remove("item", CODE)
    assert caller.flat(ITEM, itemCode=CODE)["count"] == 0
    with pytest.raises(KeyError):
        api.remove("item", CODE)


def test_two_servers_share_nothing(api: server.ReplayServer, caller: Caller) -> None:
    api.remove("item", CODE)
    with server.ReplayServer() as other:
        second = Caller(other.url)
        assert second.flat(ITEM, itemCode=CODE)["count"] == 1
        second.pool.close()
    assert len(api.requests) == 0


# Faults

SPECIAL = {"itemCode": CODE}


@pytest.mark.parametrize(
    "fault,status,body,headers",
    [
        (faults.too_many_requests(SPECIAL), 429, "429_too_many_requests", {"Retry-After": None}),
        (
            faults.too_many_requests(SPECIAL, retry_after="2"),
            429,
            "429_too_many_requests",
            {"Retry-After": "2"},
        ),
        (faults.forbidden(SPECIAL), 403, "403_gateway_CLIENT_IP_NOT_ALLOWED", {}),
        (faults.not_found(SPECIAL), 404, "404_ranking_genre_without_data", {}),
        (faults.system_error(SPECIAL), 500, "500_system_error", {}),
        (faults.under_maintenance(SPECIAL), 503, "503_service_unavailable", {}),
        (faults.error_with_status_200(SPECIAL), 200, "500_system_error", {}),
    ],
)
def test_a_recorded_error_is_answered_once_and_then_the_item(
    api: server.ReplayServer,
    caller: Caller,
    fault: faults.Fault,
    status: int,
    body: str,
    headers: dict[str, str | None],
) -> None:
    api.fault(fault)
    answer = caller.get(ITEM, itemCode=CODE)
    assert (answer.status, answer.data) == (status, recordings.error(body).body)
    for name, value in headers.items():
        assert answer.headers.get(name) == value
    assert caller.flat(ITEM, itemCode=CODE)["count"] == 1


def test_the_two_shapes_of_403_differ(api: server.ReplayServer, caller: Caller) -> None:
    api.fault(faults.forbidden("IchibaItem"))
    api.fault(faults.forbidden_in_old_shape("IchibaItem"))
    new, old = caller.get(ITEM, itemCode=CODE), caller.get(ITEM, itemCode=CODE)
    assert (new.status, list(new.json())) == (403, ["errors"])
    assert (old.status, list(old.json())) == (403, ["error", "error_description"])


def test_pages_empty_bodies_and_huge_ones_come_with_status_200(
    api: server.ReplayServer, caller: Caller
) -> None:
    for fault in (faults.html_page(SPECIAL), faults.empty(SPECIAL), faults.huge(SPECIAL)):
        api.fault(fault)
    page, empty, huge = (caller.get(ITEM, itemCode=CODE) for _ in range(3))
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert page.data.startswith(b"<!DOCTYPE html>")
    assert (empty.status, empty.data) == (200, b"")
    assert (huge.status, len(huge.data), huge.json()["Items"]) == (200, 5_000_000, [])


def test_a_truncated_answer_ends_before_its_length(api: server.ReplayServer, caller: Caller) -> None:
    api.fault(faults.truncated(SPECIAL))
    with pytest.raises(urllib3.exceptions.ProtocolError, match="IncompleteRead"):
        caller.get(ITEM, itemCode=CODE)
    assert caller.flat(ITEM, itemCode=CODE)["count"] == 1


def test_an_answer_can_be_cut_anywhere(api: server.ReplayServer, caller: Caller) -> None:
    api.fault(faults.Fault(SPECIAL, cut_after_bytes=200))
    with pytest.raises(urllib3.exceptions.ProtocolError, match="IncompleteRead"):
        caller.get(ITEM, itemCode=CODE)


def test_a_dropped_connection_gives_no_answer(api: server.ReplayServer, caller: Caller) -> None:
    api.fault(faults.dropped(SPECIAL))
    with pytest.raises(urllib3.exceptions.ProtocolError, match="without response"):
        caller.get(ITEM, itemCode=CODE)
    assert caller.flat(ITEM, itemCode=CODE)["count"] == 1


def test_a_slow_answer_is_the_true_one_and_late(api: server.ReplayServer, caller: Caller) -> None:
    api.fault(faults.slow(SPECIAL, times=2, delay_seconds=0.4))
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        caller.pool.request("GET", ITEM, fields={**KEYS, **SPECIAL}, headers=ACCESS, timeout=0.1)
    assert caller.flat(ITEM, itemCode=CODE)["count"] == 1


@pytest.mark.parametrize("version", ["1", "2"])
def test_other_items_than_the_one_asked_for_come_in_the_shape_asked_for(
    api: server.ReplayServer, caller: Caller, version: str
) -> None:
    other = api.record("item", "girls-web:10000087")
    twice = ({**other, "itemPrice": 1}, {**other, "itemPrice": 2})
    api.fault(faults.finding(SPECIAL, other))
    api.fault(faults.finding(SPECIAL, *twice))
    one, two = (caller.get(ITEM, itemCode=CODE, formatVersion=version).json() for _ in range(2))
    assert shapes.flat(one)["Items"] == [other]
    assert (two["count"], shapes.flat(two)["Items"]) == (2, list(twice))
    assert ("Item" in one["Items"][0]) == (version == "1")


def test_a_fault_hits_as_often_as_it_says_and_only_what_it_matches(
    api: server.ReplayServer, caller: Caller
) -> None:
    api.fault(faults.system_error({"itemCode": CODE, "hits": "1"}, times=2))
    api.fault(faults.under_maintenance(RANKING))
    api.fault(faults.too_many_requests(SPECIAL))

    def status(path: str, **query: str) -> int:
        return caller.get(path, **query).status

    assert status(ITEM, itemCode="girls-web:10000087", hits="1") == 200
    assert status(GENRE, genreId="0") == 200
    assert [status(ITEM, itemCode=CODE, hits="1") for _ in range(4)] == [500, 500, 429, 200]
    assert [status(RANKING) for _ in range(2)] == [503, 200]
    api.fault(faults.system_error(RANKING, times=9))
    api.clear_faults()
    assert status(RANKING) == 200


def test_a_fault_of_ones_own_says_everything_itself(api: server.ReplayServer, caller: Caller) -> None:
    own = faults.Fault(
        "IchibaTag", status=418, body=b"tea", headers={"Content-Type": "text/plain", "X-Pot": "1"}
    )
    api.fault(own)
    answer = caller.get(TAG, tagId="1000317")
    assert (answer.status, answer.data, answer.headers["X-Pot"]) == (418, b"tea", "1")
    assert answer.headers["Content-Type"] == "text/plain"


# The server


def test_requests_are_told_with_what_they_carried(api: server.ReplayServer, caller: Caller) -> None:
    caller.get(ITEM, itemCode="みせ:1", keyword="")
    caller.get(TAG, tagId="1,2")
    first, second = api.requests
    assert first.path == ITEM
    assert first.query == {**KEYS, "itemCode": "みせ:1", "keyword": ""}
    assert first.headers["accesskey"] == "pk_a-key"
    assert second.query["tagId"] == "1,2"
    assert 0 <= second.at - first.at < 60


def test_only_the_newest_requests_are_kept(
    api: server.ReplayServer, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_REQUESTS", 3)
    with server.ReplayServer() as small:
        other = Caller(small.url)
        for number in range(5):
            other.get(TAG, tagId=str(number + 1))
        assert [one.query["tagId"] for one in small.requests] == ["3", "4", "5"]
        other.pool.close()


def test_many_requests_go_over_one_connection(api: server.ReplayServer, caller: Caller) -> None:
    for _ in range(50):
        caller.get(ITEM, itemCode=CODE)
    assert caller.pool.num_connections == 1


def test_many_clients_are_answered_each_with_its_own(api: server.ReplayServer) -> None:
    codes = api.ids("item")[:200]
    wrong: list[str] = []

    def ask(start: int) -> None:
        caller = Caller(api.url)
        for code in codes[start::8]:
            found = caller.flat(ITEM, itemCode=code, availability="0")["Items"]
            if [item["itemCode"] for item in found] != [code]:
                wrong.append(code)
        caller.pool.close()

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(api.requests) == 200


def test_only_this_machine_is_served_and_only_with_get(api: server.ReplayServer, caller: Caller) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", api.url)
    answer = caller.pool.request("POST", ITEM, body=b"x", headers=ACCESS)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    answer = caller.pool.request("GET", ITEM, headers={f"X-{number}": "1" for number in range(200)})
    assert answer.status == 400


def test_a_server_that_is_left_answers_no_kept_connection(caller: Caller) -> None:
    with server.ReplayServer() as short:
        kept = Caller(short.url)
        assert kept.flat(ITEM, itemCode=CODE)["count"] == 1
    with pytest.raises(urllib3.exceptions.HTTPError):
        kept.get(ITEM, itemCode=CODE)
    kept.pool.close()


# Invented items, and the server as a program


def test_invented_items_are_the_same_every_time_and_look_like_recorded_ones(
    api: server.ReplayServer, caller: Caller
) -> None:
    found = list(invented.items(5_000))
    assert found == list(invented.items(5_000))
    assert found[0]["itemCode"] == "shop-0001:10000001"
    assert len({item["itemCode"] for item in found}) == len({item["itemName"] for item in found}) == 5_000
    recorded = api.record("item", CODE)
    assert {frozenset(item) for item in found} == {frozenset(recorded)}
    assert {item["genreId"] for item in found} <= set(api.ids("genre"))
    assert {str(tag) for item in found for tag in item["tagIds"]} <= set(api.ids("tag"))
    api.put("item", found[0]["itemCode"], found[0])
    assert caller.flat(ITEM, itemCode=found[0]["itemCode"])["Items"] == found[:1]


def test_an_invented_ranking_looks_like_a_recorded_one(api: server.ReplayServer) -> None:
    ranking, recorded = invented.ranking("201351", list(invented.items(3))), api.record("ranking", "0")
    assert set(ranking) == set(recorded)
    assert {frozenset(entry) for entry in ranking["Items"]} == {frozenset(recorded["Items"][0])}
    assert [entry["rank"] for entry in ranking["Items"]] == [1, 2, 3]
    assert [shapes.searched(entry)["itemPrice"] for entry in ranking["Items"]] == [
        item["itemPrice"] for item in invented.items(3)
    ]


def test_the_program_serves_until_it_is_interrupted() -> None:
    program = [sys.executable, "-m", "app.catalog.replay"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = "".join(iter_until(process.stdout, "item "))
            url = re.search(r"http://127\.0\.0\.1:\d+", told)
            code = re.search(r"such as ([^,\s]+)", told)
            assert url and code, told
            caller = Caller(url[0])
            assert caller.flat(ITEM, itemCode=code[1], availability="0")["count"] == 1
            caller.pool.close()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, "Traceback" in errors) == (0, False)


def iter_until(lines: Iterable[str], start: str) -> Iterator[str]:
    """The lines up to the first that begins so, or all."""
    for line in lines:
        yield line
        if line.strip().startswith(start):
            return


def test_a_port_that_is_taken_is_told(api: server.ReplayServer) -> None:
    program = [sys.executable, "-m", "app.catalog.replay", "--port", api.url.rpartition(":")[2]]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "The port cannot be used" in done.stderr
