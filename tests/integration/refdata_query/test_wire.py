"""The client of these tests: what is no answer is an error of the test, and never passes for one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.refdata_query.wire import Answer, Closed, Wire

HEAD = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def sent(data: bytes) -> Iterator[Wire]:
    """A connection on which the server says this and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server, Wire(server.getsockname()[1]) as wire:
        connection, _ = server.accept()
        with connection:
            connection.sendall(data)
        yield wire


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"Content-Length: 5\r\n\r\nabc",
        HEAD + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc\r\n0\r\n\r\n",
        HEAD + b"X: a\nY: b\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"X : a\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_not_taken_for_one(data: bytes) -> None:
    with sent(data) as wire, pytest.raises(AssertionError):
        wire.answer()


def test_answers_are_parted_as_their_framing_says() -> None:
    data = (
        HEAD
        + b"Content-Length: 2\r\n\r\nab"
        + HEAD
        + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"
    )
    with sent(data + b"HTTP/1.1 304 Not Modified\r\n\r\n" + HEAD + b"\r\nto the end") as wire:
        assert [wire.answer().body for _ in range(4)] == [b"ab", b"abc", b"", b"to the end"]
        with pytest.raises(Closed):
            wire.answer()


def test_a_refusal_has_every_member() -> None:
    typed = [("Content-Type", "application/problem+json")]
    with pytest.raises(AssertionError):
        Answer(404, typed, b'{"type": "about:blank", "status": 404, "code": "not_found"}').refusal  # noqa: B018
