"""A run: the newest list of one supplier replaces its published state, or changes nothing (ETL CANON).

The order of the steps keeps a list from being lost or published twice, wherever the process dies:
the journal before the move, the state before its manifest, the manifest before the switch, the mark of
acceptance after it, the archive last. `settle.reconcile` goes on where a dead run has stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from app.adapters import logs
from app.suppliers import accepted, alerts, config, dq, durable, inbox, select, settle
from app.suppliers.alerts import Alert
from app.suppliers.extract import extract
from app.suppliers.extracted import Extracted
from app.suppliers.failures import SupplierFailure
from app.suppliers.inbox import Arrival
from app.suppliers.journal import CLAIMED, DUPLICATE, OBSOLETE, Journal
from app.suppliers.layout import RunId, check_supplier
from app.suppliers.locks import Check
from app.suppliers.manifest import Manifest
from app.suppliers.services import Services
from app.suppliers.states import Published, path_of

log = logs.get(__name__)

MOST_INTERRUPTIONS = 5
"""So often a run may die over one list; whatever kills it would kill the next one too."""

DRIFT_ALERT_AFTER = 3
"""Equal inputs in a row, where the supplier has no config."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: PASS, FAIL, or NOOP when there was nothing to read."""

    status: str
    run_id: str | None = None
    reason_code: str | None = None
    fail_stage: str | None = None
    alerts: tuple[Alert, ...] = ()
    waiting: tuple[str, ...] = ()  # files that may still be growing


@dataclass(slots=True)
class _Run:
    """One supplier's run, as far as it has come."""

    services: Services
    supplier: str
    journal: Journal
    started: datetime
    check: Check  # that the lock is still this run's
    config: config.Config | None = None
    problem: SupplierFailure | None = None  # with the config
    alerts: list[Alert] = field(default_factory=list)

    @property
    def drift_limit(self) -> int:
        return self.config.drift_alert_after if self.config else DRIFT_ALERT_AFTER


def run(services: Services, supplier: str) -> Outcome:
    """The supplier's newest list that is new and complete is published or refused, if there is one.

    Busy when another run of this supplier is at work.
    """
    check_supplier(supplier)
    with (
        services.locks.hold(supplier) as check,
        logs.bound(supplier=supplier),
    ):
        journal = Journal(services.layout, supplier)
        state = _Run(services, supplier, journal, services.clock.now(), check)
        settle.reconcile(services, supplier, state.journal)
        _load_config(state)
        outcome = _select_and_read(state)
        log.info("supplier_run_ended", status=outcome.status, run_id=outcome.run_id, code=outcome.reason_code)
    return outcome


def _load_config(state: _Run) -> None:
    try:
        state.config = config.load(state.services.layout.config(state.supplier), state.supplier)
    except SupplierFailure as failure:
        state.problem = failure


# -- which list


def _select_and_read(state: _Run) -> Outcome:
    services, layout = state.services, state.services.layout
    window = state.config.stability_seconds if state.config else services.stability_seconds
    now = services.clock.now()  # not of the start: reconciling has moved files
    found = inbox.look(layout.inbox(state.supplier), now=now, window_seconds=window)
    current = services.states.current(state.supplier)
    choice = select.choose(
        found.ready,
        accepted=lambda sha256: accepted.is_accepted(layout, state.supplier, sha256),
        current=current,
        journal=state.journal,
        rules=_rules(state),
    )
    state.alerts += [Alert("INBOX_ODD_ENTRY", name) for name in found.odd]
    for arrival in choice.duplicates:
        code = "DUPLICATE_OF_NON_CURRENT" if arrival.identity in choice.returned else None
        _set_aside(state, arrival, DUPLICATE, layout.duplicates(state.supplier), code)
    for arrival in choice.obsolete:
        code = "STALE_INPUT" if arrival.identity in choice.stale else None
        _set_aside(state, arrival, OBSOLETE, layout.obsolete(state.supplier), code)
    if choice.chosen is None:
        return Outcome("NOOP", alerts=tuple(state.alerts), waiting=found.unstable)
    return replace(_read(state, choice.chosen, current), waiting=found.unstable)


def _rules(state: _Run) -> select.Rules:
    if state.config is None:
        return select.Rules()
    return select.Rules(state.config.older_input, state.config.reaccept_after_newer)


def _set_aside(state: _Run, arrival: Arrival, outcome: str, folder: Path, code: str | None) -> None:
    raised = [Alert(code, arrival.name)] if code else []
    raised += alerts.of_input(state.journal, arrival, limit=state.drift_limit)
    state.journal.arrived(arrival, outcome, now=state.started, alerts=[alert.code for alert in raised])
    durable.move(arrival.path, folder / arrival.path.name)
    state.alerts += raised
    log.info("input_set_aside", outcome=outcome, file=arrival.name, sha256=arrival.sha256)


# -- reading it


def _read(state: _Run, arrival: Arrival, current: Published | None) -> Outcome:
    run_id = _new_run_id(state)
    told = Manifest(
        run_id, state.supplier, arrival.name, arrival.sha256, arrival.mtime_ns, arrival.size_bytes,
        state.started.isoformat(), finished_at="", status="FAIL",
        code_commit=state.services.code_commit,
        config_sha256=state.config.sha256 if state.config else None,
        previous_run_id=current.run_id if current else None,
    )  # fmt: skip
    state.alerts += alerts.of_input(state.journal, arrival, limit=state.drift_limit)
    state.check()
    state.journal.arrived(arrival, CLAIMED, now=state.started, run_id=run_id)
    try:
        source = _claim(state, arrival, run_id)
        extracted = _extract(state, source, arrival, run_id, current)
        told = _with_counts(state, told, extracted, current)
        told = _judged(state, told, extracted)
        _publish(state, told, extracted, current)
    except SupplierFailure as failure:
        told = _refused(state, told, failure)
    state.check()
    settle.settle(state.services, state.journal, told)
    return Outcome(told.status, run_id, told.reason_code, told.fail_stage, tuple(state.alerts))


