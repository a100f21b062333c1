"""The runbook speaks of what exists: commands, log events, metrics, states, codes, queues, processes, SQL."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app import cli
from app.adapters import dispatch, exposition
from app.catalog.failures import CATEGORIES
from app.doctor import checks
from app.pipeline import states as pipeline_states
from app.refdata import states as refdata_states
from app.suppliers import codes as supplier_codes
from app.uploads import codes as upload_codes
from app.uploads import states as upload_states
from app.uploads.webhooks import codes as webhook_codes
from tests.conftest import Servers
from tests.integration.observe.test_alerts import sections
from tests.integration.one_database import database_url  # noqa: F401
from tests.integration.refdata.two_databases import databases  # noqa: F401
from tests.test_architecture import MODULES

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "docs" / "runbook.md", ROOT / "docs" / "sre-checklist.md"]
RUNBOOK = PAGES[0].read_text(encoding="utf-8")
PARTS = ("Users notice", "Look", "Do", "Wake", "Over when")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


# -- names


def log_events() -> set[str]:
    """The first argument of every call that writes a log line."""
    found: set[str] = set()
    for tree in MODULES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and re.fullmatch(
                r"(log\.(debug|info|warning|error|exception)|_log)", ast.unparse(node.func)
            ):
                found |= set(_texts(node.args[0]))
    return found


def _texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):  # the loops that rest name themselves
        for loop in rests():
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else loop for part in node.values)


def rests() -> list[str]:
    calls = [
        node
        for tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Rest"
    ]
    return [str(ast.literal_eval(call.args[0])) for call in calls]


def error_codes() -> set[str]:
    """`code = "…"` of every class, and `code="…"` of every call."""
    found = {
        str(node.value.value)
        for tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "code"
        if isinstance(node.value, ast.Constant)
    }
    return found | {
        str(word.value.value)
        for tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "code" and isinstance(word.value, ast.Constant)
    }


def procfile() -> set[str]:
    lines = (ROOT / "Procfile").read_text(encoding="utf-8").splitlines()
    return {line.partition(":")[0] for line in lines if line}


def tasks() -> set[str]:
    source = (ROOT / "workers" / "tasks.py").read_text(encoding="utf-8")
    return set(re.findall(r'@app\.task\(name="([\w.]+)"', source))


STATUSES = {
    *upload_states.UPLOAD.states, *pipeline_states.MACHINE.states, *refdata_states.MACHINE.states,
    "PASS", "FAIL", "NOOP",
}  # fmt: skip
CODES = {
    *upload_codes.FILE_CODES, *upload_codes.ROW_CODES, *refdata_states.CODES, *supplier_codes.registry(),
    *CATEGORIES, *webhook_codes.TRIED, *error_codes(), "too_many_failures",
}  # fmt: skip
KNOWN: dict[str, Callable[[], set[str]]] = {
    # the word before a name in backticks → what may be named so
    "log": log_events,
    "metric": lambda: {one.name for one in exposition.described()},
    "status": lambda: STATUSES,
    "code": lambda: CODES,
    "queue": lambda: set(dispatch.queues()),
    "task": tasks,
    "process": procfile,
    "check": lambda: set(checks.CHECKS),
}


def marked(text: str, word: str) -> set[str]:
    return set(re.findall(rf"\b{word}\s+`([^`]+)`", text, re.IGNORECASE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.parametrize("word", KNOWN)
def test_what_is_named_exists(word: str, page: Path) -> None:
    assert marked(text_of(page), word) - KNOWN[word]() == set()


def test_the_runbook_names_enough_to_be_looked_at() -> None:
    found = {word: len(marked(RUNBOOK, word)) for word in KNOWN}
    assert found["log"] > 30 and found["metric"] > 15 and found["code"] > 20, found
    assert len(log_events()) > 100


def test_the_table_of_processes_is_the_procfile() -> None:
    table = RUNBOOK.split("| process | without it |")[1].split("\n\n")[0]
    assert marked(table, "process") == procfile()


def test_the_codes_of_dead_letters_are_all_there() -> None:
    section = RUNBOOK.split("### Dead letters")[1].split("\n### ")[0]
    buried = {code for code, of in refdata_states.CODES.items() if of.dead_letter}
    assert marked(section, "code") == buried


def test_the_queues_are_all_explained() -> None:
    section = RUNBOOK.split("### FleetSilent")[1].split("\n### ")[0]
    assert marked(section, "queue") == set(dispatch.queues())


# -- shape


@pytest.mark.parametrize("alert", sections())
def test_the_section_of_an_alert_has_its_five_parts_in_order(alert: str) -> None:
    section = RUNBOOK.split(f"\n### {alert}\n")[1].split("\n### ")[0].split("\n## ")[0]
    assert tuple(re.findall(r"^- \*\*([^*]+)\*\*", section, re.MULTILINE)) == PARTS
    assert all(re.search(rf"\*\*{part}\*\*\s+\S", section) for part in PARTS)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", text_of(page)):
        if target.startswith("https://"):
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        if anchor and path.suffix == ".md" and path.exists():
            assert anchor in anchors(path), anchor


# -- commands


def commands(page: Path) -> list[list[str]]:
    """Every command line of ours, in blocks and in the text."""
    text = text_of(page)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    spans = re.findall(r"`(headworks [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = itertools.chain.from_iterable(block.splitlines() for block in blocks)
    found = [*(line for line in lines if re.match(r"\s*headworks ", line)), *spans]
    return [shlex.split(line.replace("\n", " "), comments=True)[1:] for line in found]


UUID = "5a3b1e00-0000-4000-8000-000000000001"
EXAMPLES = {"$VERSION": "7", "$WORKSPACE": UUID, "$RUN": UUID, "$WEBHOOK": UUID, "RUN": UUID, "UUID": UUID}


def understood(arguments: list[str]) -> bool:
    """Whether the command line takes these arguments; it does nothing about them."""
    given = [EXAMPLES.get(word, word) for word in arguments]
    try:
        cli.command_line().parse_args(given)
    except SystemExit:
        return False
    return True


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(line, id=" ".join(line)) for page in PAGES for line in commands(page)],
)
def test_a_command_is_one_that_the_command_line_understands(arguments: list[str]) -> None:
    # A group of commands alone, such as `headworks catalog`, is no command.
    assert understood(arguments), arguments


def test_a_command_that_is_none_is_noticed() -> None:
    assert not understood(["uploads", "drop"])
    assert not understood(["requeue", "--status", "failed", "--everything", "--reason", "x"])
    assert len(commands(PAGES[0])) > 30


# -- SQL


def sql_blocks() -> list[tuple[str, str]]:
    found = []
    for before, block in re.findall(r"([^\n]*)\n```sql\n(.*?)```", RUNBOOK, re.DOTALL):
        marker = re.fullmatch(r"<!-- database: (\w+) -->", before.strip())
        found.append((marker[1] if marker else "instance", block))
    return found


@pytest.mark.parametrize(("where", "block"), sql_blocks())
def test_sql_runs_as_it_stands(
    where: str, block: str, servers: Servers, database_url: str, databases: tuple[str, str],  # noqa: F811
) -> None:  # fmt: skip
    if where == "refdata":
        from app.adapters.database import Database
        from app.refdata import store

        db = Database(databases[0], name="tests")
        store.apply_ddl(db)
        db.close()
    servers.sql(block, dsn={"instance": database_url, "refdata": databases[0]}[where])


def test_there_is_sql_of_both_databases() -> None:
    assert {where for where, _ in sql_blocks()} == {"instance", "refdata"}
