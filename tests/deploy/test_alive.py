"""Processes without an address: what a supervisor sees of them, and how they end when asked to."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from honcho.environ import parse_procfile

from app import probe
from app.adapters import embedded
from tests.conftest import KEY, SECRET, Servers

ROOT = Path(__file__).parent.parent.parent
REFDATA = (ROOT / "app" / "refdata" / "first.yaml").read_text(encoding="utf-8")
LINES = dict(parse_procfile((ROOT / "Procfile").read_text(encoding="utf-8")).processes)
SECONDS = 60.0  # a start, on a busy machine


@dataclass
class Process:
    """One process of the Procfile, and the file that it touches."""

    alive: Path
    running: subprocess.Popen[bytes]

    def is_well(self) -> bool:
        return probe.main([str(self.alive)]) == 0

    def turns_well(self) -> bool:
        deadline = time.monotonic() + SECONDS
        while not self.is_well():
            assert self.running.poll() is None, "it has ended"
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def was_silent_for(self, seconds: float) -> None:
        """As if it had last touched its file so long ago."""
        then = time.time() - seconds
        os.utime(self.alive, (then, then))


@pytest.fixture(params=["relay", "beat", "refdata-apply"])
def process(
    request: pytest.FixtureRequest, servers: Servers, database_url: str, tmp_path: Path
) -> Iterator[Process]:
    """One of each kind: a worker, the clock, and one that follows a topic."""
    (tmp_path / "refdata.yaml").write_text(REFDATA, encoding="utf-8")
    env = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "REMAP_SIGTERM": "SIGQUIT",
        "HEADWORKS_DATABASE_URL": database_url, "HEADWORKS_REFDATA_DATABASE_URL": database_url,
        "HEADWORKS_BROKER_URL": servers.valkey.url, "HEADWORKS_DATA_DIR": str(tmp_path),
        "HEADWORKS_REDIS_URL": servers.valkey.url,
        "HEADWORKS_SECRET": SECRET, "HEADWORKS_API_KEY": KEY,
        "HEADWORKS_REFDATA_CONFIG": str(tmp_path / "refdata.yaml"),
        "HEADWORKS_ALIVE_FILE": str(tmp_path / "alive"),
    }  # fmt: skip
    line = LINES[request.param].replace("$HEADWORKS_DATA_DIR", str(tmp_path))
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(
            [sys.executable, *shlex.split(line)[1:]], cwd=ROOT, env=env, stderr=log, stdout=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield Process(tmp_path / "alive", running)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def test_a_process_is_well_as_long_as_it_goes_on_and_ends_when_asked_to(process: Process) -> None:
    assert process.turns_well()
    process.running.send_signal(signal.SIGSTOP)  # it is there, and does nothing
    process.was_silent_for(probe.LONGEST_SILENCE_SECONDS + 1)
    time.sleep(3)  # some rounds of its work
    assert not process.is_well()
    process.running.send_signal(signal.SIGCONT)
    assert process.turns_well()
    process.running.terminate()
    assert process.running.wait(30) == 0


def test_a_file_that_is_not_there_is_no_sign_of_life(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe.main([str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_an_address_is_well_when_it_answers_200(status: int, code: int) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert probe.main([f"http://127.0.0.1:{server.server_port}/readyz"]) == code
        thread.join()


def test_nobody_at_an_address_is_not_well() -> None:
    assert probe.main([f"http://127.0.0.1:{embedded.free_port()}/readyz"]) == 1


@pytest.mark.parametrize("targets", [[], ["a", "b"]])
def test_a_probe_has_one_target(targets: list[str]) -> None:
    assert probe.main(targets) == 2
