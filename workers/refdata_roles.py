"""What the processes of reference data do, each role of `workers.refdata`, and all that this imports."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from app.access import exposure
from app.adapters import exposition, process_signals, topics
from app.adapters.alive import Heart
from app.adapters.settings import ENVIRON, Settings
from app.refdata import messages, services
from app.refdata.adapter import Adapting
from app.refdata.announce import Announcer
from app.refdata.apply import Applier
from app.refdata.consume import Consuming
from app.refdata.query import pod, reader
from app.refdata.query.loader import Loader
from app.refdata.relay import Relaying
from app.refdata.services import Services


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


ALONE: dict[str, Callable[[Process], None]] = {"apply": apply, "relay": relay, "kafka-adapter": adapt}
"""Roles of one process each; `query` has several."""


def alone(role: str, settings: Settings) -> None:
    """The one process of this role."""
    exposition.serve(settings.metrics_bind)
    messages.know_codes()
    with ExitStack() as running:
        of = services.connect(settings, name=f"headworks refdata {role}")
        running.callback(of.close)
        ALONE[role](Process(of, running, Heart(settings.alive_file)))


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
