"""One thing for sale through all runs: why it is to be had, or why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.suppliers import history
from app.suppliers.layout import check_supplier
from app.suppliers.manifest import Manifest
from app.suppliers.services import Services


@dataclass(frozen=True, slots=True)
class Trace:
    """What one run made of one thing for sale."""

    run_id: str
    status: str  # of the run
    published: bool  # whether readers see this run's state now
    found: str  # good, bad, skipped or absent
    row_number: int | None = None
    reason_code: str | None = None
    payload: dict[str, Any] | None = None


def trace(services: Services, supplier: str, sku: str, *, limit: int) -> list[Trace]:
    """Where the goods of this code stood in the newest runs, newest first: why it is not for sale."""
    current = services.states.current(check_supplier(supplier))
    return [
        one
        for told in history.runs(services, supplier, limit=limit)
        for one in _of_run(services, told, sku, published=bool(current and current.run_id == told.run_id))
    ]


def _of_run(services: Services, told: Manifest, sku: str, *, published: bool) -> list[Trace]:
    folder = services.layout.run(told.run_id)
    found = []
    for kind, path in (
        ("good", folder / "facts.ndjson"),
        ("bad", folder / "bad.ndjson"),
        ("skipped", folder / "diag" / "skipped.ndjson"),
    ):
        for line in history.lines(path):
            payload = line.get("payload")
            if (payload or line).get("sku") == sku:
                at, code = line["row_number"], line.get("reason_code")
                found.append(Trace(told.run_id, told.status, published, kind, at, code, payload))
    return found or [Trace(told.run_id, told.status, published, "absent")]
