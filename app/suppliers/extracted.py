"""What reading a list has come to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class Extracted:
    """The counts of a list, its hash, and what should be looked at."""

    good_rows: int
    bad_rows: int
    skipped_rows: int
    facts: int
    skus: int
    content_sha256: str
    facts_sha256: str
    format: str
    encoding: str | None = None
    sheets: tuple[str, ...] = ()
    price_rounded: int = 0
    by_category: dict[str, int] = field(default_factory=dict)
    bad_by_reason: dict[str, int] = field(default_factory=dict)
    skipped_by_reason: dict[str, int] = field(default_factory=dict)
    alerts: tuple[tuple[str, str], ...] = ()  # code and subject
    previous_skus: int = 0  # of the state that is published
    lost_skus: int = 0  # of these, how many are not in the list

    @property
    def total_rows(self) -> int:
        return self.good_rows + self.bad_rows + self.skipped_rows

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Extracted:
        lists = {name: tuple(found[name]) for name in ("sheets",)}
        alerts = tuple((code, subject) for code, subject in found["alerts"])
        return cls(**{**found, **lists, "alerts": alerts})

    def stats(self) -> dict[str, Any]:
        """The counts as `stats.json` has them (ETL CANON §9.4)."""
        rows = self.good_rows + self.bad_rows
        return {
            "total_rows": self.total_rows,
            "good_rows": self.good_rows,
            "bad_rows": self.bad_rows,
            "skipped_rows": self.skipped_rows,
            "bad_ratio": float(round(Decimal(self.bad_rows) / rows, 6)) if rows else 0.0,
            "facts": self.facts,
            "skus": self.skus,
            "price_rounded": self.price_rounded,
            "by_category": self.by_category,
            "bad_by_reason": self.bad_by_reason,
            "skipped_by_reason": self.skipped_by_reason,
        }
