"""The OpenAPI document of the whole instance, put together from the subsystems' parts."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import yaml

HOUSE = "house.yaml"
"""The part that all others build on; what stands in it comes first."""


class ToldTwice(ValueError):
    """Two parts of the document say the same thing, each in its own way."""


@cache
def as_json() -> bytes:
    """The document as it is served."""
    return json.dumps(whole(), ensure_ascii=False, separators=(",", ":")).encode()


def whole() -> dict[str, Any]:
    """The document; ToldTwice when two parts claim the same path, schema or name."""
    found: dict[str, Any] = {}
    files = (file for file in resources.files(__package__).iterdir() if file.name.endswith(".yaml"))
    for file in sorted(files, key=lambda file: (file.name != HOUSE, file.name)):
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
