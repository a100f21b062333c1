"""`python -m workers.refdata ROLE`: the processes of the reference data that run on, one role each."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from app.access import exposure
from app.adapters import exposition, logs, process_signals, topics, tracing
from app.adapters.alive import Heart
from app.adapters.settings import ENVIRON, Settings
from app.kernel.clock import SystemClock
from app.refdata import messages, services
from app.refdata.adapter import Adapting
from app.refdata.announce import Announcer
from app.refdata.apply import Applier
from app.refdata.consume import Consuming
from app.refdata.query import pod, reader
from app.refdata.query.loader import Loader
from app.refdata.relay import Relaying
from app.refdata.services import Services

log = logs.get(__name__)

Look = Callable[[], object]


class Process:
    """One process: what it works with, and when it is to stop or to read its configuration anew."""

    def __init__(self, of: Services, running: ExitStack, heart: Heart) -> None:
        self.of = of
        self.running = running
        self._heart = heart
        self.stopped = threading.Event()
        self._asked_to_reload = False
        stop = self.stopped.set
        process_signals.on({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: self._reload})

    def _reload(self) -> None:
        self._asked_to_reload = True

    def look(self) -> None:
        """The configuration is as its file says, if that can be used; and whoever watches sees it go on."""
        self._heart.beat()
        if self._asked_to_reload:
            self._asked_to_reload = False
            self.of.live.reload()
        self.of.live.look()

    def consumer(self, topic: str, group: str) -> topics.Consumer:
        """A member of the group, which leaves it when the process ends."""
        found = self.of.topics.consumer(topic, group=group)
        self.running.callback(found.close)
        return found


def apply(process: Process) -> None:
    """Commands have their effect."""
    of, kafka = process.of, process.of.config.refdata.kafka
    of.ensure_topics()
    consumer = process.consumer(kafka.commands_topic, kafka.group)
    applier = Applier(lambda: of.config, of.databases)
    Consuming(consumer, of.publisher, applier, lambda: of.config, of.clock).run(process.stopped, process.look)


def relay(process: Process) -> None:
    """What was committed is announced."""
    announcer = Announcer(process.of.config.refdata.redis, ENVIRON)
    process.running.callback(announcer.close)
    Relaying(process.of, announcer, process.of.publisher).run(process.stopped, process.look)


def adapt(process: Process) -> None:
    """Outside topics become commands, each in a thread of its own."""
    of, kafka = process.of, process.of.config.refdata.kafka
    threads = []
    for source in kafka.sources:
        consumer = process.consumer(source.topic, kafka.adapter_group)
        work = partial(Adapting(of, source, consumer, of.publisher).run, process.stopped, lambda: None)
        threads.append(threading.Thread(target=work, name=source.topic))
    for thread in threads:
        thread.start()
    while not process.stopped.wait(1.0):
        process.look()
    for thread in threads:
        thread.join()


ROLES: dict[str, Callable[[Process], None]] = {"apply": apply, "relay": relay, "kafka-adapter": adapt}
"""Roles of one process each; `query` has several."""


def query(settings: Settings) -> None:
    """A pod answers reads: this process looks after its loader and its readers."""
    of = pod.Pod(settings, SystemClock())
    stopped = threading.Event()
    stop = stopped.set
    process_signals.on({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: of.reload})
    of.run(stopped)


def query_loader(settings: Settings) -> None:
    """The loader of a pod, for as long as the pod lives."""
    with ExitStack() as running:
        of = services.connect(settings, name="headworks refdata loader")
        running.callback(of.close)
        process = Process(of, running, Heart(settings.alive_file))
        threading.Thread(target=_outlived, args=(process.stopped,), daemon=True).start()
        Loader(of, pod.folder_of(settings), pod.name_of(settings), process.look).run(process.stopped)


def _outlived(stopped: threading.Event) -> None:
    """Stopped when the pod is gone, and with it the other end of the standard input."""
    os.read(sys.stdin.fileno(), 1)
    stopped.set()


def query_reader(settings: Settings, listening: int) -> None:
    """One reader of a pod, on the socket that it inherited."""
    exposure.check_own_key(settings.api_key)
    of = services.connect(
        settings, name="headworks refdata reader", patience_seconds=0.0,
        open_here=exposure.is_alone(replace(settings, bind=settings.refdata_bind)),
    )  # fmt: skip
    try:
        reader.run(of, pod.folder_of(settings), socket.socket(fileno=listening), settings.refdata_server)
    finally:
        of.close()


def main(argv: Sequence[str]) -> int:
    """The process of this role has run until it was asked to stop."""
    match argv:
        case ["query" | "query-loader" as role]:
            pass
        case ["query-reader" as role, number] if number.isdigit():
            pass
        case [role] if role in ROLES:
            pass
        case _:
            print(f"Name one role: {', '.join((*ROLES, 'query'))}.", file=sys.stderr)
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
    elif role == "query-loader":
        query_loader(settings)
    elif role == "query-reader":
        query_reader(settings, int(argv[1]))
    else:
        exposition.serve(settings.metrics_bind)
        messages.know_codes()
        with ExitStack() as running:
            of = services.connect(settings, name=f"headworks refdata {role}")
            running.callback(of.close)
            ROLES[role](Process(of, running, Heart(settings.alive_file)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
