"""What docs/webhooks.md tells the receiver's developer is so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from app.uploads.webhooks import states
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.webhooks.conftest import Webhooks
from tests.integration.webhooks.receiver import Receiver

TEXT = (Path(__file__).parent.parent.parent.parent / "docs" / "webhooks.md").read_text(encoding="utf-8")


def documented() -> Callable[..., bool]:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Callable[..., bool]] = {}
    exec(code, names)
    return names["verify"]


def test_the_code_of_the_page_verifies_a_message_and_no_other(webhooks: Webhooks, receiver: Receiver) -> None:
    secret = webhooks.subscribe(receiver.url).secret
    webhooks.tell()
    webhooks.send()
    (request,) = receiver.received
    verify = documented()
    assert verify(secret, request.headers, request.body)
    assert not verify(secret, request.headers, request.body + b" ")
    old = {**request.headers, "webhook-timestamp": "1768478400"}
    assert not verify(secret, old, request.body)


def test_the_waits_of_the_page_are_those_of_the_table() -> None:
    assert "after 1, 2 and 4 s, then 5 min, 30 min, 2 h, 6 h and 12 h;" in TEXT
    assert "after 60 s, five times, then as above;" in TEXT
    long = (5 * 60, 30 * 60, 2 * 3600, 6 * 3600, 12 * 3600)
    assert states.UNREACHED.delays_seconds == (1, 2, 4, *long)
    assert states.BUSY.delays_seconds == (60, 60, 60, 60, 60, *long)
