"""Delivering: whose turn it is, one try, and what becomes of it (D6.6 §6.2).

A subscription is claimed under a lease, and has one delivery in flight; whoever was served last comes
last. So a slow receiver holds up its own deliveries alone, as long as there are lines enough.
"""

from __future__ import annotations

import contextvars
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor

from app.adapters import logs, metrics, retries, tracing
from app.kernel import errors
from app.kernel.canonical import canonical_json
from app.uploads import leases
from app.uploads.services import Services
from app.uploads.webhooks import address, outcomes, signature, store
from app.uploads.webhooks.outcomes import Tried, Verdict
from app.uploads.webhooks.send import Answer, NotSent, Wire
from app.uploads.webhooks.states import UNREACHED
from app.uploads.webhooks.store import Claim, Message

log = logs.get(__name__)

TASK = "uploads.deliver"

LINES = 16
"""Receivers that one process talks to at a time: threads that wait, nothing more."""

LEASE_SECONDS = 30.0
"""A try takes ten seconds at most: whoever holds a subscription for longer is dead, or as good as."""

RUN_SECONDS = 120.0
"""After so long a run leaves the rest to the next one, so that a worker is heard of now and then."""

LOOK_SECONDS = 0.25
"""While some lines are busy, it is looked this often for others that have become due."""


def run(services: Services, wire: Wire | None = None) -> int:
    """Every delivery that is due has been tried; returns how many tries were begun."""
    wire = wire or Wire(to_loopback=services.settings.webhooks_to_loopback, clock=services.clock)
    ends_at = services.clock.monotonic() + RUN_SECONDS
    busy: set[Future[None]] = set()
    begun = 0
    with leases.at_work(), ThreadPoolExecutor(LINES, thread_name_prefix="webhook") as lines:
        while not leases.is_stopping() and services.clock.monotonic() < ends_at:
            if len(busy) < LINES and (claim := _claim(services)):
                # In a copy of the context: its log lines are the task's, too.
                busy.add(lines.submit(contextvars.copy_context().run, _deliver, services, claim, wire))
                begun += 1
            elif not busy:
                return begun
            else:
                _, busy = futures.wait(busy, LOOK_SECONDS, return_when=futures.FIRST_COMPLETED)
    services.dispatch.send(TASK)
    return begun


def is_due(services: Services) -> bool:
    """Whether some delivery could be sent now: its hint was lost, or its wait is over."""
    with services.db.transaction("dispatch") as conn:
        return store.webhooks_due(conn)


def _claim(services: Services) -> Claim | None:
    def claim() -> Claim | None:
        with services.db.transaction("dispatch") as conn:
            return store.claim_webhook(conn, owner_id=services.owner_id, lease_seconds=LEASE_SECONDS)

    return retries.call(claim, services.clock)


def _deliver(services: Services, claim: Claim, wire: Wire) -> None:
    """One try of the delivery that is due longest; what goes wrong is in the log, and the lease runs out."""
    with logs.bound(workspace_id=str(claim.workspace_id)):
        _deliver_logged(services, claim, wire)


def _deliver_logged(services: Services, claim: Claim, wire: Wire) -> None:
    try:
        message = retries.call(lambda: _begin(services, claim), services.clock)
        if message is None:
            return
        began = services.clock.monotonic()
        with tracing.span("webhooks.deliver", {"subscription_id": str(claim.subscription_id)}):
            tried = _try(services, message, wire) if message.number else Tried("worker_lost")
        seconds = services.clock.monotonic() - began
        retries.call(lambda: _finish(services, claim, message, tried=tried, seconds=seconds), services.clock)
    except errors.HeadworksError as error:
        # Somebody else has the subscription by now, or the database is away: it is sent once more.
        log.warning("webhook_not_recorded", subscription_id=str(claim.subscription_id), code=error.code)
    except Exception:
        log.exception("webhook_failed", subscription_id=str(claim.subscription_id))


def _begin(services: Services, claim: Claim) -> Message | None:
    with services.db.transaction("webhooks", claim.workspace_id) as conn:
        return store.begin_attempt(conn, claim, max_failures=UNREACHED.retries)


def _try(services: Services, message: Message, wire: Wire) -> Tried:
    now = services.clock.now()
    try:
        answer = _send(services, message, wire)
    except (NotSent, address.AddressRefused, signature.SecretUnreadable) as error:
        return Tried(error.code)
    except errors.Refused:  # a URL that was allowed when it was given: to loopback
        return Tried(address.AddressRefused.code)
    code = outcomes.code_of(answer.status_code)
    pause = outcomes.pause_seconds(answer.retry_after, now) if code == "rate_limited" else 0.0
    return Tried(code, answer.status_code, answer.excerpt, pause)


def _send(services: Services, message: Message, wire: Wire) -> Answer:
    target = address.parse(message.url, to_loopback=wire.to_loopback)
    body = canonical_json(message.payload)
    headers = signature.headers(
        body,
        message_id=str(message.delivery_id),
        timestamp=int(services.clock.now().timestamp()),
        signing=signature.Seal(services.settings).open_all(message.sealed_secrets),
    )
    return wire.post(target, headers, body)


def _finish(services: Services, claim: Claim, message: Message, *, tried: Tried, seconds: float) -> None:
    verdict = outcomes.judge(tried, failures=message.failures)
    with services.db.transaction("webhooks", claim.workspace_id) as conn:
        store.finish_attempt(
            conn, claim, message, tried=tried, verdict=verdict, duration_ms=round(seconds * 1000)
        )
        if tried.code == "gone":
            store.disable_webhook(conn, claim, why="the receiver answered 410")
    _tell(claim, message, tried, verdict=verdict, seconds=seconds)


def _tell(claim: Claim, message: Message, tried: Tried, *, verdict: Verdict, seconds: float) -> None:
    metrics.webhook_deliveries.labels(verdict.outcome).inc()
    metrics.webhook_seconds.labels(verdict.outcome).observe(seconds)
    # Not the URL: its path and query may well be somebody's secret.
    log.info(
        "webhook_attempted",
        subscription_id=str(claim.subscription_id),
        delivery_id=str(message.delivery_id),
        attempt=message.number,
        outcome=verdict.outcome,
        code=tried.code,
        status_code=tried.status_code,
        seconds=round(seconds, 3),
        wait_seconds=verdict.delay_seconds,
    )
