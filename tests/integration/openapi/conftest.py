"""Instances that serve a pipeline, too, whose own database is empty at the beginning of each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.uploads.services import Services
from tests.conftest import Servers


@pytest.fixture(scope="module")
def pipeline_database_url(servers: Servers) -> Iterator[str]:
    """The pipeline's database of this module."""
    name = f"pipeline_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    yield servers.dsn_of(name)
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def services(services: Services, servers: Servers, pipeline_database_url: str) -> Services:
    """The services, with settings that name a pipeline's database; an application makes its tables."""
    servers.sql("DROP TABLE IF EXISTS pipeline_tracking, pipeline_history", dsn=pipeline_database_url)
    return replace(services, settings=replace(services.settings, pipeline_database_url=pipeline_database_url))
