"""One process of a pod keeps every dictionary as its database has it, and tells the readers (section 6.2)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg2

from app.adapters import logs, metrics
from app.kernel import errors
from app.refdata import store
from app.refdata.config import Dictionary
from app.refdata.query import frames
from app.refdata.query.desk import Desk, Pace
from app.refdata.query.feed import Announcement, Feed, Hearing
from app.refdata.query.frames import Ask, Entries, Failed, FromLoader, Pulse, Want
from app.refdata.query.hub import Hub
from app.refdata.query.image import Standing, token_of
from app.refdata.query.keeper import Keeper
from app.refdata.query.loading import Builders, Source
from app.refdata.query.table import Place
from app.refdata.services import Services
from app.refdata.tenant_rules import TENANT_ID

log = logs.get(__name__)

PULSE_SECONDS = 0.5
SAVE_SECONDS = 5.0
HURRY_SECONDS = 0.5
"""So often versions are compared while Redis, or a database, is not heard of."""


class Loader:
    """The tables of one pod."""

    def __init__(self, of: Services, folder: Path, pod: str, look: Callable[[], object]) -> None:
        """`folder` is the pod's own; `pod` its name in Redis; `look` is called between two rounds."""
        self._of = of
        self._look_at_config = look
        self._clock = of.clock
        self._expected: set[Place] | None = None
        """What has to be loaded before the pod is ready; None: no database has told yet."""
        self._is_restored = self._has_been_ready = False
        self._look = threading.Event()
        self._stopped = threading.Event()
        query = of.config.refdata.query
        self._desk = Desk(self._pace, of.clock, random.random)
        self._builders = Builders(query.parallel_reloads)
        self._loads = ThreadPoolExecutor(query.parallel_reloads, thread_name_prefix="load")
        self._feed = Feed(
            of.config.refdata.redis, of.databases.environ, pod, Hearing(self._announced, self._look.set),
            of.clock,
        )  # fmt: skip
        self._hub = Hub(
            frames.socket_in(folder), everything=self._everything, want=self._want, ask=self._ask,
            at_once=query.primary_reads,
        )  # fmt: skip
        self._keeper = Keeper(of, folder, self._builders, self._hub.tell)
        self._threads = [
            threading.Thread(target=self._often, args=(work,), name=work.__name__, daemon=True)
            for work in (self._compare_all, self._pulse, self._save)
        ]

    def run(self, stopped: threading.Event) -> None:
        """Every dictionary is kept up to date until it is stopped."""
        self._is_restored = self._keeper.restore()
        self._hub.start()
        self._feed.start()
        for thread in self._threads:
            thread.start()
        while not stopped.is_set():
            self._look_at_config()
            place = self._desk.take(PULSE_SECONDS)
            if place is not None:
                self._loads.submit(self._load, place)
        self._stopped.set()
        self._look.set()
        self._feed.close()
        for thread in self._threads:
            thread.join()
        self._loads.shutdown(wait=True, cancel_futures=True)
        self._builders.close()
        self._hub.close()
        self._save()

    def _often(self, work: Callable[[], float]) -> None:
        """The work is done again and again, each time after as many seconds as it said."""
        while not self._stopped.is_set():
            try:
                seconds = work()
            except Exception:  # a mistake of ours must not end what everything here depends on
                log.exception("refdata_loader_broke", work=work.__name__)
                seconds = 1.0
            self._stopped.wait(seconds)

    def _pace(self) -> Pace:
        query = self._of.config.refdata.query
        return Pace(query.coalesce_ms / 1000, query.jitter_ms / 1000, query.parallel_reloads)

    # -- what is asked for

    def _announced(self, what: Announcement) -> None:
        place = (what.tenant_id, what.dict_code)
        if TENANT_ID.fullmatch(what.tenant_id) is None or self._of.dictionary(what.dict_code) is None:
            return
        known = self._keeper.get(place)
        is_news = known is None or what.version > known.standing.version
        if is_news or what.epoch not in (None, known and known.standing.epoch):
            self._desk.ask(place, what.version, what.epoch)

    def _want(self, want: Want) -> None:
        place = (want.tenant_id, want.dict_code)
        if self._of.dictionary(want.dict_code) is None:
            return
        known = self._keeper.get(place)
        if known is not None and known.standing.version >= want.version:
            self._keeper.tell_again(place)
        else:
            self._desk.ask(place, want.version, at_once=True)

    def _compare_all(self) -> float:
        """All versions are compared: now and then, and when something may have been missed."""
        self._look.clear()
        answered = self.check()
        seconds = self._of.config.refdata.query.check_seconds
        if not answered or self._feed.is_deaf:
            seconds = min(seconds, HURRY_SECONDS)
        self._look.wait(seconds * random.uniform(0.8, 1.2))
        return 0.0

    def check(self) -> bool:
        """What is not as its database has it is asked for; whether every database answered."""
        expected: set[Place] = set()
        answered = True
        enabled = {one.code: one for one in self._of.config.dictionaries.values() if one.enabled}
        loaded = self._keeper.tables
        for code in enabled:  # known to whoever asks for the metrics before anything happens
            metrics.postgres_fallback_reads.labels(code).inc(0)
            metrics.cache_reload_errors.labels(code, errors.ConnectionLost.code).inc(0)
        for name in {one.database for one in enabled.values()}:
            asked_at = self._clock.monotonic()
            try:
                epoch, versions = store.standings(self._of.databases[name])
            except errors.HeadworksError as error:
                log.warning("refdata_check_waits", database=name, code=error.code)
                answered = False
                continue
            for place in {*versions, *loaded}:
                dictionary = enabled.get(place[1])
                if dictionary is not None and dictionary.database == name:
                    expected.add(place)
                    self._compare(dictionary, place, Standing(epoch, versions.get(place, 0)), asked_at)
        for place in loaded:
            if place[1] not in enabled:
                self._drop(place)
        if answered:
            self._expected = expected
        return answered

    def _compare(self, dictionary: Dictionary, place: Place, now: Standing, asked_at: float) -> None:
        known = self._keeper.get(place)
        if known is None or known.standing != now:
            self._desk.ask(place, now.version, now.epoch)
            return
        self._keeper.checked(place, asked_at)
        if self._keeper.is_to_be_refreshed(place, dictionary):
            self._desk.ask(place, now.version, now.epoch)

    def _drop(self, place: Place) -> None:
        self._desk.drop(place)
        self._keeper.drop(place)

    # -- loading

    def _source(self, place: Place) -> tuple[Dictionary, Source] | None:
        dictionary = self._of.dictionary(place[1])
        if dictionary is None:
            return None
        return dictionary, Source(place, dictionary, self._of.config.databases[dictionary.database].schema_)

    def _load(self, place: Place) -> None:
        """The dictionary is as its database has it, or comes again after a rest."""
        began = self._clock.monotonic()
        code = place[1]
        try:
            if (found := self._source(place)) is None:
                self._drop(place)
                self._desk.give_back(place)
                return
            standing = self._keeper.bring(place, *found)
            self._keeper.checked(place, began)
            self._desk.done(place, standing.epoch, standing.version)
            metrics.cache_reload_duration.labels(code).observe(self._clock.monotonic() - began)
        except (errors.HeadworksError, psycopg2.Error, OSError) as error:
            reason = _reason(error)
            metrics.cache_reload_errors.labels(code, reason).inc()
            log.warning(
                "refdata_reload_waits", tenantId=place[0], dictCode=code, code=reason,
                reason=str(error)[:300],
            )  # fmt: skip
            self._desk.failed(place)
        except Exception:  # a mistake of ours must not keep the others from being loaded
            metrics.cache_reload_errors.labels(code, "internal_error").inc()
            log.exception("refdata_reload_broke", tenantId=place[0], dictCode=code)
            self._desk.failed(place)

    # -- what readers are told

    def _everything(self) -> Iterator[FromLoader]:
        for table in self._keeper.tables.values():
            yield self._keeper.whole(table)
        yield self._state()

    def _pulse(self) -> float:
        self._hub.tell(self._state())
        return PULSE_SECONDS

    def _save(self) -> float:
        try:
            self._keeper.save()
        except OSError as error:
            log.warning("refdata_folder_not_written", reason=error.strerror)
        return SAVE_SECONDS

    def _state(self) -> Pulse:
        now = self._clock.monotonic()
        tables = self._keeper.tables
        ages: dict[str, float | None] = {}
        for place in tables:
            at, age = self._keeper.checked_at(place), ages.get(place[1], 0.0)
            ages[place[1]] = None if at is None or age is None else max(age, now - at)
        lag: dict[str, int] = dict.fromkeys(ages, 0)
        for place, wanted in self._desk.lag().items():
            known = tables.get(place)
            lag[place[1]] = max(lag.get(place[1], 0), wanted - (known.standing.version if known else 0))
        waits_for = self._waits_for()
        return Pulse(not waits_for, waits_for, ages, lag, self._feed.unread)

    def _waits_for(self) -> str:
        """What is missing before reads can be answered; empty: nothing.

        Once nothing is, it stays so: what is new to all pods must not make all of them unready at once.
        """
        if self._has_been_ready:
            return ""
        if self._expected is None:
            return "" if self._is_restored else "the databases"
        missing = [place for place in self._expected if self._keeper.get(place) is None]
        self._has_been_ready = not missing
        return f"{len(missing)} dictionaries, such as {missing[0][1]}" if missing else ""

    def _ask(self, ask: Ask) -> FromLoader:
        """Some entries as the database has them now, if it has the version that is asked for (section 7)."""
        place = (ask.tenant_id, ask.dict_code)
        try:
            if (found := self._source(place)) is None:
                return Failed(ask.number, "UNKNOWN_DICTIONARY")
            dictionary, source = found
            with self._of.databases[dictionary.database].transaction(None, snapshot=True) as conn:
                now = source.standing(conn)
                if now.version < ask.version:
                    return Entries(ask.number, now.epoch, now.version, None)
                payloads = source.of_keys(conn, ask.keys)
        except (errors.HeadworksError, psycopg2.Error) as error:
            # Not logged: whoever reads may ask for it thousands of times a second.
            metrics.cache_reload_errors.labels(place[1], f"primary {_reason(error)}").inc()
            return Failed(ask.number, "PRIMARY_UNAVAILABLE")
        metrics.postgres_fallback_reads.labels(place[1]).inc()
        tokens = [token_of(key.encode()) for key in ask.keys]
        return Entries(ask.number, now.epoch, now.version, [payloads[token] for token in tokens])


def _reason(error: Exception) -> str:
    return str(getattr(error, "code", type(error).__name__))
