"""Where a webhook may lead: only to the public internet, whatever its host is called.

A URL is judged twice. When it is given, by its spelling; and at every delivery by the addresses that
its host has at that moment. The connection is then made to the very address that was judged.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.kernel import errors

URL_CHARACTERS = 2048

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], list[str]]
"""The addresses of a host, as text; OSError when it has none."""

NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        # IPv4: the special-purpose registry, and what a cloud keeps for its own machines
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by a provider's customers; one cloud's metadata: 100.100.100.200
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # another cloud's metadata, under a public address
        "169.254.0.0/16",  # link-local; most clouds' metadata: 169.254.169.254
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; one more metadata: 192.0.0.192
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        # IPv6: within 2000::/3, outside of which nothing is public
        "2001::/23",  # protocol assignments: Teredo and others that carry an IPv4 address
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: carries an IPv4 address
        "3fff::/20",  # documentation
    )
)
PUBLIC_V6 = ipaddress.ip_network("2000::/3")

_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.IGNORECASE)
_NUMBER = re.compile(r"([0-9]+|0x[0-9a-f]*)", re.IGNORECASE)
_PRINTABLE = re.compile(r"[!-~]*")
_BRACKETED = re.compile(r"\[[^\[\]]*:[^\[\]]*\](?::[0-9]*)?")


class AddressRefused(errors.Fatal):
    """A host leads to where nothing is sent."""

    code = "address_refused"


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in its parts: nothing else reads the URL's text."""

    scheme: str
    host: str  # a name, or an address without brackets
    port: int
    path: str  # with the query

    @property
    def authority(self) -> str:
        """What the header Host says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


_PORTS = {"https": 443, "http": 80}


def parse(url: str, *, to_loopback: bool) -> Target:
    """The parts of a webhook's URL; Refused (`invalid_url`) says what is wrong with it.

    https, and http only to this very machine when `to_loopback` allows that.
    """
    if len(url) > URL_CHARACTERS:
        raise _refusal(f"The URL is longer than {URL_CHARACTERS} characters.")
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise _refusal("The URL holds blanks or characters that must be percent-encoded, or xn-- in a host.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refusal("This is no URL.") from None
    scheme, host = parts.scheme.lower(), parts.hostname or ""
    if "@" in parts.netloc:
        raise _refusal("The URL holds a user or password: leave them out, the signature tells who sends.")
    if parts.fragment or port == 0:
        raise _refusal("The URL has a fragment (#…) or the port 0.")
    if scheme not in _PORTS or (scheme == "http" and not (to_loopback and _is_this_machine(host))):
        raise _refusal("The URL must begin with https://.")
    if ("[" in parts.netloc or "]" in parts.netloc) and not _BRACKETED.fullmatch(parts.netloc):
        # What stands around the brackets the reader of URLs leaves out.
        raise _refusal("The URL's host is no address of IPv6.")
    _check_host(host, to_loopback=to_loopback)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, host, port or _PORTS[scheme], path)


def _refusal(sentence: str) -> errors.Refused:
    return errors.Refused(sentence, code="invalid_url")


def _check_host(host: str, *, to_loopback: bool) -> None:
    literal = _literal(host)
    if literal is not None:
        if not is_allowed(literal, to_loopback=to_loopback):
            raise _refusal("The URL's address is not on the public internet.")
    elif not _NAME.fullmatch(host) or len(host) > 253 or _NUMBER.fullmatch(host.rpartition(".")[2]):
        # A last label that is a number is an address in an old spelling: 0x7f.1, 017700000001, 127.1
        raise _refusal("The URL's host is no name, and no address in its usual spelling.")


def _literal(host: str) -> Address | None:
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_this_machine(host: str) -> bool:
    literal = _literal(host)
    return literal.is_loopback if literal is not None else host.lower() == "localhost"


def is_allowed(address: Address, *, to_loopback: bool) -> bool:
    """Whether something may be sent to this address."""
    if to_loopback and address.is_loopback:
        return True
    if address.version == 6 and address not in PUBLIC_V6:
        return False
    return address.is_global and not any(
        address in network for network in NOT_PUBLIC if network.version == address.version
    )


def addresses(target: Target, resolve: Resolve, *, to_loopback: bool) -> list[str]:
    """The addresses of the target, every one of them judged.

    AddressRefused when a single one is not allowed: whoever answers such things cannot be trusted
    with the others. OSError when the host has no address. http goes to loopback alone.
    """
    found = [ipaddress.ip_address(text) for text in resolve(target.host, target.port)]
    for address in found:
        plain = target.scheme == "http" and not address.is_loopback
        if plain or not is_allowed(address, to_loopback=to_loopback):
            raise AddressRefused
    if not found:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    return [str(address) for address in found]


def resolve_host(host: str, port: int) -> list[str]:
    """What the system's resolver says."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
