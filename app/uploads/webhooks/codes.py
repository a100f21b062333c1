"""Why a delivery did not arrive: each code with what is done about it, and a sentence for people."""

from __future__ import annotations

from app.kernel.retry import Policy
from app.uploads.webhooks.states import BUSY, FINAL, UNREACHED

TRIED: dict[str, tuple[Policy, str]] = {
    # code               tried again?  the try failed, because …
    "host_not_found": (UNREACHED, "The host name of the URL has no address."),
    "connect_failed": (UNREACHED, "No connection to the receiver could be made."),
    "tls_failed": (UNREACHED, "The receiver's certificate is not one for this host, or TLS failed."),
    "connection_lost": (UNREACHED, "The receiver closed the connection before it answered."),
    "timeout": (UNREACHED, "The receiver did not answer in time: answer first, work afterwards."),
    "bad_answer": (UNREACHED, "What the receiver answered is not HTTP."),
    "server_error": (UNREACHED, "The receiver answered that something is wrong with itself (5xx)."),
    "worker_lost": (UNREACHED, "Our worker ended while it was sending: it may have arrived or not."),
    "secret_unreadable": (
        UNREACHED,
        "The signing secret cannot be read with this instance's HEADWORKS_SECRET: set the one under which"
        " it was made, or rotate the webhook's secret.",
    ),
    "rate_limited": (BUSY, "The receiver asked for a pause (429 or 503)."),
    "redirected": (FINAL, "The receiver answered with a redirect, which is not followed: change the URL."),
    "refused": (FINAL, "The receiver refused the delivery (4xx): see its answer."),
    "gone": (FINAL, "The receiver is gone for good (410), so the webhook is disabled."),
    "address_refused": (
        FINAL,
        "The host of the URL leads to an address that is not on the public internet, and nothing is sent"
        " there.",
    ),
}

ENDED = {
    # code                  it was not tried any more, because …
    "subscription_disabled": "The webhook was disabled before this was delivered.",
    "subscription_deleted": "The webhook was deleted before this was delivered.",
}


def sentence(code: str) -> str:
    """The sentence of a code."""
    return ENDED[code] if code in ENDED else TRIED[code][1]
