"""The addresses of the web, for whatever names some of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import werkzeug.routing

from app import web
from app.adapters.settings import Settings
from tests.conftest import KEY, SECRET, Servers


@pytest.fixture
def routes(servers: Servers, database_url: str, tmp_path: Path) -> werkzeug.routing.Map:
    """Those of an instance that has everything."""
    settings = Settings(
        database_url=database_url, broker_url=servers.valkey.url, data_dir=tmp_path, secret=SECRET,
        api_key=KEY, pipeline_database_url=database_url,
    )  # fmt: skip
    return web.create_app(settings).url_map
