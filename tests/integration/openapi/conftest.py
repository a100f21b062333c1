"""Instances that serve a pipeline and reference data, too, in databases that are empty when a test begins."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.uploads.services import Services
from tests.conftest import Servers

TOKEN_SECRET = "a secret that signs the tokens of this test run"


@pytest.fixture(scope="module")
def pipeline_database_url(servers: Servers) -> Iterator[str]:
    """The pipeline's database of this module."""
    yield from a_database(servers, "pipeline")


@pytest.fixture(scope="module")
def refdata_database_url(servers: Servers) -> Iterator[str]:
    """The database of this module's reference data."""
    yield from a_database(servers, "refdata")


def a_database(servers: Servers, of: str) -> Iterator[str]:
    name = f"{of}_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    yield servers.dsn_of(name)
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def refdata_config(tmp_path: Path) -> Path:
    """The configuration of reference data, with topics of the test's own."""
    path = tmp_path / "refdata.yaml"
    text = (Path(__file__).parent / "refdata.yaml").read_text(encoding="utf-8")
    path.write_text(
        text.replace(": refdata.commands", f": {uuid.uuid4().hex[:10]}.commands"), encoding="utf-8"
    )
    return path


@pytest.fixture
def services(
    services: Services, servers: Servers, pipeline_database_url: str, refdata_database_url: str,
    refdata_config: Path, monkeypatch: pytest.MonkeyPatch,
) -> Services:  # fmt: skip
    """The services, with settings that name a pipeline's database and reference data; an application makes
    the tables of both."""
    servers.sql("DROP TABLE IF EXISTS pipeline_tracking, pipeline_history", dsn=pipeline_database_url)
    servers.sql("DROP SCHEMA IF EXISTS refdata CASCADE", dsn=refdata_database_url)
    monkeypatch.setenv("HEADWORKS_REFDATA_DATABASE_URL", refdata_database_url)
    monkeypatch.setenv("HEADWORKS_BROKER_URL", services.settings.broker_url)
    monkeypatch.setenv("REFDATA_TOKEN_SECRET", TOKEN_SECRET)
    settings = replace(
        services.settings, pipeline_database_url=pipeline_database_url, refdata_config=str(refdata_config)
    )
    return replace(services, settings=settings)
