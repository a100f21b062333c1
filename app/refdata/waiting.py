"""Whoever waits for the end of a request is woken by the commit that ends it (WAIT_COMMIT, section 6.1)."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from app.adapters.notices import Notices

CHANNEL = "refdata_ended"


class Waiting:
    """Those of this process who wait for requests in one database."""

    def __init__(self, url: str) -> None:
        self._lock = threading.Lock()
        self._expected: dict[str, list[threading.Event]] = defaultdict(list)
        self._notices = Notices(url, [CHANNEL], self._ended, self._all_look)

    @contextmanager
    def expect(self, tenant_id: str, event_id: UUID) -> Iterator[threading.Event]:
        """Set when the request may have ended; whoever waits looks then."""
        name, event = f"{tenant_id} {event_id}", threading.Event()
        with self._lock:
            self._expected[name].append(event)
        try:
            yield event
        finally:
            with self._lock:
                self._expected[name].remove(event)
                if not self._expected[name]:
                    del self._expected[name]

    def _ended(self, name: str) -> None:
        with self._lock:
            for event in self._expected.get(name, ()):
                event.set()

    def _all_look(self) -> None:
        """Notices may have been missed while nobody listened."""
        with self._lock:
            for events in self._expected.values():
                for event in events:
                    event.set()

    def close(self) -> None:
        """Nobody is woken any more."""
        self._notices.close()
