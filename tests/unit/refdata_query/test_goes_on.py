"""What goes on in the background goes on, whatever breaks once: else nothing would be known to be old."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from app.kernel.clock import SystemClock
from app.refdata.query import feed, reader
from app.refdata.query.feed import Feed, Hearing


def test_a_second_that_breaks_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    async def sleep(_: float) -> None:
        if len(begun) == 3:
            raise asyncio.CancelledError

    def tick() -> None:
        begun.append(1)
        raise OSError("No space left on device")

    monkeypatch.setattr(reader.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        reader._tick(SimpleNamespace(tick=tick)).send(None)  # type: ignore[arg-type]
    assert len(begun) == 3


def test_a_message_that_breaks_the_feed_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "AGAIN_SECONDS", 0.0)
    config: Any = SimpleNamespace(urls=lambda _: "redis://127.0.0.1:1", consumer_group="pods")
    of = Feed(config, {}, "pod", Hearing(lambda _: None, lambda: None), SystemClock())
    heard: list[int] = []

    def work(_: object) -> None:
        heard.append(1)
        if len(heard) == 1:
            raise ValueError("what nobody thought of")
        of._stopped.set()

    of._run(work)
    assert len(heard) == 2
