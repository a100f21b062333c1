"""A process imports what it needs: a person waits for a command, and a fleet is a dozen processes."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from app.refdata.query import pod, reader
from tests import patience
from workers import refdata, refdata_roles

HEAVY = (
    "alembic", "boto3", "botocore", "celery", "confluent_kafka", "cryptography", "flask", "gunicorn", "kombu",
    "msgspec", "obstore", "pydantic", "redis", "sqlalchemy", "uvicorn", "yaml",
)  # fmt: skip

PROGRAM = """
import sys
from app import cli

code = None
try:
    code = cli.main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        # what only prints                   done
        ("--help", 0),
        ("upload --help", 0),
        ("uploads list --help", 0),
        ("requeue --help", 0),
        ("webhooks redeliver --help", 0),
        ("pipeline serve --help", 0),
        ("doctor --help", 0),
        # what is not understood
        ("uplaod", 2),
        ("", 2),
        # what asks an instance, were there one
        ("env", 3),
        ("uploads show 1", 3),
        ("requeue 1 --reason none", 3),
    ],
)
def test_what_asks_an_instance_imports_nothing_heavy(words: str, code: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split()], env={"PYTHONPATH": ":".join(sys.path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=60 * patience.PATIENCE, check=False,
    )  # fmt: skip
    imported = done.stderr.splitlines()[-1].split()
    assert (done.returncode, "app.cli" in imported) == (code, True)
    assert set() == set(HEAVY) & set(imported)


FOR_SOME = (
    "alembic",
    "boto3",
    "botocore",
    "obstore",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)
"""Of those who migrate, keep files in a bucket, or name a collector."""


def imported_by(program: str, folder: Path) -> set[str]:
    """The modules that this has imported in the environment of a fleet."""
    env = {
        "PYTHONPATH": ":".join(sys.path),
        "HEADWORKS_DATABASE_URL": "postgresql://127.0.0.1:1/none",
        "HEADWORKS_BROKER_URL": "redis://127.0.0.1:1",
        "HEADWORKS_DATA_DIR": str(folder),
        "HEADWORKS_SECRET": "a secret that is long enough for everybody",
    }
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {program}; print(*sys.modules, sep='\\n')"], env=env, cwd=folder,
        capture_output=True, text=True, timeout=60 * patience.PATIENCE, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


@pytest.mark.parametrize("process", ["workers.tasks", "app.web"])
def test_a_process_of_the_fleet_imports_nothing_that_only_some_need(process: str, tmp_path: Path) -> None:
    imported = imported_by(f"workers.fleet, {process}", tmp_path)
    assert process in imported
    assert set() == set(FOR_SOME) & imported


def test_who_looks_after_a_pod_imports_nothing_heavy(tmp_path: Path) -> None:
    assert set() == {*HEAVY, *FOR_SOME, "uvloop", "workers.refdata_roles"} & imported_by(
        "workers.refdata", tmp_path
    )


def test_who_looks_after_a_pod_knows_what_the_others_can_do() -> None:
    assert tuple(refdata_roles.ALONE) == refdata.ALONE
    assert tuple(reader.SERVERS) == pod.SERVERS


@pytest.mark.parametrize("name", [*HEAVY, *FOR_SOME])
def test_what_is_heavy_is_called_so(name: str) -> None:
    assert importlib.import_module(name).__name__ == name
