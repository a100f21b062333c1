"""Real threads for races: all begin at once, and no error is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests import patience


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """What each work returned, or the error that it raised, in order."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        start.wait(10 * patience.PATIENCE)
        try:
            return work()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return [
            future.result(60 * patience.PATIENCE) for future in [pool.submit(run, work) for work in works]
        ]


def wait_until(condition: Callable[[], Any], *, seconds: float = 10.0) -> Any:
    """The condition's first true value; fails when it takes too long."""
    deadline = patience.deadline(seconds)
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return value
