"""Requests that were once answered wrongly; what the API's description promises was asked of them."""

from __future__ import annotations

import pytest

from app.pipeline import events
from tests.integration.pipeline.conftest import Api


@pytest.mark.parametrize("end", ["", "/history"])
@pytest.mark.parametrize("name", ["%00", "a%00b", "%FF", "a%0A", "a" * 256])
def test_a_name_that_no_file_can_have_is_an_unknown_file(name: str, end: str, pipeline: Api) -> None:
    assert pipeline.call("GET", f"/files/{name}{end}", status=404)["code"] == "unknown_file"


def test_an_event_s_id_is_the_same_with_zeros_before_it(
    pipeline: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The database refuses 08 and takes 010 for 8: it reads such a number as an octal one.
    monkeypatch.setattr(events, "MOST_SECONDS", 0.2)
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.01)
    pipeline.call("POST", "/files/register", {"filename": "a", "shards": [0, 1]})
    [(xid, first)] = pipeline.sql("SELECT min(xid)::text, min(id) FROM pipeline_history")
    for place in (f"{xid}-{first}", f"000{xid}-{first:018}", f"{int(xid):020}-{first}"):
        answer = pipeline.ask("GET", "/events", headers={"Last-Event-ID": place})
        ids = [line for line in answer.data.decode().splitlines() if line.startswith("id: ")]
        assert ids == [f"id: {xid}-{first + 1}"], place
    answer = pipeline.ask("GET", "/events", headers={"Last-Event-ID": "08-1"})
    assert answer.data.count(b"event: transition") == 2


def test_pages_go_on_behind_the_first_billion_of_ids(pipeline: Api) -> None:
    # A register that repeats another takes ids, too, and uses none.
    for table in ("tracking", "history"):
        pipeline.sql(f"ALTER TABLE pipeline_{table} ALTER COLUMN id RESTART WITH 5000000000")
    pipeline.call("POST", "/files/register", {"filename": "a", "shards": [0, 1]})
    pipeline.call("POST", "/stages/event-ingest/done", {"filename": "a"})
    for path, members in (("/files/a/history", "history"), ("/tasks", "tasks")):
        page = pipeline.call("GET", path, limit=1)
        rest = pipeline.call("GET", path, cursor=page["cursor"])[members]
        assert page[members] + rest == pipeline.call("GET", path)[members], path
    link = pipeline.ask("GET", "/queues/shard-splitter", limit=1).headers["Link"]
    address = link.removeprefix("</api/v1/pipeline").partition(">")[0]
    assert [item["shard"] for item in pipeline.call("GET", address)["items"]] == [1]


@pytest.mark.parametrize("cursor", ["-1", "1" * 19, "9" * 30, "1.0", "x"])
@pytest.mark.parametrize("path", ["/files/a/history", "/tasks"])
def test_a_cursor_that_no_id_can_be_is_refused(cursor: str, path: str, pipeline: Api) -> None:
    pipeline.call("POST", "/files/register", {"filename": "a", "shards": [0]})
    assert pipeline.call("GET", path, status=422, cursor=cursor)["code"] == "invalid_request"


@pytest.mark.parametrize("path", ["/files", "/tasks", "/files/a/history"])
def test_the_place_of_a_page_has_one_name(path: str, pipeline: Api) -> None:
    pipeline.call("POST", "/files/register", {"filename": "a", "shards": [0]})
    pipeline.call("GET", path, behind="!")  # not known, and not looked at
    assert pipeline.call("GET", path, status=422, cursor="!")["detail"].startswith("cursor: ")
