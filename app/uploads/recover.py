"""Recovery: uploads whose worker is gone are taken from it, and lost hints are sent again.

Every worker runs this now and then, so that no single process is needed for it.
"""

from __future__ import annotations

from typing import Any

from app.adapters import logs, metrics
from app.adapters.database import Connection
from app.kernel import errors
from app.uploads import claims_store, ended, store
from app.uploads.codes import FILE_CODES, file_sentence
from app.uploads.services import Services
from app.uploads.states import MAX_ATTEMPTS
from app.uploads.webhooks import deliver
from app.uploads.work import TASKS

log = logs.get(__name__)

ABANDONED_SECONDS = 3600.0
"""After so long an upload that never got its file is given up."""


def sweep(services: Services) -> int:
    """No upload waits for a dead owner, nothing for a lost hint; returns how many leases had expired."""
    given_up: list[tuple[Any, str]] = []
    with services.db.transaction("dispatch") as conn:
        expired = claims_store.take_expired_leases(conn)
        for row in expired:
            log.warning("lease_expired", **_named(row), owner=row.lost_owner)
            if row.attempts >= MAX_ATTEMPTS:
                given_up += _give_up(conn, row, "attempts_exhausted", FILE_CODES["attempts_exhausted"])
        for row in claims_store.abandoned_intakes(conn, after_seconds=ABANDONED_SECONDS):
            given_up += _give_up(conn, row, "file_not_found", file_sentence("file_not_found"))
        stages = claims_store.stages_with_work(conn)
    metrics.leases_expired.inc(len(expired))
    for row, code in given_up:
        with logs.bound(**_named(row)):
            ended.count(services.clock, "failed", created_at=row.created_at, code=code)
    for owner in {row.lost_owner for row in expired}:
        services.db.end_backends(owner)
    for stage in stages:
        services.dispatch.send(TASKS[stage])
    if deliver.is_due(services):
        services.dispatch.send(deliver.TASK)
    return len(expired)


def owners(services: Services) -> list[str]:
    """Who holds an upload now."""
    with services.db.transaction("dispatch") as conn:
        return claims_store.owners(conn)


def _give_up(conn: Connection, row: Any, code: str, sentence: str) -> list[tuple[Any, str]]:
    """The upload has failed: it, and why, unless somebody else has it again."""
    try:
        store.fail_upload(
            conn,
            workspace_id=row.workspace_id,
            upload_id=row.upload_id,
            claim_epoch=row.claim_epoch,
            code=code,
            sentence=sentence,
        )
    except errors.Conflict:
        log.info("upload_recovered_meanwhile", **_named(row))
        return []
    log.warning("upload_failed", **_named(row), code=code)
    return [(row, code)]


def _named(row: Any) -> dict[str, str]:
    return {"upload_id": str(row.upload_id), "workspace_id": str(row.workspace_id)}
