"""The wheel of this checkout, built as the image builds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("app", "workers", "sql")
FILES = ("celeryconfig.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
"""With the folders, all that the wheel is made from; the image copies the same."""


def sources() -> set[str]:
    """Every file of the product that is there at run time."""
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return found | {"celeryconfig.py"}


def build(into: Path) -> Path:
    """The wheel is in the folder. Nothing is fetched, and the checkout stays as it was."""
    checkout = into / "checkout"
    checkout.mkdir()
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copyfile(ROOT / name, checkout / name)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into), str(checkout))
    (found,) = into.glob("headworks-*.whl")
    return found


def install(wheel: Path, into: Path) -> None:
    """The wheel alone is in the folder; what it needs is that of this environment."""
    _pip("install", "--no-deps", "--no-compile", "--target", str(into), str(wheel))


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", arguments[0], "--quiet", "--no-index", *arguments[1:]]
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
