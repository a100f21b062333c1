"""What is fuzzed: a promise about any bytes, examples to begin from, and words worth putting in."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "corpus" / "ads"
SAMPLES = ROOT / "docs" / "samples"

NAMES = (
    "report", "cells", "list_text", "list_workbook", "list_xls", "canonical", "commands", "addresses",
    "tokens",
    "requests", "answers", "configs",
)  # fmt: skip
"""Each is a module of `targets` with one TARGET."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser. `check` returns for any bytes at all; whatever it raises is a finding."""

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[bytes, ...] = ()
    most_bytes: int = 16 * 1024


def load(name: str) -> Target:
    """The target of this name."""
    found: Target = importlib.import_module(f"tests.fuzz.targets.{name}").TARGET
    return found


def beginnings(paths: Iterable[Path], most_bytes: int) -> Iterable[bytes]:
    """The first lines of each file, up to so many bytes."""
    for path in sorted(paths):
        content = path.read_bytes()
        if len(content) > most_bytes:
            content = content[: content.rfind(b"\n", 0, most_bytes) + 1] or content[:most_bytes]
        yield content
