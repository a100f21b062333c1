"""Changes as they happen: in order, filtered, and after a cut without loss and without repeat."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import re
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2
import pytest

from app.pipeline import events
from tests import patience
from tests.integration.pipeline import tasks
from tests.integration.pipeline.conftest import Api
from tests.integration.pipeline.tasks import FILE, HISTORY_FIELDS

PATIENCE_SECONDS = 10 * patience.PATIENCE
QUIET_SECONDS = 1.0
"""How long a stream is listened to that should say nothing; changes come within a fraction of it."""


@dataclass
class Event:
    """One event of a stream."""

    id: str
    name: str
    data: dict[str, Any]

    @property
    def change(self) -> tuple[str, int, str, str | None, str]:
        row = self.data
        return row["filename"], row["shard"], row["stage"], row["from_status"], row["to_status"]


class Stream:
    """An open stream of events, read line by line as any client of server-sent events does."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self._coming: queue.Queue[Event] = queue.Queue()
        self.seen: list[Event] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, http.client.IncompleteRead):  # it is cut off by the test
            self._read_on()

    def _read_on(self) -> None:
        fields: dict[str, str] = {}
        for line in self._answer:
            name, _, value = line.decode().removesuffix("\n").partition(": ")
            if name:
                assert name not in fields, "each field is one line"
                fields[name] = value
            else:
                if "data" in fields:
                    self._coming.put(Event(fields["id"], fields["event"], json.loads(fields["data"])))
                fields = {}

    def next(self, seconds: float = PATIENCE_SECONDS) -> Event:
        """The next event. queue.Empty when none comes within this time."""
        event = self._coming.get(timeout=seconds)
        self.seen.append(event)
        return event

    def take(self, number: int) -> list[tuple[str, int, str, str | None, str]]:
        """The next changes, so many."""
        return [self.next().change for _ in range(number)]

    def is_quiet(self) -> bool:
        """Whether nothing comes now."""
        try:
            self.next(QUIET_SECONDS)
        except queue.Empty:
            return True
        return False


