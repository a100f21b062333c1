"""Rules of the code that no other tool checks; each exception stands here with its reason."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for folder in ("app", "workers")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
QUERIES = {
    path.stem: re.findall(r"^-- name: (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    for path in sorted((ROOT / "sql" / "queries").glob("*.sql"))
}


def imports(tree: ast.Module) -> Iterator[str]:
    """Every imported name with its module, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(*names: str) -> set[str]:
    """The modules that import one of the names, or something below it."""
    return {
        path
        for path, tree in MODULES.items()
        for found in imports(tree)
        if any(found == name or found.startswith(f"{name}.") for name in names)
    }


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of the nodes that are docstrings, of whatever has one, and of attributes."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def test_the_rules_look_at_the_code() -> None:
    assert {"app/web.py", "app/uploads/store.py", "workers/tasks.py"} <= set(MODULES)
    assert len(QUERIES["uploads"]) > 40


def test_no_module_is_named_after_nothing() -> None:
    nothing = {
        "utils",
        "util",
        "common",
        "helpers",
        "helper",
        "models",
        "base",
        "misc",
        "core",
        "lib",
        "tools",
    }
    named = {path for path in MODULES if nothing & {*Path(path).parts[:-1], Path(path).stem}}
    assert set() == named


WEB = {
    "app/web.py",
    # the pages: words, figures, charts and blank reports beside them know nothing of the web
    "app/uploads/pages/auditing.py",
    "app/uploads/pages/data.py",
    "app/uploads/pages/handing_in.py",
    "app/uploads/pages/live.py",
    "app/uploads/pages/looking.py",
    "app/uploads/pages/site.py",
    "app/pipeline/serve.py",  # the pipeline without the rest
}


def test_only_the_web_knows_the_web_framework() -> None:
    found = importers("flask", "werkzeug", "gunicorn", "flask_sock", "simple_websocket")
    access = {path for path in found if path.startswith("app/access/")}
    assert {path for path in found if Path(path).name != "views.py"} - access == WEB


def test_only_the_fleet_knows_celery() -> None:
    assert {"app/adapters/dispatch.py", "workers/fleet.py", "workers/beat.py"} == importers("celery", "kombu")


def test_only_stores_call_queries() -> None:
    found = importers("app.adapters.queries")
    assert set() == {
        path
        for path in found
        if not Path(path).stem.endswith(("store", "_repo")) and Path(path).stem not in ("outbox", "questions")
    }
    assert "app/uploads/store.py" in found


SQL = re.compile(
    r"\b(select\b.+\bfrom|select\s+\w+\(|insert\s+into|update\s+\w+\s+set|delete\s+from|create\s+(table|role|database)"
    r"|alter\s+table|drop\s+(table|database)|truncate\s|grant\s\w+\s+(on|to)|copy\s.+\bfrom\b)",
    re.IGNORECASE | re.DOTALL,
)
SQL_EXCEPTIONS = {
    "app/adapters/database.py": "what every transaction begins with, and savepoints",
    "app/adapters/pooler.py": "whose process answers",
    "app/adapters/migrations.py": "the lock of the migrations and their own table",
    "app/adapters/embedded/postgres.py": "the database of a server that has none yet",
}


def test_no_sql_stands_in_python() -> None:
    found = {
        path
        for path, tree in MODULES.items()
        for told in [docstrings(tree)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in told and SQL.search(node.value)
    }
    assert set(SQL_EXCEPTIONS) == found


def test_the_search_for_sql_finds_sql() -> None:
    for statement in (
        "SELECT 1 FROM t",
        "select now()",
        "Update t set a = 1",
        "DELETE FROM t",
        "copy t from stdin",
    ):
        assert SQL.search(statement), statement


def called(tree: ast.Module) -> set[str]:
    """The attributes of the module's queries that it uses."""
    holders = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and "queries.load(" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    # `_sql.claim`, or `_sql[stage].claim` where a file is read once for each stage
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).partition("[")[0] in holders
    }


