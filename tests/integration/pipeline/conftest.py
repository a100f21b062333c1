"""The pipeline alone, over HTTP, with a database of its own that is empty at the beginning of each test."""

from __future__ import annotations

import json
import threading
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import urllib3
from werkzeug import serving

from app.adapters.settings import Settings
from app.pipeline.serve import create_app
from app.pipeline.store import Pipeline
from tests.conftest import Servers


@dataclass
class Api:
    """A running pipeline, and what its database says."""

    url: str
    database_url: str
    pool: urllib3.PoolManager
    store: Pipeline

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, **query: Any
    ) -> urllib3.BaseHTTPResponse:
        """The whole answer. A body that is bytes is sent as it is."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        address = self.url + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        return self.pool.request(
            method, address, body=content, headers={"Content-Type": "application/json", **(headers or {})}
        )

    def call(self, method: str, path: str, body: Any = None, status: int = 200, **query: Any) -> Any:
        """The body of the answer, which has this status."""
        answer = self.ask(method, path, body, **query)
        assert answer.status == status, (answer.status, answer.data)
        return json.loads(answer.data)

    def sweep(self) -> None:
        """Leases that have run out are taken back now, and not within a second."""
        self.store.return_expired()

    def sql(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """What the database says."""
        connection = psycopg2.connect(self.database_url, connect_timeout=5)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            connection.close()


class Quiet(serving.WSGIRequestHandler):
    """Says nothing of each request, and keeps connections open."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def served(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The module's pipeline."""
    name = f"pipeline_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    settings = Settings(
        database_url="", broker_url="", data_dir=Path(), bind="127.0.0.1:0",
        pipeline_database_url=servers.dsn_of(name),
    )  # fmt: skip
    app = create_app(settings)
    server = serving.make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    pool = urllib3.PoolManager(maxsize=16, retries=False, timeout=30)
    yield Api(
        f"http://127.0.0.1:{server.server_port}/api/v1/pipeline",
        settings.pipeline_database_url,
        pool,
        app.extensions["pipeline"].pipeline,
    )
    pool.clear()
    server.shutdown()
    server.server_close()
    app.extensions["pipeline"].pipeline.db.close()
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def pipeline(served: Api) -> Api:
    """The pipeline without a task."""
    served.sql("TRUNCATE pipeline_tracking, pipeline_history")
    return served