@contextmanager
def request(api: Api, last: str | None, query: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
    """The answer to whoever wants to follow, not yet read; cut off afterwards."""
    server = urllib.parse.urlsplit(api.url)
    connection = http.client.HTTPConnection(server.hostname or "", server.port, timeout=PATIENCE_SECONDS)
    connection.connect()
    cut = connection.sock.dup()  # the connection forgets its own as soon as the answer has begun
    try:
        headers = {"Last-Event-ID": last} if last is not None else {}
        connection.request("GET", f"{server.path}/events?{urllib.parse.urlencode(query)}", headers=headers)
        yield connection.getresponse()
    finally:
        cut.shutdown(socket.SHUT_RDWR)
        cut.close()
        connection.close()


@contextmanager
def follow(api: Api, last: str | None = None, **query: str) -> Iterator[Stream]:
    """A stream that has begun: whatever happens from here on is in it."""
    with request(api, last, query) as answer:
        assert answer.status == 200, answer.read()
        assert str(answer.getheader("Content-Type")).split(";")[0] == "text/event-stream"
        stream = Stream(answer)
        yield stream
    stream.reader.join(PATIENCE_SECONDS)
    answer.close()


@pytest.fixture(autouse=True)
def places(pipeline: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Afterwards no stream that was cut off takes the place of another.

    The pipeline has so many places, and learns that a stream was cut off when it has something to say.
    """
    monkeypatch.setattr(events, "ALIVE_SECONDS", 0.1)
    yield
    for shard in (1000, 1001):  # what is written first into a connection that was cut off is only lost
        for filename in ("a", "b", "nobody"):
            tasks.ready(pipeline, "shard-splitter", [shard], filename)
            tasks.move(pipeline, "shard-splitter", "start", shard, filename=filename)
        tasks.eventually(lambda: has_place(pipeline), seconds=20)


def has_place(api: Api) -> bool:
    with request(api, None, {}) as answer:
        return answer.status == 200


def rows(api: Api) -> list[dict[str, Any]]:
    """What is in the history, by the database, in the order in which it was written."""
    found = api.sql(
        "SELECT id, filename, shard, stage, from_status, to_status, attempt FROM pipeline_history ORDER BY id"
    )
    names = ("id", "filename", "shard", "stage", "from_status", "to_status", "attempt")
    return [dict(zip(names, row, strict=True)) for row in found]


def test_a_change_is_told_as_a_row_of_the_history_with_its_file(pipeline: Api) -> None:
    with follow(pipeline) as stream:
        tasks.register(pipeline, [0])
        event = stream.next()

    assert (event.name, bool(event.id)) == ("transition", True)
    assert set(event.data) == HISTORY_FIELDS | {"filename"}
    [row] = tasks.history(pipeline)
    assert event.data == row | {"filename": FILE}


def test_changes_are_told_in_their_order(pipeline: Api) -> None:
    with follow(pipeline) as stream:
        tasks.ready(pipeline, "shard-worker", [0, 1])
        tasks.failed(pipeline, "shard-worker", 1, error_code="NO_SPACE")
        told = [stream.next().data for _ in range(10)]

    assert [
        {name: row[name] for name in expected} for row, expected in zip(told, rows(pipeline), strict=True)
    ] == rows(pipeline)
    assert told[-1]["error_code"] == "NO_SPACE"


def test_a_new_stream_begins_now(pipeline: Api) -> None:
    tasks.register(pipeline, [0])

    with follow(pipeline) as stream:
        tasks.move(pipeline, "event-ingest", "done", None)

        assert stream.next().change == (FILE, 0, "event-ingest", "started", "done")
        assert stream.is_quiet()


def test_what_changes_nothing_is_not_told(pipeline: Api) -> None:
    with follow(pipeline) as stream:
        for _ in range(3):
            tasks.register(pipeline, [0])
            tasks.move(pipeline, "event-ingest", "done", None)
        tasks.move(pipeline, "shard-splitter", "done", status=409)

        assert stream.take(2) == [
            (FILE, 0, "event-ingest", None, "started"),
            (FILE, 0, "event-ingest", "started", "done"),
        ]
        assert stream.is_quiet()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"filename": "a"}, [("a", "event-ingest"), ("a", "event-ingest"), ("a", "shard-splitter")]),
        ({"stage": "shard-splitter"}, [("a", "shard-splitter"), ("b", "shard-splitter")]),
        ({"filename": "b", "stage": "shard-splitter"}, [("b", "shard-splitter")]),
        ({"filename": "nobody"}, []),
    ],
)
def test_a_stream_is_filtered(pipeline: Api, query: dict[str, str], told: list[tuple[str, str]]) -> None:
    with follow(pipeline) as everything, follow(pipeline, **query) as stream:
        for filename in ("a", "b"):
            tasks.ready(pipeline, "shard-splitter", [0], filename)
        for filename in ("a", "b"):
            tasks.move(pipeline, "shard-splitter", "start", filename=filename)
        everything.take(6)

        assert [(name, stage) for name, _, stage, *_ in stream.take(len(told))] == told
        assert stream.is_quiet()


def test_a_filtered_stream_that_was_cut_off_goes_on_behind_what_it_has_told(pipeline: Api) -> None:
    with follow(pipeline, stage="shard-splitter") as stream:
        tasks.ready(pipeline, "mysql-sender", [0, 1])
        stream.take(3)

    with follow(pipeline, stream.seen[-1].id, stage="shard-splitter") as rest:
        assert rest.take(1) == [(FILE, 1, "shard-splitter", "started", "done")]
        assert rest.is_quiet()


def test_a_stream_that_is_cut_off_anywhere_goes_on_without_loss_and_without_repeat(pipeline: Api) -> None:
    with follow(pipeline) as stream:
        tasks.ready(pipeline, "shard-worker", [0, 1])
        everything = stream.take(8)
    ids = [event.id for event in stream.seen]
    assert len(set(ids)) == 8

    for place in (0, 1, 3, 6):
        with follow(pipeline, ids[place]) as rest:
            assert rest.take(7 - place) == everything[place + 1 :]
            assert [event.id for event in rest.seen] == ids[place + 1 :]


def test_what_happened_while_nobody_listened_is_told_afterwards(pipeline: Api) -> None:
    with follow(pipeline) as stream:
        tasks.register(pipeline, range(30))
        stream.take(7)
    tasks.move(pipeline, "event-ingest", "done", None)
    tasks.register(pipeline, [0], "another")

    with follow(pipeline, stream.seen[-1].id) as rest:
        told = rest.take(23 + 30 + 1)
        assert rest.is_quiet()

    assert told == [
        (row["filename"], row["shard"], row["stage"], row["from_status"], row["to_status"])
        for row in rows(pipeline)[7:]
    ]


def test_a_stream_is_read_while_many_write_and_is_cut_off_again_and_again(pipeline: Api) -> None:
    """What all connections together were told is the history: each row once, each task's rows in order."""
    names = [f"file-{number}" for number in range(6)]
    with follow(pipeline) as begin:
        tasks.register(pipeline, [0], "first")
        begin.take(1)
    last = begin.seen[-1].id
    writers = [
        threading.Thread(target=tasks.ready, args=(pipeline, "mysql-sender", range(4), name))
        for name in names
    ]
    for writer in writers:
        writer.start()
    told: list[dict[str, Any]] = []
    wanted = len(names) * 4 * 6
    while len(told) < wanted:
        with follow(pipeline, last) as stream:
            for _ in range(min(29, wanted - len(told))):
                event = stream.next()
                told.append(event.data)
                last = event.id
    for writer in writers:
        writer.join()

    assert sorted(row["id"] for row in told) == [row["id"] for row in rows(pipeline)[1:]]
    for name in names:
        own = [row for row in told if row["filename"] == name]
        assert tasks.moves_of(own) == tasks.moves(pipeline, name)


def write(cursor: Any, filename: str) -> None:
    """A change as a transaction of the pipeline writes it."""
    cursor.execute(
        "INSERT INTO pipeline_history (filename, shard, stage, to_status, attempt)"
        " VALUES (%s, 0, 'event-ingest', 'started', 1)",
        (filename,),
    )


@pytest.mark.parametrize("cut", [False, True])
def test_a_transaction_that_began_first_and_commits_last_is_not_missed(pipeline: Api, cut: bool) -> None:
    """Its row has the smaller number and becomes visible later than rows that were written after it."""
    late = psycopg2.connect(pipeline.database_url, connect_timeout=5)
    try:
        with follow(pipeline) as stream, late.cursor() as cursor:
            tasks.register(pipeline, [0], "before")
            assert [change[0] for change in stream.take(1)] == ["before"]
            write(cursor, "late")
            tasks.register(pipeline, [0], "between")
            tasks.register(pipeline, [1], "between")
            told = [] if stream.is_quiet() else [stream.seen[-1].change]
            if not cut:
                late.commit()
                told += stream.take(3 - len(told))
                assert stream.is_quiet()
        if cut:
            with follow(pipeline, stream.seen[-1].id) as rest:
                late.commit()
                told += rest.take(3 - len(told))
                assert rest.is_quiet()
    finally:
        late.close()

    assert sorted(change[0] for change in told) == ["between", "between", "late"]


def test_a_transaction_that_is_given_up_holds_nothing_back(pipeline: Api) -> None:
    late = psycopg2.connect(pipeline.database_url, connect_timeout=5)
    try:
        with follow(pipeline) as stream, late.cursor() as cursor:
            write(cursor, "never")
            tasks.register(pipeline, [0], "after")
            late.rollback()

            assert [change[0] for change in stream.take(1)] == ["after"]
            assert stream.is_quiet()
    finally:
        late.close()


def test_an_old_open_transaction_does_not_hide_what_was_committed_before_it(pipeline: Api) -> None:
    late = psycopg2.connect(pipeline.database_url, connect_timeout=5)
    try:
        with follow(pipeline) as stream, late.cursor() as cursor:
            tasks.register(pipeline, [0], "before")
            write(cursor, "late")

            assert [change[0] for change in stream.take(1)] == ["before"]
    finally:
        late.close()


@pytest.mark.parametrize(
    "last", ["", "x", "-1", "0", "9" * 40, "1-2-3", "'; --", "1.5", "18446744073709551616-1"]
)
def test_a_last_event_id_that_the_pipeline_never_gave_breaks_nothing(pipeline: Api, last: str) -> None:
    """It is refused, or as if there were none."""
    with request(pipeline, last, {}) as answer:
        if answer.status != 200:
            assert (answer.status, json.loads(answer.read())["code"]) == (422, "invalid_request")
            return
        stream = Stream(answer)
        tasks.register(pipeline, [0])
        assert stream.next().change == (FILE, 0, "event-ingest", None, "started")


def test_an_event_is_one_line_whatever_the_message_of_a_failure(pipeline: Api) -> None:
    """Nobody writes an event of their own into the stream."""
    hostile = "a\n\nevent: transition\ndata: {}\r\n\r\nid: 1\u2028\u0085\x0b"
    tasks.ready(pipeline, "shard-splitter")

    with follow(pipeline) as stream:
        tasks.move(pipeline, "shard-splitter", "fail", error_message=hostile)

        assert stream.next().data["error_message"] == hostile
        assert stream.is_quiet()
    assert re.fullmatch(r"[\x21-\x7e]+", stream.seen[-1].id)


def test_changes_are_in_the_order_of_numbers_and_not_of_texts(pipeline: Api) -> None:
    for xid in (100, 9, 10, 8, 99):
        pipeline.sql(
            "INSERT INTO pipeline_history (xid, filename, shard, stage, to_status, attempt)"
            f" VALUES ('{xid}', 'f', {xid}, 'event-ingest', 'started', 1)"
        )
    with follow(pipeline, last="1-0") as stream:
        stream.take(5)
    assert [event.data["shard"] for event in stream.seen] == [8, 9, 10, 99, 100]
