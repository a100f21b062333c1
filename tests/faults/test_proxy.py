"""The network that the fault tests break does break as it says."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.faults.proxy import HOST, Proxy

NEVER_SECONDS = 0.3
"""What has not come after so long does not come: everything is on this machine."""


class Echo:
    """A server that sends back what it gets, with its own mark before it."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        self.got = b""
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while data := client.recv(65_536):
                self.got += data
                client.sendall(self.mark + data)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    with contextlib.closing(Echo(b"")) as server:
        yield server


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with contextlib.closing(Proxy(echo.port)) as between:
        yield between


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with connected(proxy) as connection:
        assert asked(connection, b"hello") == b"hello"
        yield connection


def connected(proxy: Proxy) -> socket.socket:
    connection = socket.create_connection((HOST, proxy.port), timeout=5)
    connection.settimeout(5)
    return connection


def asked(connection: socket.socket, words: bytes) -> bytes:
    connection.sendall(words)
    return connection.recv(65_536)


def hears_nothing(connection: socket.socket) -> bool:
    connection.settimeout(NEVER_SECONDS)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5)
    return False


def test_a_silent_network_takes_every_byte_and_brings_them_late(
    proxy: Proxy, client: socket.socket, echo: Echo
) -> None:
    proxy.silence()
    client.sendall(b"late" * 1_000_000)  # more than the buffers of the kernel hold
    assert hears_nothing(client)
    assert echo.got == b"hello"
    assert proxy.swallowed > 0
    proxy.heal()
    answer = b""
    while len(answer) < 4_000_000:
        answer += client.recv(65_536)
    assert answer == b"late" * 1_000_000


def test_a_connection_that_was_silent_is_forgotten_and_a_new_one_is_not(
    proxy: Proxy, client: socket.socket, echo: Echo
) -> None:
    proxy.silence()
    proxy.heal(forget=True)
    client.sendall(b"lost")
    assert hears_nothing(client)
    with connected(proxy) as other:
        assert asked(other, b"new") == b"new"
    assert echo.got == b"hellonew"
    proxy.renew()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


@pytest.mark.parametrize("new", [True, False])
def test_new_connections_of_a_silent_network_are_silent_if_asked_for(
    proxy: Proxy, client: socket.socket, new: bool
) -> None:
    proxy.silence(new=new)
    with connected(proxy) as other:
        other.sendall(b"hello")
        assert hears_nothing(other) is new


def test_refused_connections_are_refused_and_the_old_ones_go_on(proxy: Proxy, client: socket.socket) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)
    assert asked(client, b"old") == b"old"
    proxy.heal()
    with connected(proxy) as other:
        assert asked(other, b"new") == b"new"


def test_a_connection_is_reset_at_once(proxy: Proxy, client: socket.socket) -> None:
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert proxy.cuts == 1


def test_a_connection_is_reset_within_its_bytes_at_an_offset_of_the_seed(proxy: Proxy, echo: Echo) -> None:
    offsets = set()
    for _ in range(2):
        with connected(proxy) as client:
            echo.got = b""
            assert asked(client, b".") == b"."
            proxy.cut(within=random.Random(5))
            with pytest.raises(OSError):
                while True:
                    asked(client, b"." * 100)
            offsets.add(len(echo.got) // 100)
    assert len(offsets) == 1


def test_an_answer_is_lost_after_the_request_has_arrived(
    proxy: Proxy, client: socket.socket, echo: Echo
) -> None:
    proxy.lose_answers(b"COMMIT", [1])
    assert asked(client, b"COMMIT 0") == b"COMMIT 0"
    client.sendall(b"COMMIT 1")
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert echo.got.endswith(b"COMMIT 1")


def test_a_connection_says_nothing_after_a_request_that_has_arrived(
    proxy: Proxy, client: socket.socket, echo: Echo
) -> None:
    proxy.lose_answers(b"COMMIT", [0], silently=True)
    client.sendall(b"COMMIT")
    assert hears_nothing(client)
    assert echo.got.endswith(b"COMMIT")
    assert proxy.lost == 1


def test_a_new_connection_leads_to_the_other_server(proxy: Proxy, client: socket.socket) -> None:
    with contextlib.closing(Echo(b"other:")) as other:
        proxy.switch(other.port)
        with connected(proxy) as second:
            assert asked(second, b"x") == b"other:x"
        assert asked(client, b"x") == b"x"


def test_bytes_come_later(proxy: Proxy, client: socket.socket) -> None:
    proxy.delay(2 * NEVER_SECONDS)
    client.sendall(b"x")
    assert hears_nothing(client)
    assert client.recv(1) == b"x"
