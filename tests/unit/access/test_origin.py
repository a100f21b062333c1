"""Where a request comes from, and where it may be led to."""

from __future__ import annotations

import pytest

from app.access import exposure, headers, origin

ORIGINS = [
    # an address                         its origin, as a browser writes it
    ("http://127.0.0.1:8000", ("http://127.0.0.1:8000",)),
    ("http://localhost:80/x?y", ("http://localhost",)),
    ("https://headworks.example/", ("https://headworks.example",)),
    ("https://Headworks.Example:443", ("https://headworks.example",)),
    ("https://headworks.example:8443", ("https://headworks.example:8443",)),
    ("http://[::1]:8000/", ("http://[::1]:8000",)),
    ("http://[::1", ()),
    ("http://host:port/", ()),
    ("http:///path", ()),
    ("", ()),
]


@pytest.mark.parametrize(("url", "expected"), ORIGINS)
def test_an_address_has_the_origin_that_a_browser_would_name(url: str, expected: tuple[str, ...]) -> None:
    assert origin.of_urls(url) == expected


NETWORKS = [
    # a peer                    whom its failures are counted for
    ("192.0.2.7", "192.0.2.7"),
    ("::ffff:192.0.2.7", "192.0.2.7"),
    ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ("", "unknown"),
    (None, "unknown"),
    ("unix:", "unknown"),
]


@pytest.mark.parametrize(("peer", "expected"), NETWORKS)
def test_failures_are_counted_for_what_a_host_cannot_change(peer: str | None, expected: str) -> None:
    assert origin.network_of(peer) == expected


LOOPBACK = {
    "localhost": True,
    "127.0.0.1": True,
    "127.255.255.254": True,
    "::1": True,
    "::ffff:127.0.0.1": True,
    "": False,
    "0.0.0.0": False,
    "::": False,
    "10.0.0.1": False,
    "::ffff:10.0.0.1": False,
    "2130706433": False,  # 127.0.0.1 as some programs write it
    "0x7f.1": False,
    "127.1": False,
    "localhost.": False,
    "localhost.localdomain": False,
    "app.localhost": False,
    "lоcalhost": False,  # with a Cyrillic о
}


@pytest.mark.parametrize("host", LOOPBACK)
def test_only_what_can_be_nothing_else_is_this_machine(host: str) -> None:
    assert exposure.is_loopback(host) == LOOPBACK[host]


@pytest.mark.parametrize("https", [True, False])
@pytest.mark.parametrize("kept", [True, False])
def test_https_is_kept_to_and_only_what_is_the_same_for_all_is_kept(https: bool, kept: bool) -> None:
    found = headers.of_answer(https=https, kept=kept)
    assert https == ("Strict-Transport-Security" in found)
    assert kept != ("no-store" in found.get("Cache-Control", ""))
    assert headers.ALWAYS.items() <= found.items()
    assert "unsafe" not in found["Content-Security-Policy"]
