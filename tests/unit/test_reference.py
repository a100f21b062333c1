"""The pages of the reference say what the code says."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from app import cli
from app.kernel import errors
from app.kernel.states import Machine
from app.uploads import events
from app.uploads.claims import Claim
from reference import codes, commands, machines, operations, refusals, routes, settings
from reference import events as told
from reference.__main__ import FOLDER, PAGES
from reference.page import cell, table
from reference.words_of_settings import BESIDE, GROUPS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_as_the_code_says(name: str) -> None:
    assert PAGES[name]() == (FOLDER / name).read_text(encoding="utf-8"), "./scripts/reference writes it anew"


def test_nothing_else_is_in_the_folder() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_every_variable_of_the_code_is_told() -> None:
    named = re.compile(r"\b(?:HEADWORKS|FLOWER_BASIC|OTEL)_[A-Z][A-Z0-9_]*[A-Z0-9]\b")
    sources = [
        ROOT / "Procfile",
        ROOT / "celeryconfig.py",
        *(ROOT / "app").rglob("*.py"),
        *(ROOT / "app").rglob("*.yaml"),
    ]
    sources += (ROOT / "workers").rglob("*.py")
    found = {name for path in sources for name in named.findall(path.read_text(encoding="utf-8"))}
    assert "HEADWORKS_DATA_DIR" in found
    assert found - settings.names() == set()


def test_a_setting_without_words_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(GROUPS["The web"], "bind")
    with pytest.raises(settings.Unsaid, match="bind"):
        settings.settings()


def test_processes_that_read_a_setting_are_of_the_procfile() -> None:
    processes = {
        line.partition(":")[0] for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines()
    }
    for words in (*BESIDE.values(), *(one for group in GROUPS.values() for one in group.values())):
        assert set(words.readers.split(", ")) <= processes | {"command line"}, words


def test_every_command_and_option_says_what_it_does() -> None:
    silent = [
        f"{path} {names}"
        for path, help, parser in commands.walk(cli.command_line())
        for names, told, _ in [("", help, ""), *commands._arguments(parser)]
        if not told
    ]
    assert silent == []


def test_every_exit_code_is_told() -> None:
    assert commands.WAYS.keys() == cli.EXIT_CODES.keys()


def test_every_state_machine_of_the_code_is_told() -> None:
    made = [
        (path, node)
        for path in (ROOT / "app").rglob("*.py")
        if "Machine(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == Machine.__name__
    ]
    assert len(made) == len(machines.MACHINES)


def test_states_without_edges_are_those_of_the_schema() -> None:
    schema = (ROOT / "sql" / "schema" / "70_catalog.sql").read_text(encoding="utf-8")
    for statuses in re.findall(r"etl_(?:net|run)_status CHECK \(status IN \(([^)]*)\)", schema):
        for status in re.findall(r"'(\w+)'", statuses):
            assert f"`{status}`" in machines.BY_OUTCOME


def test_every_route_says_what_it_needs() -> None:
    found = routes.whole()
    needed = {f"{one.method} {one.path}": routes.needs(found, one) for one in routes.routes(found)}
    assert [route for route, needs in needed.items() if not needs] == []
    assert (
        needed["POST /v1/uploads"] == "`upload`"
        and needed["DELETE /v1/webhooks/{subscription_id}"] == "`ops`"
    )
    assert needed["GET /healthz"] == "nothing" and needed["GET /api/v1/pipeline/files"] == "token"


def test_the_fields_of_the_completion_event_are_those_that_are_sent() -> None:
    claim = Claim.__new__(Claim)
    for name, value in {
        "upload_id": UUID(int=1),
        "workspace_id": UUID(int=2),
        "client_id": None,
        "platform": "meta",
    }.items():
        object.__setattr__(claim, name, value)
    final = SimpleNamespace(upserted={}, total_rows=1, promoted_rows=1, failed_rows=0)
    sent = events.ingestion_complete(
        claim,
        status="completed",
        final=final,
        affected_dates=[date(2026, 1, 1)],
        timestamp=datetime.now(UTC).isoformat(),
    )
    assert set(told.completion_fields()) == set(dict(told._flat(sent))) == set(told.OF_COMPLETION)


def test_a_code_without_words_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(refusals.WORDS, "csrf")
    with pytest.raises(refusals.Unsaid, match="csrf"):
        codes.codes()


def test_a_code_of_the_log_without_words_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(operations.WORDS, "unsafe_broker")
    with pytest.raises(operations.Unsaid, match="unsafe_broker"):
        codes.codes()


def test_an_error_that_is_in_no_table_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(codes.OF_THE_INSTANCE, errors.MemoryFull)
    with pytest.raises(operations.Unsaid, match="memory_full"):
        codes.codes()


def kinds_of_errors(kind: type[errors.HeadworksError]) -> set[type[errors.HeadworksError]]:
    return {kind}.union(*map(kinds_of_errors, kind.__subclasses__()))


def test_every_error_s_code_is_told() -> None:
    for module in pkgutil.walk_packages([str(ROOT / "app")], "app."):
        importlib.import_module(module.name)
    # tests have errors of their own
    found = {kind.code for kind in kinds_of_errors(errors.HeadworksError) if kind.__module__[:4] == "app."}
    assert len(found) > 40
    assert found - set(re.findall(r"^\| `([^`]+)` \|", codes.codes(), re.MULTILINE)) == set()


WAYS_TO_SAY_A_CODE = """
class Away(errors.Transient):
    code = "a"

def fail(*, code: str = "b") -> None:
    raise errors.Fatal(code="c" if code else f"d_{code}")

found = {"error_code": code or "e", "reason": "no code"}
log.info("event", code="f", path="no code")
one.reason_code = "g"
"""


def test_a_code_is_found_however_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "one.py").write_text(WAYS_TO_SAY_A_CODE)
    monkeypatch.setattr(operations, "ROOT", tmp_path)
    assert operations.in_code() == {"a", "b", "c", "d_{code}", "e", "f", "g"}


def test_every_way_in_which_a_catalog_s_run_ends_is_told() -> None:
    jobs = (ROOT / "app" / "catalog" / "jobs.py").read_text(encoding="utf-8")
    assert set(re.findall(r'"(too_many_\w+|no_targets|internal_error)"', jobs)) == set(codes.CATALOG_RUNS)


def test_every_end_of_an_upload_is_told() -> None:
    promote = (ROOT / "app" / "uploads" / "promote.py").read_text(encoding="utf-8")
    assert set(re.findall(r'code="(\w+)"', promote)) | {"internal_error"} == set(codes.ENDS)


def test_a_cell_is_one_line_of_its_table() -> None:
    assert cell("a |\n b") == "a \\| b"
    assert table(("a", "b"), [(1, "x|y")]).splitlines() == ["| a | b |", "|---|---|", "| 1 | x\\|y |"]
