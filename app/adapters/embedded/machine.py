"""What a machine has only one of: ports, folders in use, process ids; and private files."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

LOG_LINES = 15


class FolderInUse(RuntimeError):
    """Another process has the folder; the message names it and says what to do."""


class FolderLock:
    """A lock file held for the life of this process, or until `release`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """The folder is this process's. Raises `FolderInUse` naming the pid that has it."""
        file = (self._folder / "lock").open("a+", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise FolderInUse(
                f"{self._folder} is in use by the process with pid {owner}: "
                "stop that one or choose another data folder."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def release(self) -> None:
        """The folder is free for others."""
        if self._file is not None:
            self._file.close()
            self._file = None


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        # As the servers do it; else the connections of a server that has just ended would count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def open_log(path: Path) -> IO[bytes]:
    """The log, open for appending, for its owner alone: statements and rows stand in it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def tail(path: Path, lines: int = LOG_LINES) -> str:
    """The last lines of a log; empty when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 200 * lines))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])


def read_number(path: Path) -> int | None:
    """The first line as a number; None when there is no such file or it holds something else."""
    try:
        return int(path.read_text(encoding="utf-8").split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def write_private(path: Path, text: str) -> None:
    """The file holds the text, whole or not at all, and only its owner may read it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    private = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(private, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def is_argument_of(pid: int, text: str) -> bool:
    """A process with this pid runs, and the text is one of its arguments."""
    if sys.platform == "linux":
        try:
            return text in Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            return False
    ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return text in subprocess.run(ps, capture_output=True, text=True, check=False).stdout


def signal_if_there(pid: int, signum: signal.Signals) -> None:
    """The process, if there is one, has been sent the signal."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
