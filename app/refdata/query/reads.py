"""What is answered at which address (section 10): from memory at once, or after a wait for a version."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.metrics_core import GaugeMetricFamily

from app.access import statuses
from app.adapters import exposition, logs, metrics
from app.kernel import errors
from app.kernel.clock import Clock
from app.refdata import states
from app.refdata.config import Config
from app.refdata.query import answers
from app.refdata.query.answers import Answer
from app.refdata.query.frames import Failed
from app.refdata.query.image import Standing
from app.refdata.query.link import Link
from app.refdata.query.replies import TOO_LONG, Fields, Refusal, Reply, json_reply, problem
from app.refdata.query.request import (
    LONGEST_TARGET,
    NO_BARRIER,
    Alike,
    Barrier,
    Lines,
    Request,
    barrier_of,
    limit_in,
    name_in,
    parameter,
    token_in,
    tokens_in,
)
from app.refdata.query.shelf import Served, Shelf
from app.refdata.query.table import Place
from app.refdata.query.watchers import Watchers

log = logs.get(__name__)

LOADING_SECONDS = 2.0
"""So long a read waits for a dictionary that is not loaded, or for what the primary is not asked for."""

PAGE = 10_000

METHODS = (b"GET", b"HEAD")
KINDS = {b"items": "items", b"all": "all", b"version": "version", b"watch": "watch"}

_NO_SUCH = problem(404, "not_found", statuses.NOTHING_HERE)
_NOT_ALLOWED = problem(
    405, "method_not_allowed", "Reference data is read here: GET or HEAD.", ((b"allow", b"GET, HEAD"),)
)

OTHER_HISTORY = (
    "The versions of this dictionary count in another history now, since its database was restored: what was"
    " read before says nothing of it."
)
SOON = ((b"retry-after", b"1"),)

LetIn = Callable[[str, Request], None]
"""Raises where whoever asks may not speak for this tenant."""


class Read:
    """What somebody asks of a dictionary; `tokens` are what the entries begin with."""

    __slots__ = ("barrier", "kind", "limit", "lines", "place", "tokens")

    def __init__(
        self, kind: str, place: Place, barrier: Barrier, lines: Lines, tokens: Sequence[bytes] = (),
        limit: int | None = None,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.place = place
        self.barrier = barrier
        self.lines = lines
        self.tokens = tokens
        self.limit = limit


class Reads:
    """The addresses of one reader process."""

    def __init__(
        self, shelf: Shelf, link: Link, let_in: LetIn, config: Callable[[], Config], clock: Clock
    ) -> None:
        self._shelf = shelf
        self._link = link
        self._let_in = let_in
        self._config = config
        self._clock = clock
        self.is_draining = False
        self.moment = 0
        """Counts the seconds: what was found out about a caller or the configuration holds for one."""
        self._counts: Counter[tuple[str, int]] = Counter()
        self.items_alike = 0
        """How many were answered in short, and are not in the metrics yet."""
        self._watchers = Watchers(shelf, clock, lambda: self.is_draining)
        self.tick()

    def tick(self) -> None:
        """Once a second: what was counted is in the metrics, and nothing found out before holds any more."""
        self.moment += 1
        self._enabled = {one.code for one in self._config().dictionaries.values() if one.enabled}
        self._shelf.generation += 1
        self._counts["item", 200] += self.items_alike
        self.items_alike = 0
        counts, self._counts = self._counts, Counter()
        for (kind, status), number in counts.items():
            metrics.refdata_reads.labels(kind, str(status)).inc(number)

    def answer(self, request: Request) -> Answer:
        """The reply, or what has to be awaited for it. That to HEAD has a body, which is not to be sent."""
        if len(request.target) > LONGEST_TARGET:
            return TOO_LONG
        path, _, query = request.target.partition(b"?")
        if path.startswith(b"http://"):  # as a proxy is asked
            path = b"/" + path[7:].partition(b"/")[2]
        parts = path.split(b"/")
        kind = "other"
        try:
            if (
                len(parts) in (7, 8)
                and parts[1] == b"v1"
                and parts[2] == b"tenants"
                and parts[4] == b"dictionaries"
            ):
                if len(parts) == 8:
                    kind = "item" if parts[6] == b"items" else "other"
                else:
                    kind = KINDS.get(parts[6], "other")
                if kind == "other":
                    return self._counted(kind, _NO_SUCH)
                if request.method not in METHODS:
                    return self._counted(kind, _NOT_ALLOWED)
                place = self._place(parts[3], parts[5], request)
                answer = self._read(kind, place, parts, query, request)
            else:
                answer = self._of_process(path, request)
        except Refusal as refusal:
            answer = refusal.reply
        except errors.HeadworksError as error:
            status = statuses.status_of(error)
            answer = problem(status, error.code, error.sentence, SOON if status == 503 else ())
        if isinstance(answer, Reply):
            if kind == "item" and answer.status == 200:
                request.remember()
            return self._counted(kind, answer)
        return self._awaited(kind, answer)

    async def _awaited(self, kind: str, answer: Coroutine[Any, Any, Reply]) -> Reply:
        try:
            reply = await answer
        except Refusal as refusal:
            reply = refusal.reply
        return self._counted(kind, reply)

    def _counted(self, kind: str, reply: Reply) -> Reply:
        self._counts[kind, reply.status] += 1
        return reply

    def alike(self, alike: Alike) -> Served | None:
        """What further items are answered from, for whoever was answered one in this very second.

        It holds for one `generation`. None: they have to be asked for in full.
        """
        if alike.moment != self.moment or self.is_draining:
            return None
        served = self._shelf.newest.get(alike.place)
        return served if served is not None and served.version >= alike.least else None

    @property
    def generation(self) -> int:
        """Another one whenever anything is not as it was."""
        return self._shelf.generation

    # -- dictionaries

    def _place(self, tenant: bytes, code: bytes, request: Request) -> Place:
        """Whose dictionary is asked for, by somebody who may."""
        tenant_id = name_in(tenant)
        head = request.head
        if head.moment != self.moment or head.place[0] != tenant_id:
            self._let_in(tenant_id, request)
            head.moment = self.moment
        head.place = place = (tenant_id, name_in(code))
        return place

    def _read(self, kind: str, place: Place, parts: list[bytes], query: bytes, request: Request) -> Answer:
        lines = request.head.lines
        barrier = NO_BARRIER if kind == "watch" else barrier_of(lines, query)
        if kind == "item":
            read = Read(kind, place, barrier, lines, [token_in(parts[7])])
        elif kind == "items":
            read = Read(kind, place, barrier, lines, tokens_in(query))
        elif kind == "all":
            read = Read(kind, place, barrier, lines, (), limit_in(query))
            if (cursor := parameter(query, b"after")) is not None:
                return self._page_after(read, *answers.cursor_in(cursor))
        else:
            read = Read(kind, place, barrier, lines)
        self._check_dictionary(place)
        if kind == "watch":
            if not request.is_modern:
                raise Refusal(
                    505, "http_version_not_supported", "Whoever watches needs HTTP/1.1: ask for the version."
                )
            return self._watch(read)
        served = self._shelf.get(place)
        if served is not None and (barrier is NO_BARRIER or self._satisfies(served, barrier)):
            return self._from_memory(read, served)
        return self._wait(read)

    def _from_memory(self, read: Read, served: Served) -> Answer:
        if read.kind == "item":
            return answers.item(served, read.tokens[0], read.lines)
        if read.kind == "items":
            return answers.items(served, read.tokens, read.lines)
        if read.kind == "all":
            return answers.whole(served, read.limit, read.lines)
        return self._version(served, read.place)

    def _check_dictionary(self, place: Place) -> None:
        if place[1] not in self._enabled:
            raise Refusal(404, "UNKNOWN_DICTIONARY", states.CODES["UNKNOWN_DICTIONARY"].sentence)

    @staticmethod
    def _satisfies(served: Served, barrier: Barrier) -> bool:
        """Whether the newest version is what is asked for. Refusal: it is of another history."""
        standing = served.table.standing
        if barrier.epoch is not None and barrier.epoch != standing.epoch:
            raise Refusal(409, "EPOCH_CHANGED", OTHER_HISTORY, served.missing)
        return standing.version >= barrier.at_least and barrier.exactly in (None, standing.version)

    async def _wait(self, read: Read) -> Reply:
        """The answer from memory once it has the version; or the database's own (section 7)."""
        barrier = read.barrier
        served = await self._loaded(read.place)
        if not self._satisfies(served, barrier) and served.version < barrier.at_least:
            seconds = self._config().refdata.consistency.read_wait_ms / 1000
            served = await self._at_least(read.place, barrier, seconds)
            if served.version < barrier.at_least:
                return await self._from_primary(read)
        return await self._exact(read, served)

    async def _exact(self, read: Read, served: Served) -> Reply:
        """The answer from this version, or from the very one that is asked for."""
        exactly = read.barrier.exactly
        if exactly is not None:
            kept = self._shelf.exactly(read.place, exactly)
            if kept is None:
                raise Refusal(410, "VERSION_GONE", f"Version {exactly} is not kept any more.")
            served = kept
        answer = self._from_memory(read, served)
        return answer if isinstance(answer, Reply) else await answer

    async def _loaded(self, place: Place) -> Served:
        deadline = self._clock.monotonic() + LOADING_SECONDS
        if self._shelf.get(place) is None:
            self._link.want(place, 0)
        while (served := self._shelf.get(place)) is None:
            left = deadline - self._clock.monotonic()
            if left <= 0 or not await self._shelf.changed(place, left):
                raise Refusal(503, "LOADING", "The dictionary is being loaded: ask again in a moment.", SOON)
        return served

    async def _at_least(self, place: Place, barrier: Barrier, seconds: float) -> Served:
        """The newest version, once it is what is asked for or the time is over."""
        deadline = self._clock.monotonic() + seconds
        self._link.want(place, barrier.at_least)
        while True:
            served = await self._loaded(place)
            left = deadline - self._clock.monotonic()
            if self._satisfies(served, barrier) or served.version >= barrier.at_least or left <= 0:
                return served
            await self._shelf.changed(place, left)

    async def _from_primary(self, read: Read) -> Reply:
        """Single entries as the database has them; whatever is more waits on for the reload."""
        barrier = read.barrier
        is_by_key = bool(read.tokens) and barrier.exactly is None
        keys = [json.loads(token[1:-1]) for token in read.tokens] if is_by_key else []
        found = await self._link.ask(read.place, barrier.at_least, keys)
        if isinstance(found, Failed):
            raise Refusal(
                503, "PRIMARY_UNAVAILABLE",
                "This version is not here yet, and the database cannot be asked: try again.", SOON,
            )  # fmt: skip
        if barrier.epoch not in (None, found.epoch):
            raise Refusal(409, "EPOCH_CHANGED", OTHER_HISTORY)
        if found.payloads is None:
            raise Refusal(
                409, "VERSION_NOT_COMMITTED",
                f"The dictionary has version {found.version}; {barrier.at_least} is not committed.",
            )  # fmt: skip
        if is_by_key:
            return answers.of_primary(
                Standing(found.epoch, found.version), read.tokens, found.payloads, is_item=read.kind == "item"
            )
        served = await self._at_least(read.place, barrier, LOADING_SECONDS)
        if served.version < barrier.at_least:
            raise Refusal(
                503,
                "RELOADING",
                "This version is committed and is being loaded: ask again in a moment.",
                SOON,
            )
        return await self._exact(read, served)

    def _page_after(self, read: Read, version: int, epoch: str, after: bytes) -> Answer:
        self._check_dictionary(read.place)
        served = self._shelf.exactly(read.place, version)
        if served is None or str(served.table.standing.epoch)[:8] != epoch:
            raise Refusal(
                410, "VERSION_GONE",
                f"Version {version} is not kept any more: begin again with the first page.",
            )  # fmt: skip
        return answers.page(served, after, read.limit or PAGE, read.lines)

    # -- versions

    def _version(self, served: Served, place: Place) -> Reply:
        standing = served.table.standing
        age = self._shelf.ages().get(place[1])
        found = {
            "tenantId": place[0], "dictCode": place[1], "version": standing.version,
            "epoch": str(standing.epoch), "items": served.table.count,
            "checksum": f"{served.table.checksum:016x}", "source": served.source.decode(),
            "ageSeconds": None if age is None else round(age, 3),
        }  # fmt: skip
        return json_reply(found, served.missing, caching=b"no-cache")

    async def _watch(self, read: Read) -> Reply:
        served = await self._loaded(read.place)
        fields = Fields(
            200, ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"), *served.missing)
        )
        last = read.lines.get(b"last-event-id", b"")
        return Reply(200, fields, stream=self._watchers.stream(read.place, last))

    # -- the process

    def _of_process(self, path: bytes, request: Request) -> Reply:
        found = {
            b"/actuator/health": self._readiness,
            b"/actuator/health/readiness": self._readiness,
            b"/actuator/health/liveness": lambda: json_reply({"status": "UP"}),
            b"/actuator/prometheus": self._metrics,
        }.get(path)
        if found is None:
            return _NO_SUCH
        return found() if request.method in METHODS else _NOT_ALLOWED

    def _readiness(self) -> Reply:
        """Whether this process has every dictionary; the loader may be gone meanwhile."""
        pulse = self._shelf.pulse
        waits_for = "the end of this process" if self.is_draining else pulse.waits_for
        if self.is_draining or not pulse.is_ready:
            return json_reply({"status": "OUT_OF_SERVICE", "waitsFor": waits_for}, status=503)
        return json_reply({
            "status": "UP", "dictionaries": sum(1 for _ in self._shelf.places()),
            "loader": "UP" if self._shelf.hears_loader else "DOWN",
        })  # fmt: skip

    def _metrics(self) -> Reply:
        self.tick()
        content, kind = exposition.text(self._gauges())
        return Reply(
            200, Fields(200, ((b"content-type", kind.encode()), (b"cache-control", b"no-store"))), content
        )

    def _gauges(self) -> Iterator[GaugeMetricFamily]:
        """How the pod stands at this moment, told by who still knows it when the loader hangs or is gone."""
        pulse = self._shelf.pulse
        yield metrics.refdata_pod_ready.of(float(not self.is_draining and pulse.is_ready))
        yield metrics.refdata_loader_up.of(float(self._shelf.hears_loader))
        yield metrics.refdata_staleness_seconds.of(_by_code(self._shelf.ages()))
        if self._shelf.hears_loader:
            yield metrics.dict_version_lag.of(_by_code(pulse.behind))
            if pulse.unread is not None:
                yield metrics.redis_stream_lag.of(pulse.unread)


def _by_code(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(code,): value for code, value in values.items()}
