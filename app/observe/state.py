"""Every part is asked at once and may be silent: then the others are told, and that it is."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from prometheus_client.metrics_core import Metric

from app.adapters import logs, metrics
from app.kernel import errors
from app.kernel.clock import Clock

log = logs.get(__name__)

Part = Callable[[], Iterable[Metric]]

WAIT_SECONDS = 6.0
"""So long a scrape waits for the slowest part; Prometheus gives one up after 10 s by default."""

KEEP_SECONDS = 5.0
"""So long what was said holds: whoever asks more often does not burden the parts."""


class State:
    """What the parts said last."""

    def __init__(self, parts: Mapping[str, Part], clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._asked: dict[str, Future[list[Metric] | None]] = {}
        self._said: dict[str, list[Metric]] = {}
        self._read_at = float("-inf")

    def read(self) -> list[Metric]:
        """The gauges of every part that answers, and which do. Never raises.

        While somebody else asks, what was said before is returned at once.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self._clock.monotonic() >= self._read_at + KEEP_SECONDS:
                    self._ask()
                    self._read_at = self._clock.monotonic()
            finally:
                self._lock.release()
        said = dict(self._said)
        up: dict[tuple[str, ...], float] = {(name,): float(name in said) for name in self._parts}
        return [*(family for families in said.values() for family in families), metrics.part_up.of(up)]

    def _ask(self) -> None:
        # Made here: a process that serves is forked after its application was made.
        self._pool = self._pool or ThreadPoolExecutor(len(self._parts), "observe")
        for name, part in self._parts.items():
            if name not in self._asked:  # else it has been silent since the last time
                self._asked[name] = self._pool.submit(_answer, name, part)
        concurrent.futures.wait(self._asked.values(), timeout=WAIT_SECONDS)
        said: dict[str, list[Metric]] = {}
        for name, answer in list(self._asked.items()):
            if not answer.done():
                log.warning("part_silent", part=name, code="timeout")
                continue
            del self._asked[name]
            if (families := answer.result()) is not None:
                said[name] = families
        self._said = said


def _answer(name: str, part: Part) -> list[Metric] | None:
    """The part's gauges; None when it does not answer."""
    try:
        return list(part())
    except errors.HeadworksError as error:
        log.warning("part_silent", part=name, code=error.code)
    except Exception:  # whatever it is, the other parts are told
        log.exception("part_silent", part=name, code="internal_error")
    return None
