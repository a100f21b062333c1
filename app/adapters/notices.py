"""PostgreSQL's notices (LISTEN): whoever waits for a commit is woken by it."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg2
import psycopg2.extensions
from psycopg2 import sql

from app.adapters import logs, pooler

log = logs.get(__name__)

LOOK_SECONDS = 1.0
"""So long a stop may take, at most."""

DEAF_SECONDS = 0.5
"""Behind a pooler no notice arrives: that often whoever waits looks by itself."""

AGAIN_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)


class Notices:
    """One connection that listens, in a thread of its own."""

    def __init__(
        self, url: str, channels: Sequence[str], heard: Callable[[str], None], missed: Callable[[], None]
    ) -> None:
        """`heard` is called with each payload; `missed` whenever some may have been lost: now listen anew."""
        self._url = url
        self._channels = channels
        self._heard = heard
        self._missed = missed
        self._is_deaf = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nobody is called any more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                connection = self._connect()
            except psycopg2.Error:
                self._stopped.wait(AGAIN_SECONDS[min(failures, len(AGAIN_SECONDS) - 1)])
                failures += 1
                continue
            failures = 0
            try:
                self._missed()
                self._listen(connection)
            except (psycopg2.Error, OSError) as error:
                log.warning("notices_lost", kind=type(error).__name__)
            finally:
                with suppress(psycopg2.Error):
                    connection.close()

    def _connect(self) -> Any:
        connection = psycopg2.connect(
            self._url, connect_timeout=5, keepalives_idle=10, keepalives_interval=5, keepalives_count=3,
            application_name="headworks notices",
        )  # fmt: skip
        connection.set_isolation_level(psycopg2.extensions.ISOLATION_LEVEL_AUTOCOMMIT)
        self._is_deaf = pooler.is_before(connection)
        if self._is_deaf:
            log.info("notices_not_heard", reason="a pooler stands before the database")
            return connection
        with connection.cursor() as cursor:
            for channel in self._channels:
                cursor.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        return connection

    def _listen(self, connection: Any) -> None:
        while self._is_deaf and not self._stopped.wait(DEAF_SECONDS):
            self._missed()
        while not self._stopped.is_set():
            if select.select([connection], [], [], LOOK_SECONDS)[0]:
                connection.poll()
            while connection.notifies:
                self._heard(connection.notifies.pop(0).payload)
