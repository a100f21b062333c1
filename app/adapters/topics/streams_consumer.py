"""A consumer of streams: which partitions it has, and for how long; what it reads of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import redis.exceptions

from app.adapters import logs
from app.adapters.topics import POLL_BYTES, SILENT_SECONDS, Message, streams_scripts
from app.adapters.topics.lanes import Lane, take_in_turn
from app.adapters.topics.streams_redis import TIMEOUT_SECONDS, Keys, Server, errors_of
from app.kernel import errors
from app.kernel.clock import Clock

log = logs.get(__name__)

BEATS_PER_LEASE = 4

LOOK_SECONDS = 1.0
"""An empty partition is looked at so often, though nobody said that there is something in it."""

PAUSE_SECONDS = 0.1
"""Between two tries while Redis is away."""


class _Held(Lane):
    """A partition that this consumer has, and until when."""

    def __init__(self, token: str, place: str, handled: int, until: float) -> None:
        super().__init__()
        self.settled = place
        self.token = token
        self.handled = handled  # before this consumer's own
        self.until = until  # by this process's clock, never later than Redis thinks
        self.committed = 0
        self.look_at = 0.0  # when it is read again though nobody said that there is something
        self.read_bytes = 0  # by the last reading
        self.is_lost = False


class StreamsConsumer:
    """A member of a group: it lives, and keeps its partitions, as long as its heart beats.

    The heart is a thread. It beats while the consumer polls at least every SILENT_SECONDS, so that
    handling may take longer than a lease; it stops with the process.
    """

    def __init__(
        self, server: Server, keys: Keys, topic: str, *, group: str, lease_seconds: float, clock: Clock
    ) -> None:
        self._server = server
        self._keys = keys
        self._topic = topic
        self._group = group
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._name = clock.new_id().hex
        self._lanes: dict[int, _Held] = {}
        self._members: list[str] = []
        self._partitions = 0
        self._taken = 0
        self._asked = 0
        self._turn = 0
        self._try_at = 0.0  # when partitions that somebody else has are tried again
        self._polled_at = clock.monotonic()
        self._trouble: errors.HeadworksError | None = None
        self._hints: Any = None
        self._heart: threading.Thread | None = None
        self._end = threading.Event()

    def poll(self, limit: int, wait_seconds: float) -> list[Message]:
        """The next messages of the partitions that are this consumer's."""
        self._polled_at = self._clock.monotonic()
        deadline = self._polled_at + wait_seconds
        self._join()
        while True:
            self._trouble = None
            self._drop_lost()
            self._take_hints(0.0)
            self._balance()
            self._save()
            self._read(limit)
            self._turn += 1
            if taken := take_in_turn(self._live(), limit, turn=self._turn):
                return taken
            left = deadline - self._clock.monotonic()
            if left <= 0:
                if self._trouble is not None:
                    raise self._trouble
                return []
            self._take_hints(min(left, LOOK_SECONDS, max(0.001, self._try_at - self._clock.monotonic())))

    def commit(self, messages: Iterable[Message]) -> None:
        """Handled, and removed where no other group still needs them."""
        touched: dict[int, list[Message]] = {}
        for message in messages:
            touched.setdefault(message.partition, []).append(message)
        for partition, of_it in touched.items():
            if partition in self._lanes:
                self._lanes[partition].settle(of_it)
        self._trouble = None
        self._save()
        if self._trouble is not None:
            raise self._trouble

    def rewind(self, message: Message) -> None:
        """The messages are handed out again, from memory."""
        if lane := self._lanes.get(message.partition):
            lane.rewind(message)

    def holds(self, message: Message) -> bool:
        """Whether the partition's lease is this consumer's and has not run out."""
        lane = self._lanes.get(message.partition)
        return lane is not None and self._is_live(lane)

    def lag(self) -> dict[int, int]:
        """By partition, what was published and is not handled."""
        behind = {}
        for partition in list(self._lanes):
            with errors_of():
                published, handled = self._server.client.hmget(
                    self._keys.state(partition), "published", f"handled:{self._group}"
                )
            behind[partition] = int(published or 0) - int(handled or 0)
        return behind

    def close(self) -> None:
        """The heart has stopped, the leases are given back, and the others know."""
        self._end.set()
        if self._heart is None:
            return
        self._heart.join()
        self._heart = None
        try:
            self._save()
            for partition in list(self._lanes):
                self._give_back(partition)
            with errors_of():
                self._server.client.zrem(self._keys.members(self._group), self._name)
                self._server.client.publish(self._keys.channel, self._word())
        except errors.HeadworksError as error:
            log.warning("consumer_not_left", topic=self._topic, code=error.code)
        self._forget_hints()
        self._lanes.clear()

    # The group: who is in it, who has what.

    def _join(self) -> None:
        if self._end.is_set():
            raise errors.Conflict("This consumer is closed.")
        if self._partitions == 0:
            self._partitions, _ = self._server.shape(self._keys, self._topic)
        if self._heart is None:
            self._heart = threading.Thread(target=self._beat, name=f"topic-{self._topic}", daemon=True)
            self._heart.start()

    def _beat(self) -> None:
        """Until the end: this consumer is a member, and what it holds stays its own."""
        was_silent = False
        while not self._end.wait(self._lease_seconds / BEATS_PER_LEASE):
            if self._clock.monotonic() - self._polled_at > SILENT_SECONDS:
                if not was_silent:
                    log.warning("consumer_silent", topic=self._topic, group=self._group)
                was_silent = True
                continue
            was_silent = False
            try:
                self._live_on()
                for partition, lane in list(self._lanes.items()):
                    self._renew(partition, lane)
            except errors.HeadworksError as error:
                log.warning("lease_not_renewed", topic=self._topic, group=self._group, code=error.code)

    def _live_on(self) -> None:
        milliseconds = int(self._lease_seconds * 1000)
        found = self._server.run(
            streams_scripts.LIVE,
            [self._keys.members(self._group)],
            [self._name, milliseconds, self._keys.channel, self._word()],
        )
        self._members = sorted(name.decode() for name in found)

    def _renew(self, partition: int, lane: _Held) -> None:
        until = self._clock.monotonic() + self._lease_seconds
        name = self._keys.owner(partition, self._group)
        if (
            self._server.run(streams_scripts.RENEW, [name], [lane.token, int(self._lease_seconds * 1000)])
            == 1
        ):
            lane.until = until
        else:
            lane.is_lost = True

    def _balance(self) -> None:
        """This consumer has its share of the partitions, or tries again at `_try_at`."""
        if self._name not in self._members:
            self._attempt(self._live_on)
        if self._name not in self._members:
            return
        rank, members = self._members.index(self._name), len(self._members)
        share = self._partitions // members + (rank < self._partitions % members)
        if len(self._lanes) > share:
            idle_first = sorted(self._lanes, key=lambda number: self._lanes[number].outstanding)
            for partition in idle_first[: len(self._lanes) - share]:
                self._attempt(self._give_back, partition)
            self._attempt(self._tell)
        now = self._clock.monotonic()
        if len(self._lanes) < share and now >= self._try_at:
            self._try_at = now + self._lease_seconds / BEATS_PER_LEASE
            # Each begins elsewhere, else all would ask for the same ones first.
            for step in range(self._partitions):
                partition = (rank * self._partitions // members + step) % self._partitions
                if len(self._lanes) < share and partition not in self._lanes:
                    self._attempt(self._take, partition)
        elif len(self._lanes) >= share:
            self._try_at = now + self._lease_seconds

    def _take(self, partition: int) -> None:
        self._taken += 1
        token = f"{self._name}:{self._taken}"
        until = self._clock.monotonic() + self._lease_seconds
        owner, state = self._keys.owner(partition, self._group), self._keys.state(partition)
        found = self._server.run(
            streams_scripts.TAKE,
            [owner, state, self._keys.stream(partition)],
            [token, int(self._lease_seconds * 1000), self._group],
        )
        if found is not None:
            self._lanes[partition] = _Held(token, found[0].decode(), int(found[1]), until)
            log.info("partitions_assigned", topic=self._topic, group=self._group, partitions=[partition])

    def _give_back(self, partition: int) -> None:
        lane = self._lanes.pop(partition)
        log.info("partitions_revoked", topic=self._topic, group=self._group, partitions=[partition])
        self._server.run(streams_scripts.GIVE_BACK, [self._keys.owner(partition, self._group)], [lane.token])

    def _tell(self) -> None:
        with errors_of():
            self._server.client.publish(self._keys.channel, self._word())

    def _drop_lost(self) -> None:
        lost = [number for number, lane in self._lanes.items() if not self._is_live(lane)]
        for partition in lost:
            del self._lanes[partition]
        if lost:
            self._try_at = 0.0
            log.warning("partitions_lost", topic=self._topic, group=self._group, partitions=lost)

    def _is_live(self, lane: _Held) -> bool:
        return not lane.is_lost and self._clock.monotonic() < lane.until

    def _live(self) -> list[_Held]:
        return [lane for lane in self._lanes.values() if self._is_live(lane)]

    # The messages.

    def _read(self, limit: int) -> None:
        now = self._clock.monotonic()
        room_bytes = POLL_BYTES
        for partition, lane in list(self._lanes.items()):
            if lane.waiting < limit and now >= lane.look_at and room_bytes > 0:
                self._attempt(self._read_lane, partition, lane, limit - lane.waiting)
                room_bytes -= lane.read_bytes

    def _read_lane(self, partition: int, lane: _Held, most: int) -> None:
        names = [self._keys.owner(partition, self._group), self._keys.stream(partition)]
        found = self._server.run(
            streams_scripts.READ,
            [*names, self._keys.asleep(partition)],
            [lane.token, lane.last, most, POLL_BYTES],
        )
        lane.read_bytes = 0
        if found is None:
            lane.is_lost = True
            return
        for offset, flat in found:
            message = _message(self._topic, partition, offset, flat)
            lane.add(message)
            lane.read_bytes += len(message.value)
        lane.look_at = 0.0 if found else self._clock.monotonic() + LOOK_SECONDS

    def _save(self) -> None:
        for partition, lane in list(self._lanes.items()):
            if lane.count > lane.committed:
                self._attempt(self._save_lane, partition, lane)

    def _save_lane(self, partition: int, lane: _Held) -> None:
        names = [self._keys.owner(partition, self._group), self._keys.state(partition)]
        count = lane.count
        arguments = [lane.token, self._group, lane.settled, lane.handled + count]
        if self._server.run(streams_scripts.COMMIT, [*names, self._keys.stream(partition)], arguments) == 1:
            lane.committed = count
        else:
            lane.is_lost = True

    # What there is to know without asking again and again.

    def _word(self) -> str:
        return f"members:{self._group}"

    def _take_hints(self, wait_seconds: float) -> None:
        """What others said is taken note of; waits for the first of it."""
        try:
            with errors_of():
                if self._hints is None:
                    self._open_hints()
                while hint := self._hints.get_message(timeout=wait_seconds):
                    wait_seconds = 0.0
                    self._heed(hint["data"])
        except errors.HeadworksError as error:
            self._trouble = error
            self._forget_hints()
            self._end.wait(min(wait_seconds, PAUSE_SECONDS))

    def _heed(self, word: Any) -> None:
        if word == self._word().encode():
            self._try_at = 0.0
            self._attempt(self._live_on)
        elif isinstance(word, bytes) and word.isdigit() and (lane := self._lanes.get(int(word))):
            lane.look_at = 0.0

    def _open_hints(self) -> None:
        """From here on nothing is missed; what came before is looked for."""
        # Any node hears what is published on another one; after one that is away, the next is asked.
        nodes = self._server.nodes()
        self._asked += 1
        at = {"node": nodes[self._asked % len(nodes)]} if nodes else {}
        self._hints = self._server.client.pubsub(**at)
        self._hints.subscribe(self._keys.channel)
        if self._hints.get_message(timeout=TIMEOUT_SECONDS) is None:
            raise redis.exceptions.TimeoutError("no answer to SUBSCRIBE")

    def _forget_hints(self) -> None:
        hints, self._hints = self._hints, None
        for lane in self._lanes.values():
            lane.look_at = 0.0  # nobody would say what is in it
        if hints is not None:
            with suppress(redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError):
                hints.close()

    def _attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        """A step that fails for one partition, or one node, keeps none of the others."""
        try:
            step(*arguments)
        except errors.HeadworksError as error:
            self._trouble = error


def _message(topic: str, partition: int, offset: bytes, flat: Sequence[bytes]) -> Message:
    fields = {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}
    return Message(
        topic=topic,
        partition=partition,
        offset=offset.decode(),
        key=fields.pop("key").decode(),
        value=fields.pop("value"),
        headers={name.removeprefix("h:"): value for name, value in fields.items()},
    )
