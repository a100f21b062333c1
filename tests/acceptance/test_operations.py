"""The command line as an operator uses it, on a running fleet."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

import pytest

from app.adapters.dispatch import celery_app
from tests import patience
from tests.acceptance.conftest import ROOT, Run, RunningFleet
from workers.watchdog import DEAF_SECONDS

BROKEN = b"Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)\n2025-05-01,Spring,101,many,1\n"
GOOD = BROKEN.replace(b"many", b"10")
NO_CURRENCY = GOOD.replace(b" (USD)", b"")


def failed(fleet: RunningFleet, workspace: str, *contents: bytes) -> list[str]:
    found = [
        fleet.api.upload(content, workspace_id=workspace, platform="meta")["upload_id"]
        for content in contents
    ]
    assert {fleet.api.finished(upload_id)["status"] for upload_id in found} == {"failed"}
    return found


def examined(run: Run) -> tuple[int, str]:
    """What the doctor says of a fleet that may have been started only just now."""
    deadline = patience.deadline(60)
    while (said := run("doctor"))[0] and time.monotonic() < deadline:
        pass
    return said[:2]


def test_the_doctor_finds_a_running_fleet_well(run: Run) -> None:
    code, out = examined(run)
    assert code == 0, out
    assert "FAIL" not in out
    code, out, _ = run("doctor", "--json")
    assert {finding["check"] for finding in json.loads(out)} >= {
        "database", "broker", "workers", "beat", "storage", "web",
    }  # fmt: skip


def test_the_doctor_sees_a_beat_that_hangs_in_a_fleet_that_works(run: Run, fleet: RunningFleet) -> None:
    assert examined(run)[0] == 0
    beat = fleet.processes.pids["beat"]
    os.kill(beat, signal.SIGSTOP)
    try:
        code, out, _ = run("doctor")
    finally:
        os.kill(beat, signal.SIGCONT)
    assert code == 1
    assert [line.split()[1] for line in out.splitlines() if line.startswith("FAIL")] == ["beat"], out
    assert examined(run)[0] == 0


def test_the_doctor_says_what_to_do_and_that_something_is_wrong(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWORKS_BROKER_URL", "redis://127.0.0.1:1/0")
    code, out, _ = run("doctor")
    assert code == 1
    assert "FAIL  broker" in out
    assert "HEADWORKS_BROKER_URL" in out
    assert "ok    database" in out


def test_an_upload_is_followed_to_its_end(run: Run, fleet: RunningFleet) -> None:
    workspace = str(uuid.uuid4())
    good = fleet.api.upload(GOOD, workspace_id=workspace, platform="meta")["upload_id"]
    code, out, err = run("uploads", "watch", good)
    assert (code, json.loads(out)["status"]) == (0, "completed")
    assert "completed: 1 rows staged, 1 promoted" in err
    (bad,) = failed(fleet, workspace, BROKEN)
    code, out, _ = run("uploads", "watch", bad)
    assert (code, json.loads(out)["error_code"]) == (1, "too_many_rejects")


def test_failed_uploads_are_requeued_together_and_named_beforehand(run: Run, fleet: RunningFleet) -> None:
    workspace = str(uuid.uuid4())
    broken, without, broken_too = failed(fleet, workspace, BROKEN, NO_CURRENCY, BROKEN + b"\n")
    which = ("requeue", "--status", "failed", "--workspace", workspace, "--reason", "a better release")
    code, out, _ = run(*which, "--dry-run")
    assert code == 0
    assert [line.split("\t") for line in out.splitlines()] == [
        [broken, "failed", "too_many_rejects"],
        [without, "failed", "currency_missing"],
        [broken_too, "failed", "too_many_rejects"],
    ]
    assert not [
        entry for entry in fleet.api.get(f"/v1/uploads/{broken}")["history"] if entry["why"] == which[-1]
    ]
    code, out, err = run(*which, "--error-code", "too_many_rejects")
    assert (code, [line.split("\t")[0] for line in out.splitlines()]) == (0, [broken, broken_too])
    assert err.count("is pending again") == 2
    for upload_id in (broken, broken_too):
        history = fleet.api.finished(upload_id)["history"]
        assert [entry["action"] for entry in history if entry["why"] == "a better release"] == ["requeued"]


def test_one_upload_is_requeued_by_its_id(run: Run, fleet: RunningFleet) -> None:
    (upload_id,) = failed(fleet, str(uuid.uuid4()), BROKEN)
    assert run("requeue", upload_id, "--reason", "again")[0] == 0
    good = fleet.api.upload(GOOD, workspace_id=str(uuid.uuid4()), platform="meta")["upload_id"]
    fleet.api.finished(good)
    code, _, err = run("requeue", good, "--reason", "again")
    assert (code, "completed" in err) == (4, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("requeue", "--reason", "x"),
        ("requeue", "--status", "failed", "--reason", "x"),
        ("requeue", "--status", "completed", "--workspace", str(uuid.UUID(int=1)), "--reason", "x"),
        ("requeue", str(uuid.UUID(int=1))),
        ("cleanup",),
    ],
)
def test_a_command_that_is_not_complete_is_refused(arguments: tuple[str, ...], run: Run) -> None:
    with pytest.raises(SystemExit) as end:
        run(*arguments)
    assert end.value.code == 2


def test_flower_shows_the_fleet_to_whoever_knows_the_password(fleet: RunningFleet) -> None:
    url = f"http://127.0.0.1:{fleet.env['HEADWORKS_FLOWER_PORT']}/"
    user_and_password = base64.b64encode(fleet.env["FLOWER_BASIC_AUTH"].encode()).decode()
    deadline = patience.deadline(60)
    while True:
        try:
            urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError as error:
            error.close()
            assert error.code == 401
            break
        except OSError:  # it has only just been started
            assert time.monotonic() < deadline
            time.sleep(0.2)
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {user_and_password}"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("auth", ["", "nobody"])
def test_flower_does_not_start_without_a_password(auth: str, fleet: RunningFleet) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "workers.flower"],
        cwd=ROOT, env={**fleet.env, "FLOWER_BASIC_AUTH": auth}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, "FLOWER_BASIC_AUTH" in ended.stderr) == (1, True)


def test_expired_staging_is_dropped_by_hand(run: Run) -> None:
    code, _, err = run("cleanup", "run")
    assert (code, "staging of 0 days is gone" in err) == (0, True)


def test_a_worker_that_is_drained_stays_and_goes_on_when_it_may(fleet: RunningFleet) -> None:
    with celery_app(fleet.env["HEADWORKS_BROKER_URL"]) as app:
        [name] = [worker for worker in app.control.inspect(timeout=10).ping() if worker.startswith("parse@")]
        app.control.cancel_consumer("parse", destination=[name], reply=True, timeout=10)
        upload_id = fleet.api.upload(GOOD, workspace_id=str(uuid.uuid4()), platform="meta")["upload_id"]
        time.sleep(DEAF_SECONDS + 8)  # longer than a worker may take nothing while messages wait for it
        assert fleet.api.get(f"/v1/uploads/{upload_id}")["status"] == "pending"
        assert fleet.processes.first_ended() is None
        app.control.add_consumer("parse", destination=[name], reply=True, timeout=10)
    assert fleet.api.finished(upload_id)["status"] == "completed"
