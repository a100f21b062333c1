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
