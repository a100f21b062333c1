"""Metrics of processes that answer nothing else, and of those that share a folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest, multiprocess

from app.adapters import exposition, metric_files
from app.up import machine

PROCESS = """
import sys
from app.adapters import exposition, logs, metrics

logs.configure("test")
metrics.rows_staged.inc(int(sys.argv[1]))
metrics.supplier_current_age_seconds.labels("acme").set(int(sys.argv[1]))
if len(sys.argv) > 2:
    exposition.serve(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.read()
"""


def environ(folder: Path) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    return {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_process_answers_for_all_that_share_its_folder(tmp_path: Path) -> None:
    env, port = environ(tmp_path / "metrics"), machine.free_port()
    subprocess.run([sys.executable, "-c", PROCESS, "3"], env=env, check=True, timeout=60)
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS, "4", f"127.0.0.1:{port}"],
        env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        status, text = get(port, "/metrics")
        assert status == 200
        assert "headworks_rows_staged_total 7.0" in text
        assert 'headworks_supplier_current_age_seconds{supplier="acme"} 4.0' in text
        assert get(port, "/healthz") == (200, '{"status": "alive"}\n')
        assert get(port, "/etc/passwd")[0] == 404
        process.communicate(timeout=20)


def test_without_an_address_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition.http.server, "ThreadingHTTPServer", None)
    exposition.serve("")


def test_a_process_whose_address_is_taken_says_so_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        exposition.serve(f"127.0.0.1:{taken.getsockname()[1]}")
    assert "metrics_not_served" in "".join(capsys.readouterr())


COUNTING = """
from app.adapters import metrics
metrics.rows_staged.inc(3)
metrics.stage_seconds.labels("parse").observe(0.3)
metrics.tasks.labels("a.task", "success").inc()
metrics.supplier_current_age_seconds.labels("acme").set(AGE)
"""


def counted(folder: Path, age: int) -> None:
    """A process has counted something, and ended."""
    code = COUNTING.replace("AGE", str(age))
    subprocess.run([sys.executable, "-c", code], env=environ(folder), check=True, timeout=60)


def numbers(folder: Path) -> list[str]:
    """What everybody who shares the folder has counted, as a scrape sees it."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=str(folder))
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if not line.startswith("#") and not line.endswith(" 0.0"))


def test_what_ended_processes_have_counted_stays_and_their_files_go(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    for age in (5, 9, 7):
        counted(folder, age)
    before = numbers(folder)
    assert len(list(folder.glob("*.db"))) == 9
    assert metric_files.merge_the_dead(folder) == 9
    assert numbers(folder) == before
    assert 'headworks_supplier_current_age_seconds{supplier="acme"} 7.0' in before
    assert 'headworks_tasks_total{outcome="success",task="a.task"} 3.0' in before
    assert sorted(path.name for path in folder.iterdir()) == [
        "counter_0.db", "gauge_mostrecent_0.db", "histogram_0.db"
    ]  # fmt: skip
    assert metric_files.merge_the_dead(folder) == 0
    counted(folder, 1)
    metric_files.merge_the_dead(folder)
    after = numbers(folder)
    assert 'headworks_supplier_current_age_seconds{supplier="acme"} 1.0' in after
    assert 'headworks_tasks_total{outcome="success",task="a.task"} 4.0' in after
    assert "headworks_rows_staged_total 12.0" in after


def test_the_files_of_a_process_that_runs_stay_its_own(tmp_path: Path) -> None:
    folder, port = tmp_path / "metrics", machine.free_port()
    counted(folder, 5)
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS, "4", f"127.0.0.1:{port}"],
        env=environ(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(2):  # a scrape merges, and loses nothing
            assert "headworks_rows_staged_total 7.0" in get(port, "/metrics")[1]
        assert {path.name for path in folder.glob("counter_*")} == {
            "counter_0.db", f"counter_{process.pid}.db"
        }  # fmt: skip
        process.communicate(timeout=20)


def test_no_two_read_and_merge_at_a_time(tmp_path: Path) -> None:
    begun, order = threading.Event(), []

    def second() -> None:
        begun.set()
        with metric_files.alone(tmp_path):
            order.append("second")

    with metric_files.alone(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        assert begun.wait(20)
        thread.join(0.2)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]
