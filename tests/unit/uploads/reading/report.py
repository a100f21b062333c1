"""Reads the bytes of a report as an upload does, and gives back everything that came of it."""

from __future__ import annotations

import contextlib
import csv
import faulthandler
import io
import json
import multiprocessing
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from app.kernel.errors import FileRefused
from app.uploads.reading import duplicates, formats, plan, rows
from tests import patience

TODAY = date(2026, 11, 27)
Number = Decimal | int | None

CODES_OF_FILES = frozenset(
    {
        "ambiguous_column",
        "ambiguous_number",
        "ambiguous_date",
        "api_error",
        "currency_missing",
        "empty_file",
        "file_too_large",
        "malformed_file",
        "malformed_json",
        "undecodable_text",
        "unknown_header",
        "unsupported_format",
    }
)
CODES_OF_ROWS = frozenset(
    {
        "currency_conflict",
        "date_range",
        "duplicate_key_conflict",
        "id_scientific_notation",
        "invalid_character",
        "invalid_currency",
        "invalid_date",
        "invalid_id",
        "invalid_number",
        "malformed_row",
        "missing_campaign",
        "missing_currency",
        "missing_date",
        "negative_count",
        "too_many_columns",
    }
)
METRICS = (
    "spend",
    "impressions",
    "clicks",
    "reach",
    "conversions",
    "link_clicks",
    "conversion_value",
)


@dataclass(frozen=True)
class Entity:
    """A campaign, ad set or ad, with the attributes that the file gave it last."""

    external_id: str
    id_source: str
    name: str | None


@dataclass(frozen=True)
class Daily:
    """One daily row, as it would be promoted."""

    date: str
    campaign: Entity | None
    ad_set: Entity | None
    ad: Entity | None
    currency: str
    spend: Number
    impressions: Number
    clicks: Number
    reach: Number
    conversions: Number
    link_clicks: Number
    conversion_value: Number


@dataclass(frozen=True)
class TotalsCheck:
    """The file's own total beside the sum of its rows."""

    file_total: Decimal
    row_sum: Decimal
    matches: bool


@dataclass(frozen=True)
class Report:
    """What came of one file: refused as a whole, or read to its end."""

    refused: str | None = None
    sentence: str = ""
    encoding: str | None = None
    delimiter: str | None = None
    header_line: int | None = None
    currency_found: tuple[str, ...] = ()
    data: int = 0
    rejected: int = 0
    totals_skipped: int = 0
    merged: int = 0
    identical: int = 0
    rejects: tuple[tuple[int | None, str], ...] = ()
    others: dict[int | None, int] = field(default_factory=dict)
    campaigns: tuple[Entity, ...] = ()
    ad_sets: tuple[Entity, ...] = ()
    ads: tuple[Entity, ...] = ()
    daily: tuple[Daily, ...] = ()
    totals: TotalsCheck | None = None
    warnings: frozenset[str] = frozenset()

    @property
    def valid(self) -> int:
        """Rows that are not rejected."""
        return self.data - self.rejected

    @property
    def entities(self) -> tuple[int, int, int]:
        """How many campaigns, ad sets and ads the file names."""
        return len(self.campaigns), len(self.ad_sets), len(self.ads)

    @property
    def codes(self) -> list[str]:
        """Why rows were rejected, in the order of the file."""
        return [code for _, code in self.rejects]

    @property
    def names(self) -> list[str | None]:
        """The names of the campaigns, in the order of the file."""
        return [one.name for one in self.campaigns]

    @property
    def dates(self) -> list[str]:
        """The days of the daily rows."""
        return [row.date for row in self.daily]

    def column(self, metric: str) -> list[Number]:
        """One metric of all daily rows."""
        return [getattr(row, metric) for row in self.daily]

    def total(self, metric: str) -> dict[str, Number]:
        """The sum of a metric for each currency, over what is not NULL."""
        sums: dict[str, Number] = {}
        for row in self.daily:
            value = getattr(row, metric)
            if value is not None:
                sums[row.currency] = (sums.get(row.currency) or 0) + value
        return sums


def read(
    data: bytes | str,
    platform: str = "meta",
    currency: str | None = None,
    *,
    max_bytes: int = 1 << 30,
    date_order: str | None = None,
    decimal_mark: str | None = None,
) -> Report:
    """Read a file from its first byte to its last row, duplicates settled."""
    raw = data.encode() if isinstance(data, str) else data
    try:
        with formats.unpacked(io.BytesIO(raw), max_bytes=max_bytes) as unpacked:
            declared = plan.Declared(currency, date_order, decimal_mark)
            chosen = plan.make(unpacked, platform=platform, declared=declared)
            # a resumed parse reads by the stored plan, so the stored one is what counts
            chosen = plan.Plan.from_json(json.loads(json.dumps(chosen.as_json())))
            reader = rows.Rows(chosen, scope=["w", None, platform], today=TODAY)
            staged = [one for group in reader.read(unpacked) for one in group]
    except FileRefused as refusal:
        return Report(refused=refusal.code, sentence=str(refusal))
    return _report(chosen, reader.tally, staged)


