"""Where a request comes from, as far as a browser tells: its machine, its page, its way back."""

from __future__ import annotations

import ipaddress
import re
from typing import Protocol
from urllib.parse import urlsplit

from app.access import exposure


class Headers(Protocol):
    """A request's headers, by names whose case does not matter."""

    def get(self, name: str, /) -> str | None:
        """The header's value; None when there is none."""


FORWARDED = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip")
"""What a proxy adds: behind one, the peer's address says nothing about who asks."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_LOCAL_PATH = re.compile(r"/(?![/\\])[^\x00-\x20\x7f\\]{0,2000}")


def is_at_this_machine(peer: str | None, headers: Headers) -> bool:
    """Whether somebody at this machine asks, and for this machine.

    The Host header too: a page whose name was made to lead to 127.0.0.1 (DNS rebinding) sends its
    own name there.
    """
    if any(headers.get(name) is not None for name in FORWARDED):
        return False
    return exposure.is_loopback(peer or "") and exposure.is_loopback(
        exposure.host_of(headers.get("Host") or "")
    )


def is_ours(headers: Headers, own: tuple[str, ...]) -> bool | None:
    """Whether a page of these own origins makes the request; None when the browser does not say.

    Sec-Fetch-Site cannot be set by a page; Origin neither. `none` is a person's own doing, such as
    an address that was typed.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    given = headers.get("Origin")
    if given is not None:
        return given in own
    return None if site is None else True


def of_urls(*urls: str) -> tuple[str, ...]:
    """The origins of these addresses, as a browser writes them; an address that is none has none."""
    return tuple(found for url in urls if (found := _of_url(url)))


def _of_url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = port in (None, {"http": 80, "https": 443}.get(parts.scheme))
    return f"{parts.scheme}://{host}" if usual else f"{parts.scheme}://{host}:{port}"


def local_path(text: str | None) -> str:
    """The path of this site to go on to; "/" for whatever might lead elsewhere."""
    return text if text and _LOCAL_PATH.fullmatch(text) else "/"


def network_of(peer: str | None) -> str:
    """Whom failures are counted for: an IPv4 address, or the /64 that an IPv6 host can choose from."""
    try:
        address = ipaddress.ip_address(peer or "")
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)
