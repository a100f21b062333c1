"""What expressions of PromQL name: metrics, and labels of theirs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

WORDS = {
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "offset",
    "bool",
    "group_left",
    "group_right",
}
_GROUPS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTORS = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}")


def metrics_of(expression: str) -> set[str]:
    """The metrics that the expression is about."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    text = _GROUPS.sub(" ", text)
    text = re.sub(r"\boffset\s+\w+", " ", text)
    names = re.findall(r"(?<![\w:.])([a-zA-Z_:][a-zA-Z0-9_:]*)(?!\s*\()(?![\w:])", text)
    return {name for name in names if name not in WORDS}


def labels_of(expression: str) -> dict[str, set[str]]:
    """The labels by which the expression selects, by metric; under the empty name those that it groups by."""
    plain = re.sub(r'"[^"]*"', '""', expression)
    found: dict[str, set[str]] = {}
    for name, matchers in _SELECTORS.findall(plain):
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
    for group in _GROUPS.findall(plain):
        found.setdefault("", set()).update(label.strip() for label in group.split(",") if label.strip())
    return found


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What Prometheus's own tool says; a machine without it skips the test."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: it is in the Debian package prometheus")
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, timeout=300)
