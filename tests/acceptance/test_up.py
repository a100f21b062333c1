"""`headworks up` from nothing: it shows the samples' numbers, serves, and survives being killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters import embedded
from tests import patience
from tests.acceptance.conftest import ROOT, Api, Problem
from tests.conftest import CORPUS
from tests.faults.world import report

READY_SECONDS = 30.0
BIG_ROWS = 30_000


class Instance:
    """One `headworks up` in a folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, **environment: str) -> None:
        """It serves."""
        argv = [sys.executable, "-m", "app.cli", "up", "--port", str(self.port), "--data", str(self.folder)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("HEADWORKS_")}
        env |= environment
        out, err = self.folder.parent / "up.out", self.folder.parent / "up.err"
        said_before = len(self.said())
        with out.open("ab") as stdout, err.open("ab") as stderr:
            self.process = subprocess.Popen(
                [*argv, *options], cwd=ROOT, env=env, stdout=stdout, stderr=stderr
            )
        deadline = patience.deadline(READY_SECONDS)
        while "Ctrl-C stops everything" not in self.said()[said_before:]:
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def said(self) -> str:
        said = self.folder.parent / "up.err"
        return said.read_text() if said.exists() else ""

    def printed(self) -> str:
        return (self.folder.parent / "up.out").read_text()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)

    def environment(self) -> dict[str, str]:
        """What a shell knows that has asked for it."""
        return dict(line.split("=", 1) for line in self.cli("env").stdout.splitlines())

    def api(self) -> Api:
        env = self.environment()
        return Api(env["HEADWORKS_URL"], env["HEADWORKS_API_KEY"])

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "app.cli", *arguments, "--data", str(self.folder)]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    found = Instance(tmp_path_factory.mktemp("up") / "an instance" / "data", embedded.free_port())
    found.folder.parent.mkdir()
    found.start()
    yield found
    if found.process is not None and found.process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            found.stop()
        found.process.kill()


def test_the_numbers_of_the_samples_are_printed(instance: Instance) -> None:
    printed = " ".join(instance.printed().split())
    for numbers in (
        "meta CAD 944.340000 48180 928",
        "google USD 31311.900000 206406 18706",
        "tiktok SGD 1101.410000 107038 956",
    ):
        assert numbers in printed


