"""A dry run: what a list would lead to, with nothing moved, stored or published."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.suppliers import config, dq
from app.suppliers.extract import extract
from app.suppliers.extracted import Extracted
from app.suppliers.failures import SupplierFailure
from app.suppliers.layout import check_supplier
from app.suppliers.services import Services

RUN_ID = "check_00000000T000000Z_000000"
SHOWN_ROWS = 100


@dataclass(frozen=True, slots=True)
class Checked:
    """What would become of a list."""

    status: str  # PASS or FAIL
    reason_code: str | None = None
    fail_stage: str | None = None
    detail: dict[str, Any] | None = None
    failed_checks: tuple[str, ...] = ()
    extracted: Extracted | None = None  # None where the list cannot be read
    warns_of_drop: bool = False
    bad_rows: tuple[dict[str, Any], ...] = ()  # the first ones


def check(services: Services, supplier: str, source: Path) -> Checked:
    """What the supplier's next run would say, were this file its input and new."""
    check_supplier(supplier)
    with tempfile.TemporaryDirectory() as room:
        try:
            rules = config.load(services.layout.config(supplier), supplier)
            found = _extract(services, rules, source, Path(room))
        except SupplierFailure as failure:
            return Checked("FAIL", failure.code, failure.stage, failure.detail)
        with (Path(room) / "bad.ndjson").open(encoding="utf-8") as lines:
            bad = tuple(json.loads(line) for line, _ in zip(lines, range(SHOWN_ROWS), strict=False))
    verdict = dq.judge(found, rules)
    return Checked(
        "PASS" if verdict.passed else "FAIL",
        None if verdict.passed else verdict.failed_checks[0],
        None if verdict.passed else "dq",
        failed_checks=verdict.failed_checks, extracted=found, warns_of_drop=verdict.warns_of_drop,
        bad_rows=bad,
    )  # fmt: skip


def _extract(services: Services, rules: config.Config, source: Path, into: Path) -> Extracted:
    current = services.states.current(rules.supplier)
    if current is None:
        return extract(source, into=into, config=rules, run_id=RUN_ID, limits=services.limits)
    with services.states.facts(current) as previous:
        return extract(
            source, into=into, config=rules, run_id=RUN_ID, previous=previous, limits=services.limits
        )
