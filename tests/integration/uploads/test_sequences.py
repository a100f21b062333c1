"""Two uploads in a row leave what serial processing leaves, in whatever order they are worked off."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from app.uploads.services import Services
from tests.conftest import CORPUS, corpus_sequences, work_off
from tests.integration.uploads.conftest import WORKSPACE, Uploads

SEQUENCES = corpus_sequences()
OwnerSql = Callable[[str], list[Any]]


def _ids(sequence: dict[str, Any]) -> str:
    return str(sequence["name"])


def _hand_in(uploads: Uploads, step: dict[str, Any]) -> uuid.UUID:
    content = (CORPUS / step["file"]).read_bytes()
    return uploads.pending(content, platform=step["platform"], currency=step["currency"])


def _hold_back(owner_sql: OwnerSql, upload_id: uuid.UUID) -> None:
    owner_sql(f"UPDATE data_uploads SET next_attempt_at = 'infinity' WHERE id = '{upload_id}'")


def _let_go(owner_sql: OwnerSql, upload_id: uuid.UUID) -> None:
    owner_sql(f"UPDATE data_uploads SET next_attempt_at = '-infinity' WHERE id = '{upload_id}'")


@pytest.mark.parametrize("sequence", SEQUENCES, ids=_ids)
def test_uploads_in_order(
    sequence: dict[str, Any], uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    first = _hand_in(uploads, sequence["steps"][0])
    work_off(services)
    assert production(owner_sql) == expected(sequence["after_first"])
    second = _hand_in(uploads, sequence["steps"][1])
    work_off(services)
    _check_final(sequence, owner_sql)
    assert (uploads.show(second).duplicate_of == first) == sequence.get("second_has_duplicate_of", False)


@pytest.mark.parametrize("sequence", SEQUENCES, ids=_ids)
def test_the_later_upload_is_processed_first(
    sequence: dict[str, Any], uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    first = _hand_in(uploads, sequence["steps"][0])
    _hand_in(uploads, sequence["steps"][1])
    _hold_back(owner_sql, first)
    work_off(services)
    _let_go(owner_sql, first)
    work_off(services)
    _check_final(sequence, owner_sql)


@pytest.mark.parametrize("sequence", SEQUENCES, ids=_ids)
@pytest.mark.parametrize("which", [0, 1], ids=["the first", "the second"])
def test_one_upload_is_promoted_twice(
    which: int, sequence: dict[str, Any], uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    ids = [_hand_in(uploads, step) for step in sequence["steps"]]
    work_off(services)
    owner_sql(
        "UPDATE data_uploads SET status = 'staging_complete', slot = 0, finished_at = NULL,"
        f" promoting_type = NULL, promoting_row = -1 WHERE id = '{ids[which]}'"
    )
    work_off(services)
    _check_final(sequence, owner_sql)
    assert owner_sql("SELECT count(*) FROM outbox")[0][0] == 2


def _check_final(sequence: dict[str, Any], owner_sql: OwnerSql) -> None:
    assert production(owner_sql) == expected(sequence["final"])
    for column, values in sequence.get("checks", {}).items():
        if column == "daily_metrics":
            _check_cells(values, owner_sql)
        else:
            table, name = column.split(".")
            assert [v for (v,) in owner_sql(f"SELECT {name} FROM {table} ORDER BY 1")] == values
    if "id_source" in sequence:
        sources = owner_sql("SELECT id_source FROM campaigns UNION ALL SELECT id_source FROM ad_sets")
        assert {source for (source,) in sources} == {"platform"}


def _check_cells(cells: list[dict[str, Any]], owner_sql: OwnerSql) -> None:
    for cell in cells:
        (row,) = owner_sql(
            "SELECT spend, impressions, clicks, conversions, reach FROM daily_metrics m"
            f" JOIN ad_sets a ON a.id = m.ad_set_id WHERE metric_date = '{cell['date']}'"
            f" AND a.external_id = '{cell['ad_set_external_id']}'"
        )
        names = ("spend", "impressions", "clicks", "conversions", "reach")
        wanted = [cell[name] and Decimal(cell[name]) for name in names]
        assert [value and Decimal(value) for value in row] == wanted


SUMS = (
    "SELECT count(*) AS rows, sum(impressions) AS impressions, sum(clicks) AS clicks,"
    " sum(conversions) AS conversions, sum(reach) AS reach, min(metric_date)::text AS min_date,"
    " max(metric_date)::text AS max_date FROM {} WHERE workspace_id = '{}'"
)
NAMES = ("rows", "impressions", "clicks", "conversions", "reach", "min_date", "max_date")


def production(owner_sql: OwnerSql) -> dict[str, Any]:
    """Everything in the production tables, in the corpus's words."""
    found: dict[str, Any] = {
        "entities": {
            table: owner_sql(f"SELECT count(*) FROM {table}")[0][0]
            for table in ("campaigns", "ad_sets", "ads")
        }
    }
    for table in ("daily_metrics", "daily_performance"):
        (row,) = owner_sql(SUMS.format(table, WORKSPACE))
        spend = owner_sql(f"SELECT currency, sum(spend) FROM {table} GROUP BY 1")
        found[table] = {**dict(zip(NAMES, row, strict=True)), "spend": dict(spend)}
    grains = owner_sql("SELECT grain, count(*) FROM daily_metrics GROUP BY 1")
    found["daily_metrics"]["by_grain"] = dict(grains)
    return found


def expected(state: dict[str, Any]) -> dict[str, Any]:
    """The corpus's text numbers as numbers."""
    found = {"entities": state["entities"]}
    for table in ("daily_metrics", "daily_performance"):
        values = dict(state[table])
        values["spend"] = {currency: Decimal(amount) for currency, amount in values["spend"].items()}
        values["conversions"] = values["conversions"] and Decimal(values["conversions"])
        found[table] = values
    return found
