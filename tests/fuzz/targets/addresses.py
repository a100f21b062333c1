"""Addresses of webhooks: what is taken leads to a public host, for every reader of addresses alike."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import urllib3.util

from app.access import exposure, origin
from app.kernel import errors
from app.pipeline import requests as pipeline_requests
from app.uploads.webhooks import address
from tests.fuzz.target import Target


def _is_old_spelling(host: str) -> bool:
    """Whether the resolver of a system would take this name for an address of IPv4."""
    try:
        socket.inet_aton(host)
    except (OSError, ValueError, UnicodeError):
        return False
    return True


def _check_url(url: str, *, to_loopback: bool) -> None:
    try:
        target = address.parse(url, to_loopback=to_loopback)
    except errors.Refused as refusal:
        assert refusal.code == "invalid_url" and refusal.sentence
        return
    assert target.scheme == "https" or to_loopback
    assert 0 < target.port < 65536 and target.path.startswith("/")
    try:
        literal = ipaddress.ip_address(target.host)
    except ValueError:
        assert not _is_old_spelling(target.host), "a resolver takes this name for an address"
        assert target.host.lower() != "localhost" or target.scheme == "https" or to_loopback
    else:
        assert address.is_allowed(literal, to_loopback=to_loopback), "an address that is not public"
        assert literal.is_global or (to_loopback and literal.is_loopback)
    again = f"{target.scheme}://{target.authority}{target.path}"
    assert address.parse(again, to_loopback=to_loopback) == target, "put together again it is another one"
    # Two other readers see the same host in what was given: none can be led elsewhere.
    other = urllib3.util.parse_url(url)
    assert (other.host or "").strip("[]").lower() == target.host.lower()
    assert (urlsplit(again).hostname or "") == target.host.lower()
    for header in (target.authority, target.path):
        assert not any(letter in header for letter in "\r\n \t")


def _check_place(text: str) -> None:
    path = origin.local_path(text)
    assert path.startswith("/") and not path.startswith(("//", "/\\")), "it leads to another site"
    parts = urlsplit(path)
    assert not parts.netloc and not parts.scheme
    exposure.host_of(text)
    origin.of_urls(text)
    origin.network_of(text)
    assert not pipeline_requests.is_filename(text) or "/" not in text


def _check_answer(data: bytes) -> None:
    """What a resolver might say."""
    for version, size in ((4, 4), (6, 16)):
        if len(data) >= size:
            found = ipaddress.ip_address(data[:size])
            assert found.version == version
            if address.is_allowed(found, to_loopback=False):
                mapped = getattr(found, "ipv4_mapped", None)
                assert found.is_global and mapped is None and not found.is_multicast and not found.is_private


def check(data: bytes) -> None:
    """The bytes are an address as text, a place within the site, and an address as numbers."""
    text = data.decode("utf-8", "replace")
    for to_loopback in (False, True):
        _check_url(text, to_loopback=to_loopback)
    _check_place(text)
    _check_answer(data)


def seeds() -> Iterator[bytes]:
    """Addresses in every spelling."""
    yield from (
        text.encode()
        for text in (
            "https://example.com/hook?x=1", "https://example.com:8443/", "https://8.8.8.8/", "https://[2001:4860::8888]/",
            "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "http://localhost:8080/x",
            "https://user:word@example.com/", "https://2130706433/", "https://0x7f.1/", "https://0177.0.0.1/",
            "https://xn--bcher-kva.example/", "https://example.com\\@127.0.0.1/", "/uploads?x=1",
            "//example.com/",
            "/\\example.com", "https://169.254.169.254/latest/", "https://example.com#@127.0.0.1/",
            "https://a_b.example:443/%2e%2e/", "https://1.1.1.1.example/", "https://[fe80::1%25eth0]/",
        )
    )  # fmt: skip


TARGET = Target(
    check,
    seeds,
    words=(
        b"https://", b"http://", b"//", b"\\", b"@", b"[", b"]", b"::", b"::ffff:", b"127.0.0.1", b"0x7f",
        b"0177", b"%25",
        b"%00", b"localhost", b".", b"xn--", b":443", b":0", b"#", b"?", b"169.254.169.254", b"64:ff9b::",
        b"\xe3\x80\x82",
    ),
    most_bytes=300,
)  # fmt: skip
