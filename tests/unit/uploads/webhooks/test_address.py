"""Where a webhook may lead: every spelling of an address, and every address that is not public."""

from __future__ import annotations

import ipaddress

import pytest

from app.kernel import errors
from app.uploads.webhooks import address
from app.uploads.webhooks.address import AddressRefused, Target

NOT_PUBLIC = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1",
    "127.255.255.254", "168.63.129.16", "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1",
    "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",  # its plain spelling is there for whoever means it
    "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "2001::1",
    "2001:0:7f00:1::", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::", "3fff::1",
    "5f00::1", "fc00::1", "fd00:ec2::254", "fd12:3456::1", "fe80::1", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.1", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255",
    "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
    "2001:200::1", "2001:4860:4860::8888", "2606:4700:4700::1111", "2a00:1450:4001::1",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_nothing_is_sent_to_an_address_that_is_not_public(text: str) -> None:
    assert not address.is_allowed(ipaddress.ip_address(text), to_loopback=False)


@pytest.mark.parametrize("text", PUBLIC)
def test_what_is_public_may_be_sent_to(text: str) -> None:
    assert address.is_allowed(ipaddress.ip_address(text), to_loopback=False)


@pytest.mark.parametrize("text", [text for text in NOT_PUBLIC if text not in ("127.0.0.1", "::1")])
def test_the_switch_for_loopback_opens_loopback_alone(text: str) -> None:
    found = ipaddress.ip_address(text)
    mapped = getattr(found, "ipv4_mapped", None) or found
    assert address.is_allowed(found, to_loopback=True) <= mapped.is_loopback


REFUSED = [
    # URL                                   what is wrong with it
    ("", "https://"),
    ("example.com", "https://"),
    ("//example.com/", "https://"),
    ("http://example.com/", "https://"),
    ("http://127.0.0.1/", "https://"),
    ("http://localhost/", "https://"),
    ("ftp://example.com/", "https://"),
    ("file:///etc/passwd", "https://"),
    ("gopher://example.com/", "https://"),
    ("https://", "no name"),
    ("https:///path", "no name"),
    ("https://:443/", "no name"),
    ("https://user@example.com/", "user or password"),
    ("https://user:word@example.com/", "user or password"),
    ("https://example.com:word@127.0.0.1/", "user or password"),
    ("https://@example.com/", "user or password"),
    ("https://example.com/#there", "fragment"),
    ("https://example.com:0/", "port"),
    ("https://example.com:65536/", "no URL"),
    ("https://example.com:x/", "no URL"),
    ("https://[::1/", "no URL"),
    ("https://exa mple.com/", "percent-encoded"),
    ("https://example.com/a b", "percent-encoded"),
    ("https://example.com/\r\nX: y", "percent-encoded"),
    ("https://example.com\\@127.0.0.1/", "percent-encoded"),
    ("https://bücher.example/", "xn--"),
    ("https://example.com/\x00", "percent-encoded"),
    ("https://example.com/\u2028", "percent-encoded"),
    ("https://example.com./", "no name"),
    ("https://.example.com/", "no name"),
    ("https://exa..mple.com/", "no name"),
    ("https://-example.com/", "no name"),
    ("https://exam%70le.com/", "no name"),
    ("https://" + "a" * 64 + ".com/", "no name"),
    ("https://" + "a." * 127 + "com/", "no name"),
    ("https://example.com/" + "a" * 2048, "longer"),
    # addresses in the spellings that resolvers understand: decimal, octal, hexadecimal, short
    ("https://2130706433/", "usual spelling"),
    ("https://017700000001/", "usual spelling"),
    ("https://0x7f000001/", "usual spelling"),
    ("https://0X7F.0.0.1/", "usual spelling"),
    ("https://0177.0.0.1/", "usual spelling"),
    ("https://127.1/", "usual spelling"),
    ("https://127.0.1/", "usual spelling"),
    ("https://127.0.0.0x1/", "usual spelling"),
    ("https://127.0.0.01/", "usual spelling"),
    ("https://127.0.0.1./", "usual spelling"),
    ("https://1.1.1.1.1/", "usual spelling"),
    ("https://256.1.1.1/", "usual spelling"),
    ("https://①②⑦.0.0.1/", "xn--"),
    ("https://127。0。0。1/", "xn--"),
    ("https://[fe80::1%25eth0]/", "usual spelling"),
    ("https://[fe80::1%eth0]/", "usual spelling"),
    ("https://[v1.fe80]/", " is no "),
    ("https://[example.com]/", " is no "),
    ("https://example.com[2606:4700:4700::1111]/", " is no "),
    ("https://[2606:4700:4700::1111]8]/", " is no "),
    ("https://[2606:4700:4700::1111]x/", " is no "),
    ("https://[2606:4700:4700::1111]]/", " is no "),
    *[(f"https://{text}/", "public internet") for text in NOT_PUBLIC if ":" not in text],
    *[(f"https://[{text}]/", "public internet") for text in NOT_PUBLIC if ":" in text],
    ("https://[0:0:0:0:0:0:0:1]/", "public internet"),
    ("https://[::ffff:7f00:1]/", "public internet"),
    ("https://[0000::0001]:8443/x", "public internet"),
]


