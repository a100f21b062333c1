"""`python -m workers.refdata ROLE`: the processes of the reference data that run on, one role each."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence

from app.adapters import logs, process_signals, tracing
from app.adapters.settings import Settings
from app.kernel.clock import SystemClock
from app.refdata.query import pod

log = logs.get(__name__)

ALONE = ("apply", "relay", "kafka-adapter")
"""Roles of one process each; `query` has several."""


def query(settings: Settings) -> None:
    """A pod answers reads: this process looks after its loader and its readers."""
    of = pod.Pod(settings, SystemClock())
    stopped = threading.Event()
    stop = stopped.set
    process_signals.on({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: of.reload})
    of.run(stopped)


def main(argv: Sequence[str]) -> int:
    """The process of this role has run until it was asked to stop."""
    match argv:
        case ["query" | "query-loader" as role]:
            pass
        case ["query-reader" as role, number] if number.isdigit():
            pass
        case [role] if role in ALONE:
            pass
        case _:
            print(f"Name one role: {', '.join((*ALONE, 'query'))}.", file=sys.stderr)
            return 2
    logs.configure(f"refdata-{role}")
    tracing.configure(f"refdata-{role}")
    settings = Settings.from_env(needs=())
    if not settings.refdata_config:
        log.info("refdata_not_configured", role=role)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
        return 0
    if role == "query":
        query(settings)
    else:
        of_role(argv, settings)
    return 0


def of_role(argv: Sequence[str], settings: Settings) -> None:
    """Any process but the one that looks after a pod: that one, and a builder of its loader, are small."""
    from workers import refdata_roles

    match argv:
        case ["query-loader"]:
            refdata_roles.query_loader(settings)
        case ["query-reader", number]:
            refdata_roles.query_reader(settings, int(number))
        case [role]:
            refdata_roles.alone(role, settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
