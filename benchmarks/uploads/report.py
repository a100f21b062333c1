"""Reports as an advertising platform exports them: a row for each ad and day, always the same ones."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

HEADER = (
    "Day", "Campaign name", "Campaign ID", "Ad set name", "Ad set ID", "Ad name", "Ad ID", "Impressions",
    "Reach", "Clicks (all)", "Link clicks", "Amount spent (USD)", "Purchases", "Purchases conversion value",
)  # fmt: skip
PLATFORM = "meta"
DAYS = 90
BEGIN = date(2025, 1, 1)
ROWS_OF_50_MB = 400_000
IDS = 120_200_000_000
"""Where the ids begin: they have twelve digits, as an older account's have."""


def usual(rows: int, *, begin: date = BEGIN, clean: bool = False) -> Iterator[list[str]]:
    """Ninety days of as many ads as make the rows. One row in 200 cannot be read, one in 100 stands twice.

    `clean`: neither of them.
    """
    chance = random.Random(rows)
    ads = max(1, -(-rows // DAYS))
    for number in range(rows):
        ad, day = number % ads, number // ads
        if not clean and number % 100 == 99:
            yield row  # noqa: F821 - the one before
            continue
        row = _row(chance, ad, ad // 5, ad // 25, begin + timedelta(day))
        if not clean and number % 200 == 50:
            row[11] = "n. v."
        yield row


def unlike(rows: int, what: str) -> Iterator[list[str]]:
    """No number stands twice: `numbers` about the usual ads, `ads` about one of its own in each row,
    `everything` also an ad set and a campaign of its own.
    """
    chance = random.Random(rows)
    usual_ads = max(1, -(-rows // DAYS))
    for number in range(rows):
        ad = number % usual_ads if what == "numbers" else number
        day = BEGIN + timedelta(number // usual_ads if what == "numbers" else number % DAYS)
        row = _row(chance, ad, *((ad, ad) if what == "everything" else (ad // 5, ad // 25)), day)
        row[7:] = [
            *(str(million * 1_000_000 + number) for million in (1, 2, 3, 4)),
            f"{5_000 + number / 100:.2f}", str(5_000_000 + number), f"{9_000 + number / 100:.2f}",
        ]  # fmt: skip
        yield row


def _row(chance: random.Random, ad: int, ad_set: int, campaign: int, day: date) -> list[str]:
    impressions = int(chance.lognormvariate(6, 1.2))
    clicks = impressions * chance.randrange(40) // 1000
    purchases = clicks * chance.randrange(30) // 100
    return [
        day.isoformat(), f"Campaign {campaign}, US", str(IDS + campaign), f"Women 25-44 {ad_set}",
        str(2 * IDS + ad_set), f"Video {ad}", str(3 * IDS + ad), str(impressions),
        str(impressions * 4 // 5), str(clicks), str(clicks * 3 // 4), f"{impressions * 0.0081:.2f}",
        str(purchases), f"{purchases * 34.9:.2f}",
    ]  # fmt: skip


def write(path: Path, rows: Iterator[list[str]]) -> Path:
    """The report stands at the path."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(rows)
    return path
