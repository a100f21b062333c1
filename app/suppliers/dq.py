"""Whether a list that could be read is good enough to be published (ETL CANON §8)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from app.suppliers.config import Config
from app.suppliers.extracted import Extracted


@dataclass(frozen=True, slots=True)
class Verdict:
    """The checks that a list has failed, the first of which is its reason; none when it passes."""

    failed_checks: tuple[str, ...] = ()
    warns_of_drop: bool = False

    @property
    def passed(self) -> bool:
        return not self.failed_checks


def judge(found: Extracted, config: Config) -> Verdict:
    """Ratio of bad rows, number of facts, and how many of the published goods are missing."""
    failed = []
    if bad_ratio(found) > config.dq.max_bad_ratio:
        failed.append("BAD_RATIO_EXCEEDED")
    if found.facts == 0:
        # Whether a list may be empty is one question, how long it is another.
        if not config.dq.allow_empty_snapshot:
            failed.append("EMPTY_SNAPSHOT")
    elif found.facts < config.dq.min_fact_count:
        failed.append("TOO_FEW_FACTS")
    guard = config.guards.max_sku_drop_ratio
    lost = Decimal(found.lost_skus) / found.previous_skus if found.previous_skus else Decimal(0)
    # Asked of lists that are good otherwise: of the others it says nothing new.
    if not failed and guard.fail is not None and lost > guard.fail:
        failed.append("SKU_DROP")
    return Verdict(tuple(failed), warns_of_drop=guard.warn is not None and lost > guard.warn)


def bad_ratio(found: Extracted) -> Decimal:
    """Bad rows among all rows of data; 0 when there are none."""
    rows = found.good_rows + found.bad_rows
    return Decimal(found.bad_rows) / rows if rows else Decimal(0)
