"""HTTP/1.1 as it is on the wire, of either profile."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests import patience
from tests.integration.refdata_query.conftest import Pods
from tests.integration.refdata_query.serving import PROFILES, Serving, World, place
from tests.integration.refdata_query.wire import Answer, Closed, Wire, request
from tests.integration.threads import wait_until

KIB = 1 << 10
LIVENESS = "/actuator/health/liveness"
RESET = struct.pack("ii", 1, 0)


def item(n: int | str) -> str:
    return place("shelf", f"items/k{n}")


def is_item(answer: Answer, n: int) -> bool:
    return (answer.status, answer.body) == (200, b'{"n": %d}' % n)


# -- connections


def test_a_connection_is_kept(serving: Serving) -> None:
    with serving.wire() as wire:
        for n in range(20):
            wire.send(serving.request(item(n)))
            answer = wire.answer()
            assert is_item(answer, n)
            assert (answer["Connection"] or "keep-alive").lower() == "keep-alive"
        assert not wire.is_closed()


def test_a_refusal_keeps_the_connection_too(serving: Serving) -> None:
    with serving.wire() as wire:
        for target, status in ((item("none"), 404), ("/nowhere", 404), (item("%ff"), 400), (item(1), 200)):
            wire.send(serving.request(target))
            assert wire.answer().status == status
        wire.send(serving.request(item(1), method="DELETE") + serving.request(item(2)))
        assert wire.answer().status == 405
        assert is_item(wire.answer(), 2)


def test_fifty_requests_at_once_are_answered_in_their_order(serving: Serving) -> None:
    with serving.wire() as wire:
        for _ in range(5):
            wire.send(b"".join(serving.request(item(n)) for n in range(50)))
            assert [wire.answer().body for _ in range(50)] == [b'{"n": %d}' % n for n in range(50)]


def test_whoever_has_to_wait_is_not_overtaken_on_its_own_connection(serving: Serving) -> None:
    barrier = {"X-Min-Version": "99"}
    with serving.wire() as wire:
        wire.send(
            serving.request(item(1))
            + serving.request(item(2), headers=barrier)
            + serving.request(item(3), method="HEAD")
            + serving.request(place("shelf", "all"))
            + serving.request(item("none"))
            + serving.request(item(4), headers=barrier)
            + serving.request(item(5))
        )
        assert is_item(wire.answer(), 1)
        assert wire.answer().refusal == (409, "VERSION_NOT_COMMITTED")
        assert wire.answer(to_head=True)["Content-Length"] == str(len(b'{"n": 3}'))
        assert len(wire.answer().json["items"]) == 100
        assert wire.answer().refusal == (404, "UNKNOWN_KEY")
        assert wire.answer().refusal == (409, "VERSION_NOT_COMMITTED")
        assert is_item(wire.answer(), 5)


def test_requests_may_be_split_at_every_byte(serving: Serving) -> None:
    data = serving.request(item(1)) + serving.request(item(2), method="HEAD") + serving.request(item(3))
    with contextlib.ExitStack() as open_ones:
        wires = [open_ones.enter_context(serving.wire()) for _ in range(1, len(data))]
        for at, wire in enumerate(wires, 1):
            wire.send(data[:at])
        serving.turn()  # so that each first part was read by itself
        for at, wire in enumerate(wires, 1):
            wire.send(data[at:])
        for wire in wires:
            assert is_item(wire.answer(), 1)
            assert wire.answer(to_head=True).status == 200
            assert is_item(wire.answer(), 3)


def test_a_request_may_come_byte_by_byte(serving: Serving) -> None:
    data = serving.request(item(7), headers={"X-Min-Version": "1", "X-Empty": ""})
    with serving.wire() as wire:
        for at in range(len(data)):
            wire.send(data[at : at + 1])
            serving.turn()
        assert is_item(wire.answer(), 7)


# -- the end of a connection


CLOSES = [
    # protocol   Connection                 whether it stays open
    ("HTTP/1.1", None, True),
    ("HTTP/1.1", "keep-alive", True),
    ("HTTP/1.1", "close", False),
    ("HTTP/1.1", "Close", False),
    ("HTTP/1.1", "TE, close", False),
    ("HTTP/1.0", None, False),
    ("HTTP/1.0", "close", False),
    ("HTTP/1.0", "keep-alive", True),
    ("HTTP/1.0", "Keep-Alive", True),
]


@pytest.mark.parametrize("target", [item(1), place("shelf", "all"), "/nowhere"], ids=["item", "all", "404"])
@pytest.mark.parametrize(("protocol", "connection", "stays"), CLOSES)
def test_the_connection_is_kept_or_closed_as_asked(
    protocol: str, connection: str | None, stays: bool, target: str, serving: Serving
) -> None:
    with serving.wire() as wire:
        wire.send(serving.request(target, protocol=protocol, headers={"Connection": connection}))
        answer = wire.answer()
        assert answer.status == (404 if target == "/nowhere" else 200)
        said = (answer["Connection"] or "").lower()
        if stays and protocol == "HTTP/1.0" and serving.profile == "safe":
            stays = False  # uvicorn keeps none, as it may
        if stays:
            assert not wire.is_closed()
            assert said != "close" and (protocol == "HTTP/1.1" or said == "keep-alive")
        else:
            assert wire.is_closed()
            assert protocol == "HTTP/1.0" or said == "close"
        if protocol == "HTTP/1.0":  # which knows no chunks
            assert answer["Transfer-Encoding"] is None


def test_nothing_is_answered_after_the_last_request(serving: Serving) -> None:
    with serving.wire() as wire:
        wire.send(
            serving.request(item(1), headers={"Connection": "close"}) + serving.request(item(2)),
        )
        assert [answer.body for answer in wire.answers()] == [b'{"n": 1}']


# -- HEAD


HEADED = [
    (item(1), {}),
    (item("none"), {}),
    (place("shelf", "items?keys=k1,k2,none"), {}),
    (place("shelf", "all"), {}),
    (place("shelf", "all"), {"Accept-Encoding": "gzip"}),
    (place("shelf", "all?limit=3"), {}),
    (place("shelf", "all?limit=0"), {}),
    (place("shelf", "items/k1", code="NEVER"), {}),
    (item(1), {"X-Min-Version": "99"}),
    (item(1), {"Authorization": "Bearer nobody"}),
    (item(1), {"If-None-Match": "*"}),
    ("/nowhere", {}),
    ("/actuator/health", {}),
    ("/actuator/health/readiness", {}),
    (LIVENESS, {}),
]


@pytest.mark.parametrize(("target", "headers"), HEADED)
def test_head_says_what_get_would_without_its_body(
    target: str, headers: dict[str, str], serving: Serving
) -> None:
    named = {name.replace("-", "_"): value for name, value in headers.items()}
    of_get = serving.get(target, **named)
    with serving.wire() as wire:
        wire.send(serving.request(target, method="HEAD", headers=headers) + serving.request(item(5)))
        of_head = wire.answer(to_head=True)
        assert is_item(wire.answer(), 5)  # and not a byte of a body before it
    assert of_head.status == of_get.status
    assert told(of_head) == told(of_get)
    if of_get.status != 304:
        assert of_head["Content-Length"] == str(len(of_get.body))


def told(answer: Answer) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers if name.lower() != "date"}


@pytest.mark.parametrize("target", [place("shelf"), "/actuator/prometheus"])
def test_head_of_what_changes_has_no_body_either(target: str, serving: Serving) -> None:
    with serving.wire() as wire:
        wire.send(serving.request(target, method="HEAD") + serving.request(item(5)))
        assert wire.answer(to_head=True).status == 200
        assert is_item(wire.answer(), 5)


def test_head_of_a_watch_ends_at_once(serving: Serving) -> None:
    answer = serving.head(place("shelf", "watch"))
    assert (answer.status, answer["Content-Type"]) == (200, "text/event-stream")


# -- sizes


def filled(prefix: str, size: int) -> str:
    return prefix + "x" * (size - len(prefix))


@pytest.mark.parametrize(
    ("size", "status"),
    [(8 * KIB, 200), (63 * KIB, 200), (64 * KIB - 1, 200), (64 * KIB, 414), (200 * KIB, 414)],
)
def test_a_target_has_64_kib(size: int, status: int, serving: Serving) -> None:
    keys = ",".join("x" * 100 for _ in range(size // 101 - 2))
    target = filled(place("shelf", f"items?keys={keys},"), size)
    assert len(target) == size
    with serving.wire() as wire:
        wire.send(serving.request(target))
        answer = wire.answer()
    assert answer.status == status, answer.body[:200]


def test_a_target_that_is_too_long_is_told_as_a_problem(serving: Serving) -> None:
    answer = serving.get(filled(place("shelf", "items?keys="), 100 * KIB))
    assert answer.status == 414
    assert answer.code


LARGE_HEADERS = {
    "one of 60 KiB": ([("X-Large", "x" * 60 * KIB)], (200,)),
    "600 of 100 bytes": ([(f"X-{n}", "x" * 90) for n in range(600)], (200,)),
    "one of 70 KiB": ([("X-Large", "x" * 70 * KIB)], (400, 431)),
    "10,000 of 10 bytes": ([(f"X-{n}", "x") for n in range(10_000)], (400, 431)),
    "a name of 70 KiB": ([("x" * 70 * KIB, "1")], (400, 431)),
}


@pytest.mark.parametrize("case", LARGE_HEADERS)
def test_headers_have_64_kib_in_all(case: str, serving: Serving) -> None:
    headers, statuses = LARGE_HEADERS[case]
    with serving.wire() as wire:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it need not hear the end
            wire.send(serving.request(item(1), headers=headers))
        answer = wire.answer()
        assert answer.status in statuses
        assert wire.is_closed() == (answer.status != 200)


ENDLESS = {
    "a target": b"GET /" + b"x" * KIB,
    "a header's value": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * KIB,
    "a header's name": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"x" * KIB,
    "headers": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "a method": b"x" * KIB,
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_head_without_end_is_cut_off(case: str, serving: Serving) -> None:
    more = b"X-Some: thing\r\n" * 70 if case == "headers" else b"x" * KIB
    with serving.wire(seconds=5) as wire:
        wire.send(ENDLESS[case])
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(64 * KIB):  # 64 MiB, of which no server has a use
                wire.send(more)
                if select.select([wire.socket], [], [], 0)[0]:
                    wire.answers()
                    raise BrokenPipeError
    serving.turn()


# -- what is no request


HOST = b"Host: 127.0.0.1\r\n"
LINE = b"GET /actuator/health/liveness HTTP/1.1\r\n"


def head(*lines: bytes) -> bytes:
    return LINE + HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


MALFORMED = {
    # the first line
    "no method": b" / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method with a parenthesis": b"G(T / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method with a NUL": b"G\x00T / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    "no target": b"GET HTTP/1.1\r\n" + HOST + b"\r\n",
    "no protocol": b"GET /\r\n" + HOST + b"\r\n",
    "a protocol in lower case": b"GET / http/1.1\r\n" + HOST + b"\r\n",
    "version 9.9": b"GET / HTTP/9.9\r\n" + HOST + b"\r\n",
    "version 1": b"GET / HTTP/1\r\n" + HOST + b"\r\n",
    "version 1.1 and more": b"GET / HTTP/1.1x\r\n" + HOST + b"\r\n",
    "a blank in the target": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a NUL in the target": b"GET /a\x00b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a CR in the target": b"GET /a\rb HTTP/1.1\r\n" + HOST + b"\r\n",
    "a target without a slash": b"GET actuator HTTP/1.1\r\n" + HOST + b"\r\n",
    # ends of lines
    "a bare LF after the first line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "a bare LF after a header": LINE + b"Host: a\nX: b\r\n\r\n",
    "a bare LF at the end": LINE + HOST + b"\n",
    "bare LFs only": b"GET / HTTP/1.1\nHost: a\n\n",
    "a bare CR after a header": LINE + b"Host: a\rX: b\r\n\r\n",
    "a header behind a bare CR": head(b"X: a\rTransfer-Encoding: chunked"),
    "a header behind a bare LF": head(b"X: a\nTransfer-Encoding: chunked"),
    # headers
    "a header without a colon": head(b"Nothing"),
    "a header without a name": head(b": nothing"),
    "a blank before the colon": head(b"X : 1"),
    "a name with a blank": head(b"X Y: 1"),
    "a name with a NUL": head(b"X\x00Y: 1"),
    "a name beyond ASCII": head(b"X\xe9: 1"),
    "a value with a NUL": head(b"X: a\x00b"),
    "a value with DEL": head(b"X: a\x7fb"),
    "a value with a control character": head(b"X: a\x01b"),
    "no Host": LINE + b"\r\n",
    "two Hosts": head(b"Host: 127.0.0.1"),
    # lengths
    "two lengths that differ": head(b"Content-Length: 0", b"Content-Length: 5"),
    "two lengths in one": head(b"Content-Length: 0, 5"),
    "a length that is no number": head(b"Content-Length: a"),
    "a negative length": head(b"Content-Length: -1"),
    "a length with a plus": head(b"Content-Length: +0"),
    "a length in hexadecimal": head(b"Content-Length: 0x0"),
    "an empty length": head(b"Content-Length: "),
    "a length with a blank": head(b"Content-Length: 0 0"),
    "a length beyond all numbers": head(b"Content-Length: 99999999999999999999999999"),
    "a length and chunks": head(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks and a length": head(b"Transfer-Encoding: chunked", b"Content-Length: 5") + b"0\r\n\r\n",
    "chunks that are not the last coding": head(b"Transfer-Encoding: chunked, gzip") + b"0\r\n\r\n",
    "a coding that is none of ours": head(b"Transfer-Encoding: gzip") + b"0\r\n\r\n",
    "a coding that looks like chunks": head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    # no HTTP at all
    "a greeting of TLS": bytes.fromhex("16030100c8010000c40303") + b"\x5a" * 200,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "Redis": b"*1\r\n$4\r\nPING\r\n",
    "zeros": b"\x00" * 100,
    "bytes of all kinds": b"\xff\xfe\x80\x81" * 50 + b"\r\n\r\n",
}
UNKNOWN_CODING = {"a coding that is none of ours", "a coding that looks like chunks"}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_malformed_is_400_and_closes(case: str, serving: Serving) -> None:
    # RFC 9112 §6.1 has 501 for a coding that is not known.
    statuses = (400, 501) if case in UNKNOWN_CODING else (400,)
    with serving.wire(seconds=5) as wire:
        wire.send(MALFORMED[case])
        answers = wire.answers()
    assert [answer.status for answer in answers if answer.status not in statuses] == [], answers
    assert len(answers) == 1, "it closed without a word"
    serving.turn()


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_malformed_takes_nothing_with_it(case: str, serving: Serving) -> None:
    """Whatever stood before it on the connection is answered, and what follows is not taken for a request."""
    with serving.wire(seconds=5) as wire:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            wire.send(serving.request(item(1)) + MALFORMED[case] + serving.request(item(2)))
        answers = wire.answers()
    assert is_item(answers[0], 1)
    assert [answer.status for answer in answers[1:]] in ([400], [501])


def test_what_is_malformed_is_told_as_a_problem(serving: Serving) -> None:
    with serving.wire(seconds=5) as wire:
        wire.send(MALFORMED["a length and chunks"])
        [answer] = wire.answers()
    assert answer.status == 400
    assert answer.code


def test_garbage_of_any_kind_stops_nothing(serving: Serving) -> None:
    source = random.Random(4)
    good = serving.request(item(1), headers={"X-Min-Version": "1"})
    for _ in range(300):
        data = bytearray(good)
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(data))
            data[at : at + source.randint(0, 3)] = source.randbytes(source.randint(0, 3))
        with serving.wire(seconds=5) as wire:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                wire.send(bytes(data))
                wire.socket.shutdown(socket.SHUT_WR)
            for answer in wire.answers():
                assert 200 <= answer.status < 500, bytes(data)
    assert is_item(serving.get(item(1)), 1)


def test_an_absolute_address_is_the_same_address(serving: Serving) -> None:
    with serving.wire() as wire:
        wire.send(serving.request(f"http://127.0.0.1:{serving.port}{item(3)}"))
        assert is_item(wire.answer(), 3)


@pytest.mark.parametrize(
    ("method", "target"), [("OPTIONS", "*"), ("CONNECT", "127.0.0.1:80"), ("TRACE", "/")]
)
def test_methods_with_targets_of_their_own_are_refused(method: str, target: str, serving: Serving) -> None:
    with serving.wire(seconds=5) as wire:
        wire.send(serving.request(target, method=method))
        assert wire.answer().status in (400, 404, 405)


# -- bodies, which nobody asked for


INNER = b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
"""A body that looks like a request, whose answer would be 404."""


def chunks(*parts: bytes, last: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + last


BODIES: dict[str, tuple[dict[str, Any], bytes]] = {
    "empty": ({"Content-Length": 0}, b""),
    "some bytes": ({"Content-Length": len(INNER)}, INNER),
    "the same length twice": ({"Content-Length": f"{len(INNER)}"}, INNER),
    "64 KiB": ({"Content-Length": 64 * KIB}, INNER.ljust(64 * KIB, b"x")),
    "1 MiB": ({"Content-Length": KIB * KIB}, (INNER * 30_000)[: KIB * KIB]),
    "one chunk": ({"Transfer-Encoding": "chunked"}, chunks(INNER)),
    "chunks of one byte": (
        {"Transfer-Encoding": "chunked"},
        chunks(*(INNER[at : at + 1] for at in range(len(INNER)))),
    ),
    "chunks with a trailer": (
        {"Transfer-Encoding": "chunked"},
        chunks(INNER, last=b"0\r\nX-Min-Version: 99\r\n\r\n"),
    ),
    "chunks with an extension": ({"Transfer-Encoding": "chunked"}, b"3;a=b\r\nabc\r\n0\r\n\r\n"),
    "many chunks": ({"Transfer-Encoding": "chunked"}, chunks(*([INNER] * 3000))),
    "who waits to be asked for it": ({"Content-Length": len(INNER), "Expect": "100-continue"}, INNER),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("case", BODIES)
def test_a_body_is_never_taken_for_a_request(case: str, method: str, serving: Serving) -> None:
    headers, body = BODIES[case]
    first = serving.request(item(1), method=method, headers=headers, body=body)
    with serving.wire(seconds=5) as wire:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it may close after the answer
            wire.send(first + serving.request(item(2), headers={"Connection": "close"}))
        answers = wire.answers()
    expected = [200 if method == "GET" else 405, 200]
    assert [answer.status for answer in answers] in (expected, expected[:1])
    if len(answers) == 2:
        assert is_item(answers[1], 2)


@pytest.mark.parametrize(
    "body", [b"zz\r\n", b"-1\r\n", b"5 5\r\nabcde\r\n0\r\n\r\n", b"3\r\nabcde\r\n0\r\n\r\n"]
)
def test_chunks_that_are_none_end_the_connection(body: bytes, serving: Serving) -> None:
    headers = {"Transfer-Encoding": "chunked"}
    with serving.wire(seconds=5) as wire:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            wire.send(serving.request(item(1), headers=headers, body=body) + serving.request(item(2)) * 3)
        answers = wire.answers()
    assert [answer.status for answer in answers] in ([], [200], [400], [200, 400])


# -- clients that are slow, or go away


def test_half_a_head_holds_nobody_up(serving: Serving) -> None:
    half = serving.request(item(9))
    with contextlib.ExitStack() as open_ones:
        slow = [open_ones.enter_context(serving.wire()) for _ in range(100)]
        for at, wire in enumerate(slow):
            wire.send(half[: 1 + at])
        begun = time.monotonic()
        for n in range(50):
            assert is_item(serving.get(item(n)), n)
        assert time.monotonic() - begun < 5 * patience.PATIENCE
        for at, wire in enumerate(slow):
            wire.send(half[1 + at :])
            assert is_item(wire.answer(), 9)


MIB = 1 << 20
UNREAD = 30
MOST_BYTES = 250 * MIB
"""Of the memory for 30 clients that do not read: their answers have 1.2 GB in all."""


def whole(serving: Serving, big: str) -> int:
    """How long `all` of the large dictionary is."""
    return int(serving.head(place(big, "all"))["Content-Length"] or "")


def test_whoever_does_not_read_costs_no_memory_and_holds_nobody_up(serving: Serving, big: str) -> None:
    length = whole(serving, big)
    assert length > 35 * MIB
    assert len(serving.get(place(big, "all")).body) == length  # so that it is not made only now
    before = serving.own_bytes()
    with contextlib.ExitStack() as open_ones:
        lazy = [open_ones.enter_context(serving.wire(receive_bytes=4096, seconds=60)) for _ in range(UNREAD)]
        for wire in lazy:
            wire.send(serving.request(place(big, "all")) + serving.request(item(1)))
        serving.turn()
        begun = time.monotonic()
        for n in range(50):
            assert is_item(serving.get(item(n)), n)
        assert time.monotonic() - begun < 5 * patience.PATIENCE
        assert serving.own_bytes() - before < MOST_BYTES
        for wire in (lazy[0], lazy[-1]):
            answer = wire.answer()
            assert (len(answer.body), answer.version) == (length, 1)
            assert answer.body.endswith(b"}}")
            assert is_item(wire.answer(), 1)
    serving.turn()


def test_pipelines_of_a_client_that_does_not_read_cost_no_memory(serving: Serving, big: str) -> None:
    wanted = serving.request(place(big, "all")) * 50
    before = serving.own_bytes()
    with serving.wire(receive_bytes=4096, seconds=60) as wire:
        wire.send(wanted)
        for n in range(20):
            assert is_item(serving.get(item(n)), n)
        assert serving.own_bytes() - before < MOST_BYTES
        length = whole(serving, big)
        assert [len(wire.answer().body) for _ in range(3)] == [length] * 3


def test_whoever_goes_away_leaves_nothing_behind(serving: Serving, big: str) -> None:
    data = serving.request(place(big, "all"))
    serving.turn()
    before = serving.open_files()
    for times in range(60):
        with serving.wire() as wire:
            wire.send(
                (data, data[: len(data) // 2], data * 3, serving.request(place("shelf", "watch")))[times % 4]
            )
            if times % 3:
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            if times % 2 == 0 and times % 4 != 2:
                wire.take(1)
    wait_until(lambda: serving.open_files() <= before + 2)
    assert is_item(serving.get(item(1)), 1)


def test_whoever_goes_away_while_it_waits_leaves_nothing_behind(serving: Serving) -> None:
    serving.turn()
    before = serving.open_files()
    for _ in range(20):
        with serving.wire() as wire:
            wire.send(serving.request(item(1), headers={"X-Min-Version": "99"}) * 2)
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    wait_until(lambda: serving.open_files() <= before + 4)
    assert is_item(serving.get(item(1)), 1)


# -- the end of the process


@pytest.fixture(params=PROFILES)
def ending(
    request: pytest.FixtureRequest, pods: Pods, world: World, shelf: str, big_world: str
) -> Iterator[Serving]:
    """A pod that the test ends."""
    found = pods(world, profile=request.param)
    found.await_version(big_world, 1, seconds=60)
    yield found


def test_no_request_is_lost_when_it_ends_under_load(ending: Serving) -> None:
    """Each that was sent before SIGTERM is answered whole; each answer that was begun is whole."""
    answered: list[int] = []
    lost: list[Any] = []
    asked_to_end = threading.Event()

    def load(seed: int) -> None:
        source = random.Random(seed)
        while True:
            try:
                wire = ending.wire()
            except OSError:
                return
            with wire:
                for _ in range(source.randint(1, 200)):
                    n, count = source.randrange(100), source.randint(1, 20)
                    closing = in_time = False
                    try:
                        wire.send(ending.request(item(n)) * count)
                        in_time = not asked_to_end.is_set()
                        for _ in range(count):
                            answer = wire.answer()
                            assert is_item(answer, n), answer
                            answered.append(n)
                            closing = (answer["Connection"] or "").lower() == "close"
                            if closing:
                                break
                    except (Closed, OSError):
                        if in_time or not asked_to_end.is_set():
                            lost.append("sent in time, and not answered")
                        break
                    except AssertionError as error:
                        lost.append(error)
                        return
                    if closing:
                        break

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(answered) > 2000, seconds=30)
    asked_to_end.set()
    ending.stop()
    for thread in threads:
        thread.join()
    assert lost == []


def test_what_is_under_way_when_it_ends_is_finished(ending: Serving, big_world: str) -> None:
    length = whole(ending, big_world)
    with ending.wire(receive_bytes=65536, seconds=60) as slow, ending.wire() as waiting:
        slow.send(ending.request(place(big_world, "all")))
        slow_head, _ = slow.head()
        assert slow_head["Content-Length"] == str(length)
        waiting.send(ending.request(item(1), headers={"X-Min-Version": "99"}))
        ending.turn()
        ending.terminate()
        assert waiting.answer().refusal == (409, "VERSION_NOT_COMMITTED")
        assert len(slow.take(length)) == length
        assert slow.is_closed()
    ending.stop()


def test_it_is_not_ready_as_soon_as_it_is_to_end(ending: Serving, big_world: str) -> None:
    """While a long answer is under way, whoever asks is told so, and that the connection closes."""
    with ending.wire(receive_bytes=65536, seconds=60) as slow, ending.wire() as kept:
        slow.send(ending.request(place(big_world, "all")))
        slow.head()
        kept.send(ending.request(item(1)))
        assert is_item(kept.answer(), 1)
        ending.terminate()
        wait_until(lambda: asked_anew(ending) == [(503, "close")], seconds=2)  # the signal has arrived
        seen = [*readiness(kept, ending), *readiness(kept, ending)]
        for _ in range(5):
            with contextlib.suppress(OSError), ending.wire() as fresh:
                seen += readiness(fresh, ending)
        slow.rest()
    ending.stop()
    assert set(seen) == {(503, "close")}


def asked_anew(serving: Serving) -> list[tuple[int, str | None]]:
    """What is told of it on a new connection."""
    with serving.wire() as wire:
        return readiness(wire, serving)


def readiness(wire: Wire, serving: Serving) -> list[tuple[int, str | None]]:
    """What is told of it on this connection, if anything: the status, and what becomes of the connection."""
    try:
        wire.send(serving.request("/actuator/health/readiness"))
        answer = wire.answer()
    except (Closed, OSError):
        return []
    return [(answer.status, answer["Connection"])]


def test_watchers_do_not_hold_its_end_up(ending: Serving) -> None:
    with ending.wire(seconds=30) as wire:
        wire.send(ending.request(place("shelf", "watch")))
        assert wire.head()[0].status == 200
        ending.terminate()
        wire.rest()
    ending.stop()


def test_an_unread_answer_does_not_hold_its_end_up_for_ever(ending: Serving, big_world: str) -> None:
    with ending.wire(receive_bytes=4096) as wire:
        wire.send(ending.request(place(big_world, "all")))
        wire.head()
        ending.stop(60)


def test_what_comes_without_a_word_of_its_length_is_another_request(serving: Serving) -> None:
    with serving.wire() as wire:
        wire.send(request(LIVENESS, body=INNER))
        assert [wire.answer().status for _ in range(2)] == [200, 404]
