"""A command imports what it needs: a person waits for it at the terminal."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests import patience

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


@pytest.mark.parametrize("name", HEAVY)
def test_what_is_heavy_is_called_so(name: str) -> None:
    assert importlib.import_module(name).__name__ == name
