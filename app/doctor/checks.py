"""The checks: each says what it found, or what is wrong and what to do."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.adapters import blobs, broker, database, dispatch, migrations
from app.adapters.settings import Settings
from app.doctor import store, web
from app.kernel import errors
from app.kernel.clock import Clock
from app.pipeline.requests import StuckQuery
from app.pipeline.services import apply_ddl
from app.pipeline.store import Pipeline
from app.refdata import services as refdata_services
from app.refdata import store as refdata_store
from app.suppliers import history, services

OLDEST_POSTGRESQL = 150_000  # UNIQUE NULLS NOT DISTINCT
CLOCK_SECONDS = 60.0  # object stores refuse requests that are signed much later, webhooks' receivers too
FREE_BYTES = 2 << 30
WAITING_SECONDS = 60.0
BEAT_SECONDS = 12.0  # beat sends something every two seconds, and is given time where the machine is busy
ROLES = (
    "intake", "parse", "promote", "cleanup", "requeue", "dispatch", "relay", "read", "access", "webhooks",
    "suppliers", "catalog",
)  # fmt: skip


class Ill(Exception):
    """A part is not as it must be; `advice` says what to do. `works`: though it does for now."""

    def __init__(self, found: str, advice: str, *, works: bool = False) -> None:
        super().__init__(found)
        self.found = found
        self.advice = advice
        self.works = works


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check came to. `state` is ok, warning (it works for now) or failed."""

    check: str
    state: str
    found: str
    advice: str = ""


def examine(settings: Settings, clock: Clock) -> list[Finding]:
    """A finding for each part of the instance, in the order in which they depend on each other."""
    db = database.Database(settings.database_url, name="headworks doctor", timeout_seconds=10)
    try:
        return [_finding(name, check, Examined(settings, db, clock)) for name, check in CHECKS.items()]
    finally:
        db.close()


@dataclass(frozen=True, slots=True)
class Examined:
    """What the checks look at."""

    settings: Settings
    db: database.Database
    clock: Clock


def _finding(name: str, check: Callable[[Examined], str], of: Examined) -> Finding:
    try:
        return Finding(name, "ok", check(of))
    except Ill as ill:
        return Finding(name, "warning" if ill.works else "failed", ill.found, ill.advice)
    except errors.ConnectionLost as error:
        return Finding(name, "failed", error.sentence, "See the database's line.")
    except errors.HeadworksError as error:  # its sentence says what to do
        return Finding(name, "failed", error.sentence)
    except OSError as error:
        return Finding(name, "failed", f"{type(error).__name__}: {error.strerror}", "See the server's log.")


def _database(of: Examined) -> str:
    try:
        with of.db.transaction("dispatch"):
            pass
    except errors.AccessDenied:
        pass  # it answers; its roles are the next line's
    except errors.ConnectionLost as error:
        if (why := database.turned_away(error)) is not None:
            raise Ill(
                f"PostgreSQL is there, and turns this user away: {why}.",
                "With too many clients see who they are, and end those that are not needed (runbook,"
                " DatabaseAway); else correct HEADWORKS_DATABASE_URL, or wait while it starts.",
            ) from None
        raise Ill("PostgreSQL does not answer.", "Start it, or correct HEADWORKS_DATABASE_URL.") from None
    return "PostgreSQL answers."


def _schema(of: Examined) -> str:
    migrations.check(of.settings.database_url)
    with of.db.transaction("dispatch") as conn:
        found = store.server(conn, roles=[f"headworks_{role}" for role in ROLES])
    if found.version_number < OLDEST_POSTGRESQL:
        raise Ill(f"PostgreSQL {found.version} is too old.", "Headworks needs PostgreSQL 15 or newer.")
    if found.missing_roles:
        raise Ill(
            f"This user may not act as {', '.join(found.missing_roles)}.",
            "Grant the roles to the user of HEADWORKS_DATABASE_URL, or migrate as that user.",
        )
    return f"PostgreSQL {found.version}, revision {migrations.newest()}."


def _clock(of: Examined) -> str:
    with of.db.transaction("dispatch") as conn:
        skew = abs((store.server(conn, roles=[]).at - of.clock.now()).total_seconds())
    if skew > CLOCK_SECONDS:
        raise Ill(
            f"This machine's clock and the database's are {skew:.0f} s apart.",
            "Leases run by the database's and hold, but signatures do not: synchronise both (NTP).",
            works=True,
        )
    return f"{skew:.1f} s from the database's."


def _broker(of: Examined) -> str:
    if not dispatch.is_reachable(of.settings.broker_url):
        raise Ill(
            "The broker does not answer.",
            "Start it, or correct HEADWORKS_BROKER_URL. Nothing is lost: work goes on when it is back.",
        )
    broker.check(of.settings.broker_url)
    for url in of.settings.redis_urls:
        try:
            broker.check_takes(url)
        except errors.Transient as error:
            raise Ill(
                f"The broker takes nothing. {error.sentence}",
                "Nothing is lost: work goes on when it takes what it is given. Workers need no restart.",
            ) from None
    return "The broker answers, and keeps what it is given."


def _workers(of: Examined) -> str:
    try:
        workers = dispatch.workers_of_queues(of.settings.broker_url)
    except errors.ConnectionLost:
        raise Ill(
            "Whether workers answer is not known: they are asked through the broker.",
            "See the broker's line first. Workers that run need no restart.",
        ) from None
    if silent := [queue for queue, number in workers.items() if not number]:
        raise Ill(
            f"No worker answers for {', '.join(silent)}.",
            f"Start one: celery -A workers.fleet worker -Q {','.join(silent)} (the Procfile has them all)."
            " One that runs and does not answer: stop it, and start it.",
        )
    return "Every queue has a worker that answers."