@pytest.mark.parametrize(("url", "why"), REFUSED)
def test_a_url_that_may_not_be_is_refused_with_a_reason(url: str, why: str) -> None:
    with pytest.raises(errors.Refused) as refusal:
        address.parse(url, to_loopback=False)
    assert refusal.value.code == "invalid_url"
    assert why in refusal.value.sentence


TARGETS = [
    # URL                                     scheme, host, port, path; header Host
    ("https://example.com", Target("https", "example.com", 443, "/"), "example.com"),
    ("HTTPS://Example.COM/Hooks", Target("https", "example.com", 443, "/Hooks"), "example.com"),
    ("https://example.com:8443/a/b?c=d&e", Target("https", "example.com", 8443, "/a/b?c=d&e"),
     "example.com:8443"),
    ("https://example.com:443/", Target("https", "example.com", 443, "/"), "example.com"),
    ("https://example.com?c", Target("https", "example.com", 443, "/?c"), "example.com"),
    ("https://a_b.xn--bcher-kva.example/", Target("https", "a_b.xn--bcher-kva.example", 443, "/"),
     "a_b.xn--bcher-kva.example"),
    ("https://8.8.8.8/", Target("https", "8.8.8.8", 443, "/"), "8.8.8.8"),
    ("https://[2606:4700:4700::1111]:1/", Target("https", "2606:4700:4700::1111", 1, "/"),
     "[2606:4700:4700::1111]:1"),
    ("https://1.1.1.1.example/", Target("https", "1.1.1.1.example", 443, "/"), "1.1.1.1.example"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "target", "authority"), TARGETS)
def test_a_url_has_its_parts(url: str, target: Target, authority: str) -> None:
    found = address.parse(url, to_loopback=False)
    assert found == target
    assert found.authority == authority


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"])
def test_http_may_lead_to_this_machine_when_that_is_switched_on(host: str) -> None:
    assert address.parse(f"http://{host}:8080/", to_loopback=True).port == 8080


@pytest.mark.parametrize("host", ["example.com", "8.8.8.8", "10.0.0.1", "localhost.example", "2130706433"])
def test_http_leads_nowhere_else_even_then(host: str) -> None:
    with pytest.raises(errors.Refused):
        address.parse(f"http://{host}/", to_loopback=True)


NAME = Target("https", "hooks.example", 443, "/")


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_a_name_that_leads_to_such_an_address_is_refused(text: str) -> None:
    with pytest.raises(AddressRefused):
        address.addresses(NAME, lambda _host, _port: [text], to_loopback=False)


def test_one_bad_address_among_good_ones_is_enough() -> None:
    with pytest.raises(AddressRefused):
        address.addresses(NAME, lambda _host, _port: ["8.8.8.8", "10.0.0.1"], to_loopback=False)


def test_the_addresses_of_a_name_are_those_that_were_judged() -> None:
    answers = iter([["8.8.8.8", "2606:4700:4700::1111"], ["127.0.0.1"]])
    found = address.addresses(NAME, lambda _host, _port: next(answers), to_loopback=False)
    assert found == ["8.8.8.8", "2606:4700:4700::1111"]


@pytest.mark.parametrize("text", ["8.8.8.8", "10.0.0.1"])
def test_plain_http_leaves_this_machine_in_no_case(text: str) -> None:
    with pytest.raises(AddressRefused):
        address.addresses(Target("http", "localhost", 80, "/"), lambda _host, _port: [text], to_loopback=True)


def test_a_name_without_addresses_is_an_error_of_the_resolver() -> None:
    with pytest.raises(OSError, match="no address"):
        address.addresses(NAME, lambda _host, _port: [], to_loopback=False)
