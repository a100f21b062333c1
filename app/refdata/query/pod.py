"""The processes of a pod: one loader, some readers, and this one, which starts them again when they die."""

from __future__ import annotations

import fcntl
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from app.adapters import logs
from app.adapters.settings import ENVIRON, Settings, SettingsError
from app.kernel.clock import Clock

log = logs.get(__name__)

SERVERS = ("safe", "fast")
"""Names of the servers that a reader knows, which is not imported here: this process is small."""

LOOK_SECONDS = 0.1
FIRST_REST_SECONDS = 0.1
LONGEST_REST_SECONDS = 5.0
LIVED_SECONDS = 10.0
"""Who has lived so long is started again at once."""

LONGEST_STOP_SECONDS = 25.0


@dataclass
class Member:
    """One process of the pod."""

    name: str
    arguments: Sequence[str]
    keeps: tuple[int, ...] = ()  # file descriptors that it inherits
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    failures: int = 0
    again_at: float = 0.0


@dataclass
class Pod:
    """One loader and its readers, on one address."""

    settings: Settings
    clock: Clock
    members: list[Member] = field(default_factory=list)

    def run(self, stopped: threading.Event) -> None:
        """The pod answers until it is stopped. SettingsError for an address or a profile that is none."""
        if self.settings.refdata_server not in SERVERS:
            raise SettingsError(f"HEADWORKS_REFDATA_SERVER is one of {', '.join(SERVERS)}.")
        host, port = address_of(self.settings.refdata_bind)
        folder = folder_of(self.settings)
        with locked(folder):
            shutil.rmtree(folder / "metrics", ignore_errors=True)
            (folder / "metrics").mkdir()
            sockets = [listen(host, port) for _ in range(max(1, self.settings.refdata_readers))]
            self.members = [Member("loader", ["query-loader"])] + [
                Member(f"reader {number}", ["query-reader", str(one.fileno())], (one.fileno(),))
                for number, one in enumerate(sockets, start=1)
            ]
            try:
                while not stopped.wait(LOOK_SECONDS):
                    for member in self.members:
                        self._look_after(member, folder)
            finally:
                for one in sockets:  # the readers have them, too: when they close them nobody listens
                    one.close()
                self._stop()

    def reload(self) -> None:
        """Every process reads its configuration anew."""
        for member in self.members:
            process = member.process  # another thread looks after it
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGHUP)

    def _look_after(self, member: Member, folder: Path) -> None:
        now = self.clock.monotonic()
        if member.process is not None:
            code = member.process.poll()
            if code is None:
                return
            has_lived = now - member.began > LIVED_SECONDS
            member.failures = 0 if has_lived else member.failures + 1
            member.again_at = now + (
                min(FIRST_REST_SECONDS * 2**member.failures, LONGEST_REST_SECONDS) if member.failures else 0.0
            )
            log.error("refdata_process_died", member=member.name, code=code, failures=member.failures)
            member.process = None
        if now < member.again_at:
            return
        member.began = now
        member.process = subprocess.Popen(
            [sys.executable, "-m", "workers.refdata", *member.arguments],
            env={**ENVIRON, "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics")},
            stdin=subprocess.PIPE,  # its end tells the process that this one is gone
            pass_fds=member.keeps,
        )

    def _stop(self) -> None:
        """The readers end first: until then they may have something to ask."""
        for members in (self.members[1:], self.members[:1]):
            running = [one.process for one in members if one.process is not None]
            for process in running:
                process.terminate()
            deadline = self.clock.monotonic() + LONGEST_STOP_SECONDS
            for process in running:
                try:
                    process.wait(max(0.1, deadline - self.clock.monotonic()))
                except subprocess.TimeoutExpired:
                    log.error("refdata_process_killed", pid=process.pid)
                    process.kill()
                    process.wait()


def address_of(bind: str) -> tuple[str, int]:
    """Host and port. SettingsError."""
    try:
        parts = urlsplit(f"//{bind}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise SettingsError(f"HEADWORKS_REFDATA_BIND is {bind!r}, which is no host:port.")
    return host, port


def folder_of(settings: Settings) -> Path:
    """The pod's own folder, which is there."""
    _, port = address_of(settings.refdata_bind)
    folder = settings.data_dir.absolute() / "refdata-query" / str(port)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def name_of(settings: Settings) -> str:
    """The pod's own name in Redis."""
    return f"{socket.gethostname()[:64]}-{address_of(settings.refdata_bind)[1]}"


def listen(host: str, port: int) -> socket.socket:
    """A socket of one reader: the kernel shares connections out among those of one address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind((host, port))
    found.listen(4096)
    found.setblocking(False)
    return found


def locked(folder: Path) -> IO[bytes]:
    """The folder is this pod's alone, as long as the file is open. SettingsError: it is another's."""
    file = (folder / "lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise SettingsError(f"Another pod has the folder {folder}: give each its own address.") from None
    return file