def _beat(of: Examined) -> str:
    deadline = of.clock.monotonic() + BEAT_SECONDS
    try:
        seen = dispatch.sent_by_beat(of.settings.broker_url)
        while of.clock.monotonic() < deadline:
            before, seen = seen, dispatch.sent_by_beat(of.settings.broker_url)
            if seen > before:
                return "What is due is sent."
    except errors.ConnectionLost:
        raise Ill(
            "Whether beat works is not known: it is seen by what it sends to the broker.",
            "See the broker's line first. One that runs needs no restart.",
        ) from None
    raise Ill(
        f"Nothing was sent in {BEAT_SECONDS:.0f} s that beat sends every two.",
        "Start process beat, or stop it and start it (the Procfile has it); there must be one. Until then"
        " the drop folder and inboxes are not looked at, and no night of the catalog begins.",
    )


def _web(of: Examined) -> str:
    silent: dict[str, str] = {}
    for url in web.addresses(of.settings):
        try:
            reason = web.why_not_ready(url)
        except web.Silent as why:
            silent[url] = str(why)
            continue
        if reason:
            raise Ill(
                f"The web at {url} answers, and is not ready: {reason}.",
                "See the lines above: it goes on by itself when what it needs is there.",
            )
        return f"The web at {url} answers."
    raise Ill(
        f"No web answers: {', '.join(f'{url} ({why})' for url, why in silent.items())}.",
        "Start process web (the Procfile has it); if it ends, its log says why. If it runs, correct"
        " HEADWORKS_URL. Work that was taken in goes on without it.",
    )


def _storage(of: Examined) -> str:
    files = blobs.connect(of.settings.storage, endpoint_url=of.settings.storage_endpoint_url)
    content = str(of.clock.new_id()).encode()
    stored = files.put(f"doctor/{content.decode()}", io.BytesIO(content))
    try:
        with files.open(stored.url) as file:
            if file.read() != content:
                raise Ill("The file store gives back other bytes than it was given.", "Do not use it.")
    finally:
        files.delete(stored.url)
    return f"A file was stored, read and deleted in {of.settings.storage.partition('://')[0]} storage."


def _disk(of: Examined) -> str:
    folder = of.settings.data_dir
    if not folder.is_dir():
        raise Ill("HEADWORKS_DATA_DIR names no folder.", "Make it, and let the fleet's user write there.")
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES:
        raise Ill(
            f"{free / 2**30:.1f} GiB are free.",
            "Uploads wait when the disk is full. Make room, or lower HEADWORKS_STAGING_DAYS.",
            works=True,
        )
    return f"{free / 2**30:.0f} GiB are free."


def _work(of: Examined) -> str:
    with of.db.transaction("dispatch") as conn:
        found = store.backlog(conn)
    if found.oldest_upload_seconds > WAITING_SECONDS:
        raise Ill(
            f"{found.uploads} uploads wait, the oldest for {found.oldest_upload_seconds:.0f} s.",
            "When the workers' line is ok there are too few of them: start more for parse and promote.",
            works=True,
        )
    return f"{found.uploads} uploads wait, {found.deferred} are put off."


def _suppliers(of: Examined) -> str:
    found = replace(services.connect(of.settings, of.db), clock=of.clock)
    names = found.layout.suppliers()
    for folder in (found.layout.root, *map(found.layout.inbox, names)):
        if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise Ill(
                f"This user may not write in {folder}.", "Lists are moved out of it: let the fleet's user."
            )
    old = [name for name in names if history.age(found, name).too_old]
    if old:
        raise Ill(
            f"What is published of {', '.join(old)} is too old.",
            "Ask for a list, or see why the last one was refused: headworks supplier list.",
            works=True,
        )
    return f"{', '.join(names)}: nothing is too old." if names else "There are none yet."


def _pipeline(of: Examined) -> str:
    url = of.settings.pipeline_database_url
    if not url:
        return "None is served here."
    db = database.Database(url, name="headworks doctor", timeout_seconds=10)
    try:
        apply_ddl(db)
        stuck = Pipeline(db, of.clock).stuck(StuckQuery())
    except errors.ConnectionLost as error:
        raise Ill(error.sentence, "Start it, or correct HEADWORKS_PIPELINE_DATABASE_URL.") from None
    finally:
        db.close()
    if stuck:
        raise Ill(
            f"{len(stuck)} tasks are at work for too long, the longest of them in {stuck[0]['stage']}.",
            "See /pipeline: where the daemon is gone its task may be failed, and done again.",
            works=True,
        )
    return "No task is at work for too long."


def _refdata(of: Examined) -> str:
    if not of.settings.refdata_config:
        return "None is served here."
    found = refdata_services.connect(of.settings, name="headworks doctor")
    try:
        waits = [refdata_store.unannounced(database) for database in found.databases.values()]
    except errors.ConnectionLost as error:
        raise Ill(error.sentence, "Start it, or correct its address in the configuration.") from None
    finally:
        found.close()
    oldest, number = max(one.oldest_seconds for one in waits), sum(one.events for one in waits)
    if oldest > WAITING_SECONDS:
        raise Ill(
            f"{number} versions wait to be announced, the oldest for {oldest:.0f} s.",
            "Readers learn of them later: see whether refdata-relay runs, and whether its Redis answers.",
            works=True,
        )
    return f"{len(found.config.dictionaries)} dictionaries, and every version is announced."


CHECKS: dict[str, Callable[[Examined], str]] = {
    "database": _database,
    "schema": _schema,
    "clock": _clock,
    "broker": _broker,
    "workers": _workers,
    "beat": _beat,
    "disk": _disk,
    "storage": _storage,
    "web": _web,
    "work": _work,
    "suppliers": _suppliers,
    "pipeline": _pipeline,
    "refdata": _refdata,
}
