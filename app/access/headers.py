"""Headers that every answer has, whatever it says."""

from __future__ import annotations

ALWAYS = {
    # Nothing from elsewhere, nothing inline, in nobody's frame.
    "Content-Security-Policy": (
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": (
        "accelerometer=(), bluetooth=(), camera=(), display-capture=(), geolocation=(), gyroscope=(),"
        " hid=(), magnetometer=(), microphone=(), midi=(), payment=(), serial=(), usb=()"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

HSTS = "max-age=31536000"
"""A year. Without its subdomains, which may be others' business."""


def of_answer(*, https: bool, kept: bool) -> dict[str, str]:
    """The headers of one answer; only one that is the same for all may be `kept` by anybody on its way."""
    return {
        **ALWAYS,
        **({"Strict-Transport-Security": HSTS} if https else {}),
        **({} if kept else {"Cache-Control": "no-store"}),
    }
