"""Do all peers end with the same table? A file with repeated keys goes through each of them.

    python -m benchmarks.peers [--rows 20000] [--only NAME …] [--folder var/peers]

Environments are made in the folder once: some minutes, and about a gigabyte. Exits with 1 where a peer's
rows or sums are not those of the file.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import psycopg2

from app.adapters import embedded
from benchmarks import peers
from benchmarks.peers import ads

DAYS = 60
REPEATED = 0.01  # of the rows: the same ad and day as an earlier row, with other figures
SUMS = f"SELECT count(*), sum(impressions), sum(amount_spent_usd)::numeric FROM {ads.TARGET}"


def main() -> int:
    """The table is on stdout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--only", nargs="+", choices=[peer.name for peer in peers.PEERS])
    parser.add_argument("--folder", type=Path, default=Path("var/peers"))
    options = parser.parse_args()
    print("| peer | upserts itself | seconds | peak MiB | rows | sums |\n|---|---|---|---|---|---|")
    good = True
    with tempfile.TemporaryDirectory() as name, embedded.Postgres(Path(name) / "postgres") as postgres:
        room = Path(name)
        expected = write(room / "ads.csv", options.rows)
        for peer in peers.PEERS:
            if options.only and peer.name not in options.only:
                continue
            python = peers.prepare(peer, options.folder)
            done = peers.run(peer, python, room / "ads.csv", postgres.dsn, room / peer.name)
            found = sums(postgres.dsn)
            good &= found == expected
            itself = "yes" if peer.upserts else "no"
            said = "equal" if found == expected else f"{found}, not {expected}"
            figures = f"{done.seconds:.2f} | {done.peak_mib:.0f} | {done.rows:,}"
            print(f"| {peer.name} | {itself} | {figures} | {said} |", flush=True)
    return 0 if good else 1


def sums(dsn: str) -> tuple[int, int, Decimal]:
    """Rows, impressions and spend of the table."""
    with contextlib.closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(SUMS)
        return cursor.fetchone()


def write(file: Path, number: int) -> tuple[int, int, Decimal]:
    """A file of so many rows; rows, impressions and spend that the table has to end with."""
    last = {}
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(ads.HEADINGS)
        for row in rows(number):
            writer.writerow(row)
            last[row[0], row[6]] = row[7], Decimal(row[11])
    impressions, spend = zip(*last.values(), strict=True)
    return len(last), sum(impressions), sum(spend, Decimal())


def rows(number: int) -> Iterator[tuple]:
    """The rows of an account in the order of days, some of them repeated."""
    rng = random.Random(14)
    keys = [(n // -(-number // DAYS), n % -(-number // DAYS)) for n in range(number)]
    for n in rng.sample(range(1, number), int(number * REPEATED)):
        keys[n] = keys[rng.randrange(n)]
    for day, ad in keys:
        campaign, ad_set = ad // 50, ad // 10
        impressions = int(rng.lognormvariate(7, 1))
        clicks = impressions // rng.randrange(20, 200)
        purchases = clicks // 30
        yield (
            date(2026, 1, 1) + timedelta(day),
            f"Campaign {campaign} – Frühling", f"12020{campaign:012d}",
            f"Ad set {ad_set}, 25–44", f"12021{ad_set:012d}",
            f"Ad {ad} “video”", f"12022{ad:012d}",
            impressions, impressions * 4 // 5, clicks, clicks // 2,
            f"{impressions * rng.uniform(0.004, 0.02):.2f}",
            purchases, f"{purchases * rng.uniform(5, 80):.2f}",
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
