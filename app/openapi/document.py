"""The OpenAPI document of an application, put together from the parts of what it serves."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import yaml

INSTANCE = ("house", "instance", "audit", "uploads", "webhooks")
"""The parts of every instance."""

PIPELINE = ("pipeline",)
"""Besides, where a pipeline is served."""

REFDATA = ("refdata", "refdata-reads")
"""Besides, where reference data is served. Its reads are answered by other processes: `servers` of their
paths say where."""

PIPELINE_ALONE = ("house", "pipeline_alone", *PIPELINE)
"""The parts of a server of the pipeline alone."""


class ToldTwice(ValueError):
    """Two parts of the document say the same thing, each in its own way."""


@cache
def as_json(parts: tuple[str, ...]) -> bytes:
    """The document of these parts as it is served."""
    return json.dumps(whole(*parts), ensure_ascii=False, separators=(",", ":")).encode()


def whole(*parts: str) -> dict[str, Any]:
    """The document of these parts; ToldTwice when two of them claim the same path, schema or name."""
    found: dict[str, Any] = {}
    for part in parts:
        file = resources.files(__package__).joinpath(f"{part}.yaml")
        merge(found, yaml.safe_load(file.read_text(encoding="utf-8")))
    return found


def merge(whole: dict[str, Any], part: dict[str, Any], at: str = "#") -> None:
    """The whole has what the part has, too: objects are merged, lists are added up."""
    for name, value in part.items():
        place = f"{at}/{name}"
        if name not in whole:
            whole[name] = value
        elif isinstance(value, list) and isinstance(whole[name], list):
            whole[name] = [*whole[name], *value]
        elif isinstance(value, dict) and isinstance(whole[name], dict) and at in ("#", "#/components"):
            merge(whole[name], value, place)
        else:
            raise ToldTwice(f"{place} stands in two parts of the document.")
