"""Which of the arrived files is the list to read, and what becomes of the others (ETL CANON §4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.suppliers.inbox import Arrival
from app.suppliers.journal import Journal
from app.suppliers.states import Published


@dataclass(frozen=True, slots=True)
class Rules:
    """What a supplier's config says about the choice."""

    older_input: str = "obsolete"  # or publish
    reaccept_after_newer: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of each file that is ready."""

    chosen: Arrival | None
    duplicates: tuple[Arrival, ...] = ()  # accepted before
    returned: frozenset[str] = frozenset()  # of these, by identity: another state is current by now
    obsolete: tuple[Arrival, ...] = ()  # passed over for a newer one
    stale: frozenset[str] = frozenset()  # of these, by identity: older than what is current


def choose(
    ready: tuple[Arrival, ...],
    *,
    accepted: Callable[[str], bool],
    current: Published | None,
    journal: Journal,
    rules: Rules,
) -> Choice:
    """The newest list that is new; `ready` comes newest first.

    A file that cannot be read has no hash; it is chosen like any other, so that its run says so.
    """
    current_sha = current.input_sha256 if current else None
    duplicates, stale, fresh = [], [], []
    for arrival in ready:
        if (
            arrival.sha256
            and accepted(arrival.sha256)
            and not (rules.reaccept_after_newer and arrival.sha256 != current_sha)
        ):
            duplicates.append(arrival)
        elif rules.older_input == "obsolete" and _is_stale(arrival, current, journal):
            stale.append(arrival)
        else:
            fresh.append(arrival)
    return Choice(
        fresh[0] if fresh else None,
        duplicates=tuple(duplicates),
        returned=frozenset(a.identity for a in duplicates if a.sha256 != current_sha),
        obsolete=(*fresh[1:], *stale),
        stale=frozenset(arrival.identity for arrival in stale),
    )


def _is_stale(arrival: Arrival, current: Published | None, journal: Journal) -> bool:
    older = current is not None and arrival.mtime_ns < current.input_mtime_ns
    return older or journal.was_obsolete(arrival.sha256)
