"""What a server answers to us: it is not followed elsewhere, and a few bytes of it never become very many."""

from __future__ import annotations

import gzip
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from app.catalog import client as catalog
from app.catalog import normalize
from app.catalog.embedding_endpoint import EndpointAway, HttpModel
from app.catalog.embedding_models import ModelUnusable
from app.catalog.failures import TargetFailure
from app.kernel.clock import SystemClock
from app.refdata import jwks
from app.uploads.webhooks import address
from app.uploads.webhooks.send import Wire

MEGABYTE = 1 << 20
ZEROS = bytes(100 * MEGABYTE)
MOST_MEGABYTES = 50
SECRET = "an-application-id-of-this-test"


class Clock(SystemClock):
    """A clock that waits for nothing."""

    def sleep(self, seconds: float) -> None:
        pass


class Paceless:
    """Nobody waits for anybody."""

    def wait(self) -> None:
        pass

    def pause(self, seconds: float) -> None:
        pass


class Server:
    """Answers the same whatever is asked, and remembers what was."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
        self.asked: list[tuple[str, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.path, dict(self.headers)))
                status, headers, body = server.answer
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def other() -> Iterator[Server]:
    """Where nobody may be led to."""
    found = Server()
    yield found
    found.close()


def ask_catalog(url: str) -> Any:
    access = catalog.Access(url, SECRET, access_key="k")
    return catalog.RakutenClient(access, cast(Any, Paceless()), Clock()).fetch_item(item_code="shop:1")


def ask_model(url: str) -> Any:
    return HttpModel(f"{url}/v1/embeddings", "m", Clock(), dimensions=2, key="a-key").embed(["x"])


def ask_keys(url: str) -> Any:
    return jwks.keys_of(jwks.HttpSource(f"{url}/keys", Clock(), every_seconds=60).read() or b"", ["RS256"])


def tell_webhook(url: str) -> Any:
    target = address.parse(f"{url}/hook", to_loopback=True)
    return Wire(to_loopback=True).post(target, {"webhook-signature": "v1,x"}, b"{}")


FAILURES = (TargetFailure, EndpointAway, ModelUnusable, jwks.KeysAway, jwks.BadKeys)
CLIENTS = {"catalog": ask_catalog, "model": ask_model, "keys": ask_keys, "webhook": tell_webhook}
PACKED = {
    "gzip": gzip.compress(ZEROS, 1),
    "deflate": zlib.compress(ZEROS, 1),
    "gzip, gzip": gzip.compress(gzip.compress(ZEROS, 1), 1),
}


def peak_megabytes(do: Callable[[], Any]) -> float:
    """What it takes of memory at most, whether it succeeds or not."""
    tracemalloc.start()
    try:
        do()
    except FAILURES:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak / MEGABYTE


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("name", CLIENTS)
def test_an_answer_that_unpacks_to_very_much_is_given_up(name: str, encoding: str, server: Server) -> None:
    server.answer = (
        200,
        {"Content-Encoding": encoding, "Content-Type": "application/json"},
        PACKED[encoding],
    )
    assert peak_megabytes(lambda: CLIENTS[name](server.url)) < MOST_MEGABYTES
    assert server.asked


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b'{"Items":' + b"9" * 100_000 + b"}"])
@pytest.mark.parametrize("name", ["catalog", "model", "keys"])
def test_an_answer_that_is_nested_or_long_without_end_is_a_failure(
    name: str, body: bytes, server: Server
) -> None:
    server.answer = (200, {}, body)
    with pytest.raises(FAILURES):
        CLIENTS[name](server.url)


def test_a_number_whose_exponent_is_none_is_a_failure_of_the_target(server: Server) -> None:
    server.answer = (200, {}, b'{"Items":[{"itemCode":"shop:1","x":1e' + b"3" * 40 + b"}]}")
    with pytest.raises(TargetFailure) as caught:
        ask_catalog(server.url)
    assert caught.value.category == "unexpected_body"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("name", CLIENTS)
def test_nobody_is_led_elsewhere(name: str, status: int, server: Server, other: Server) -> None:
    server.answer = (status, {"Location": f"{other.url}/there"}, b"")
    try:
        said = CLIENTS[name](server.url)
    except FAILURES:
        pass
    else:
        assert said.status_code == status  # a webhook's receiver is told of as it answers
    assert server.asked and not other.asked


@pytest.mark.parametrize("depth", [100, 300, 450, 600, 900, 960])
def test_an_answer_that_is_nested_deep_is_read_or_a_failure_of_the_target(depth: int, server: Server) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    server.answer = (200, {}, b'{"Items":[{"itemCode":"shop:1","itemName":"x","a":' + deep + b"}]}")
    try:
        found = normalize.normalize("item", ask_catalog(server.url))
        assert len(normalize.compute_content_hash(found)) == 64
    except TargetFailure as failure:
        assert failure.category in ("contract", "unexpected_body")
