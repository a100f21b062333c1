"""A process of a worker that is asked to stop at any moment: what it does, and what its parent hears."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# More than a pipe holds: a parent that does not listen yet keeps the process writing.
ANSWER_BYTES = 1 << 20

PROCESS = f"""
import os, sys, time
from app.uploads import leases
from workers import fleet

moment = sys.argv[1]
fleet.ANSWER_SECONDS = 2
fleet._begin_task()
if moment == "at work":
    with leases.at_work():
        print("ready", flush=True)
        while not leases.is_stopping():
            time.sleep(0.01)
        print("given back", flush=True)
elif moment == "in a task":
    print("ready", flush=True)
    time.sleep(60)
    print("finished", flush=True)
fleet._end_task()
print("ready", flush=True) if moment == "answering" else None
left = b"x" * {ANSWER_BYTES}
while left:
    left = left[os.write(1, left):]
time.sleep(60)
"""


def begun(moment: str, folder: Path) -> subprocess.Popen[bytes]:
    env = {
        **os.environ, "HEADWORKS_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "HEADWORKS_BROKER_URL": "redis://127.0.0.1:1/0", "HEADWORKS_DATA_DIR": str(folder),
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, moment], env=env, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """How the process ended within its time, and all that it said."""
    said, _ = process.communicate(timeout=30)
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_what_is_not_looked_for_ends_at_once(number: signal.Signals, tmp_path: Path) -> None:
    process = begun("in a task", tmp_path)
    process.send_signal(number)
    assert ended(process) == (0, b"")


def test_an_answer_that_is_being_given_is_given_to_its_end(tmp_path: Path) -> None:
    process = begun("answering", tmp_path)
    for _ in range(2):  # the parent asks again while it does not listen
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    assert ended(process) == (-signal.SIGALRM, b"x" * ANSWER_BYTES)


def test_work_is_given_back_and_its_answer_given(tmp_path: Path) -> None:
    process = begun("at work", tmp_path)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (-signal.SIGALRM, b"given back\n" + b"x" * ANSWER_BYTES)
