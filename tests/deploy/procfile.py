"""The Procfile as the one list of processes: what else starts them has to start the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from honcho.environ import parse_procfile

ROOT = Path(__file__).parent.parent.parent
LINES: dict[str, str] = dict(parse_procfile((ROOT / "Procfile").read_text(encoding="utf-8")).processes)


def command(process: str, environment: Mapping[str, str]) -> list[str]:
    """The words of its line, with the variables of this environment; KeyError for one that it has not."""
    return filled(shlex.split(LINES[process]), r"\$(\w+)", environment)


def filled(words: Iterable[str], pattern: str, environment: Mapping[str, str]) -> list[str]:
    """The words, with the variable that the pattern's group names in place of each match."""
    return [re.sub(pattern, lambda match: environment[match[1]], word) for word in words]


def variables() -> set[str]:
    """The variables that lines name."""
    return {name for line in LINES.values() for name in re.findall(r"\$(\w+)", line)}
