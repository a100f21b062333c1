"""Every report of the corpus, through the real endpoint and real workers, leads to its result."""

from __future__ import annotations

import hashlib
import uuid
from decimal import Decimal
from typing import Any

import pytest

from tests.acceptance.conftest import Problem, RunningFleet
from tests.conftest import CORPUS, Servers, corpus_cases

CASES = corpus_cases()
# A narrower name of the same family of encodings is equal (the corpus's README).
FAMILIES = {"shift_jis": "cp932", "gbk": "gb18030", "windows-1252": "cp1252", "ascii": "utf-8"}


@pytest.fixture(scope="module")
def outcomes(fleet: RunningFleet) -> dict[str, Any]:
    """What became of each file, all of them handed in at once, each in a workspace of its own."""
    sent = {case["file"]: _hand_in(fleet, case) for case in CASES}
    return {
        name: outcome if outcome["status"] == "failed" else fleet.api.finished(outcome["upload_id"])
        for name, outcome in sent.items()
    }


def _hand_in(fleet: RunningFleet, case: dict[str, Any]) -> dict[str, Any]:
    workspace_id = str(uuid.uuid5(uuid.NAMESPACE_URL, case["file"]))
    content = (CORPUS / case["file"]).read_bytes()
    try:
        answer = fleet.api.upload(
            content,
            workspace_id=workspace_id,
            platform=case["platform"],
            currency=case["currency"],
            filename=case["file"].rsplit("/")[-1],
        )
    except Problem as refusal:  # a refusal at intake counts as failed
        assert refusal.body["detail"]
        return {"status": "failed", "error_code": refusal.body["code"], "report": {}, "refused": True}
    assert answer["status"] == "pending"
    return {**answer, "workspace_id": workspace_id}


def _ids(case: dict[str, Any]) -> str:
    return str(case["file"])


@pytest.mark.parametrize("case", CASES, ids=_ids)
def test_the_bytes_of_the_corpus_are_untouched(case: dict[str, Any]) -> None:
    assert hashlib.sha256((CORPUS / case["file"]).read_bytes()).hexdigest() == case["sha256"]


@pytest.mark.parametrize("case", CASES, ids=_ids)
def test_a_report_ends_as_expected(case: dict[str, Any], outcomes: dict[str, Any]) -> None:
    upload = outcomes[case["file"]]
    assert (upload["status"], upload["error_code"]) == (case["outcome"], case["fail_code"])


@pytest.mark.parametrize("case", [c for c in CASES if c["rows"]], ids=_ids)
def test_every_row_is_accounted_for(case: dict[str, Any], outcomes: dict[str, Any]) -> None:
    upload = outcomes[case["file"]]
    expected = {
        name: count
        for name, count in case["rows"].items()
        if f"rows.{name}" not in case.get("not_compared", [])
    }
    assert {name: upload["rows"][name] for name in expected} == expected
    assert upload["reject_codes"] == case["reject_codes"]
    assert upload["first_reject"] == case["first_reject"]


@pytest.mark.parametrize("case", [c for c in CASES if c["outcome"] == "completed"], ids=_ids)
def test_what_was_recognised_is_reported(case: dict[str, Any], outcomes: dict[str, Any]) -> None:
    report = outcomes[case["file"]]["report"]
    compared = ("encoding", "delimiter", "header_line", "currency_found")
    found = {name: report[name] for name in compared}
    found["encoding"] = FAMILIES.get(found["encoding"], found["encoding"])
    assert found == {name: case[name] for name in compared}
    assert set(case.get("warnings", [])) <= set(report["warnings"])
    assert len(report["warnings"]) == len(report["warning_texts"])


@pytest.mark.parametrize("case", [c for c in CASES if c["rows"]], ids=_ids)
def test_the_files_own_total_is_checked(case: dict[str, Any], outcomes: dict[str, Any]) -> None:
    if "totals_check" not in case.get("not_compared", []):
        found = outcomes[case["file"]]["report"]["totals_check"]
        assert _numbers(found) == _numbers(case["totals_check"])


