"""One stage of one upload: claim, hold, do, and deal with what goes wrong by the failure table."""

from __future__ import annotations

from collections.abc import Callable

from app.adapters import logs, metrics, retries, tracing
from app.adapters.database import Connection
from app.kernel import errors, retry
from app.uploads import claims_store, ended, leases, store
from app.uploads.claims import Claim
from app.uploads.codes import FILE_CODES
from app.uploads.leases import Lease
from app.uploads.services import Services
from app.uploads.states import MAX_ATTEMPTS

log = logs.get(__name__)

Step = Callable[[Services, Claim, Lease], None]
CLAIM_TRIES = 5

TASKS = {"parse": "uploads.parse", "promote": "uploads.promote"}


TURN_SECONDS = 10.0
"""After so long a task ends, and another one goes on: a worker is heard of now and then."""

SHARE_SECONDS = 1.0
"""While there is more than one worker can do, another one is called that often."""


def take_turn(services: Services, stage: str, step: Step) -> None:
    """Whatever waits for this stage has been through it, or the next hint is on its way."""
    begin = called = services.clock.monotonic()
    while run_next(services, stage, step):
        now = services.clock.monotonic()
        if now - begin >= TURN_SECONDS or now - called >= SHARE_SECONDS:
            services.dispatch.send(TASKS[stage])
            called = now
        if now - begin >= TURN_SECONDS:
            return


def run_next(services: Services, stage: str, step: Step) -> bool:
    """The upload that waits longest for this stage has been through it; False when none waits."""
    with leases.at_work():
        claim = (
            None if leases.is_stopping() else retries.call(lambda: _claim(services, stage), services.clock)
        )
        if claim is not None:
            _work_on(services, stage, claim, step)
        return claim is not None


def _work_on(services: Services, stage: str, claim: Claim, step: Step) -> None:
    began = services.clock.monotonic()
    with (
        logs.bound(upload_id=str(claim.upload_id), workspace_id=str(claim.workspace_id)),
        tracing.span(TASKS[stage], {"upload_id": str(claim.upload_id)}, parent=claim.traceparent),
        leases.held(services.db, claim, lease_seconds=services.settings.lease_seconds) as lease,
    ):
        log.info("upload_claimed", stage=stage, attempt=claim.attempts)
        _run(services, claim, lease, step)
    metrics.stage_seconds.labels(stage).observe(services.clock.monotonic() - began)


def _claim(services: Services, stage: str) -> Claim | None:
    for _ in range(CLAIM_TRIES):
        try:
            # On disk before any work: an epoch that a crash took back would be given to a second worker.
            with services.db.transaction("dispatch") as conn:
                return claims_store.claim_upload(
                    conn,
                    stage,
                    owner_id=services.owner_id,
                    lease_seconds=services.settings.lease_seconds,
                )
        except errors.Conflict:
            continue  # there may be work in another workspace
    return None


def _run(services: Services, claim: Claim, lease: Lease, step: Step) -> None:
    try:
        if claim.attempts > MAX_ATTEMPTS:
            raise errors.AttemptsExhausted(FILE_CODES["attempts_exhausted"])
        step(services, claim, lease)
    except leases.Interrupted:
        _release(services, claim, why="the worker was asked to stop")
    except errors.Conflict as error:
        # Another worker has it: whatever this one wrote since was refused.
        log.warning("work_abandoned", reason=error.sentence)
    except errors.HeadworksError as error:
        _settle(services, claim, error)
    except Exception as error:
        log.exception("work_failed")
        _settle(services, claim, errors.Fatal("Something unexpected went wrong; it is in the log."))
        raise error


def _settle(services: Services, claim: Claim, error: errors.HeadworksError) -> None:
    """By the failure table: hand the upload back to be tried later, or fail it."""
    policy = retry.policy_for(error)
    released = policy.wait is retry.Wait.RELEASED
    wait_seconds = retry.delay(policy, claim.deferrals + 1) if released else None
    if wait_seconds is not None:
        _defer(services, claim, why=error.code, delay_seconds=wait_seconds)
    else:
        _give_up(services, claim, error)
    wake_others(services)


def _give_up(services: Services, claim: Claim, error: errors.HeadworksError) -> None:
    log.warning("upload_failed", code=error.code)
    try:
        retries.call(lambda: _fail(services, claim, error), services.clock)
    except errors.Conflict:
        log.warning("work_abandoned")
    except errors.Transient:
        # The database itself is away: the lease runs out, and the sweep finds the upload.
        log.warning("failure_not_recorded", code=error.code)


def _fail(services: Services, claim: Claim, error: errors.HeadworksError) -> None:
    with services.db.transaction("dispatch") as conn:
        store.fail_upload(
            conn,
            workspace_id=claim.workspace_id,
            upload_id=claim.upload_id,
            claim_epoch=claim.claim_epoch,
            code=error.code,
            sentence=error.sentence,
            report=getattr(error, "report", None),
        )
    ended.count(services.clock, "failed", created_at=claim.created_at, code=error.code)


def _defer(services: Services, claim: Claim, *, why: str, delay_seconds: float) -> None:
    log.info("upload_deferred", reason=why, seconds=delay_seconds)
    metrics.uploads_deferred.labels(why).inc()
    _hand_back(
        services,
        claim,
        lambda conn: claims_store.defer_upload(conn, claim, why=why, delay_seconds=delay_seconds),
    )


def _release(services: Services, claim: Claim, *, why: str) -> None:
    log.info("upload_released", reason=why)
    _hand_back(services, claim, lambda conn: claims_store.release_upload(conn, claim, why=why))


def _hand_back(services: Services, claim: Claim, give: Callable[[Connection], None]) -> None:
    try:
        with services.db.transaction("dispatch") as conn:
            give(conn)
    except (errors.Conflict, errors.Transient) as error:
        # The lease runs out instead, and the sweep finds the upload.
        log.warning("release_failed", code=error.code)


def wake_others(services: Services) -> None:
    """Uploads that waited for this one's place in its workspace, or for its turn, are taken up."""
    for task in TASKS.values():
        services.dispatch.send(task)
