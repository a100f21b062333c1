"""The tables of a pod, each brought to where its database stands, and in the pod's folder (section 6.2)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

from app.adapters import logs, metrics
from app.adapters.database import Connection
from app.refdata.config import Dictionary
from app.refdata.query import loading, saved
from app.refdata.query.frames import Changed, FromLoader, Gone, Whole
from app.refdata.query.image import Image, Standing
from app.refdata.query.loading import Builders, Source
from app.refdata.query.table import SMALL, Changes, Place, Table
from app.refdata.services import Services

log = logs.get(__name__)

SHARE_OF_CHANGES = 20
LEAST_CHANGES = 1000
"""When a dictionary has more changes than these, and than a twentieth of its entries, it gets a new image."""


class Keeper:
    """Every table of the pod. Threads share it; a dictionary is brought by one of them at a time."""

    def __init__(
        self, of: Services, folder: Path, builders: Builders, tell: Callable[[FromLoader], None]
    ) -> None:
        """`tell` is told of every change, in the order in which the tables change; it does not wait."""
        self._of = of
        self._folder = folder
        self._builders = builders
        self._tell = tell
        self._clock = of.clock
        self._tables: dict[Place, Table] = {}
        self._checked: dict[Place, float] = {}
        self._later: dict[Place, dict[bytes, bytes | None]] = {}
        """What has changed since a new image was begun."""
        self._refreshed: dict[Place, float] = {}
        self._marks: dict[Place, tuple[Standing, object]] = {}
        """What driftCheckSql said, and at which version."""
        self._unneeded: list[Path] = []
        """Images that may go once the folder says so."""
        self._number = 0
        self._lock = threading.RLock()
        """Held while a table changes and until that is told, so that nobody is told of an older one later."""

    @property
    def tables(self) -> Mapping[Place, Table]:
        """Every table, as it is at this moment."""
        return dict(self._tables)

    def get(self, place: Place) -> Table | None:
        """The table; None: it is not loaded."""
        return self._tables.get(place)

    def whole(self, table: Table) -> Whole:
        """What a reader is told that does not know the table."""
        return Whole(
            *table.place, table.standing.epoch, table.standing.version, str(table.base.path),
            dict(table.changes), table.place in self._checked,
        )  # fmt: skip

    def checked(self, place: Place, at: float) -> None:
        """The table was found to be as its database had it at this time."""
        with self._lock:
            if place not in self._tables:
                return
            is_first = place not in self._checked
            self._checked[place] = at
            if is_first:
                self.tell_again(place)

    def tell_again(self, place: Place) -> None:
        """Every reader is told of the table as it is now, if there is one."""
        with self._lock:
            if (table := self._tables.get(place)) is not None:
                self._tell(self.whole(table))

    def checked_at(self, place: Place) -> float | None:
        """When the table was last found to be as its database had it; None: never."""
        return self._checked.get(place)

    def drop(self, place: Place) -> None:
        """The dictionary is not served any more."""
        with self._lock:
            table = self._tables.pop(place, None)
            for known in (self._checked, self._refreshed, self._marks):
                known.pop(place, None)
            if table is not None:
                self._unneeded.append(table.base.path)
                self._tell(Gone(*place))

    # -- as the database has it

    def bring(self, place: Place, dictionary: Dictionary, source: Source) -> Standing:
        """The dictionary is as its database has it: where it stands. Transient, or Fatal for its SQL."""
        db = self._of.databases[dictionary.database]
        known = self._tables.get(place)
        if known is not None:
            with db.transaction(None, snapshot=True) as conn:
                now = source.standing(conn)
                if now == known.standing and not self._has_drifted(conn, source, now):
                    return now
                changes = source.changes(conn, known.standing, now)
            if changes is not None:
                self._change(known, now, changes)
                return now
        path = self._path(place)
        if known is not None and known.count <= SMALL:
            loading.load_all(db, source, path)
        else:
            self._builders.load_all(self._of.databases.url_of(dictionary.database), source, path)
        table = Table.of(place, Image(path))
        if known is None and table.standing.version == 0 and table.count == 0:
            # Nobody ever wrote it: it is not kept, or whoever asks for names fills the memory.
            self._tell(self.whole(table))
            self._unneeded.append(path)
        elif known is not None and (known.standing, known.checksum) == (table.standing, table.checksum):
            self._unneeded.append(path)
        else:
            self._put(known, table)
        return table.standing

    def is_to_be_refreshed(self, place: Place, dictionary: Dictionary) -> bool:
        """Whether it is time to look for changes that nobody has announced."""
        may_drift = dictionary.drift_check is not None or dictionary.is_read_only
        seconds = self._of.config.refdata.query.refresh_seconds
        return may_drift and self._clock.monotonic() > self._refreshed.get(place, float("-inf")) + seconds

    def _has_drifted(self, conn: Connection, source: Source, now: Standing) -> bool:
        """Whether the tables may have changed behind the platform's back, which no version tells."""
        place = source.place
        if not self.is_to_be_refreshed(place, source.dictionary):
            return False
        is_first = place not in self._refreshed
        self._refreshed[place] = self._clock.monotonic()
        if source.dictionary.drift_check is None:
            return not is_first
        before, mark = self._marks.get(place), (now, source.drift(conn))
        self._marks[place] = mark
        has_drifted = before is not None and before[0] == now and before != mark
        if has_drifted:
            metrics.refdata_drifts.labels(place[1]).inc()
            log.warning("refdata_drifted", tenantId=place[0], dictCode=place[1], version=now.version)
        return has_drifted

    def _put(self, before: Table | None, table: Table) -> None:
        version = table.standing.version
        if before is not None and version < before.standing.version:
            log.error(
                "refdata_version_went_back", tenantId=table.place[0], dictCode=table.place[1],
                version=version, before=before.standing.version,
            )  # fmt: skip
        with self._lock:
            self._tables[table.place] = table
            self._checked.setdefault(table.place, self._clock.monotonic())
            self.tell_again(table.place)
        if before is not None:
            self._unneeded.append(before.base.path)
        _log("refdata_loaded", table, items=table.count)

    def _change(self, known: Table, now: Standing, changes: Changes) -> None:
        table = known.after(now, changes)
        with self._lock:
            if (later := self._later.get(known.place)) is not None:
                later.update(changes)
            before = self._tables.get(known.place)
            if before is None:  # it was dropped meanwhile
                return
            if before is not known:  # it got a new image meanwhile
                table = before.after(now, changes)
            self._tables[known.place] = table
            self._tell(Changed(*known.place, now.epoch, known.standing.version, now.version, dict(changes)))
        _log("refdata_changed", table, keys=len(changes))
        if len(table.changes) > max(LEAST_CHANGES, table.base.count // SHARE_OF_CHANGES):
            self._renew(table)

    # -- images

    def _renew(self, table: Table) -> None:
        """The dictionary gets a new image, with its changes in it, while further ones come."""
        place = table.place
        if place in self._later:
            return
        self._later[place] = {}
        path = self._path(place)
        try:
            saving = self._builders.save(table, path)
        except Exception as error:  # the old image is as good; the next change begins another one
            log.warning("refdata_image_not_renewed", dictCode=place[1], kind=type(error).__name__)
            self._later.pop(place)
            return
        saving.add_done_callback(lambda saved_: self._rebase(table, path, saved_))

    def _rebase(self, before: Table, path: Path, saving: Future[None]) -> None:
        """The table stands on its new image, with what has changed since that was begun."""
        place = before.place
        try:
            saving.result()
            base = Table.of(place, Image(path))
        except Exception as error:  # the old image is as good; the next change begins another one
            log.warning("refdata_image_not_renewed", dictCode=place[1], kind=type(error).__name__)
            self._later.pop(place)
            return
        with self._lock:
            later = self._later.pop(place)
            now = self._tables.get(place)
            if now is None or now.base is not before.base:  # it was loaded as a whole meanwhile
                self._unneeded.append(path)
                return
            self._tables[place] = base.after(now.standing, later)
            self.tell_again(place)
        self._unneeded.append(before.base.path)

    def _path(self, place: Place) -> Path:
        """Where the next image of a dictionary goes."""
        with self._lock:
            self._number += 1
            number = self._number
        name = hashlib.sha256("\n".join(place).encode()).hexdigest()[:24]
        return self._folder / f"{name}-{self._clock.new_id().hex[:8]}-{number}.image"

    # -- the folder

    def restore(self) -> bool:
        """What the folder has is served until the databases are asked; whether it is all there was."""
        found, is_whole = saved.restore(self._folder)
        self._tables = {
            place: table for place, table in found.items() if self._of.dictionary(place[1]) is not None
        }
        for table in self._tables.values():
            _log("refdata_restored", table, items=table.count)
        return is_whole

    def save(self) -> None:
        """The folder has the tables as they are, and no images that are not theirs. OSError."""
        unneeded, self._unneeded = self._unneeded, []
        try:
            saved.save(self._folder, list(self.tables.values()))
        except OSError:
            self._unneeded += unneeded
            raise
        for path in unneeded:
            path.unlink(missing_ok=True)


def _log(event: str, table: Table, **fields: object) -> None:
    log.info(
        event, eventId=None, tenantId=table.place[0], dictCode=table.place[1],
        version=table.standing.version, source="QUERY", **fields,
    )  # fmt: skip
