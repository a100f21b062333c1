"""What a process writes to its log, as whoever gathers it sees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from app.adapters import logs

Lines = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """The lines since the last call, of modules whose name begins so."""
    before = structlog.get_config()
    logs.configure("worker")

    def read(module: str) -> list[dict[str, Any]]:
        written = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line[:1] == "{"]
        return [line for line in written if line.get("module", "").startswith(module)]

    yield read
    structlog.contextvars.clear_contextvars()
    structlog.configure(**before)


def without(found: list[dict[str, Any]], *fields: str) -> list[dict[str, Any]]:
    """The lines in which one of these fields is missing or null."""
    return [line for line in found if any(line.get(field) is None for field in fields)]
