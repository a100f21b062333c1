"""The registry of reason codes: what each means, and what the supplier should do about it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Code:
    """One reason, in words."""

    code: str
    kind: str  # fail, bad, skipped or alert
    meaning: str
    supplier_action: str
    supplier_action_ru: str
    stage: str | None = None  # of a fail: config, gate, dq or publish


@functools.cache
def registry() -> Mapping[str, Code]:
    """Every code there is, by its name."""
    import yaml  # only where a list is refused or shown: not in the process that reads one

    text = Path(__file__).with_name("reason_codes.yaml").read_text(encoding="utf-8")
    found = {
        name: Code(name, entry.pop("class"), **entry) for name, entry in yaml.safe_load(text)["codes"].items()
    }
    return MappingProxyType(found)


def of_kind(code: str, kind: str) -> Code:
    """The code, which is of this kind; KeyError for an unknown one: nobody else may invent codes."""
    found = registry()[code]
    if found.kind != kind:
        raise KeyError(f"{code} is no {kind} code")
    return found