def _numbers(check: dict[str, Any] | None) -> Any:
    return check and (Decimal(check["file_total"]), Decimal(check["row_sum"]), check["matches"])


@pytest.mark.parametrize("case", CASES, ids=_ids)
def test_the_production_tables_hold_the_right_numbers(
    case: dict[str, Any], outcomes: dict[str, Any], servers: Servers, fleet: RunningFleet
) -> None:
    workspace_id = uuid.uuid5(uuid.NAMESPACE_URL, case["file"])
    found = production(servers, fleet.dsn, workspace_id)
    assert found["entities"] == case["entities"]
    expected = {**case["daily"], "spend": {c: Decimal(s) for c, s in case["daily"]["spend"].items()}}
    expected["conversions"] = case["daily"]["conversions"] and Decimal(case["daily"]["conversions"])
    assert found["daily"] == expected


@pytest.mark.parametrize("case", [c for c in CASES if "must_contain" in c], ids=_ids)
def test_texts_and_ids_are_stored_exactly(
    case: dict[str, Any], outcomes: dict[str, Any], servers: Servers, fleet: RunningFleet
) -> None:
    workspace_id = uuid.uuid5(uuid.NAMESPACE_URL, case["file"])
    for column, values in case["must_contain"].items():
        table, name = column.split(".")
        stored = servers.sql(
            f"SELECT {name} FROM {table} WHERE workspace_id = '{workspace_id}'", dsn=fleet.dsn
        )
        assert set(values) <= {value for (value,) in stored}


@pytest.mark.parametrize("case", [c for c in CASES if c["reject_codes"]], ids=_ids)
def test_every_rejected_row_is_explained(
    case: dict[str, Any], outcomes: dict[str, Any], fleet: RunningFleet
) -> None:
    upload = outcomes[case["file"]]
    rows: list[Any] = []
    page = fleet.api.get(f"/v1/uploads/{upload['upload_id']}/errors")
    rows += page["errors"]
    while page["cursor"]:
        page = fleet.api.get(f"/v1/uploads/{upload['upload_id']}/errors", cursor=page["cursor"])
        rows += page["errors"]
    assert len(rows) == case["rows"]["rejected"]
    for row in rows:
        assert row["code"] in case["reject_codes"]
        assert any(row["cells"])
        assert all(error["message"] for error in row["errors"])
        assert case["file"].endswith(".json") or row["line"] > 0


def production(servers: Servers, dsn: str, workspace_id: uuid.UUID) -> dict[str, Any]:
    """What a workspace has in the production tables, in the corpus's words."""

    def ask(statement: str) -> list[Any]:
        return servers.sql(statement.format(f"workspace_id = '{workspace_id}'"), dsn=dsn)

    entities = {
        table: ask(f"SELECT count(*) FROM {table} WHERE {{}}")[0][0]
        for table in ("campaigns", "ad_sets", "ads")
    }
    (row,) = ask(
        "SELECT count(*), sum(impressions), sum(clicks), sum(conversions), sum(reach), min(metric_date),"
        " max(metric_date), max(array_position(ARRAY['campaign', 'ad_set', 'ad'], grain))"
        " FROM daily_metrics WHERE {}"
    )
    spend = ask("SELECT currency, sum(spend) FROM daily_metrics WHERE {} AND spend IS NOT NULL GROUP BY 1")
    names = ("rows", "impressions", "clicks", "conversions", "reach", "min_date", "max_date", "grain")
    daily = dict(zip(names, row, strict=True))
    for name in ("min_date", "max_date"):
        daily[name] = daily[name] and daily[name].isoformat()
    daily["grain"] = daily["grain"] and ("campaign", "ad_set", "ad")[daily["grain"] - 1]
    return {"entities": entities, "daily": {**daily, "spend": dict(spend)}}
