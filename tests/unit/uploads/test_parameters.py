"""What a request says is taken as it is meant, or refused in words."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from app.kernel import errors
from app.uploads import parameters

WORDS = {
    # what is said: whether it is a yes
    "true": True, "TRUE": True, "1": True, "yes": True, "on": True, " true ": True, True: True,
    "false": False, "0": False, "no": False, "off": False, "": False, None: False, False: False,
}  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_a_yes_and_a_no_are_told_apart(word: Any) -> None:
    assert parameters.flag({"dry_run": word}, "dry_run") is WORDS[word]
    assert parameters.flag({}, "dry_run") is False


@pytest.mark.parametrize("word", ["ture", "2", "null", "\x00", [], ["true"], {}, 0, 1, 1.5])
def test_a_word_that_is_neither_is_refused(word: Any) -> None:
    with pytest.raises(errors.Refused) as raised:
        parameters.flag({"dry_run": word}, "dry_run")
    assert raised.value.code == "invalid_dry_run"


@pytest.mark.parametrize("name", ["platform", "source", "filename", "currency"])
@pytest.mark.parametrize("value", [5, ["USD"], {}, True, [None, None]])
def test_what_is_no_text_is_refused_where_a_text_belongs(name: str, value: Any) -> None:
    fields = {"workspace_id": "5a3b1e00-0000-4000-8000-000000000001", "platform": "meta", name: value}
    with pytest.raises(errors.Refused) as raised:
        parameters.upload_request(fields, who="tests")
    assert raised.value.code == f"invalid_{name}"


TIMES = {
    # what is said: the instant
    "2025-05-01": datetime(2025, 5, 1),  # noqa: DTZ001 (that is what it says)
    "2025-05-01T02:00:00+02:00": datetime(2025, 5, 1, tzinfo=UTC),
    "1571-10-26T07:39:33-16:49": datetime(1571, 10, 27, 0, 28, 33, tzinfo=UTC),
    "2025-05-01T23:59:00+23:59": datetime(2025, 5, 1, tzinfo=UTC),
}


@pytest.mark.parametrize("text", TIMES)
def test_a_time_of_any_offset_is_one_that_the_database_knows(text: str) -> None:
    found = parameters.time({"from": text}, "from")
    assert found == TIMES[text]
    assert found is not None and found.tzinfo in (None, UTC)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:00-00:01", "tomorrow"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(errors.Refused):
        parameters.time({"from": text}, "from")


def test_a_day_stays_the_day_that_was_said() -> None:
    for text in ("2025-05-01", "2025-05-01T01:00:00+02:00"):
        assert parameters.day({"from": text}, "from") == datetime(2025, 5, 1, tzinfo=UTC)


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


ID = "5a3b1e00-0000-4000-8000-000000000001"


def test_a_cursor_leads_back_to_where_it_came_from() -> None:
    at = datetime(2025, 5, 1, 12, 30, 1, 5, tzinfo=UTC)
    assert parameters.from_cursor(parameters.to_cursor(at)) == at


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+23:59", "2025-05-01T00:00:00", "yesterday", "é"])
def test_a_cursor_that_came_from_elsewhere_is_refused(at: str) -> None:
    for text in (cursor(at), cursor(f"{at} {ID}"), "=", "a"):
        for read in (parameters.from_cursor, parameters.from_place_cursor):
            with pytest.raises(errors.Refused) as raised:
                read(text)
            assert raised.value.code == "invalid_cursor"


def test_a_cursor_of_a_far_offset_is_one_that_the_database_knows() -> None:
    found = parameters.from_cursor(cursor("2025-05-01T00:00:00-16:49"))
    assert found is not None and found.tzinfo is UTC
    place = parameters.from_place_cursor(cursor(f"2025-05-01T00:00:00-16:49 {ID}"))
    assert place is not None and place[0] == found


@pytest.mark.parametrize("value", [0, False, [], {}, "7", 7])
def test_what_is_no_id_is_not_taken_for_none(value: Any) -> None:
    with pytest.raises(errors.Refused) as raised:
        parameters.uuid({"client_id": value}, "client_id")
    assert raised.value.code == "invalid_client_id"
    assert parameters.uuid({"client_id": ""}, "client_id") is None
    assert parameters.uuid({"client_id": None}, "client_id") is None
