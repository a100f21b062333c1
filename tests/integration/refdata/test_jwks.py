"""Keys from real files and over real connections, read again in the background."""

from __future__ import annotations

import http.server
import ipaddress
import os
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme

from app.access import statuses
from app.kernel import errors
from app.kernel.clock import SystemClock
from app.refdata import jwks, tenants
from tests import patience
from tests.unit.refdata import signing

WAIT = 20.0 * patience.PATIENCE  # far more than anything here takes


class Clock(SystemClock):
    """The machine's own, which can be set ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Provider:
    """An identity provider's key server on loopback that answers what the test wants."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked: list[dict[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self._more = threading.Condition()
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with provider._more:
                    provider.asked.append({name.lower(): value for name, value in self.headers.items()})
                    provider._more.notify_all()
                provider.gate.wait(WAIT)
                self.send_response(provider.status)
                for name, value in {"Content-Length": str(len(provider.content)), **provider.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(provider.content)
                except OSError:
                    return  # whoever asked has heard enough

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/keys?a=b"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def wait_asked(self, times: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.asked) >= times, WAIT), len(self.asked)

    def close(self) -> None:
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join(WAIT)


@pytest.fixture
def provider() -> Iterator[Provider]:
    found = Provider(signing.jwks(signing.rsa_jwk("old")))
    yield found
    found.close()


@contextmanager
def kept(source: jwks.Source, clock: SystemClock, **more: Any) -> Iterator[jwks.Jwks]:
    """Keys of a source, read in the background until the end of the block."""
    keys = jwks.Jwks(source, ["RS256"], clock, **more)
    keys.start()
    try:
        yield keys
    finally:
        keys.close()
        assert "jwks" not in {thread.name for thread in threading.enumerate()}


def readings(keys: jwks.Jwks) -> int:
    return keys._readings


def wait_readings(keys: jwks.Jwks, times: int) -> None:
    """So many readings in the background have ended."""
    with keys._changed:
        assert keys._changed.wait_for(lambda: keys._readings >= times, WAIT), keys._readings


def wait_generation(keys: jwks.Jwks, generation: int) -> None:
    with keys._changed:
        assert keys._changed.wait_for(lambda: keys.generation >= generation, WAIT), keys.generation


@contextmanager
def opened(provider: Provider, clock: SystemClock, **more: Any) -> Iterator[tenants.Tenants]:
    rules = tenants.Rules.of({"jwksUrl": provider.url, "algorithms": ["RS256"]})
    found = tenants.Tenants.open(rules, clock, {}, embedded=False, **more)
    try:
        yield found
    finally:
        found.close()


def token(key: str, *, kid: str | None = None) -> dict[str, str]:
    expires = int(SystemClock().now().timestamp()) + 600
    header = {"alg": "RS256", "kid": kid or key}
    signed = signing.compact(header, {"tenant_id": "acme", "exp": expires}, signing.rs256(key))
    return {"authorization": f"Bearer {signed}"}


def status_of(check: tenants.Tenants, headers: dict[str, str]) -> int:
    try:
        check.check("acme", headers, "127.0.0.1")
    except errors.HeadworksError as error:
        return statuses.status_of(error)
    return 200


def test_no_connection_stays_open_that_a_child_would_share(provider: Provider) -> None:
    source = jwks.HttpSource(provider.url, SystemClock(), every_seconds=300)
    assert source.read() == source.read() == provider.content
    provider.close()
    with pytest.raises(jwks.KeysAway):
        source.read()


def test_a_token_is_checked_with_a_key_that_was_fetched(provider: Provider) -> None:
    with opened(provider, SystemClock()) as check:
        assert status_of(check, token("old")) == 200
        assert status_of(check, token("evil", kid="old")) == 401
    assert len(provider.asked) == 1
    assert provider.asked[0]["accept-encoding"] == "identity"


def test_a_new_key_lets_in_whoever_can_wait(provider: Provider) -> None:
    with opened(provider, SystemClock(), patience_seconds=WAIT) as check:
        provider.content = signing.jwks(signing.rsa_jwk("new"))
        assert status_of(check, token("new")) == 200
        assert status_of(check, token("old")) == 401  # withdrawn
        assert len(provider.asked) == 2


def test_where_nobody_may_wait_a_new_key_is_fetched_beside_the_requests(provider: Provider) -> None:
    clock = SystemClock()
    source = jwks.HttpSource(provider.url, clock, every_seconds=300)
    with kept(source, clock) as keys:
        provider.content = signing.jwks(signing.rsa_jwk("new"))
        provider.gate.clear()
        assert keys.find("new", "RS256") is None  # at once, though the provider does not answer
        provider.gate.set()
        wait_generation(keys, 2)
        assert keys.find("new", "RS256") is not None


def test_unknown_keys_cause_one_fetch_in_half_a_minute(provider: Provider) -> None:
    clock = Clock()
    with opened(provider, clock, patience_seconds=WAIT) as check:
        for number in range(50):
            assert status_of(check, token("evil", kid=f"evil-{number}")) == 401
        assert len(provider.asked) == 2
        clock.ahead = 29.0
        assert status_of(check, token("evil")) == 401
        assert len(provider.asked) == 2
        clock.ahead = 31.0
        assert status_of(check, token("evil")) == 401
        assert status_of(check, token("evil")) == 401
        assert len(provider.asked) == 3


def test_many_who_wait_for_one_key_cause_one_fetch(provider: Provider) -> None:
    with opened(provider, SystemClock(), patience_seconds=WAIT) as check:
        provider.content = signing.jwks(signing.rsa_jwk("new"))
        provider.gate.clear()
        with ThreadPoolExecutor(8) as pool:
            found = [pool.submit(status_of, check, token("new")) for _ in range(8)]
            provider.wait_asked(2)
            provider.gate.set()
            assert [one.result(WAIT) for one in found] == [200] * 8
        assert len(provider.asked) == 2


def test_a_reading_that_began_before_the_question_is_not_the_answer(provider: Provider) -> None:
    """It may have seen the provider before the key was there."""
    clock = SystemClock()
    source = jwks.HttpSource(provider.url, clock, every_seconds=300)
    keys = jwks.Jwks(source, ["RS256"], clock, patience_seconds=WAIT)
    provider.gate.clear()
    provider.content = b"{}"
    keys._begin(0.0)  # a regular reading that hangs at the provider
    provider.wait_asked(1)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(keys.find, "new", "RS256")
        with keys._changed:
            assert keys._changed.wait_for(lambda: keys._wanted, WAIT)
        real = source.read

        def read_and_change() -> bytes | None:
            provider.content = signing.jwks(signing.rsa_jwk("new"))
            return real()

        source.read = read_and_change  # type: ignore[method-assign]
        provider.gate.set()
        assert found.result(WAIT) is not None
    keys.close()


def test_keys_are_read_again_before_anybody_asks(provider: Provider) -> None:
    clock = SystemClock()
    with kept(jwks.HttpSource(provider.url, clock, every_seconds=0.01), clock) as keys:
        provider.wait_asked(3)
        provider.content = signing.jwks(signing.rsa_jwk("new"))
        wait_generation(keys, 2)
        assert keys.find("old", "RS256") is None


def too_slow(provider: Provider) -> None:
    provider.headers = {"Content-Length": str(10_000_000)}  # the rest never comes


BROKEN: dict[str, Callable[[Provider], None]] = {
    "an error": lambda provider: setattr(provider, "status", 500),
    "not found": lambda provider: setattr(provider, "status", 404),
    "a redirect": lambda provider: (
        setattr(provider, "status", 302),
        setattr(provider, "headers", {"Location": provider.url}),
    )[0],
    "a page": lambda provider: setattr(provider, "content", b"<html>maintenance</html>"),
    "no keys": lambda provider: setattr(provider, "content", b'{"keys":[]}'),
    "weak keys": lambda provider: setattr(
        provider, "content", signing.jwks(signing.rsa_jwk("weak", bits=1024))
    ),
    "too much": lambda provider: setattr(provider, "content", b" " * (jwks.MOST_BYTES + 1)),
    "without an end": too_slow,
    "compressed, though not asked for": lambda provider: setattr(
        provider, "content", b"\x1f\x8b" + b"\0" * 50
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_old_keys_stay_while_the_provider_is_broken(
    name: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for a busy machine, where a slow answer would be a second reason.
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.3 if name == "without an end" else 5.0)
    clock = SystemClock()
    source = jwks.HttpSource(provider.url, clock, every_seconds=0.01)
    source.again_seconds = 0.01
    good = provider.content
    with structlog.testing.capture_logs() as lines, kept(source, clock) as keys:
        BROKEN[name](provider)
        provider.wait_asked(len(provider.asked) + 2)  # two that began broken: one has ended
        assert keys.find("old", "RS256") is not None
        wait_readings(keys, readings(keys) + 2)
        refused = [line for line in lines if line["event"] == "jwks_refused"]
        assert len(refused) == 1 and refused[0]["kept"] and refused[0]["log_level"] == "warning"
        assert "?" not in refused[0]["source"]  # such a part may be a secret
        provider.status, provider.headers = 200, {}
        provider.content = good.replace(b'"old"', b'"new"')
        wait_generation(keys, 2)
        assert keys.find("new", "RS256") is not None
    assert [line["event"] for line in lines][-2:] == ["jwks_read", "jwks_back"]


def test_an_instance_starts_while_the_provider_is_away_and_says_503(provider: Provider) -> None:
    provider.status = 503
    clock = Clock()
    with opened(provider, clock, patience_seconds=WAIT) as check:
        assert status_of(check, token("old")) == 503
        assert status_of(check, {"authorization": "Bearer nonsense"}) == 401
        provider.status = 200
        clock.ahead = 31.0
        assert status_of(check, token("old")) == 200


def test_a_provider_that_is_gone_is_no_reason_to_stop(provider: Provider) -> None:
    clock = SystemClock()
    source = jwks.HttpSource(provider.url, clock, every_seconds=0.01)
    source.again_seconds = 0.01
    with structlog.testing.capture_logs() as lines, kept(source, clock) as keys:
        provider.close()
        wait_readings(keys, readings(keys) + 3)
        assert keys.find("old", "RS256") is not None
    assert "jwks_refused" in [line["event"] for line in lines]


def test_one_who_accepts_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        source = jwks.HttpSource(url, SystemClock(), every_seconds=300)
        with pytest.raises(jwks.KeysAway, match="Timeout"):
            source.read()


def test_an_answer_that_comes_by_single_bytes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is in time; all of them would take minutes."""
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.3)
    stop = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
            while not stop.wait(0.02):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        began = SystemClock().monotonic()
        with pytest.raises(jwks.KeysAway, match="too slowly"):
            jwks.HttpSource(url, SystemClock(), every_seconds=300).read()
        assert SystemClock().monotonic() - began < WAIT / 4
        stop.set()
        thread.join(WAIT)


def test_over_https_only_the_right_certificate_counts(provider: Provider, tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(str(ipaddress.ip_address("127.0.0.1"))).configure_cert(context)
    provider.server.socket = context.wrap_socket(provider.server.socket, server_side=True)
    url = f"https://127.0.0.1:{provider.port}/keys"
    for name, ca in (("right", authority), ("wrong", other)):
        ca.cert_pem.write_to_path(str(tmp_path / name))

    def read(ca_file: str) -> bytes | None:
        return jwks.HttpSource(url, SystemClock(), every_seconds=300, ca_file=ca_file).read()

    assert read(str(tmp_path / "right")) == provider.content
    for wrong in (str(tmp_path / "wrong"), ""):
        with pytest.raises(jwks.KeysAway, match="SSLError"):
            read(wrong)
    with pytest.raises(jwks.KeysAway):
        read(str(tmp_path / "missing"))
    assert len(provider.asked) == 1


def test_no_more_is_taken_from_a_provider_than_counts(provider: Provider) -> None:
    provider.content = b" " * 20_000_000
    content = jwks.HttpSource(provider.url, SystemClock(), every_seconds=300).read()
    assert content is not None and jwks.MOST_BYTES < len(content) <= jwks.MOST_BYTES + (1 << 16)


# Files


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    clock = SystemClock()
    path = tmp_path / "keys.json"
    path.write_bytes(signing.jwks(signing.rsa_jwk("old")))
    source = jwks.FileSource(path, clock)
    source.every_seconds = source.again_seconds = 0.01
    with structlog.testing.capture_logs() as lines, kept(source, clock) as keys:
        assert keys.find("old", "RS256") is not None
        path.write_bytes(b"half a docu")
        wait_readings(keys, readings(keys) + 2)
        path.unlink()
        wait_readings(keys, readings(keys) + 2)
        path.mkdir()
        wait_readings(keys, readings(keys) + 2)
        assert keys.find("old", "RS256") is not None
        path.rmdir()
        path.write_bytes(signing.jwks(signing.rsa_jwk("new")))
        wait_generation(keys, 2)
        assert keys.find("new", "RS256") is not None
    reasons = [line["reason"] for line in lines if line["event"] == "jwks_refused"]
    assert len(reasons) == len(set(reasons)) == 3  # once each, however often it was read


def test_a_file_behind_links_as_kubernetes_mounts_it_is_followed(tmp_path: Path) -> None:
    """A new folder, then one rename of a link: same name, same size, and the same mtime."""
    clock = SystemClock()
    for name in ("old", "new"):
        folder = tmp_path / f"..{name}"
        folder.mkdir()
        (folder / "keys.json").write_bytes(signing.jwks(signing.rsa_jwk(name)))
        os.utime(folder / "keys.json", (1_700_000_000, 1_700_000_000))
    (tmp_path / "..data").symlink_to("..old")
    (tmp_path / "keys.json").symlink_to("..data/keys.json")
    source = jwks.FileSource(tmp_path / "keys.json", clock)
    assert source.read() == signing.jwks(signing.rsa_jwk("old"))
    assert source.read() is None
    (tmp_path / "..next").symlink_to("..new")
    (tmp_path / "..next").rename(tmp_path / "..data")
    assert source.read() == signing.jwks(signing.rsa_jwk("new"))
    assert source.read() is None


def test_a_second_change_within_the_step_of_the_clock_is_seen(tmp_path: Path) -> None:
    """The mtime and the size stay as they were."""
    path = tmp_path / "keys.json"
    source = jwks.FileSource(path, SystemClock())
    path.write_bytes(b"one")
    found = path.stat()
    assert source.read() == b"one"
    path.write_bytes(b"two")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert source.read() == b"two"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.json")
    with pytest.raises(jwks.KeysAway):
        jwks.FileSource(tmp_path / "keys.json", SystemClock()).read()


def test_no_more_of_a_file_is_read_than_counts(tmp_path: Path) -> None:
    with (tmp_path / "keys.json").open("wb") as file:
        file.truncate(1 << 32)
    content = jwks.FileSource(tmp_path / "keys.json", SystemClock()).read()
    assert content is not None and len(content) == jwks.MOST_BYTES + 1


FORKS = """
    import os, pathlib, signal, sys
    from app.kernel.clock import SystemClock
    from app.refdata import jwks

    path, new = map(pathlib.Path, sys.argv[1:])
    source = jwks.FileSource(path, SystemClock())
    source.every_seconds = 0.01
    keys = jwks.Jwks(source, ["RS256"], SystemClock())
    keys.start()
    lock = keys._changed
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        if keys._changed is lock:  # somebody who is not in this process may hold it
            os._exit(4)
        new.rename(path)
        with keys._changed:
            seen = keys._changed.wait_for(lambda: keys.find("new", "RS256") is not None, 20)
        os._exit(0 if seen else 3)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_the_children_of_a_process_read_the_keys_themselves(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(signing.jwks(signing.rsa_jwk("old")))
    (tmp_path / "next").write_bytes(signing.jwks(signing.rsa_jwk("new")))
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKS)]
    done = subprocess.run(
        [*command, str(tmp_path / "keys"), str(tmp_path / "next")],
        timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_failure_nobody_thought_of_does_not_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "RETRY_SECONDS", 0.01)

    class Broken:
        name = "broken"
        every_seconds = again_seconds = 0.01
        follows_unknown_keys = False
        fails = False

        def read(self) -> bytes | None:
            if self.fails:
                raise ZeroDivisionError
            return signing.jwks(signing.rsa_jwk("old"))

    source = Broken()
    with structlog.testing.capture_logs() as lines, kept(source, SystemClock()) as keys:
        source.fails = True
        wait_readings(keys, readings(keys) + 3)
        assert keys.find("old", "RS256") is not None
    assert "jwks_reading_failed" in [line["event"] for line in lines]
