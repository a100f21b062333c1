"""Rules to read a list by, and what reading it has left in its folder."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from app.suppliers import config
from app.suppliers.extracted import Extracted
from app.suppliers.reading.job import Job, read
from app.suppliers.reading.limits import Limits
from tests.integration.suppliers.tree import CONFIG, merged


def rules(**patch: Any) -> config.Config:
    """The usual config but for these values."""
    return config.Config.model_validate(yaml.safe_load(yaml.safe_dump(merged(CONFIG, patch))))


def read_here(content: bytes, into: Path, *, name: str = "list", **patch: Any) -> Extracted:
    """What the reading process makes of a list, in this process: it takes a tenth of the time."""
    path = into / name
    path.write_bytes(content)
    with tempfile.TemporaryDirectory() as room:
        return read(Job(path, into, rules(**patch), "r", None, Limits(), Path(room), os.getpid()))


def facts(into: Path) -> list[dict[str, Any]]:
    return _lines(into / "facts.ndjson")


def payloads(into: Path) -> list[dict[str, Any]]:
    return [fact["payload"] for fact in facts(into)]


def bad_rows(into: Path) -> list[dict[str, Any]]:
    return _lines(into / "bad.ndjson")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
