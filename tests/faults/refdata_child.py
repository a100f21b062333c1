"""A process of the reference data that kills itself at one of its steps, or does all of its work and ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from app.adapters import patience
from app.adapters.settings import Settings
from app.refdata import consume, services, store
from app.refdata.announce import Announcer
from app.refdata.apply import Applier
from app.refdata.consume import Consuming
from app.refdata.provider import PostgresSqlProvider
from app.refdata.relay import Relaying
from app.refdata.services import Services

SECONDS = 60.0


class Steps:
    """Counts the steps, and dies at one of them."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._taken = 0

    def take(self) -> None:
        """One more step is over."""
        self._taken += 1
        if self._taken == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str) -> None:
        """There is a step before each call, and one behind it."""
        real = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            self.take()
            found = real(*args, **named)
            self.take()
            return found

        setattr(owner, name, call)


def _services(config: str, environ: Mapping[str, str], running: ExitStack) -> Services:
    settings = Settings(database_url="", broker_url="", data_dir=Path(), refdata_config=config)
    of = services.connect(settings, name="child", environ=environ)
    running.callback(of.close)
    return of


def apply(config: str, environ: Mapping[str, str], last: int) -> None:
    """Every partition is this process's and worked off, unless it dies before."""
    steps = Steps(last)
    with ExitStack() as running:
        of = _services(config, environ, running)
        kafka = of.config.refdata.kafka
        consumer = of.topics.consumer(kafka.commands_topic, group=kafka.group)
        running.callback(consumer.close)
        for owner, name in (
            (store, "lock"), (store, "processed"), (PostgresSqlProvider, "apply_deltas"),
            (PostgresSqlProvider, "replace"), (store, "add_chunk"), (store, "note_chunk"),
            (store, "end_commands"), (store, "end_snapshot"), (patience.Connection, "commit"),
            (consume, "bury"), (consumer, "commit"),
        ):  # fmt: skip
            steps.around(owner, name)
        applier = Applier(lambda: of.config, of.databases)
        loop = Consuming(consumer, of.publisher, applier, lambda: of.config, of.clock)
        behind: dict[int, int] = {}
        deadline = time.monotonic() + SECONDS
        while len(behind) < kafka.partitions or any(behind.values()):
            loop.work_off(0.2)
            behind = consumer.lag()
            assert time.monotonic() < deadline, behind


def relay(config: str, environ: Mapping[str, str], last: int) -> None:
    """Every version is announced, unless it dies before."""
    steps = Steps(last)
    with ExitStack() as running:
        of = _services(config, environ, running)
        announcer = Announcer(of.config.refdata.redis, environ)
        running.callback(announcer.close)
        for owner, name in (
            (store, "take_announcements"), (announcer, "announce"), (announcer, "_any_node"),
            (store, "mark_announced"), (patience.Connection, "commit"),
        ):  # fmt: skip
            steps.around(owner, name)
        loop = Relaying(of, announcer, of.publisher)
        while loop.work_off():
            pass


def member(config: str, environ: Mapping[str, str], _last: int) -> None:
    """Commands are applied for ever."""
    with ExitStack() as running:
        of = _services(config, environ, running)
        kafka = of.config.refdata.kafka
        consumer = of.topics.consumer(kafka.commands_topic, group=kafka.group)
        applier = Applier(lambda: of.config, of.databases)
        Consuming(consumer, of.publisher, applier, lambda: of.config, of.clock).run(
            threading.Event(), lambda: None
        )


def announcing(config: str, environ: Mapping[str, str], _last: int) -> None:
    """Versions are announced for ever."""
    with ExitStack() as running:
        of = _services(config, environ, running)
        announcer = Announcer(of.config.refdata.redis, environ)
        Relaying(of, announcer, of.publisher).run(threading.Event(), lambda: None)
