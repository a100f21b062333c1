"""What is installed in the image is whole: it runs without the checkout that it was built from."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import pytest

from tests.conftest import KEY, SECRET, Servers
from tests.deploy import wheel

# Each part that is read from a file beside the code, and every module.
RUNS = """
import importlib, pkgutil, sys
import app, celeryconfig, sql, workers
from pathlib import Path
from app import web
from app.adapters import queries

assert all(Path(part.__file__).is_relative_to(sys.argv[1]) for part in (app, celeryconfig, sql, workers))
for package in (app, workers):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
for path in (Path(sql.__file__).parent / "queries").glob("*.sql"):
    queries.load(path.stem, **({"stage": "parse"} if path.stem == "uploads" else {}))
client = web.create_app().test_client()
for address in ("/readyz", "/login", "/openapi.json", "/docs", "/access/static/login.css", "/metrics"):
    answer = client.get(address)
    print(address, answer.status_code)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_every_file_of_the_product(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert sorted(wheel.sources()) == sorted(held)


def test_the_wheel_migrates_a_database_and_serves(built: Path, servers: Servers, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    wheel.install(built, site)
    elsewhere.mkdir()
    name = f"wheel_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    env = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1",
        "HEADWORKS_DATABASE_URL": servers.dsn_of(name), "HEADWORKS_BROKER_URL": servers.valkey.url,
        "HEADWORKS_DATA_DIR": str(elsewhere), "HEADWORKS_SECRET": SECRET, "HEADWORKS_API_KEY": KEY,
    }  # fmt: skip

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=elsewhere, env=env, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-m", "app.cli", "migrate")
    answers = dict(line.split() for line in run("-c", RUNS, str(site)).splitlines())
    assert set(answers.values()) == {"200"}, answers
