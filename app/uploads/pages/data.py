"""The page of the data: spend, impressions and clicks by day and platform."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import flask

from app.kernel import errors
from app.uploads import parameters, questions, store
from app.uploads.pages import chart, figures, site, words
from app.uploads.pages.site import blueprint

DAYS = 31
MOST_DAYS = 731
MOST_ROWS = 10_000
METRICS = {"spend": "Spend", "impressions": "Impressions", "clicks": "Clicks"}


@dataclass(frozen=True, slots=True)
class Total:
    """What a platform's rows of one currency add up to."""

    platform: str
    currency: str
    spend: Decimal | None
    impressions: int | None
    clicks: int | None


@dataclass(frozen=True, slots=True)
class Drawn:
    """One chart with its heading."""

    title: str
    chart: chart.Chart | None
    platforms: tuple[str, ...]


@blueprint.get("/data")
def data_page() -> str:
    """Charts of one metric, one for each currency, and all numbers in a table below."""
    place = site.place()
    query = flask.request.args
    metric = query.get("metric") or "spend"
    if metric not in METRICS:
        raise errors.Refused(f"`metric` is one of {', '.join(METRICS)}.")
    filters = {"client_id": parameters.uuid(query, "client_id"), "platform": parameters.platform(query)}
    rows: list[Any] = []
    clients: list[Any] = []
    days: tuple[date | None, date | None] = (None, None)
    span: Any = None
    asked = (parameters.day(query, "from"), parameters.day(query, "to"))
    _check_range(*asked)
    if place.workspace_id is not None:
        with site.services().db.transaction("read", place.workspace_id) as conn:
            span = questions.performance_span(conn, **filters)
            days = _days(*asked, span)
            clients = questions.clients(conn)
            if span.last_day:
                rows = store.performance(
                    conn, by=["day", "platform"], **filters, from_date=days[0], to_date=days[1],
                    limit=MOST_ROWS,
                )  # fmt: skip
    return site.render(
        "data.html",
        place,
        metric=metric,
        metrics=METRICS,
        rows=rows,
        totals=totals(rows),
        drawings=drawings(rows, metric),
        clients=clients,
        days=days,
        span=span,
        earliest=_earliest(span),
        whole=_is_whole(days, span),
        given=query,
        kept={name: value for name in ("client_id", "platform", "from", "to") if (value := query.get(name))},
    )


def _check_range(first: date | None, last: date | None) -> None:
    if first and last and (last - first).days >= MOST_DAYS:
        raise errors.Refused("Ask for two years at most.", code="invalid_range")


def _days(first: datetime | None, last: datetime | None, span: Any) -> tuple[date | None, date | None]:
    """The days that are asked for; without a wish the last month that there is data about."""
    until = last.date() if last else span.last_day
    since = (
        first.date() if first else max(span.first_day, until - timedelta(days=DAYS - 1)) if until else None
    )
    _check_range(since, until)
    return since, until


def _earliest(span: Any) -> date | None:
    """From which day on all data can be shown at once."""
    if span is None or span.last_day is None:
        return None
    earliest: date = max(span.first_day, span.last_day - timedelta(days=MOST_DAYS - 1))
    return earliest


def _is_whole(days: tuple[date | None, date | None], span: Any) -> bool:
    """Whether these days are all that can be shown at once."""
    since, until = days
    earliest = _earliest(span)
    return not (earliest and since and until) or bool(since <= earliest and until >= span.last_day)


def totals(rows: Iterable[Any]) -> list[Total]:
    """For each platform and currency the sums; a sum of nothing but unknown numbers is unknown."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        groups.setdefault((row.platform, row.currency), []).append(row)
    return [
        Total(platform, currency, _sum(group, "spend"), _sum(group, "impressions"), _sum(group, "clicks"))
        for (platform, currency), group in sorted(groups.items())
    ]


def _sum(rows: list[Any], name: str) -> Any:
    values = [value for row in rows if (value := getattr(row, name)) is not None]
    return sum(values) if values else None


def drawings(rows: list[Any], metric: str) -> list[Drawn]:
    """The charts: amounts of each currency by themselves, counts of all rows together."""
    if not rows:
        return []
    days = min(row.day for row in rows), max(row.day for row in rows)  # of all charts, to compare them
    if metric != "spend":
        return [_drawing(rows, metric, days=days)]
    return [
        _drawing([row for row in rows if row.currency == currency], metric, days=days, currency=currency)
        for currency in sorted({row.currency for row in rows})
    ]


def _drawing(rows: list[Any], metric: str, *, days: tuple[date, date], currency: str = "") -> Drawn:
    values: dict[tuple[date, str], Decimal] = {}
    for row in rows:
        value = getattr(row, metric)
        if value is not None:
            key = (row.day, row.platform)
            values[key] = values.get(key, Decimal(0)) + value
    platforms = tuple(name for name in words.PLATFORMS if any(name == platform for _, platform in values))

    def show(platform: str, value: Decimal) -> str:
        text = f"{figures.amount(value, currency)} {currency}" if currency else figures.number(value)
        return f"{words.PLATFORMS[platform]} {text}"

    title = f"{METRICS[metric]} in {currency}" if currency else METRICS[metric]
    return Drawn(title, chart.draw(values, platforms, days=days, show=show), platforms)
