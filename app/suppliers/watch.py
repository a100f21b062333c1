"""The fleet's side: which supplier has something to be read, and the next one's run."""

from __future__ import annotations

from contextlib import suppress

from app.adapters import logs, metrics, tracing
from app.adapters.dispatch import Dispatch
from app.kernel import errors
from app.suppliers import config, history, inbox, run
from app.suppliers.failures import SupplierFailure
from app.suppliers.journal import Journal
from app.suppliers.locks import Busy
from app.suppliers.services import Services

log = logs.get(__name__)


RUN_TASK = "suppliers.run"

_told: set[str] = set()
"""Suppliers of whose last list this process has told the metrics."""


def scan(services: Services, dispatch: Dispatch) -> None:
    """There is a hint for each supplier that waits. It carries no name: the inboxes are the truth."""
    for _ in waiting(services):
        dispatch.send(RUN_TASK)
    measure(services)


def waiting(services: Services) -> list[str]:
    """The suppliers with a list that is ready, or with a run that died, by name."""
    return [supplier for supplier in services.layout.suppliers() if _has_work(services, supplier)]


def _has_work(services: Services, supplier: str) -> bool:
    window = services.stability_seconds
    with suppress(SupplierFailure):  # its run says so
        window = config.load(services.layout.config(supplier), supplier).stability_seconds
    if inbox.has_ready(services.layout.inbox(supplier), now=services.clock.now(), window_seconds=window):
        return True
    return bool(Journal(services.layout, supplier).open_runs())


def run_next(services: Services) -> run.Outcome | None:
    """One supplier that waits has had its run; None when none does, or all that do are at work."""
    for supplier in waiting(services):
        try:
            return observed(services, supplier)
        except Busy:
            continue
        except errors.Transient as error:
            # The run is left as it stands; the next one goes on.
            log.warning("supplier_run_broken_off", supplier=supplier, code=error.code)
    return None


def observed(services: Services, supplier: str) -> run.Outcome:
    """The supplier has had its run, and the metrics know of it."""
    with tracing.span("suppliers.run", {"supplier": supplier}):
        outcome = run.run(services, supplier)
    if outcome.status != "NOOP":
        metrics.supplier_runs.labels(supplier, outcome.status, outcome.reason_code or "").inc()
        metrics.supplier_last_list_refused.labels(supplier).set(outcome.status == "FAIL")
    for alert in outcome.alerts:
        metrics.supplier_alerts.labels(supplier, alert.code).inc()
        log.warning("supplier_alert", supplier=supplier, run_id=outcome.run_id, **alert.as_json())
    return outcome


def measure(services: Services) -> None:
    """The metrics know how old each current state is, which are too old, and whose last list was refused."""
    for supplier in services.layout.suppliers():
        if supplier not in _told:  # from now on its runs tell it
            _told.add(supplier)
            last = history.overview(services, supplier).last
            metrics.supplier_last_list_refused.labels(supplier).set(
                last is not None and last.status == "FAIL"
            )
        age = history.age(services, supplier)
        if age.seconds is not None:
            metrics.supplier_current_age_seconds.labels(supplier).set(age.seconds)
            metrics.supplier_state_too_old.labels(supplier).set(age.too_old)