def test_every_query_is_called_by_one_module_under_its_own_name() -> None:
    callers = {name: [] for names in QUERIES.values() for name in names}
    for path in importers("app.adapters.queries"):
        for name in called(MODULES[path]):
            callers.setdefault(name, []).append(path)
    assert {name: paths for name, paths in callers.items() if len(paths) != 1} == {}


def test_a_query_has_one_name_and_says_what_it_means() -> None:
    names = [name for of_file in QUERIES.values() for name in of_file]
    assert len(names) == len(set(names))
    for path in (ROOT / "sql" / "queries").glob("*.sql"):
        silent = re.findall(r"^-- name: (\w+).*\n(?!-- )", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert silent == [], path.name


CLOCK = "app/kernel/clock.py"
CLOCK_EXCEPTIONS = {
    # module: what it may import, and why
    "app/access/keys.py": {"secrets"},  # makes keys
    "app/access/sessions.py": {"secrets"},  # makes the ids of sessions
    "app/uploads/webhooks/signature.py": {"secrets"},  # makes the secrets that sign
    "app/catalog/client.py": {"random"},  # spreads tries that would all come at one moment
    "app/adapters/embedded/procfile.py": {"time"},  # waits for real processes
    "app/adapters/embedded/server.py": {"time", "secrets"},  # waits for a server; makes its password
    "app/up.py": {"time", "secrets"},  # waits for the fleet; makes the local key
    "app/cli.py": {"time"},  # a person waits at the terminal
    "app/samples.py": {"time"},  # the same
    "app/refdata/query/image.py": {"secrets"},  # where keys fall must not be known beforehand
    "app/refdata/query/loader.py": {"random"},  # pods must not all load at one moment
    "app/client.py": {"secrets"},  # the boundary of a multipart body
}


def test_time_ids_and_chance_come_from_the_clock_alone() -> None:
    found: dict[str, set[str]] = {}
    for path, tree in MODULES.items():
        for name in imports(tree):
            first = name.split(".")[0]
            if first in ("time", "random", "secrets") or name == "uuid" or name.startswith("uuid.uuid"):
                found.setdefault(path, set()).add(first)
    assert {"time", "uuid"} == found.pop(CLOCK)
    assert found == CLOCK_EXCEPTIONS


def test_nobody_else_asks_what_time_it_is() -> None:
    asks = re.compile(r"\b(datetime|date)\.(now|utcnow|today)\b|\bdatetime\.fromtimestamp\b")
    found = {
        path
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and asks.fullmatch(ast.unparse(node))
    }
    assert {CLOCK} == found


def test_the_kernel_needs_the_standard_library_alone() -> None:
    known = {*sys.stdlib_module_names, "app"}
    found = {
        (path, name)
        for path, tree in MODULES.items()
        if path.startswith("app/kernel/")
        for name in imports(tree)
        if name.split(".")[0] not in known or (name.startswith("app.") and not name.startswith("app.kernel"))
    }
    assert set() == found


def test_only_settings_and_entry_points_read_the_environment() -> None:
    found = {
        path
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    }
    passes_on = "app/suppliers/extract.py"  # a part of it, to the reading process
    entry_points = {"app/cli.py", "app/up.py", "app/cli_pipeline.py", "workers/flower.py"}
    assert {"app/adapters/settings.py", *entry_points, passes_on} >= found


def tasks() -> dict[str, ast.FunctionDef]:
    return {
        node.name: node
        for node in MODULES["workers/tasks.py"].body
        if isinstance(node, ast.FunctionDef) and any("task" in ast.unparse(d) for d in node.decorator_list)
    }


def test_a_task_is_one_call() -> None:
    assert len(tasks()) >= 5
    for name, task in tasks().items():
        assert task.end_lineno is not None and task.end_lineno - task.lineno < 5, name
        assert not task.args.args, f"{name} carries data"


@pytest.mark.parametrize("path", MODULES)
def test_everything_public_says_what_it_is(path: str) -> None:
    tree = MODULES[path]
    silent = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if not node.name.startswith("_") and ast.get_docstring(node) is None
    ]
    assert silent == []
    assert ast.get_docstring(tree), "the module"


def test_the_changelog_has_a_place_for_what_is_not_released() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[?Unreleased\]?\n+(### |- )", text, re.MULTILINE)
