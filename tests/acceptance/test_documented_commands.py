"""Every command of the documentation is typed, page by page, at an instance of `./scripts/up`.

It is that of a copy of the checkout, in a folder with a blank in its name, and finds an environment, so that
nothing is installed. What a page shows as output is what was printed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.adapters import embedded
from tests import documents
from tests.documents import PAGES, ROOT, Block

READY_SECONDS = 120.0
PAGE_SECONDS = 300.0
NOT_COPIED = (".git", ".venv", "var", "*.egg-info", ".*_cache", ".hypothesis", "build", "dist")
FROM_NOTHING = {"docs/tutorial.md"}
"""Pages whose reader's shell knows nothing of the instance but the folder that it is in."""

EXTRAS = "catalog,embedded,pgvector,test"


@dataclass(frozen=True)
class Checkout:
    """A copy of the checkout, and the instance that runs in it."""

    folder: Path
    port: int
    printed: str  # by ./scripts/up until it served

    def environment(self) -> dict[str, str]:
        """What a reader's shell has: of the instance nothing at first."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWORKS_")}
        return kept | {
            "PATH": f"{self.folder / '.venv' / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": "",
            "PYTHONUNBUFFERED": "1",  # what goes to stdout and to stderr comes in its order
            "LC_ALL": "C.UTF-8",
        }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    folder = tmp_path_factory.mktemp("documented") / "a checkout"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    prepare_environment(folder)
    port = embedded.free_port()
    said = folder.parent / "up.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            ["./scripts/up", "--port", str(port)], cwd=folder, stdout=output, stderr=output,
            env=Checkout(folder, port, "").environment() | {"PYTHON": sys.executable}, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + READY_SECONDS
        while "Ctrl-C stops everything" not in said.read_text():
            assert process.poll() is None and time.monotonic() < deadline, said.read_text()
            time.sleep(0.1)
        yield Checkout(folder, port, said.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, said.read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def prepare_environment(folder: Path) -> None:
    """`.venv` of the copy: the packages of this one, and the copy's own code before them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    (packages / "checkout.pth").write_text("\n".join([str(folder), *site.getsitepackages()]) + "\n")
    program = folder / ".venv" / "bin" / "headworks"
    program.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m app.cli "$@"\n')
    program.chmod(0o755)
    # As scripts/env leaves it behind once it has installed everything.
    functions = folder / "scripts" / "functions-of-env"
    *lines, last = (folder / "scripts" / "env").read_text().splitlines()
    assert last == 'enter_environment "$1"'
    functions.write_text("\n".join(lines))
    stamp = subprocess.run(
        ["bash", "-c", '. scripts/functions-of-env && fingerprint "$(find_python)"'], cwd=folder,
        env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    functions.unlink()
    (folder / ".venv" / "headworks-stamp").write_text(f"{stamp} {EXTRAS}\n")


def shown(pattern: str, printed: str) -> bool:
    """Whether this was printed: `…` is anything within a line, alone it is any number of lines."""
    expression = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*?".join(map(re.escape, line.split("…"))) + "\n"
        for line in plain(pattern)
    )
    return re.fullmatch(expression, "".join(f"{line}\n" for line in plain(printed))) is not None


def plain(text: str) -> list[str]:
    """The lines with one blank for several, without empty ones at the end."""
    return [" ".join(line.split()) for line in text.strip("\n").splitlines()]


def test_output_is_compared() -> None:
    assert shown("a …\n…\nd", "a 1\nb\nc\nd\n") and shown("a\n…", "a\n") and shown("{…}", "{1}\n")
    assert not shown("a", "b") and not shown("a …\nd", "a 1\nb\nd") and not shown("a", "a\nb")


def started() -> list[Block]:
    return [
        block for page in PAGES for block in documents.commands(page) if block.marker == documents.INSTANCE
    ]


@pytest.mark.parametrize("block", started(), ids=lambda block: block.place)
def test_the_instance_is_started_as_documented(checkout: Checkout, block: Block) -> None:
    assert [shlex.split(line, comments=True) for line in block.text.splitlines()] == [["./scripts/up"]]
    if block.output is not None:
        assert shown(block.output, as_usual(checkout, checkout.printed)), checkout.printed


def as_usual(checkout: Checkout, printed: str) -> str:
    """The port and the folder that the reader has."""
    return printed.replace(f":{checkout.port}", ":8000").replace(str(checkout.folder), "…")


def run_pages() -> list[Path]:
    return [page for page in PAGES if any(not block.marker for block in documents.commands(page))]


@pytest.mark.parametrize("page", run_pages(), ids=documents.name)
def test_the_commands_of_the_page_do_what_it_says(checkout: Checkout, page: Path, tmp_path: Path) -> None:
    blocks = [block for block in documents.commands(page) if not block.marker]
    known = ":" if documents.name(page) in FROM_NOTHING else 'eval "$(headworks env --export)"'
    script = ["set -euo pipefail", known]
    for number, block in enumerate(blocks):
        (tmp_path / f"{number}.sh").write_text(block.text)
        script.append(f". {tmp_path}/{number}.sh > {tmp_path}/{number}.txt 2>&1")
    ended = type_in(checkout, "\n".join(script))
    outputs = [
        path.read_text() if (path := tmp_path / f"{n}.txt").exists() else None for n in range(len(blocks))
    ]
    last = max((number for number, output in enumerate(outputs) if output is not None), default=0)
    assert ended.returncode == 0, (
        f"{blocks[last].place} ended with {ended.returncode}: {outputs[last]}{ended.stderr}"
    )
    for block, output in zip(blocks, outputs, strict=True):
        if block.output is not None:
            assert shown(block.output, as_usual(checkout, output or "")), f"{block.place} prints: {output}"


def type_in(checkout: Checkout, script: str) -> subprocess.CompletedProcess[str]:
    """The script has ended, and whatever it left in the background is gone."""
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=checkout.folder, env=checkout.environment(), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=PAGE_SECONDS)
        return subprocess.CompletedProcess(script, process.returncode, out, err)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
