"""The pod hears of changes (section 6.2): at once on the channel, and from a stream that misses nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import msgspec
import redis.exceptions

from app.adapters import logs
from app.adapters.topics.streams_redis import Server, errors_of
from app.kernel import errors
from app.kernel.clock import Clock
from app.refdata.commands import LARGEST
from app.refdata.config import Redis

log = logs.get(__name__)

STREAM_SECONDS = 1.0
"""So often the stream is read: what the channel has lost is found there."""

DEAF_SECONDS = 2.5
AGAIN_SECONDS = 0.5
LONG_AGO_SECONDS = 30.0
"""Whoever has not read the stream for so long compares all versions: some of it may be gone."""

AT_ONCE = 1000
LONGEST = 1 << 20
MEASURE_SECONDS = 10.0
CLEAN_SECONDS = 3600.0
"""Seldom: every pod asks for every group then."""

FORSAKEN_MS = 24 * 3600 * 1000
"""The group of a pod that has not read for so long is removed."""

CONSUMER = "loader"


class Announcement(msgspec.Struct, frozen=True, rename="camel"):
    """A version that was committed (section 8.2)."""

    tenant_id: str
    dict_code: str
    version: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    epoch: UUID | None = None


_decoder = msgspec.json.Decoder(Announcement)


@dataclass(frozen=True, slots=True)
class Hearing:
    """What is done with what is heard."""

    announced: Callable[[Announcement], None]
    missed: Callable[[], None]
    """Something may have been missed: every version has to be compared."""


class Feed:
    """Both ways of hearing, each in a thread of its own."""

    def __init__(
        self, config: Redis, environ: Mapping[str, str], pod: str, hearing: Hearing, clock: Clock
    ) -> None:
        """BadConfig names a variable that is not set."""
        self._config = config
        self._urls = config.urls(environ)
        self._group = f"{config.consumer_group}:{pod}"
        self._hearing = hearing
        self._clock = clock
        self._read_at = float("-inf")
        self._unread = 0
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=partial(self._run, work), name=f"feed {work.__name__}", daemon=True)
            for work in (self._listen, self._follow)
        ]

    def start(self) -> None:
        """It is listened."""
        for thread in self._threads:
            thread.start()

    @property
    def is_deaf(self) -> bool:
        """Whether Redis was not heard of for some seconds: then the databases alone tell of changes."""
        return self._clock.monotonic() > self._read_at + DEAF_SECONDS

    @property
    def unread(self) -> int | None:
        """Announcements on the stream that were not read; None: Redis was not heard of for some seconds."""
        return None if self.is_deaf else self._unread

    def close(self) -> None:
        """Nothing is heard any more, and Redis keeps nothing for this pod."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        try:
            with closing(Server(self._urls)) as server, errors_of():
                server.client.xgroup_destroy(self._config.stream_key, self._group)
        except (errors.HeadworksError, redis.exceptions.RedisError) as error:
            log.info("refdata_group_left", group=self._group, kind=type(error).__name__)

    def _run(self, work: Callable[[Server], None]) -> None:
        """The work goes on, with another connection where one breaks."""
        while not self._stopped.is_set():
            try:
                with closing(Server(self._urls)) as server, errors_of():
                    work(server)
            except (errors.HeadworksError, redis.exceptions.RedisError, OSError) as error:
                log.warning("refdata_feed_waits", feed=work.__name__, kind=type(error).__name__)
                self._stopped.wait(AGAIN_SECONDS)
            except Exception:  # a mistake of ours must not be the end of hearing
                log.exception("refdata_feed_broke", feed=work.__name__)
                self._stopped.wait(AGAIN_SECONDS)

    # -- the channel

    def _listen(self, server: Server) -> None:
        client = server.client
        node = client.get_redis_connection(client.get_random_node()) if server.nodes() else client
        with closing(node.pubsub(ignore_subscribe_messages=True)) as channel:
            channel.subscribe(self._config.pub_channel)
            self._hearing.missed()
            while not self._stopped.is_set():
                message = channel.get_message(timeout=STREAM_SECONDS)
                if message is not None:
                    self._hear(message["data"])

    # -- the stream

    def _follow(self, server: Server) -> None:
        """The stream under a group of this pod alone: a group of all pods would part it among them."""
        client, key = server.client, self._config.stream_key
        self._join(client)
        self._hearing.missed()
        measured_at = cleaned_at = self._clock.monotonic()
        while not self._stopped.is_set():
            found = client.xreadgroup(self._group, CONSUMER, {key: ">"}, count=AT_ONCE)
            entries = found[0][1] if found else []
            for _, fields in entries:
                self._hear((fields or {}).get(b"payload", b""))
            if entries:
                client.xack(key, self._group, *[number for number, _ in entries])
            now = self._clock.monotonic()
            if now > self._read_at + LONG_AGO_SECONDS:
                self._hearing.missed()
            self._read_at = now
            if now > measured_at + MEASURE_SECONDS:
                measured_at = now
                self._measure(client)
            if now > cleaned_at + CLEAN_SECONDS:
                cleaned_at = now
                self._clean(client)
            if len(entries) < AT_ONCE:
                self._stopped.wait(STREAM_SECONDS)

    def _join(self, client: Any) -> None:
        try:
            client.xgroup_create(self._config.stream_key, self._group, id="$", mkstream=True)
        except redis.exceptions.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
            # What was read before and not acknowledged: all versions are compared in a moment.
            client.xgroup_delconsumer(self._config.stream_key, self._group, CONSUMER)

    def _measure(self, client: Any) -> None:
        """How much is unread is known."""
        for group in client.xinfo_groups(self._config.stream_key):
            if group["name"].decode() == self._group:
                self._unread = int(group.get("lag") or 0)

    def _clean(self, client: Any) -> None:
        """Groups of pods that are gone for good are removed."""
        key = self._config.stream_key
        for group in client.xinfo_groups(key):
            name = group["name"].decode()
            if name != self._group and name.startswith(f"{self._config.consumer_group}:"):
                idle = [one["idle"] for one in client.xinfo_consumers(key, name)]
                if idle and min(idle) > FORSAKEN_MS:
                    client.xgroup_destroy(key, name)
                    log.info("refdata_group_removed", group=name)

    def _hear(self, payload: Any) -> None:
        try:
            if len(payload) > LONGEST:
                raise msgspec.DecodeError("too long")
            announcement = _decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            log.warning("refdata_announcement_refused", reason=str(error)[:200])
            return
        self._hearing.announced(announcement)
