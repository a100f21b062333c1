"""Two states of a supplier side by side: what came, what went, what has another price or stock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from app.kernel import errors
from app.suppliers import history
from app.suppliers.layout import RunId, check_supplier
from app.suppliers.services import Services

KINDS = ("added", "removed", "price", "qty")
SHOWN_CHANGES = 200


@dataclass(frozen=True, slots=True)
class Change:
    """One thing for sale that is not the same in both states; None where it is not there."""

    sku: str
    warehouse: str | None
    price_minor: tuple[int | None, int | None]
    qty: tuple[int | None, int | None]


@dataclass(slots=True)
class Difference:
    """What has changed between two states: how often, and the first of each kind."""

    before: str
    after: str
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    first: dict[str, list[Change]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def diff(
    services: Services, supplier: str, before: str | None = None, after: str | None = None
) -> Difference:
    """What the state of one run changed against that of another; by default the last switch.

    NotFound when a state is not kept any more.
    """
    check_supplier(supplier)
    current = services.states.current(supplier)
    after = after or (current.run_id if current else None)
    if after is None:
        raise errors.NotFound("Nothing of this supplier is published.")
    before = before or history.one_run(services, after).previous_run_id
    if before is None:
        raise errors.NotFound("This state was the first one: there is nothing to compare it with.")
    for run_id in (before, after):
        if RunId.parse(run_id).supplier != supplier:
            raise errors.NotFound("There is no such run of this supplier.")
    found = Difference(before, after)
    old = {_key(fact): _figures(fact) for fact in _facts(services, before)}
    for fact in _facts(services, after):
        _compare(found, _key(fact), old.pop(_key(fact), None), _figures(fact))
    for key, figures in old.items():
        _compare(found, key, figures, None)
    return found


def _facts(services: Services, run_id: str) -> Iterator[dict[str, Any]]:
    path = services.layout.run(run_id) / "facts.ndjson"
    if not path.is_file():
        raise errors.NotFound(f"The facts of {run_id} are not kept any more.")
    return (line["payload"] for line in history.lines(path))


def _key(payload: dict[str, Any]) -> tuple[str, str | None]:
    return payload["sku"], payload.get("warehouse")


def _figures(payload: dict[str, Any]) -> tuple[int, int]:
    return payload["price_minor"], payload["qty"]


def _compare(
    found: Difference, key: tuple[str, str | None], old: tuple[int, int] | None, new: tuple[int, int] | None
) -> None:
    if old is None or new is None:
        kinds = ["added" if old is None else "removed"]
    else:
        kinds = [kind for kind, a, b in zip(("price", "qty"), old, new, strict=True) if a != b]
    price, qty = zip(old or (None, None), new or (None, None), strict=True)
    for kind in kinds:
        found.counts[kind] += 1
        if len(found.first[kind]) < SHOWN_CHANGES:
            found.first[kind].append(Change(*key, price, qty))