def test_a_browser_at_the_machine_needs_no_key_and_a_rebound_name_has_none(instance: Instance) -> None:
    url = f"http://127.0.0.1:{instance.port}/v1/uploads?workspace_id={uuid.uuid4()}"
    status = {}
    for host in (f"localhost:{instance.port}", f"evil.example:{instance.port}"):
        request = urllib.request.Request(url, headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                status[host.partition(":")[0]] = response.status
        except urllib.error.HTTPError as error:
            with error:
                status[host.partition(":")[0]] = error.code
    assert status == {"localhost": 200, "evil.example": 401}


def test_a_key_for_one_workspace_is_made_and_used(instance: Instance) -> None:
    workspace = str(uuid.uuid4())
    made = instance.cli("keys", "create", "--workspace", workspace, "--scope", "read", "--name", "CI")
    assert made.returncode == 0, made.stderr
    api = Api(f"http://127.0.0.1:{instance.port}", made.stdout.strip())
    assert api.get("/v1/uploads", workspace_id=workspace)["uploads"] == []
    with pytest.raises(Problem, match="404"):
        api.get("/v1/uploads", workspace_id=str(uuid.uuid4()))


def test_with_a_database_of_one_s_own_it_does_not_start_without_a_secret(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADWORKS_")}
    argv = [sys.executable, "-m", "app.cli", "up", "--data", str(tmp_path / "data")]
    argv += ["--port", str(embedded.free_port())]
    for secret in ("", "too short"):
        own = {
            "HEADWORKS_DATABASE_URL": "postgresql://me:pw@db.example/headworks",
            "HEADWORKS_SECRET": secret,
        }
        ended = subprocess.run(
            argv, cwd=ROOT, env={**env, **own}, capture_output=True, text=True, timeout=60, check=False
        )
        said = ended.stderr.strip().splitlines()
        assert (ended.returncode, len(said)) == (1, 1) and "HEADWORKS_SECRET" in said[0], ended
        assert "pw" not in said[0]


def test_the_command_line_hands_in_watches_and_shows(instance: Instance) -> None:
    workspace = str(uuid.uuid4())
    file = CORPUS / "meta" / "en_duplicate_rows_with_ids.csv"
    done = instance.cli("upload", str(file), "--workspace", workspace, "--platform", "meta")
    assert (done.returncode, json.loads(done.stdout)["reject_codes"]) == (0, {"duplicate_key_conflict": 2})
    upload_id = json.loads(done.stdout)["upload_id"]
    assert "completed: 30 rows staged, 28 promoted" in done.stderr
    listed = instance.cli("uploads", "list", "--workspace", workspace)
    assert (listed.returncode, listed.stdout.split("\t")[0]) == (0, upload_id)
    shown = instance.cli("uploads", "show", upload_id)
    assert json.loads(shown.stdout)["first_reject"] == {"line": 7, "code": "duplicate_key_conflict"}
    errors = instance.cli("uploads", "errors", upload_id)
    assert errors.stdout.count("duplicate_key_conflict") == 2


def test_a_shell_takes_the_settings_whatever_the_folder_is_called(instance: Instance) -> None:
    script = f'{instance.cli("env", "--export").stdout}\nprintf %s "$HEADWORKS_DATA_DIR"'
    told = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    assert told.stdout == str(instance.folder) and " " in told.stdout


def test_the_command_line_knows_all_settings_of_the_instance_by_its_folder(instance: Instance) -> None:
    found = instance.cli("doctor")
    assert found.returncode == 0 and "FAIL" not in found.stdout, found.stdout
    versions = instance.cli("refdata", "versions", "nobody", "COUNTRY")
    assert (versions.returncode, versions.stderr.strip()) == (1, "The tenant never wrote this dictionary.")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["uploads", "show", str(uuid.uuid4())], 4, "There is no such upload"),
        (["requeue", str(uuid.uuid4()), "--reason", "a test"], 4, "There is no such upload"),
        (["upload", "/nowhere", "--workspace", str(uuid.uuid4()), "--platform", "meta"], 1, "/nowhere"),
    ],
)
def test_the_command_line_says_what_is_wrong(
    instance: Instance, arguments: list[str], code: int, sentence: str
) -> None:
    ended = instance.cli(*arguments)
    assert ended.returncode == code
    assert sentence in ended.stderr


def test_a_failed_upload_ends_the_command_with_its_reason(instance: Instance) -> None:
    file = CORPUS / "tiktok" / "en_currency_missing.csv"
    ended = instance.cli("upload", str(file), "--workspace", str(uuid.uuid4()), "--platform", "tiktok")
    assert (ended.returncode, json.loads(ended.stdout)["error_code"]) == (1, "currency_missing")
    assert "currency" in ended.stderr


def test_an_instance_that_is_killed_and_started_again_loses_nothing(instance: Instance) -> None:
    workspace = str(uuid.uuid4())
    content = report(5, rows=BIG_ROWS)
    sent = [instance.api().upload(content, workspace_id=workspace, platform="meta") for _ in range(2)]
    known_before = instance.environment()
    instance.kill()
    # By hand, from a shell that still knows the servers that were killed.
    instance.start("--no-samples", **known_before)
    api = instance.api()
    for answer in sent:
        upload = api.finished(answer["upload_id"], seconds=120)
        assert (upload["status"], upload["promoted_rows"]) == ("completed", BIG_ROWS)
    rows = api.get("/v1/performance", workspace_id=workspace, by="platform")["rows"]
    assert [row["rows"] for row in rows] == [BIG_ROWS - 1]  # one of them stands in the report twice


def test_it_stops_when_asked_to(instance: Instance) -> None:
    assert instance.stop() == 0
    gone = instance.cli("uploads", "show", str(uuid.uuid4()))
    assert (gone.returncode, "No instance runs" in gone.stderr) == (3, True)
