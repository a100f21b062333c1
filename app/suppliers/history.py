"""What was done with a supplier's lists: its present state, and its runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from app.kernel import errors
from app.suppliers import codes, config, durable, manifest
from app.suppliers.failures import SupplierFailure
from app.suppliers.layout import RunId, check_supplier
from app.suppliers.manifest import Manifest
from app.suppliers.services import Services
from app.suppliers.states import Published


@dataclass(frozen=True, slots=True)
class Age:
    """What is published of a supplier, and whether that is too old."""

    current: Published | None
    seconds: float | None
    too_old: bool  # by the supplier's config


@dataclass(frozen=True, slots=True)
class Overview:
    """A supplier at this moment."""

    supplier: str
    age: Age
    last: Manifest | None  # the newest run that has ended


def age(services: Services, supplier: str) -> Age:
    """What is published of the supplier, and for how long."""
    check_supplier(supplier)
    current = services.states.current(supplier)
    if current is None:
        return Age(None, None, False)
    seconds = (services.clock.now() - datetime.fromisoformat(current.published_at)).total_seconds()
    limit = None
    with suppress(SupplierFailure):  # without a config nothing is too old; its next run says so
        limit = config.load(services.layout.config(supplier), supplier).guards.max_state_age_hours
    return Age(current, seconds, limit is not None and seconds > limit * 3600)


def overview(services: Services, supplier: str) -> Overview:
    """What is published of the supplier and how its last list fared."""
    found = age(services, supplier)
    return Overview(supplier, found, next(iter(runs(services, supplier, limit=1)), None))


def runs(services: Services, supplier: str, *, limit: int) -> list[Manifest]:
    """The newest runs that have ended, newest first."""
    check_supplier(supplier)
    found = (manifest.read(services.layout, run_id) for run_id in services.layout.runs(supplier))
    return list(islice((told for told in found if told is not None), limit))


def one_run(services: Services, run_id: str) -> Manifest:
    """The manifest of this run; NotFound when there is none."""
    told = manifest.read(services.layout, str(RunId.parse(run_id)))
    if told is None:
        raise errors.NotFound("There is no such run, or it is still at work.")
    return told


def stats(services: Services, run_id: str) -> dict[str, Any] | None:
    """The counts of a run by category and reason; None where they are not kept any more."""
    return durable.read_json(services.layout.run(str(RunId.parse(run_id))) / "stats.json")


def bad_rows(services: Services, run_id: str, *, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """The bad rows of a run in the order of its list, each with what the supplier should do."""
    for line in islice(lines(services.layout.run(run_id) / "bad.ndjson"), limit):
        yield {**line, "supplier_action": codes.registry()[line["reason_code"]].supplier_action}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file of a run; none when it is not kept any more."""
    if path.is_file():
        with path.open("rb") as file:
            for line in file:
                yield json.loads(line)
