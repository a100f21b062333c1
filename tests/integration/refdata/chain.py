"""The processes of the reference data, each as threads of this one: what applies, and what announces."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from app.adapters import topics
from app.refdata.announce import Announcer
from app.refdata.apply import Applier
from app.refdata.consume import Consuming
from app.refdata.relay import Relaying
from app.refdata.services import Services
from tests.integration.refdata.platform import Platform


def consuming(of: Services, running: ExitStack) -> Consuming:
    """A member of the group that applies commands; it leaves when the block ends."""
    kafka = of.config.refdata.kafka
    of.ensure_topics()
    consumer = of.topics.consumer(kafka.commands_topic, group=kafka.group)
    running.callback(consumer.close)
    applier = Applier(lambda: of.config, of.databases)
    return Consuming(consumer, of.publisher, applier, lambda: of.config, of.clock)


def relaying(platform: Platform) -> Relaying:
    """What announces."""
    of = platform.services
    return Relaying(of, Announcer(of.config.refdata.redis, platform.environ), of.publisher)


@contextmanager
def at_work(platform: Platform, *, relay: bool = True) -> Iterator[None]:
    """Commands are applied, and versions announced, while the block runs."""
    with ExitStack() as running:
        loops = [consuming(platform.services, running).run]
        if relay:
            loops.append(relaying(platform).run)
        running.enter_context(in_threads(*loops))
        yield


@contextmanager
def applying(of: Services) -> Iterator[None]:
    """Commands are applied while the block runs."""
    with ExitStack() as running:
        running.enter_context(in_threads(consuming(of, running).run))
        yield


@contextmanager
def in_threads(*loops: Callable[[threading.Event, Callable[[], object]], None]) -> Iterator[None]:
    """Each loop goes round while the block runs."""
    stopped = threading.Event()
    threads = [threading.Thread(target=run, args=(stopped, lambda: None)) for run in loops]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


@contextmanager
def listening(platform: Platform) -> Iterator[list[dict[str, Any]]]:
    """Every message of the channel, as it comes."""
    config = platform.services.config.refdata.redis
    heard: list[dict[str, Any]] = []
    with redis.Redis.from_url(platform.environ["REFDATA_REDIS"]) as client, client.pubsub() as channel:
        channel.subscribe(**{config.pub_channel: lambda message: heard.append(json.loads(message["data"]))})
        channel.get_message(timeout=5)
        thread = channel.run_in_thread(0.02, daemon=True)
        yield heard
        thread.stop()
        thread.join()


def on_stream(platform: Platform) -> list[dict[str, Any]]:
    """What is on the stream of announcements."""
    config = platform.services.config.refdata.redis
    with redis.Redis.from_url(platform.environ["REFDATA_REDIS"]) as client:
        return [json.loads(fields[b"payload"]) for _, fields in client.xrange(config.stream_key)]


def dead_letters(platform: Platform) -> list[topics.Message]:
    """What is in the dead-letter topic."""
    of = platform.services
    consumer = of.topics.consumer(of.config.refdata.kafka.dead_letter_topic, group="test")
    try:
        return consumer.poll(100, 2.0)
    finally:
        consumer.close()
