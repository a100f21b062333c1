"""The audit log over HTTP: who did what in one workspace, newest first."""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import flask.testing
import pytest

from app.access import principal
from app.access.principal import Principal
from app.uploads.audit import store, views
from app.uploads.audit.actions import ACTIONS
from app.uploads.services import Services
from app.web import create_app
from tests.conftest import BEARER
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.uploads.conftest import GOOD, Uploads

OURS = UUID("11111111-1111-4111-8111-111111111111")
THEIRS = UUID("22222222-2222-4222-8222-222222222222")
START = datetime(2026, 1, 1, tzinfo=UTC)
OwnerSql = Callable[[str], list[Any]]


class Log:
    """Writes entries one minute apart, and asks for them."""

    def __init__(self, services: Services, owner_sql: OwnerSql) -> None:
        app = create_app(replace(services.settings, rate_per_minute=0))
        self.services: Services = app.extensions["services"]
        self.http: flask.testing.FlaskClient = app.test_client()
        self._sql, self._minutes = owner_sql, 0

    def add(self, action: str, *, workspace_id: UUID = OURS, upload_id: UUID | None = None) -> None:
        with self.services.db.transaction("requeue", workspace_id) as conn:
            store.add_audit(conn, workspace_id, upload_id, action=action, owner_id="somebody", why="since")
        at = START + timedelta(minutes=self._minutes)
        self._sql(f"UPDATE audit SET at = '{at}' WHERE id = (SELECT max(id) FROM audit)")
        self._minutes += 1

    def ask(self, **query: Any) -> tuple[int, Any]:
        answer = self.http.get(
            "/v1/audit",
            query_string={"workspace_id": OURS, **query},
            headers=BEARER,
            base_url="http://127.0.0.1",
        )
        return answer.status_code, answer.get_json()

    def actions(self, **query: Any) -> list[str]:
        status, body = self.ask(**query)
        assert status == 200, body
        return [entry["action"] for entry in body["entries"]]


@pytest.fixture
def log(services: Services, owner_sql: OwnerSql) -> Iterator[Log]:
    found = Log(services, owner_sql)
    yield found
    found.services.db.close()


def test_the_story_of_an_upload_is_told_newest_first(log: Log, services: Services) -> None:
    upload_id = Uploads(services).finished(GOOD, workspace_id=OURS)
    status, body = log.ask(upload_id=upload_id)
    assert status == 200
    assert [(e["action"], e["to"]) for e in body["entries"]] == [
        ("moved", "completed"),
        ("moved", "promoting"),
        ("moved", "staging_complete"),
        ("moved", "processing"),
        ("created", "pending"),
    ]
    newest = body["entries"][0]
    assert newest["upload_id"] == str(upload_id)
    assert newest["who"] == services.owner_id
    assert newest["why"] == "3 rows promoted, 0 failed"
    assert body["cursor"] is None


def test_each_filter_leaves_out_what_it_should(log: Log) -> None:
    one, two = uuid.uuid4(), uuid.uuid4()
    log.add("created", upload_id=one)
    log.add("requeued", upload_id=one)
    log.add("webhook_created")
    log.add("created", upload_id=two)
    assert log.actions() == ["created", "webhook_created", "requeued", "created"]
    assert log.actions(upload_id=one) == ["requeued", "created"]
    assert log.actions(action="created") == ["created", "created"]
    assert log.actions(action="created", upload_id=two) == ["created"]
    assert log.actions(**{"from": "2026-01-01T00:02:00Z"}) == ["created", "webhook_created"]
    assert log.actions(to="2026-01-01T00:02:00") == ["requeued", "created"]
    assert log.actions(**{"from": "2026-01-01T01:01:00+01:00", "to": "2026-01-01T00:02:00+00:00"}) == [
        "requeued"
    ]
    assert log.actions(upload_id=uuid.uuid4()) == []


def test_pages_follow_each_other_without_gap_or_overlap(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PAGE_ENTRIES", 2)
    for action in ("created", "moved", "resumed", "released", "requeued"):
        log.add(action)
        log.add("moved", workspace_id=THEIRS)
    pages, cursor = [], ""
    while cursor is not None:
        _, body = log.ask(cursor=cursor)
        pages.append([entry["action"] for entry in body["entries"]])
        cursor = body["cursor"]
    assert pages == [["requeued", "released"], ["resumed", "moved"], ["created"]]


BAD = [
    # parameter, value                                code
    ("workspace_id", "", "invalid_workspace_id"),
    ("workspace_id", "x", "invalid_workspace_id"),
    ("upload_id", "x", "invalid_upload_id"),
    ("action", "createt", "invalid_action"),
    ("from", "yesterday", "invalid_request"),
    ("to", "2026-13-01", "invalid_request"),
    ("cursor", "x", "invalid_cursor"),
    ("cursor", "-1", "invalid_cursor"),
    ("cursor", "9" * 19, "invalid_cursor"),
    ("cursor", "٣", "invalid_cursor"),
]


@pytest.mark.parametrize(("name", "value", "code"), BAD)
def test_a_question_that_makes_no_sense_is_refused(name: str, value: str, code: str, log: Log) -> None:
    status, body = log.ask(**{name: value})
    assert (status, body["code"]) == (422, code)


def let_in(monkeypatch: pytest.MonkeyPatch, *scopes: str) -> None:
    who = Principal("key of ours", OURS, frozenset(scopes))
    monkeypatch.setattr(principal, "current", lambda: who)


def test_the_log_of_another_workspace_is_not_there(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.add("created", workspace_id=THEIRS)
    let_in(monkeypatch, "read")
    assert log.ask(workspace_id=THEIRS)[0] == 404
    assert log.ask() == (200, {"entries": [], "cursor": None})


def test_the_log_needs_the_scope_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    let_in(monkeypatch, "ops", "upload")
    status, body = log.ask()
    assert (status, body["code"]) == (403, "forbidden")


def test_every_action_that_is_written_has_a_meaning() -> None:
    written = set()
    for path in Path("app").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("audit", "add_audit")):
                written |= {
                    keyword.value.value
                    for keyword in node.keywords
                    if keyword.arg == "action" and isinstance(keyword.value, ast.Constant)
                }
    handed_over = {"moved", "resumed", "released", "deferred"}  # by functions of the store
    assert written | handed_over == set(ACTIONS)
