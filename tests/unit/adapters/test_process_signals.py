"""A signal is followed wherever the main thread is when it comes."""

from __future__ import annotations

import subprocess
import sys

from tests import patience

PROGRAM = """
import os, signal, threading
from app.adapters import process_signals

stopped, reloads = threading.Event(), []
process_signals.on({{
    signal.SIGTERM: stopped.set, signal.SIGHUP: lambda: reloads.append(1), signal.SIGUSR1: {{}}.popitem
}})
{when}
assert stopped.wait(20)
print(len(reloads))
"""


def run(when: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(when=when)],
        capture_output=True, text=True, timeout=30 * patience.PATIENCE, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_a_process_stops_that_is_asked_while_it_begins_to_wait() -> None:
    # Where Event.wait is for a moment: it holds the lock that Event.set wants.
    assert run("with stopped._cond: os.kill(os.getpid(), signal.SIGTERM)") == "0"


def test_every_signal_has_its_action() -> None:
    three = "for _ in range(3): os.kill(os.getpid(), signal.SIGHUP)\nwhile len(reloads) < 3: pass\n"
    assert run(f"{three}os.kill(os.getpid(), signal.SIGTERM)") == "3"


def test_an_action_that_fails_keeps_no_later_one_from_being_done() -> None:
    said = run("for one in (signal.SIGUSR1, signal.SIGTERM): os.kill(os.getpid(), one)")
    assert "signal_not_followed" in said and said.splitlines()[-1] == "0"
