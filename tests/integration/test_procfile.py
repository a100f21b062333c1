"""The processes of a Procfile, run for real."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.adapters.embedded import Fleet

# Says its pid and what it was told, leaves a child in its group, and waits.
WAITS = """\
waits: python -c "import os, subprocess, sys, time; child = subprocess.Popen(['sleep', '60']);
 print(os.getpid(), child.pid, sys.argv[1], flush=True); time.sleep(60)" "$TOLD"
""".replace(";\n", ";")
OWNER = """
import sys, time
from pathlib import Path
from app.adapters.embedded import Fleet
Fleet(Path(sys.argv[1]), env={"TOLD": "x"}, logs=Path(sys.argv[2])).start()
time.sleep(60)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], Fleet]]:
    """Starts the fleet of a Procfile, in a folder with a space, and stops it."""
    fleets = []

    def run(procfile: str) -> Fleet:
        folder = tmp_path / "a checkout"
        folder.mkdir()
        (folder / "Procfile").write_text(procfile)
        env = {"TOLD": "two words"}
        fleets.append(Fleet(folder / "Procfile", env=env, logs=tmp_path / "the logs"))
        fleets[-1].start()
        return fleets[-1]

    yield run
    for fleet in fleets:
        fleet.stop()


def words(path: Path, lines: int = 1) -> list[str]:
    """Of the last line, once there are that many."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        written = path.read_text().splitlines() if path.exists() else []
        if len(written) >= lines:
            return written[-1].split(" ", 2)
        time.sleep(0.02)
    raise AssertionError(f"{path} never had {lines} lines")


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(*pids: str) -> bool:
    deadline = time.monotonic() + 5
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(runs, pids))


def test_a_process_gets_its_variables_whole_and_writes_to_its_log(
    run: Callable[[str], Fleet],
) -> None:
    fleet = run(WAITS)
    assert fleet.names == ["waits"]
    assert words(fleet.log("waits"))[2] == "two words"


def test_stopping_reaches_what_a_process_started(run: Callable[[str], Fleet]) -> None:
    fleet = run(WAITS)
    pid, child, _ = words(fleet.log("waits"))
    assert runs(pid) and runs(child)
    fleet.stop()
    assert gone(pid, child)


def test_the_first_process_that_ended_is_named_with_its_end(run: Callable[[str], Fleet]) -> None:
    fleet = run('ends: python -c "raise SystemExit(3)"\n' + WAITS)
    deadline = time.monotonic() + 10
    while fleet.first_ended() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert fleet.first_ended() == ("ends", "exit code 3")


def test_a_process_that_was_killed_runs_again(run: Callable[[str], Fleet]) -> None:
    fleet = run(WAITS)
    pid, child, _ = words(fleet.log("waits"))
    os.kill(int(pid), signal.SIGKILL)
    said: list[str] = []
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (not said or fleet.first_ended()):
        fleet.tend(said.append)
        time.sleep(0.02)
    assert gone(pid, child)
    while time.monotonic() < deadline and len(fleet.log("waits").read_text().splitlines()) < 2:
        fleet.tend(said.append)
        time.sleep(0.02)
    assert words(fleet.log("waits"), lines=2)[0] != pid
    assert ["waits ended with signal SIGKILL" in line for line in said] == [True]


def test_a_missing_variable_is_named_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("web: python -m x --port $NOWHERE_SET\n")
    with pytest.raises(ValueError, match="web needs the environment variable NOWHERE_SET"):
        Fleet(tmp_path / "Procfile", env={}, logs=tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a parent's death")
def test_a_fleet_ends_with_an_owner_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text(WAITS)
    owner = subprocess.Popen([sys.executable, "-c", OWNER, tmp_path / "Procfile", tmp_path])
    with owner:
        pid, child, _ = words(tmp_path / "waits.log")
        assert runs(pid)
        owner.kill()
    assert gone(pid)
    os.kill(int(child), signal.SIGKILL)
