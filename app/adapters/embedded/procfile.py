"""The processes of a Procfile, run side by side on one machine.

The format is honcho's, and `honcho start` runs the same file. Its Manager is not used here: it
takes all processes down when one ends, while a fleet whose worker was killed has to go on without
anybody's help; and it puts a shell and a forked helper between us and each process, which outlive
a `kill -9`.
"""

import contextlib
import shlex
import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from honcho.environ import parse_procfile

from app.adapters.embedded import leash, machine

STOP_SECONDS = 7.0
LOG_BYTES = 5_000_000  # A log longer than this is set aside (`.1`) when its process starts.
# A process that lived longer is started again at once, one that did not after 1, 2, 4 … s.
STEADY_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 30.0


@dataclass
class _Member:
    name: str
    argv: list[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_again_at: float | None = None
    quick_ends: int = field(default=0)


class Fleet:
    """Each process has its log in `logs/<name>.log` and ends when this one ends, however."""

    def __init__(self, procfile: Path, *, env: Mapping[str, str], logs: Path) -> None:
        """Raises `ValueError` naming the process whose line needs a variable that `env` has not."""
        self._folder = procfile.parent
        self._env = dict(env)
        self._logs = logs
        lines = parse_procfile(procfile.read_text(encoding="utf-8")).processes.items()
        self._members = [_Member(name, _arguments(name, line, env)) for name, line in lines]

    @property
    def names(self) -> list[str]:
        """In the Procfile's order."""
        return [member.name for member in self._members]

    def log(self, name: str) -> Path:
        """Where that process writes."""
        return self._logs / f"{name}.log"

    @property
    def pids(self) -> dict[str, int]:
        """The process of each member that runs; what that starts is in its session."""
        return {member.name: member.process.pid for member in self._members if member.process is not None}

    def start(self) -> None:
        """All processes run."""
        self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        for member in self._members:
            self._start(member)

    def first_ended(self) -> tuple[str, str] | None:
        """Name and end ("exit code 1", "signal SIGKILL") of a process that runs no more."""
        for member in self._members:
            if member.process is not None and member.process.poll() is not None:
                return member.name, _end_of(member.process)
        return None

    def tend(self, report: Callable[[str], None]) -> None:
        """What has ended runs again, or will after a pause; `report` is told in a sentence."""
        now = time.monotonic()
        for member in self._members:
            if member.process is not None and member.process.poll() is not None:
                quick = now - member.started < STEADY_SECONDS
                member.quick_ends = member.quick_ends + 1 if quick else 0
                pause = min(2.0 ** (member.quick_ends - 1), LONGEST_PAUSE_SECONDS) if quick else 0.0
                report(
                    f"{member.name} ended with {_end_of(member.process)} and is started again"
                    f"{f' in {pause:.0f} s' if pause else ''}; its log: {self.log(member.name)}"
                )
                leash.end_group(member.process)
                member.process, member.start_again_at = None, now + pause
            if member.start_again_at is not None and now >= member.start_again_at:
                self._start(member)

    def stop(self) -> None:
        """No process of the fleet runs: asked to finish, and killed after `STOP_SECONDS`."""
        running = [member.process for member in self._members if member.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in running:
            leash.end_group(process)
            process.wait()

    def _start(self, member: _Member) -> None:
        path = self.log(member.name)
        if path.exists() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        with machine.open_log(path) as log:
            member.process = leash.start(
                member.argv, ends_with=signal.SIGTERM, output=log, cwd=self._folder, env=self._env
            )
        member.started, member.start_again_at = time.monotonic(), None


def _arguments(name: str, line: str, env: Mapping[str, str]) -> list[str]:
    """The line as a shell sees it, `$VARIABLES` filled in; `python` is the one that runs this."""
    try:
        argv = [string.Template(word).substitute(env) for word in shlex.split(line)]
    except KeyError as error:
        raise ValueError(f"Procfile: {name} needs the environment variable {error.args[0]}") from None
    return [sys.executable, *argv[1:]] if argv[0] == "python" else argv


def _end_of(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
