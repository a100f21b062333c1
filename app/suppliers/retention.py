"""What is kept for how long, and what goes when its time is over (ETL CANON §13)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from app.adapters import logs
from app.kernel import errors
from app.suppliers import config, durable
from app.suppliers.failures import SupplierFailure
from app.suppliers.journal import PUBLISHED, Journal
from app.suppliers.layout import RunId
from app.suppliers.locks import Busy
from app.suppliers.services import Services

log = logs.get(__name__)

KEPT_OF_A_RUN = "manifest.json"
"""Of an old run: as long as its input counts as accepted, one can look up why."""


@dataclass(frozen=True, slots=True)
class Expired:
    """A thing whose time is over."""

    kind: str  # quarantine, archive, run, diag, manifest, accepted or state
    what: str  # a path below the root, or a run


def expire(services: Services, supplier: str, *, dry_run: bool = False) -> list[Expired]:
    """Everything of the supplier whose time is over is gone; or is only named.

    The current state, the mark of acceptance of its input and runs at work stay. Busy while one runs.
    """
    with services.locks.hold(supplier) as check:
        keep = _keep(services, supplier)
        found = list(_expired(services, supplier, keep))
        if not dry_run:
            for one in found:
                check()
                _remove(services, supplier, one)
            Journal(services.layout, supplier).forget(
                services.clock.now() - timedelta(days=keep.accepted_days)
            )
    if found and not dry_run:
        log.info("supplier_expired", supplier=supplier, things=len(found))
    return found


def expire_all(services: Services) -> None:
    """What is over is gone, of every supplier that is not at work right now."""
    for supplier in services.layout.suppliers():
        try:
            expire(services, supplier)
        except Busy:
            continue
        except errors.Transient as error:
            log.warning("supplier_not_expired", supplier=supplier, code=error.code)


def _keep(services: Services, supplier: str) -> config.Retention:
    try:
        return config.load(services.layout.config(supplier), supplier).retention
    except SupplierFailure:
        return config.Retention()


def _expired(services: Services, supplier: str, keep: config.Retention) -> Iterator[Expired]:
    layout, now = services.layout, services.clock.now()
    for kind, days, folders in (
        ("quarantine", keep.quarantine_days, (layout.duplicates(supplier), layout.broken(supplier))),
        ("archive", keep.archive_days, (layout.archive(supplier), layout.obsolete(supplier))),
    ):
        for folder in folders:
            for path in _older(folder, now - timedelta(days=days)):
                yield Expired(kind, str(path.relative_to(layout.root)))
    journal = Journal(layout, supplier)
    yield from _runs(services, supplier, keep, journal)
    yield from _accepted(services, supplier, now - timedelta(days=keep.accepted_days))
    yield from _states(services, supplier, journal, now - timedelta(hours=keep.state_hours))


def _older(folder: Path, limit: datetime) -> Iterator[Path]:
    """The files that came into the folder before; when they were written says nothing."""
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.lstat().st_ctime < limit.timestamp():
                yield path


def _runs(services: Services, supplier: str, keep: config.Retention, journal: Journal) -> Iterator[Expired]:
    layout, now = services.layout, services.clock.now()
    current = services.states.current(supplier)
    busy = {*journal.open_runs(), current.run_id if current else None}
    for run_id in layout.runs(supplier):
        age = now - RunId.parse(run_id).at
        if run_id in busy:
            continue
        if age > timedelta(days=keep.accepted_days):
            yield Expired("manifest", run_id)
        elif age > timedelta(days=keep.runs_days) and _has_more(layout.run(run_id)):
            yield Expired("run", run_id)
        elif age > timedelta(days=keep.diag_days) and (layout.run(run_id) / "diag").is_dir():
            yield Expired("diag", run_id)


def _has_more(folder: Path) -> bool:
    return any(path.name != KEPT_OF_A_RUN for path in folder.iterdir())


def _accepted(services: Services, supplier: str, limit: datetime) -> Iterator[Expired]:
    root = services.layout.root
    current = services.states.current(supplier)
    for path in sorted((root / "accepted_runs" / supplier).glob("*/*.json")):
        known = durable.read_json(path) or {}
        old = datetime.fromisoformat(str(known.get("accepted_at"))) < limit
        if old and not (current and path.stem == current.input_sha256):
            yield Expired("accepted", str(path.relative_to(root)))


def _states(services: Services, supplier: str, journal: Journal, limit: datetime) -> Iterator[Expired]:
    """States that were replaced long ago, since a reader may still be at one that was current just now."""
    current = services.states.current(supplier)
    replaced = {
        entry.replaced: datetime.fromisoformat(entry.at)
        for entry in journal.entries
        if entry.event == PUBLISHED and entry.replaced
    }
    for run_id in services.states.stored(supplier):
        at = replaced.get(run_id) or RunId.parse(run_id).at
        if not (current and current.run_id == run_id) and run_id not in journal.open_runs() and at < limit:
            yield Expired("state", run_id)


def _remove(services: Services, supplier: str, one: Expired) -> None:
    layout = services.layout
    if one.kind == "state":
        services.states.drop(supplier, one.what)
    elif one.kind == "diag":
        shutil.rmtree(layout.run(one.what) / "diag", ignore_errors=True)
    elif one.kind == "manifest":
        shutil.rmtree(layout.run(one.what), ignore_errors=True)
    elif one.kind == "run":
        for path in layout.run(one.what).iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != KEPT_OF_A_RUN:
                path.unlink()
    else:
        (layout.root / one.what).unlink(missing_ok=True)
