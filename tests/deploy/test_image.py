"""The Dockerfile, without an engine: what it copies is all that runs, and it confines what it starts."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from app.adapters.settings import Settings
from tests.deploy import wheel
from tests.deploy.wheel import ROOT

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
IGNORE = ROOT / "deploy" / "Dockerfile.dockerignore"


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Each instruction with its words."""
    copy = tmp_path_factory.mktemp("image") / "Dockerfile"
    shutil.copyfile(DOCKERFILE, copy)  # the parser opens it for writing
    parser = DockerfileParser(path=str(copy))
    return [(one["instruction"], one["value"]) for one in parser.structure if one["instruction"] != "COMMENT"]


def stages(steps: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for instruction, value in steps:
        if instruction == "FROM":
            found.append([])
        if found:
            found[-1].append((instruction, value))
    return found


def copied(stage: list[tuple[str, str]]) -> list[str]:
    """What a stage takes from the checkout."""
    values = [value.split() for name, value in stage if name == "COPY" and not value.startswith("--from")]
    return [source for words in values for source in words[:-1]]


def is_ignored(path: str) -> bool:
    """By the rules of a .dockerignore: the last line that fits decides."""
    ignored = False
    for line in IGNORE.read_text(encoding="utf-8").splitlines():
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        name = rule.removeprefix("!")
        beneath = [path, *(parent.as_posix() for parent in Path(path).parents if parent.as_posix() != ".")]
        short = name.removeprefix("**/")
        fits = any(fnmatch(one, name) or ("**/" in name and Path(one).name == short) for one in beneath)
        if fits:
            ignored = not rule.startswith("!")
    return ignored


def test_the_linter_has_nothing_to_say() -> None:
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists():
        pytest.skip("no hadolint for this platform")
    done = subprocess.run([program, DOCKERFILE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_is_copied_is_there_and_not_ignored(steps: list[tuple[str, str]]) -> None:
    for stage in stages(steps):
        for source in copied(stage):
            assert (ROOT / source).exists(), source
            assert not is_ignored(source), source


def test_the_image_copies_all_that_the_wheel_is_made_of(steps: list[tuple[str, str]]) -> None:
    build = copied(stages(steps)[0])
    assert {*wheel.FOLDERS, *wheel.FILES} <= set(build)
    seen = [path for path in wheel.sources() if is_ignored(path)]
    assert seen == []


@pytest.mark.parametrize(
    "path",
    [
        "tests/conftest.py",
        "var/api-key",
        ".git/config",
        ".venv/bin/python",
        "deploy/compose.env",
        "docs/access.md",
    ],
)
def test_the_build_does_not_see_what_is_none_of_its_business(path: str) -> None:
    assert is_ignored(path)


def test_exact_versions_are_installed(steps: list[tuple[str, str]]) -> None:
    (install,) = [value for name, value in stages(steps)[0] if name == "RUN" and " install " in value]
    assert "--constraint constraints.txt" in install
    pinned = {
        re.split(r"==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = [line for line in setup["options"]["install_requires"].splitlines() if line and line[0] != "#"]
    assert {re.split(r"[\[<>=; ]", line)[0].lower() for line in needed} <= pinned


def test_the_image_is_small_and_has_nothing_to_build_with(steps: list[tuple[str, str]]) -> None:
    first, last = stages(steps)
    assert first[0][1].split()[0] == last[0][1].split()[0] == "${PYTHON}"
    assert ("ARG", "PYTHON=python:3.12-slim") in steps
    assert "--without-pip" in str(first)
    assert not re.search(r"\b(gcc|build-essential|pip install)\b", str(last))
    assert "rm -rf /var/lib/apt/lists/*" in str(last)


def test_the_image_runs_as_somebody_who_may_write_in_few_places(steps: list[tuple[str, str]]) -> None:
    last = stages(steps)[-1]
    assert [value for name, value in last if name == "USER"] == ["10001:10001"]
    assert last.index(("USER", "10001:10001")) > max(i for i, (name, _) in enumerate(last) if name == "RUN")
    (volumes,) = [json.loads(value) for name, value in last if name == "VOLUME"]
    assert volumes == ["/data", "/metrics"]
    (folder,) = [value for name, value in last if name == "WORKDIR"]
    assert not folder.startswith(("/data", "/metrics", "/shared", "/tmp"))


def environment(steps: list[tuple[str, str]]) -> dict[str, str]:
    (text,) = [value for name, value in stages(steps)[-1] if name == "ENV"]
    return dict(word.split("=", 1) for word in text.replace("\\", " ").split())


def test_what_the_image_sets_is_read_by_something(steps: list[tuple[str, str]]) -> None:
    known = {f"HEADWORKS_{name.upper()}" for name in Settings.__dataclass_fields__}
    pythons = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
    others = {"PATH", "REMAP_SIGTERM", "PROMETHEUS_MULTIPROC_DIR"}
    assert set(environment(steps)) <= known | pythons | others
    assert environment(steps)["REMAP_SIGTERM"] == "SIGQUIT"  # a stopped worker hands its work back


def test_the_image_asks_after_the_file_that_processes_touch(steps: list[tuple[str, str]]) -> None:
    (check,) = [value for name, value in steps if name == "HEALTHCHECK"]
    command = json.loads(check[check.index("CMD") + 3 :])
    assert command == ["python", "-m", "app.probe", environment(steps)["HEADWORKS_ALIVE_FILE"]]


def test_process_one_passes_signals_on_and_reaps(steps: list[tuple[str, str]]) -> None:
    assert ("ENTRYPOINT", '["tini", "--"]') in steps
