"""One message over a real connection: TLS for the name, and only to the address that was judged."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from app.uploads.webhooks import address, send
from app.uploads.webhooks.address import AddressRefused, Target
from app.uploads.webhooks.send import Answer, NotSent, Wire
from tests.integration.webhooks.receiver import Receiver, drips, says

NAME = "hooks.example"


def to_here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trust(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def secured(authority: trustme.CA, *names: str) -> Receiver:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return Receiver(tls=context, answers=[says(200, b"fine")])


@pytest.fixture
def secure(authority: trustme.CA) -> Iterator[Receiver]:
    with secured(authority, NAME) as found:
        yield found


def post(receiver: Receiver, *, scheme: str = "https", host: str = NAME, **wire: Any) -> Answer:
    target = Target(scheme, host, receiver.port, "/")
    return Wire(**{"to_loopback": True, "resolve": to_here, **wire}).post(target, {"webhook-id": "1"}, b"{}")


def test_https_reaches_the_address_of_the_resolver_under_the_name(
    secure: Receiver, trust: ssl.SSLContext
) -> None:
    assert post(secure, trust=trust) == Answer(200, None, "fine")
    assert secure.received[0].headers["host"] == f"{NAME}:{secure.port}"


def test_a_certificate_for_another_name_is_refused(authority: trustme.CA, trust: ssl.SSLContext) -> None:
    # For the address alone: it is the name that must be proven.
    with secured(authority, "other.example", "127.0.0.1") as receiver:
        with pytest.raises(NotSent) as failure:
            post(receiver, trust=trust)
        assert failure.value.code == "tls_failed"
        assert receiver.received == []


def test_an_address_in_the_url_needs_a_certificate_for_it(
    authority: trustme.CA, trust: ssl.SSLContext, secure: Receiver
) -> None:
    with secured(authority, "127.0.0.1") as receiver:
        assert post(receiver, host="127.0.0.1", trust=trust).status_code == 200
    with pytest.raises(NotSent):
        post(secure, host="127.0.0.1", trust=trust)


def test_a_certificate_that_nobody_vouches_for_is_refused(secure: Receiver) -> None:
    with pytest.raises(NotSent) as failure:
        post(secure)  # what the public trusts
    assert failure.value.code == "tls_failed"
    assert secure.received == []


def test_the_public_trust_verifies_names_and_knows_authorities() -> None:
    context = send.public_trust()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert len(context.get_ca_certs()) > 100


def test_a_receiver_that_speaks_no_tls_is_refused(trust: ssl.SSLContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        target = Target("https", NAME, server.getsockname()[1], "/")
        wire = Wire(to_loopback=True, resolve=to_here, trust=trust, connect_seconds=0.3)
        with pytest.raises(NotSent) as failure:
            wire.post(target, {}, b"")  # nobody answers the handshake
    assert failure.value.code == "timeout"


class Connections:
    """Notes where connections are made to, and lets none of them happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        monkeypatch.setattr(socket, "create_connection", self.refuse)

    def refuse(self, where: tuple[str, int], **_: Any) -> socket.socket:
        self.made.append(where[0])
        raise ConnectionRefusedError


def test_a_resolver_that_answers_differently_the_second_time_gains_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = Connections(monkeypatch)
    answers = [["93.184.216.34", "2606:4700:4700::1111"], ["127.0.0.1"], ["169.254.169.254"]]
    asked: list[str] = []

    def rebinding(host: str, _port: int) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    wire, target = Wire(resolve=rebinding), Target("https", NAME, 443, "/")
    with pytest.raises(NotSent):
        wire.post(target, {}, b"")
    assert asked == [NAME]  # once: the connection is made to what was judged, not to the name
    assert connections.made == ["93.184.216.34", "2606:4700:4700::1111"]
    for _ in range(2):
        with pytest.raises(AddressRefused):
            wire.post(target, {}, b"")
    assert len(connections.made) == 2


def test_spellings_that_slip_past_a_reader_of_urls_are_caught_as_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = Connections(monkeypatch)
    for spelling in ("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "0"):
        with pytest.raises(AddressRefused):
            Wire().post(Target("https", spelling, 443, "/"), {}, b"")  # the system's own resolver
    assert connections.made == []


def test_the_second_address_serves_when_the_first_does_not(secure: Receiver, trust: ssl.SSLContext) -> None:
    # Nobody listens at this port of ::1.
    assert post(secure, trust=trust, resolve=lambda _h, _p: ["::1", "127.0.0.1"]).status_code == 200


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Receiver() as receiver:
        assert post(receiver, scheme="http", host="127.0.0.1").status_code == 200


def test_a_header_that_drips_ends_with_the_whole_time_and_not_later() -> None:
    with Receiver(answers=[drips(b"HTTP/1.1 200 OK\r\nX: ", seconds=20)]) as receiver:
        began = time.monotonic()
        with pytest.raises(NotSent) as failure:
            post(receiver, scheme="http", total_seconds=0.5)
        assert failure.value.code == "timeout"
        assert time.monotonic() - began < 10  # the receiver would have gone on for twenty


def test_the_limits_are_those_that_are_promised() -> None:
    assert (Wire().connect_seconds, Wire().total_seconds, send.ANSWER_BYTES) == (5.0, 10.0, 16_384)
    assert not Wire().to_loopback
    assert Wire().resolve is address.resolve_host


def test_no_more_than_16_kib_of_an_answer_are_read() -> None:
    read: list[int] = []

    class Counting(socket.socket):
        """A connection that counts what is taken from it."""

        def recv(self, *args: Any) -> bytes:
            data = super().recv(*args)
            read.append(len(data))
            return data

    def connect(where: tuple[str, int], timeout: float) -> socket.socket:
        connection = Counting()
        connection.settimeout(timeout)
        connection.connect(where)
        return connection

    with Receiver(answers=[says(200, b"y" * 1_000_000)]) as receiver, pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", connect)
        answer = post(receiver, scheme="http")
    assert sum(read) == send.ANSWER_BYTES
    assert answer.excerpt == "y" * 500