def _report(chosen: Any, tally: Any, staged: Sequence[Any]) -> Report:
    entities: dict[str, dict[str, Entity]] = {"campaign": {}, "ad_set": {}, "ad": {}}
    named: dict[tuple[str, int], str] = {}
    rejects: dict[int, tuple[int | None, str]] = {}
    keys: dict[str, list[Any]] = {}
    for one in staged:
        if one.entity_type != "daily_metric":
            attributes = json.loads(one.raw)
            entities[one.entity_type][one.key_hash] = Entity(
                attributes["external_id"], attributes["id_source"], attributes["name"]
            )
            named[one.entity_type, one.row_index] = one.key_hash
        elif one.errors:
            why = json.loads(one.errors)
            rejects[one.row_index] = (why["line"], why["errors"][0]["code"])
        else:
            cells = json.loads(one.raw, parse_float=Decimal, parse_int=Decimal)
            keys.setdefault(one.key_hash, []).append(duplicates.KeyRow(one.row_index, cells))

    others: dict[int | None, int] = {}
    kept: dict[int, dict[str, Any]] = {}
    merged = identical = subtotals = 0
    warnings = set(tally.warnings) | set(chosen.warnings)
    for group in keys.values():
        settled = duplicates.settle(group) if len(group) > 1 else duplicates.Settlement()
        merged += len(settled.merged)
        identical += len(settled.identical)
        subtotals += len(settled.subtotals)
        if settled.warning:
            warnings.add(settled.warning)
        gone = {*settled.merged, *settled.identical, *settled.subtotals, *settled.rejected}
        for row in group:
            if row.row_index in settled.rejected:
                code, other = settled.rejected[row.row_index]
                line = None if row.raw["line"] is None else int(row.raw["line"])
                rejects[row.row_index] = (line, code)
                others[line] = int(other)
            elif row.row_index not in gone:
                is_sum = row.row_index == settled.leader
                kept[row.row_index] = settled.leader_raw if is_sum else row.raw

    def entity(kind: str, row: dict[str, Any]) -> Entity | None:
        at = row.get(kind)
        return None if at is None else entities[kind][named[kind, int(at)]]

    data = tally.data - subtotals
    totals = None
    if tally.file_total is not None:
        off = abs(tally.file_total - tally.spend)
        totals = TotalsCheck(tally.file_total, tally.spend, off <= Decimal("0.005") * data)
    return Report(
        encoding=chosen.encoding,
        delimiter=chosen.delimiter,
        header_line=chosen.header_line,
        currency_found=tuple(chosen.currency_found),
        data=data,
        rejected=len(rejects),
        totals_skipped=tally.totals_skipped + subtotals,
        merged=merged,
        identical=identical,
        rejects=tuple(rejects[index] for index in sorted(rejects)),
        others=others,
        campaigns=tuple(entities["campaign"].values()),
        ad_sets=tuple(entities["ad_set"].values()),
        ads=tuple(entities["ad"].values()),
        daily=tuple(
            Daily(
                date=row["date"],
                campaign=entity("campaign", row),
                ad_set=entity("ad_set", row),
                ad=entity("ad", row),
                currency=row["currency"],
                **{metric: row.get(metric) for metric in METRICS},
            )
            for _, row in sorted(kept.items())
        ),
        totals=totals,
        warnings=frozenset(warnings),
    )


def table(
    records: Iterable[Sequence[str]],
    *,
    delimiter: str = ",",
    end: str = "\n",
    quote_all: bool = False,
) -> str:
    """Records as the text of a CSV file."""
    text = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(records)
    return text.getvalue()


def lines(*records: str, end: str = "\n") -> str:
    """Lines as they are, each with its end."""
    return "".join(record + end for record in records)


META = ("Day", "Campaign name", "Campaign ID", "Impressions", "Clicks (all)", "Amount spent (USD)")


def meta(*spends: str, impressions: Sequence[str] = (), delimiter: str = ",") -> str:
    """A plain Meta file in which only the amounts (and impressions) are of interest."""
    shown = list(impressions) or ["10"] * len(spends)
    records = [
        (f"2025-09-{n + 1:02d}", "Kiln", "4711", shown[n], "1", spend) for n, spend in enumerate(spends)
    ]
    return table([META, *records], delimiter=delimiter)


def read_apart(
    data: bytes | str,
    platform: str = "meta",
    currency: str | None = None,
    *,
    max_bytes: int = 1 << 30,
    seconds: int = 3,
    megabytes: int = 512,
) -> Report:
    """Read in a child process that may not use more than so much time and memory.

    What would end the process, or fill the machine, then fails one test only.
    """
    fork = multiprocessing.get_context("fork")
    answers, answer = fork.Pipe(duplex=False)

    def child() -> None:
        with contextlib.suppress(OSError), Path("/proc/self/statm").open() as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
            limit = used + (megabytes << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()
        try:
            answer.send(read(data, platform, currency, max_bytes=max_bytes))
        except BaseException as crash:
            answer.send(f"{type(crash).__name__}: {str(crash)[:200]}")

    process = fork.Process(target=child)
    process.start()
    answer.close()
    try:
        report = answers.recv() if answers.poll(4 * seconds * patience.PATIENCE) else "no answer in time"
    except EOFError:
        process.join()
        report = f"the process died of signal {-(process.exitcode or 0)}"
    finally:
        process.kill()
        process.join()
        answers.close()
    assert isinstance(report, Report), report
    return report


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """What is inside must be over after that time."""
    begun = time.perf_counter()
    yield
    spent = time.perf_counter() - begun
    assert spent < seconds * patience.PATIENCE, f"took {spent:.1f} s, {seconds} s are promised"
