"""What happened to a supplier's files, in order: the one place that remembers what came before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any

from app.suppliers import durable
from app.suppliers.inbox import Arrival
from app.suppliers.layout import Layout

ARRIVED, ENDED, PUBLISHED = "arrived", "ended", "published"
DUPLICATE, OBSOLETE, CLAIMED = "duplicate", "obsolete", "claimed"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a file that arrived, a run that ended, or a state that became current."""

    at: str
    event: str  # arrived, ended or published
    run_id: str | None = None
    sha256: str | None = None  # of the file
    name: str | None = None
    identity: str | None = None
    outcome: str | None = None  # of a file: duplicate, obsolete or claimed; of a run: PASS or FAIL
    reason_code: str | None = None
    content_sha256: str | None = None
    replaced: str | None = None  # the run whose state was current before
    alerts: tuple[str, ...] = ()


class Journal:
    """The journal of one supplier, to be written under its lock."""

    def __init__(self, layout: Layout, supplier: str) -> None:
        self._path = layout.journal(supplier)
        self.entries = [_entry(line) for line in durable.lines(self._path)]

    def arrived(
        self, arrival: Arrival, outcome: str, *, now: datetime, run_id: str | None = None,
        alerts: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """The file and what becomes of it stand in the journal.

        Written before the file is moved. A run that dies in between meets the same file again, and the
        line that stands is not written twice; but each run's claim is its own.
        """
        known = (entry for entry in self.entries if entry.identity == arrival.identity)
        if outcome != CLAIMED and any(entry.outcome == outcome for entry in known):
            return
        self._add(
            at=now.isoformat(), event=ARRIVED, run_id=run_id, sha256=arrival.sha256, name=arrival.name,
            identity=arrival.identity, outcome=outcome, alerts=tuple(alerts),
        )  # fmt: skip

    def ended(self, run_id: str, *, now: datetime, **fields: Any) -> None:
        """The end of a run stands in the journal, once."""
        if not any(entry.event == ENDED and entry.run_id == run_id for entry in self.entries):
            self._add(at=now.isoformat(), event=ENDED, run_id=run_id, **fields)

    def published(self, run_id: str, *, replaced: str | None, now: datetime) -> None:
        """That the state of this run became current, and instead of which, stands in the journal, once."""
        if not any(entry.event == PUBLISHED and entry.run_id == run_id for entry in self.entries):
            self._add(at=now.isoformat(), event=PUBLISHED, run_id=run_id, replaced=replaced)

    def forget(self, before: datetime) -> None:
        """Lines from before this moment are gone."""
        kept = [entry for entry in self.entries if datetime.fromisoformat(entry.at) >= before]
        if len(kept) < len(self.entries):
            durable.write_lines(self._path, [_line(entry) for entry in kept])
            self.entries = kept

    def interruptions(self, sha256: str) -> int:
        """How many runs in a row have died over this content."""
        runs = (e for e in reversed(self.entries) if e.event == ENDED and e.sha256 == sha256)
        return sum(1 for _ in takewhile(lambda entry: entry.reason_code == "RUN_INTERRUPTED", runs))

    def _add(self, **fields: Any) -> None:
        entry = Entry(**fields)
        durable.append_line(self._path, _line(entry))
        self.entries.append(entry)

    # -- what came before

    def open_runs(self) -> list[str]:
        """The runs that have taken a file and never ended, oldest first."""
        ended = {entry.run_id for entry in self.entries if entry.event == ENDED}
        claims = (entry.run_id for entry in self.entries if entry.outcome == CLAIMED)
        return [run_id for run_id in claims if run_id is not None and run_id not in ended]

    def last_run(self) -> str | None:
        """The newest run that has taken a file."""
        return next((e.run_id for e in reversed(self.entries) if e.outcome == CLAIMED), None)

    def was_obsolete(self, sha256: str) -> bool:
        """Whether this content was set aside for a newer one, or for a newer state."""
        return any(entry.sha256 == sha256 and entry.outcome == OBSOLETE for entry in self.entries)

    def equal_arrivals(self, sha256: str) -> int:
        """How many of the last arrivals in a row had this content.

        A claim whose run never ended does not count: its file arrived again.
        """
        ended = {entry.run_id for entry in self.entries if entry.event == ENDED}
        arrivals = [
            entry.sha256
            for entry in reversed(self.entries)
            if entry.event == ARRIVED and (entry.outcome != CLAIMED or entry.run_id in ended)
        ]
        return sum(1 for _ in takewhile(lambda found: found == sha256, arrivals))

    def equal_contents(self, content_sha256: str) -> int:
        """How many of the last lists that passed had this content, in a row."""
        passed = (e.content_sha256 for e in reversed(self.entries) if e.outcome == "PASS")
        return sum(1 for _ in takewhile(lambda found: found == content_sha256, passed))

    def fails_in_a_row(self) -> int:
        """How many of the last runs failed, in a row."""
        outcomes = (entry.outcome for entry in reversed(self.entries) if entry.event == ENDED)
        return sum(1 for _ in takewhile(lambda outcome: outcome == "FAIL", outcomes))


def _line(entry: Entry) -> dict[str, Any]:
    return {key: value for key, value in asdict(entry).items() if value not in (None, ())}


def _entry(line: dict[str, Any]) -> Entry:
    known = {key: value for key, value in line.items() if key in Entry.__dataclass_fields__}
    return Entry(**{**known, "alerts": tuple(known.get("alerts", ()))})
