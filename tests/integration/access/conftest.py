"""The web application on a real database and a real Redis, asked by clients of several workspaces."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import flask
import pytest
import structlog
import werkzeug.test

from app import web
from app.access import keys, principal
from app.access import views as access
from app.adapters import blobs, database, signals
from app.adapters.settings import Settings
from app.kernel.clock import SystemClock
from app.uploads.services import Services
from tests.conftest import KEY, SECRET, RecordedHints, Servers, SetClock
from tests.integration.one_database import database_url  # noqa: F401

OURS = uuid.UUID("aaaaaaaa-0000-4000-8000-000000000001")
THEIRS = uuid.UUID("bbbbbbbb-0000-4000-8000-000000000002")
EVERY_SCOPE = frozenset({"upload", "read", "ops"})
LIST = f"/v1/uploads?workspace_id={OURS}"

_addresses = itertools.count(1)


@dataclass
class Web:
    """One instance's application, and what its tests do with it."""

    app: flask.Flask
    services: Services
    clock: SetClock

    def __post_init__(self) -> None:
        # Failures are counted for each address: every test has one of its own.
        self.address = f"10.{next(_addresses) % 250}.{uuid.uuid4().int % 250}.{uuid.uuid4().int % 250}"

    def client(self, **environ: str) -> Any:
        """A browser or program that keeps its cookies."""
        client = self.app.test_client()
        client.environ_base["REMOTE_ADDR"] = self.address
        client.environ_base.update(environ)
        return client

    def key(
        self,
        workspace_id: uuid.UUID | None = OURS,
        scopes: frozenset[str] = EVERY_SCOPE,
        *,
        expires_days: int | None = None,
    ) -> keys.Key:
        return keys.create(
            self.services.db,
            workspace_id=workspace_id,
            scopes=scopes,
            name="CI",
            created_by="tests",
            expires_days=expires_days,
        )

    def get(self, path: str = LIST, key: str | None = None, **headers: str) -> werkzeug.test.TestResponse:
        given = {"Authorization": f"Bearer {key}"} if key is not None else {}
        return self.client().get(path, headers={**given, **headers})

    def logged_in(self, key: str = KEY, client: Any = None) -> Any:
        """A browser with a session of this key."""
        client = client or self.client()
        assert client.post("/login", data={"key": key}).status_code == 303
        return client

    def later(self, **time: float) -> None:
        self.clock.time += timedelta(**time)


@pytest.fixture(autouse=True)
def no_keys(servers: Servers, database_url: str) -> None:  # noqa: F811
    """No test finds what another one left."""
    servers.sql("WITH ended AS (DELETE FROM sessions) DELETE FROM api_keys", dsn=database_url)


@pytest.fixture(scope="module")
def services(
    servers: Servers,
    database_url: str,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Services]:
    """The services of all tests of a module."""
    folder = tmp_path_factory.mktemp("data")
    settings = Settings(database_url, servers.valkey.url, folder, secret=SECRET, api_key=KEY)
    db = database.Database(database_url, name="tests")
    store = blobs.connect(settings.storage)
    streams = signals.Streams(servers.valkey.url, prefix=f"test-{uuid.uuid4().hex[:8]}:")
    yield Services(settings, db, store, RecordedHints(), streams, SystemClock())
    db.close()


def _several() -> str:
    access.count_uploads(int(flask.request.form["number"]))
    return "taken in"


@pytest.fixture(scope="module")
def applications(services: Services) -> Iterator[Callable[[Settings], flask.Flask]]:
    """The application of these settings, made once for a module."""
    made: dict[Settings, flask.Flask] = {}

    def application(settings: Settings) -> flask.Flask:
        if settings not in made:
            app = made[settings] = web.create_app(settings)
            app.extensions["services"].db.close()
            app.extensions["services"] = services
            # What a page writes into its forms, and what a socket asks before it is opened.
            app.add_url_rule("/page", "page", principal.csrf_token)
            app.add_url_rule("/socket", "socket", lambda: str(principal.same_origin()))
            app.add_url_rule("/several", "several", _several, methods=["POST"])
        return made[settings]

    yield application
    structlog.reset_defaults()


@pytest.fixture
def make_web(services: Services, applications: Callable[[Settings], flask.Flask]) -> Callable[..., Web]:
    """Makes the site of an instance with other settings; its clock stands still."""

    def make(**settings: Any) -> Web:
        chosen = replace(services.settings, **settings)
        app, clock = applications(chosen), SetClock()
        app.extensions["access"] = access.Door(chosen, services.db, clock)
        return Web(app, services, clock)

    return make


@pytest.fixture
def site(make_web: Callable[..., Web]) -> Web:
    """An instance that others can reach."""
    return make_web()
