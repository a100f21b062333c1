"""A dry run over HTTP: the answer of an upload, and nothing that was stored."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Api, Problem, RunningFleet, multipart
from tests.conftest import CORPUS, Servers

FILE = CORPUS / "tiktok" / "en_just_under_90_percent.csv"
SAME = ("platform", "status", "error_code", "error_text", "rows", "reject_codes", "first_reject", "report")


def send(api: Api, content: bytes, **fields: str) -> tuple[int, Any]:
    body, content_type = multipart(content, {"source": "manual", **fields})
    status, _, text = api.send("/v1/uploads", body, {"Content-Type": content_type})
    return status, json.loads(text)


def stored(fleet: RunningFleet, servers: Servers, workspace: str) -> tuple[int, int]:
    ((rows,),) = servers.sql(
        f"SELECT count(*) FROM data_uploads WHERE workspace_id = '{workspace}'", dsn=fleet.dsn
    )
    files = Path(fleet.data / "files" / "uploads" / workspace)
    return rows, len(list(files.glob("*"))) if files.exists() else 0


def test_a_dry_run_answers_as_the_upload_does_and_stores_nothing(
    fleet: RunningFleet, servers: Servers
) -> None:
    workspace = str(uuid.uuid4())
    fields = {"workspace_id": workspace, "platform": "tiktok", "currency": "USD"}
    status, found = send(fleet.api, FILE.read_bytes(), dry_run="true", **fields)
    assert (status, found["dry_run"], found["error_code"]) == (200, True, "too_many_rejects")
    assert "upload_id" not in found
    assert stored(fleet, servers, workspace) == (0, 0)

    _, created = send(fleet.api, FILE.read_bytes(), dry_run="false", **fields)
    upload = fleet.api.finished(created["upload_id"])
    assert {name: found[name] for name in SAME} == {name: upload[name] for name in SAME}
    rejected = fleet.api.get(f"/v1/uploads/{created['upload_id']}/errors")["errors"]
    assert found["errors"] == rejected[: len(found["errors"])]
    assert stored(fleet, servers, workspace) == (1, 1)


def test_a_dry_run_takes_rows_in_a_json_body(fleet: RunningFleet) -> None:
    rows = [{"campaign_id": "1", "campaign_name": "A", "date_start": "2025-05-01", "date_stop": "2025-05-01",
             "impressions": "x", "spend": "1.00", "account_currency": "USD"}]  # fmt: skip
    body = {"workspace_id": str(uuid.uuid4()), "platform": "meta", "dry_run": True, "rows": rows}
    found = fleet.api.post_json("/v1/uploads", body)
    assert (found["status"], found["reject_codes"]) == ("failed", {"invalid_number": 1})


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"platform": "orkut"}, "invalid_platform"), ({"currency": "XYZ"}, "invalid_currency")],
)
def test_a_dry_run_of_a_wrong_request_is_refused(
    fields: dict[str, str], code: str, fleet: RunningFleet
) -> None:
    with pytest.raises(Problem) as refused:
        send(
            fleet.api,
            FILE.read_bytes(),
            **{"workspace_id": str(uuid.uuid4()), "platform": "tiktok", "dry_run": "1", **fields},
        )
    assert refused.value.body["code"] == code
