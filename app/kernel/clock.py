"""Time, waiting and ids: the one module that reads them; everyone else is handed a clock."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the rest of the product knows of time, waiting and identity."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC. Leases use the database's clock, never this one."""

    def monotonic(self) -> float:
        """Seconds that only ever grow; for measuring durations."""

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""

    def new_id(self) -> uuid.UUID:
        """An id that nobody has used."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def new_id(self) -> uuid.UUID:
        return uuid.uuid4()
