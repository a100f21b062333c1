"""What was committed is announced (section 3.4), and what a topic never got is sent again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

from app.adapters import logs, metrics, topics, tracing
from app.adapters.database import Database
from app.adapters.notices import Notices
from app.kernel import errors
from app.refdata import accept, store
from app.refdata.announce import Announcer
from app.refdata.rest import Rest
from app.refdata.services import Services

log = logs.get(__name__)

CHANNEL = "refdata_announce"
AT_ONCE = 500
LOOK_SECONDS = 1.0
UPKEEP_SECONDS = 10.0
UNPUBLISHED_SECONDS = 10.0
"""So long after its request a command that no topic has is sent again."""


class Relaying:
    """One relay for all databases of the configuration; of several that run one at a time announces."""

    def __init__(self, of: Services, announcer: Announcer, publisher: topics.Publisher) -> None:
        self._of = of
        self._announcer = announcer
        self._publisher = publisher
        self._woken = threading.Event()
        self._rest = Rest("relay", of.clock)
        self._upkept = float("-inf")

    def run(self, stopped: threading.Event, look: Callable[[], object]) -> None:
        """What is committed is announced until it is stopped; `look` is called between two rounds."""
        with ExitStack() as listening:
            heard: dict[str, Notices] = {}
            while not stopped.is_set():
                look()
                for name in self._of.databases:
                    url = self._of.databases.url_of(name)
                    if url not in heard:
                        heard[url] = Notices(url, [CHANNEL], lambda _: self._woken.set(), self._woken.set)
                        listening.callback(heard[url].close)
                self._woken.wait(LOOK_SECONDS)
                self._woken.clear()
                self.work_off()

    def work_off(self) -> int:
        """Everything that was committed is announced; how many versions. What fails waits for the next."""
        announced = 0
        try:
            for name in self._of.databases:
                announced += self._announce_all(self._of.databases[name])
            self._rest.went_well()
        except (errors.Transient, errors.AccessDenied) as error:
            self._rest.after(error)
            return announced
        if self._of.clock.monotonic() >= self._upkept + UPKEEP_SECONDS:
            self._upkept = self._of.clock.monotonic()
            self._upkeep()
        return announced

    def _announce_all(self, db: Database) -> int:
        announced = 0
        while batch := self.announce(db):
            announced += batch
        return announced

    def announce(self, db: Database) -> int:
        """The oldest changes are announced; how many. One whose relay dies here is announced once more."""
        with db.transaction(None) as conn:
            rows = store.take_announcements(conn, AT_ONCE)
            if not rows:
                return 0
            self._announcer.announce([row.payload.encode() for row in rows])
            store.mark_announced(conn, [row.id for row in rows])
        for row in rows:
            with tracing.span("refdata.announce", {"version": row.version}, parent=row.traceparent):
                log.info(
                    "refdata_announced", eventId=str(row.event_id), tenantId=row.tenant_id,
                    dictCode=row.dict_code, version=row.version, source="RELAY",
                )  # fmt: skip
        metrics.refdata_announced.inc(len(rows))
        return len(rows)

    def _upkeep(self) -> None:
        """Old things are forgotten, unfinished snapshots expire, and lost commands are sent again."""
        limits = self._of.config.refdata.limits
        for name in self._of.databases:
            db = self._of.databases[name]
            try:
                self.send_unpublished(db)
                for row in store.expire_snapshots(db, limits.snapshot_seconds):
                    log.warning(
                        "refdata_snapshot_expired", tenantId=row.tenant_id, dictCode=row.dict_code,
                        snapshotId=str(row.snapshot_id),
                    )  # fmt: skip
                store.trim(db, announced_hours=limits.announced_hours, days=limits.dedup_days)
            except errors.Transient as error:
                log.warning("refdata_upkeep_waits", code=error.code, database=name)

    def send_unpublished(self, db: Database) -> int:
        """Commands that were taken in and that no topic has are in it now; how many."""
        with db.transaction(None) as conn:
            rows = store.unpublished(conn, seconds=UNPUBLISHED_SECONDS, limit=100)
            for row in rows:
                key = f"{row.tenant_id}:{row.dict_code}"
                accept.publish(self._of, self._publisher, key, bytes(row.command), row.traceparent)
                store.mark_published_in(conn, row.tenant_id, row.event_id)
        return len(rows)
