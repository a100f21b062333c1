"""Processes as nodes of pytest-celery: what its containers can do, without Docker.

The plugin's clusters only ask that a node's container is a `CeleryTestContainer`; these are, over
processes of their own groups on ports of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from pytest_celery import CeleryTestContainer

from app.adapters import embedded
from tests import patience

ROOT = Path(__file__).parent.parent.parent
READY_SECONDS = 60.0


class ProcessContainer(CeleryTestContainer):
    """One process group, started, killed and restarted like a container."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        # Not the parent's: there is no Docker container behind this one.
        self._name, self._argv, self._env, self._log = name, list(argv), dict(env), log
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0
        self.start()

    def start(self) -> None:
        self.ended_on_purpose = False
        self._log_from = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._argv, cwd=ROOT, env=self._env, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def id(self) -> str:
        return f"{self.pid:012d}"

    @property
    def name(self) -> str:
        return self._name

    @property
    def status(self) -> str:
        assert self._process is not None
        return "running" if self._process.poll() is None else "exited"

    def logs(self) -> str:
        """What the process has written since it was started last."""
        with self._log.open("rb") as log:
            log.seek(self._log_from)
            return log.read().decode("utf-8", "replace")

    def reload(self) -> None:
        """Containers are asked to look at themselves again; a process is always up to date."""

    def kill(self, signal: str | int = "SIGKILL") -> None:
        """The main process gets the signal; SIGKILL goes to its whole group."""
        number = _number(signal)
        self.ended_on_purpose = number in (9, 15)
        if number == 9:
            os.killpg(self.pid, number)
            self._wait()
        else:
            os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Every process of the group gets the signal."""
        os.killpg(self.pid, number)

    def kill_children(self) -> None:
        """The pool's processes are killed, the main process lives."""
        for child in psutil.Process(self.pid).children(recursive=True):
            child.kill()

    def wait(self, seconds: float) -> int | None:
        """Exit code of the process, or None when it still runs after so long."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait()

    def restart(self, timeout: int = 10) -> None:
        self.teardown()
        self.start()
        self.ready()

    def ready(self) -> bool:
        deadline = patience.deadline(READY_SECONDS)
        while self.ready_prompt and self.ready_prompt not in self.logs():
            if self.status != "running" or time.monotonic() > deadline:
                raise AssertionError(f"{self.name} is not ready:\n{self.logs()[-3000:]}")
            time.sleep(0.05)
        return True

    def teardown(self) -> None:
        if self.status == "running":
            os.killpg(self.pid, signal.SIGCONT)
            self.kill("SIGKILL")

    def remove(self, force: bool = True) -> None:
        self.teardown()


class WorkerContainer(ProcessContainer):
    """One Celery worker of the fleet."""

    def __init__(
        self, name: str, queues: str, env: Mapping[str, str], log: Path, *, options: Sequence[str] = ()
    ) -> None:
        self._queues = queues
        argv = [sys.executable, "-m", "celery", "-A", "workers.fleet", "worker", "-Q", queues, "-c", "1"]
        argv += ["-n", f"{name}@%h", "--without-gossip", "--without-mingle", "--loglevel", "INFO"]
        super().__init__(name, [*argv, *options], env, log)

    @property
    def ready_prompt(self) -> str:
        return " ready."

    @classmethod
    def version(cls) -> str:
        import celery

        return str(celery.__version__)

    def worker_name(self) -> str:  # type: ignore[override]
        return self._name

    def worker_queue(self) -> str:  # type: ignore[override]
        return self._queues


class BrokerContainer(CeleryTestContainer):
    """The embedded Valkey as the fleet's broker."""

    def __init__(self, valkey: embedded.Valkey) -> None:
        self.valkey = valkey

    @property
    def id(self) -> str:
        return f"{self.valkey.pid or 0:012d}"

    @property
    def name(self) -> str:
        return "broker"

    @property
    def status(self) -> str:
        return "running" if self.valkey.pid else "exited"

    @property
    def celeryconfig(self) -> dict[str, Any]:
        return {"url": self.valkey.url, "host_url": self.valkey.url, "hostname": "127.0.0.1", "vhost": "0"}

    def logs(self) -> str:
        return (self.valkey.folder / "server.log").read_text(encoding="utf-8", errors="replace")

    def reload(self) -> None:
        """Always up to date."""

    def kill(self, signal: str | int = "SIGKILL") -> None:
        self.valkey.kill()

    def restart(self, timeout: int = 10) -> None:
        self.valkey.stop()
        self.valkey.start()

    def ready(self) -> bool:
        return self.valkey.pid is not None

    def teardown(self) -> None:
        self.valkey.stop()

    def remove(self, force: bool = True) -> None:
        self.teardown()


def _number(name: str | int) -> int:
    return name if isinstance(name, int) else int(getattr(signal, name))
