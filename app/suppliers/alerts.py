"""What a person should see although the run goes on: alerts, each with a code of the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.suppliers import codes
from app.suppliers.inbox import Arrival
from app.suppliers.journal import Journal

FAILS_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: what about, and how often where it is counted."""

    code: str
    subject: str = ""
    count: int | None = None

    def __post_init__(self) -> None:
        codes.of_kind(self.code, "alert")

    def as_json(self) -> dict[str, Any]:
        return {k: v for k, v in (("code", self.code), ("subject", self.subject), ("count", self.count)) if v}


def of_input(journal: Journal, arrival: Arrival, *, limit: int) -> list[Alert]:
    """Whether the same bytes come again and again; asked before this arrival stands in the journal."""
    times = journal.equal_arrivals(arrival.sha256) + 1
    return [Alert("DRIFT_REPEATED_INPUT", arrival.name, times)] if times >= limit else []


def of_content(journal: Journal, content_sha256: str, *, limit: int) -> list[Alert]:
    """Whether other bytes say the same again and again; asked before this run stands in the journal."""
    times = journal.equal_contents(content_sha256) + 1
    return [Alert("DRIFT_REPEATED_CONTENT", count=times)] if times >= limit else []


def of_fails(journal: Journal) -> list[Alert]:
    """Whether run after run fails; asked before this one stands in the journal."""
    times = journal.fails_in_a_row() + 1
    return [Alert("REPEATED_FAIL", count=times)] if times >= FAILS_IN_A_ROW else []
