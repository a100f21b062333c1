"""How long a loop rests when what it needs does not answer: longer each time, until it does."""

from __future__ import annotations

from app.adapters import logs
from app.kernel import errors
from app.kernel.clock import Clock

log = logs.get(__name__)

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0


class Rest:
    """The rests of one loop."""

    def __init__(self, loop: str, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self.failures = 0
        """In a row."""

    def went_well(self) -> None:
        """The next rest is short again."""
        self.failures = 0

    def after(self, error: errors.HeadworksError) -> None:
        """A rest is over; the log says why it was."""
        seconds = min(FIRST_SECONDS * 2**self.failures, LONGEST_SECONDS)
        self.failures += 1
        log.warning(f"refdata_{self._loop}_waits", code=error.code, failures=self.failures, seconds=seconds)
        self._clock.sleep(seconds)
