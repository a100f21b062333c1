"""The catalog's commands, as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app import cli
from app.catalog import runs
from app.catalog.embedding_models import Usem3
from app.catalog.replay import demo
from tests.integration.catalog.test_crashes import environment
from tests.integration.catalog.test_runs import refuse
from tests.integration.catalog.world import World

Call = Callable[..., tuple[int, str, str]]
CODE = "book:17924463"


@pytest.fixture
def call(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Types a command: its exit code, what it says, and what it says of errors."""
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["catalog", *words])
        return (code, *capsys.readouterr())

    return call


def test_a_job_is_done_and_stands_in_the_history(world: World, call: Call) -> None:
    code, said, _ = call("run", "JOB-I-01", "--only", CODE)
    outcome = json.loads(said)
    assert (code, outcome["status"], outcome["summary"]["outcomes"]) == (0, "success", {"applied": 1})
    code, said, _ = call("runs", "--job", "JOB-I-01")
    assert (code, said.split("\t")[1::2], said.split("\t")[0]) == (
        0, ["JOB-I-01", "success", "applied=1\n"], outcome["run_id"],
    )  # fmt: skip
    code, said, _ = call("show", outcome["run_id"])
    assert (code, json.loads(said)["status"]) == (0, "success")


def test_what_failed_is_named_with_its_reason(world: World, call: Call) -> None:
    refuse(world, CODE)
    code, said, _ = call("run", "JOB-I-01", "--only", CODE)
    assert code == 1
    code, said, _ = call("failed", json.loads(said)["run_id"])
    assert (code, said.split("\t")[:4]) == (0, [CODE, "target_refused", "400", "1"])


def test_a_dry_run_says_which_fields_would_change(world: World, call: Call) -> None:
    world.item(CODE, pointRate=1)
    call("run", "JOB-I-01", "--only", CODE)
    world.item(CODE, pointRate=5)
    before = world.tables()
    code, said, errors = call("run", "JOB-I-01", "--only", CODE, "--dry-run")
    assert (code, json.loads(errors)) == (0, {CODE: {"pointRate": [1, 5]}})
    assert json.loads(said)["summary"]["changed_fields"] == {"pointRate": 1}
    assert world.tables() == before


def test_of_an_object_that_is_gone_a_dry_run_says_that(world: World, call: Call) -> None:
    call("run", "JOB-I-01", "--only", CODE)
    (world.folder / "raw" / world.ledger("item", CODE)[2]).unlink()
    world.item(CODE, pointRate=77)
    code, said, errors = call("run", "JOB-I-01", "--only", CODE, "--dry-run")
    assert (code, json.loads(errors)) == (0, {CODE: {"not_comparable": "The raw object is not there."}})
    assert json.loads(said)["summary"]["changed_fields"] == {"pointRate": 1}


def test_nothing_to_do_has_a_code_of_its_own(call: Call) -> None:
    assert call("run", "JOB-R-01")[0] == 3


def test_a_run_goes_on_as_it_was_begun(world: World, call: Call) -> None:
    refuse(world, CODE)
    run_id = json.loads(call("run", "JOB-I-01", "--only", CODE)[1])["run_id"]
    code, _, errors = call("run", "JOB-I-01", "--resume", run_id, "--limit", "3")
    assert (code, "--resume takes no" in errors) == (1, True)
    code, said, _ = call("run", "JOB-I-01", "--resume", run_id)
    assert (code, json.loads(said)["summary"]["outcomes"]) == (0, {"applied": 1})


def test_a_net_is_done_for_the_genres_that_are_wanted(
    world: World, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Usem3, "embed", lambda self, texts: [[0.5] * self.dimensions for _ in texts])
    demo.add_invented(world.api, 24)
    assert call("genres", "--enable", "201351")[1] == "201351\twanted\t-\n"
    code, said, _ = call("net", "--day", "2026-11-20")
    assert (code, [one["exit_code"] for one in json.loads(said)]) == (0, [0] * 7)
    assert {str(run.job_start_at.date()) for run in runs.newest(world.db)} == {"2026-11-20"}
    code, said, errors = call("verify")
    assert (code, said, "0 are not" in errors) == (0, "", True)
    code, said, _ = call("reapply", "JOB-G-01", "--all")
    assert (code, set(json.loads(said)["summary"]["outcomes"])) == (0, {"reapplied"})
    assert call("genres", "--disable", "201351")[1].startswith("201351\tnot wanted")


def test_an_object_that_was_tampered_with_is_named(world: World, call: Call) -> None:
    call("run", "JOB-I-01", "--only", CODE)
    (world.folder / "raw" / world.ledger("item", CODE)[2]).write_text("{}")
    code, said, errors = call("verify", "--entity", "item")
    assert (code, said.split("\t")[:3]) == (1, ["item", CODE, "of another content"])
    assert "1 are not" in errors


@pytest.mark.parametrize("words", [
    ["run", "JOB-X-01"], ["show", "no-id"], ["run", "JOB-I-01", "--day", "soon"], ["reapply", "JOB-A-01"],
])  # fmt: skip
def test_what_nobody_understands_is_refused(call: Call, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        call(*words)
    assert caught.value.code == 2


def test_a_command_without_an_application_says_what_is_missing(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWORKS_CATALOG_APPLICATION_ID", "")
    code, said, _ = call("run", "JOB-I-01", "--only", CODE)
    found: dict[str, Any] = json.loads(said)
    assert code == 1
    assert "HEADWORKS_CATALOG_APPLICATION_ID" in found["summary"]["sentence"]
