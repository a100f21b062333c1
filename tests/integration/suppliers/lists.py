"""Rules to read a list by, and what reading it has left in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from app.suppliers import config
from tests.integration.suppliers.tree import CONFIG, merged


def rules(**patch: Any) -> config.Config:
    """The usual config but for these values."""
    return config.Config.model_validate(yaml.safe_load(yaml.safe_dump(merged(CONFIG, patch))))


def facts(into: Path) -> list[dict[str, Any]]:
    return _lines(into / "facts.ndjson")


def payloads(into: Path) -> list[dict[str, Any]]:
    return [fact["payload"] for fact in facts(into)]


def bad_rows(into: Path) -> list[dict[str, Any]]:
    return _lines(into / "bad.ndjson")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
