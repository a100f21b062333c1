"""What a process does when it is sent a signal."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Mapping

from app.adapters import logs

log = logs.get(__name__)


def on(actions: Mapping[signal.Signals, Callable[[], object]]) -> None:
    """From now on the action of each of these signals follows it, in a thread of its own.

    Not in the handler: that runs wherever the main thread is, and would wait for ever for a lock which that
    holds, such as the one inside of an event that is waited for.
    """
    arrived: queue.SimpleQueue[int] = queue.SimpleQueue()  # its put may interrupt itself

    def follow() -> None:
        while True:
            signum = signal.Signals(arrived.get())
            try:
                actions[signum]()
            except Exception:  # else the next one, which may ask the process to stop, is not followed
                log.exception("signal_not_followed", signal=signum.name)

    for signum in actions:
        signal.signal(signum, lambda number, _: arrived.put(number))
    threading.Thread(target=follow, name="signals", daemon=True).start()
