"""Nobody sees another workspace's uploads on a page, and nobody does what they may not."""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Callable, Iterator

import flask
import flask.testing
import pytest

from app import web
from app.access import keys
from app.uploads import intake
from app.uploads.services import Services
from tests.conftest import work_off

OURS, THEIRS = uuid.UUID(int=1), uuid.UUID(int=2)
REPORT = b"Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)\n2025-05-01,Spring,101,many,1\n"
PAGE = {"Accept": "text/html"}


@pytest.fixture
def theirs(services: Services) -> uuid.UUID:
    """An upload of another workspace."""
    found = intake.take_in(services, intake.Request(THEIRS, "meta", "manual"), io.BytesIO(REPORT))
    work_off(services)
    return found.upload_id


@pytest.fixture
def app(services: Services) -> Iterator[flask.Flask]:
    found = web.create_app(services.settings)
    made = found.extensions["services"]
    found.extensions["services"] = services
    yield found
    made.db.close()


Entered = Callable[..., flask.testing.FlaskClient]


@pytest.fixture
def entered(app: flask.Flask, services: Services) -> Entered:
    """A browser whose session is of a key of this workspace and these scopes; forms name their page."""

    def enter(workspace_id: uuid.UUID, *scopes: str) -> flask.testing.FlaskClient:
        key = keys.create(
            services.db, workspace_id=workspace_id, scopes=frozenset(scopes), name="test", created_by="tests"
        )
        client = app.test_client()
        assert client.post("/login", data={"key": key.text}).status_code == 303
        return client

    return enter


@pytest.fixture
def ours(entered: Entered) -> flask.testing.FlaskClient:
    return entered(OURS, "upload", "read", "ops")


def token(client: flask.testing.FlaskClient) -> str:
    """What the forms of this session send along."""
    found = re.search(r'name="csrf_token" value="(\w+)"', client.get("/", headers=PAGE).text)
    return found[1] if found else ""


def routes(app: flask.Flask) -> list[tuple[str, str]]:
    """Method and path of everything that the pages and the live state serve."""
    return [
        (method, rule.rule)
        for rule in app.url_map.iter_rules()
        if rule.endpoint.startswith(("pages.", "live.")) and not rule.websocket
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    ]


def test_another_workspaces_upload_is_nowhere(
    app: flask.Flask, ours: flask.testing.FlaskClient, theirs: uuid.UUID
) -> None:
    about = [(method, path) for method, path in routes(app) if "upload_id" in path]
    assert len(about) >= 6
    for method, path in about:
        answer = ours.open(
            path.replace("<uuid:upload_id>", str(theirs)),
            method=method,
            headers=PAGE,
            data={"reason": "x", "csrf_token": token(ours)} if method == "POST" else None,
        )
        assert answer.status_code == 404, path
        assert b"Spring" not in answer.data and b"many" not in answer.data


def test_another_workspace_cannot_be_chosen(app: flask.Flask, ours: flask.testing.FlaskClient) -> None:
    for path in ("/", "/uploads", "/data", "/templates"):
        assert ours.get(f"{path}?workspace_id={THEIRS}", headers=PAGE).status_code == 404, path
        assert ours.get(path, headers=PAGE).status_code == 200, path
    form = {
        "workspace_id": str(THEIRS),
        "file": (io.BytesIO(REPORT), "a.csv"),
        "csrf_token": token(ours),
    }
    assert ours.post("/uploads", data=form, headers=PAGE).status_code == 404


def test_the_workspaces_of_others_are_not_named(ours: flask.testing.FlaskClient, theirs: uuid.UUID) -> None:
    for path in ("/", "/uploads", "/data", "/templates"):
        text = ours.get(path, headers=PAGE).text
        assert str(THEIRS) not in text and str(theirs) not in text


def test_an_upload_lands_in_ones_own_workspace(ours: flask.testing.FlaskClient, services: Services) -> None:
    form = {"file": (io.BytesIO(REPORT), "a.csv"), "csrf_token": token(ours)}
    answer = ours.post("/uploads", data=form, headers=PAGE)
    assert answer.status_code == 303
    assert ours.get(answer.location, headers=PAGE).status_code == 200


def test_who_may_only_read_uploads_and_requeues_nothing(entered: Entered, theirs: uuid.UUID) -> None:
    reader = entered(THEIRS, "read")
    page = reader.get(f"/uploads/{theirs}", headers=PAGE)
    assert page.status_code == 200 and "Requeue</button>" not in page.text
    for path in (f"/uploads/{theirs}/requeue", f"/uploads/{theirs}/again", "/uploads"):
        form = {"file": (io.BytesIO(REPORT), "a.csv"), "reason": "x", "csrf_token": token(reader)}
        answer = reader.post(path, data=form, headers=PAGE)
        assert (answer.status_code, "scope" in answer.text) == (403, True), path


def test_who_may_not_read_sees_nothing(entered: Entered, theirs: uuid.UUID) -> None:
    nobody = entered(THEIRS, "upload")
    for path in ("/uploads", "/data", f"/uploads/{theirs}", f"/v1/uploads/{theirs}/progress"):
        assert nobody.get(path, headers=PAGE).status_code == 403, path


def test_the_pages_run_nothing_from_elsewhere(ours: flask.testing.FlaskClient) -> None:
    for path in ("/", "/uploads", "/data", "/templates", "/nowhere"):
        answer = ours.get(path, headers=PAGE)
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self';") and "unsafe" not in policy
        assert "<style" not in answer.text and "style=" not in answer.text and "<script>" not in answer.text