def _new_run_id(state: _Run) -> str:
    """Later than the supplier's last one, whatever the clock says: the ids tell the order of runs."""
    last = state.journal.last_run()
    at = max(state.started, RunId.parse(last).at + timedelta(seconds=1)) if last else state.started
    rand = state.services.clock.new_id().hex[:6]
    return str(RunId(state.supplier, at.replace(microsecond=0), rand))


def _claim(state: _Run, arrival: Arrival, run_id: str) -> Path:
    """The file is the run's: what is hashed from here on is what is read."""
    folder = state.services.layout.input(run_id)
    durable.make_folder(folder.parent.parent)
    folder.parent.mkdir()
    folder.mkdir()
    durable.sync_folder(folder.parent)
    target = folder / arrival.path.name
    try:
        arrival.path.rename(target)
    except FileNotFoundError:
        raise SupplierFailure("FILE_MISSING", stage="gate") from None
    durable.sync_folder(folder)
    durable.sync_folder(arrival.path.parent)
    return target


def _extract(
    state: _Run, source: Path, arrival: Arrival, run_id: str, current: Published | None
) -> Extracted:
    if state.problem is not None:
        raise state.problem
    assert state.config is not None
    if not arrival.sha256:
        raise SupplierFailure("FILE_UNREADABLE", stage="gate")
    if (times := state.journal.interruptions(arrival.sha256)) >= MOST_INTERRUPTIONS:
        raise SupplierFailure("READER_CRASHED", stage="gate", interruptions=times)
    services, into = state.services, state.services.layout.run(run_id)
    if current is None:
        extracted = extract(source, into=into, config=state.config, run_id=run_id, limits=services.limits)
    else:
        with services.states.facts(current) as previous:
            extracted = extract(
                source, into=into, config=state.config, run_id=run_id, previous=previous,
                limits=services.limits,
            )  # fmt: skip
    # Whoever had it open may have gone on writing, before it was taken or since.
    if durable.sha256_of(source) != arrival.sha256:
        raise SupplierFailure("FILE_CHANGED", stage="gate")
    return extracted


def _with_counts(state: _Run, told: Manifest, found: Extracted, current: Published | None) -> Manifest:
    state.alerts += [Alert(code, subject) for code, subject in found.alerts]
    if found.price_rounded:
        state.alerts.append(Alert("PRICE_ROUNDED", count=found.price_rounded))
    return replace(
        told,
        good_rows=found.good_rows, bad_rows=found.bad_rows, skipped_rows=found.skipped_rows,
        total_rows=found.total_rows, facts=found.facts, content_sha256=found.content_sha256,
        facts_sha256=found.facts_sha256, format=found.format, encoding=found.encoding,
        sheets=found.sheets, price_rounded=found.price_rounded,
        content_unchanged=current is not None and current.content_sha256 == found.content_sha256,
    )  # fmt: skip


def _judged(state: _Run, told: Manifest, found: Extracted) -> Manifest:
    """The manifest of a list that is good; SupplierFailure of the first check that fails."""
    assert state.config is not None
    verdict = dq.judge(found, state.config)
    if verdict.warns_of_drop:
        state.alerts.append(Alert("SKU_DROP_WARN", count=found.lost_skus))
    if not verdict.passed:
        raise SupplierFailure(verdict.failed_checks[0], stage="dq", failed=",".join(verdict.failed_checks))
    state.alerts += alerts.of_content(
        state.journal, found.content_sha256, limit=state.config.drift_alert_after
    )
    return _finished(state, told, status="PASS")


def _publish(state: _Run, told: Manifest, found: Extracted, current: Published | None) -> None:
    """Readers see the new state."""
    services = state.services
    published = Published(
        state.supplier, told.run_id, path_of(state.supplier, told.run_id), found.facts_sha256, found.facts,
        found.skus, found.content_sha256, told.input_sha256, told.input_filename, told.input_mtime_ns,
        services.clock.now().isoformat(),
    )  # fmt: skip
    state.check()
    services.states.store(published, services.layout.run(told.run_id) / "facts.ndjson")
    told.write(services.layout)
    state.check()
    services.states.switch(published, instead_of=current)


def _refused(state: _Run, told: Manifest, failure: SupplierFailure) -> Manifest:
    state.alerts += alerts.of_fails(state.journal)
    failed = str(failure.detail.get("failed", "")).split(",") if failure.stage == "dq" else []
    told = replace(
        told, reason_code=failure.code, fail_stage=failure.stage, detail=failure.detail,
        failed_checks=tuple(failed),
    )  # fmt: skip
    told = _finished(state, told, status="FAIL")
    told.write(state.services.layout)
    return told


def _finished(state: _Run, told: Manifest, *, status: str) -> Manifest:
    return replace(
        told, status=status, finished_at=state.services.clock.now().isoformat(),
        alerts=tuple(alert.as_json() for alert in state.alerts),
    )  # fmt: skip
