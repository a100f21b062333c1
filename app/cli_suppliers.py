"""`headworks supplier …`: what an operator asks of a supplier's lists and does with them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.adapters import database
from app.adapters.settings import Settings
from app.suppliers import check, diff, history, requeue, retention, run, services, trace
from app.suppliers.services import Services

Configure = Callable[[argparse.Namespace], Settings]
EXIT_CODES = {"PASS": 0, "NOOP": 0, "FAIL": 1}


def add_commands(parser: argparse.ArgumentParser, configure: Configure) -> list[argparse.ArgumentParser]:
    """The parser knows these commands; returns those that need to find an instance."""
    of_supplier = parser.add_subparsers(required=True, metavar="COMMAND")
    made: list[argparse.ArgumentParser] = []

    def add(name: str, work: Callable[[argparse.Namespace, Services], int], help: str) -> Any:
        command = of_supplier.add_parser(name, help=help)
        command.set_defaults(run=lambda options: _with_services(configure(options), options, work))
        made.append(command)
        return command

    add("list", _list, "every supplier, its state and its last list")
    add("run", _run, "read the newest list now").add_argument("supplier", help="its name")
    checked = add("check", _check, "what a file would lead to; nothing is published")
    checked.add_argument("supplier", help="its name")
    checked.add_argument("file", type=Path, help="a list, wherever it lies")
    again = add("requeue", _requeue, "put a refused file back into the inbox")
    again.add_argument("supplier", help="its name")
    again.add_argument("file", help="its name in quarantine")
    again.add_argument("--reason", required=True, help="stands in the log")
    past = add("history", _history, "the newest runs")
    past.add_argument("supplier", help="its name")
    past.add_argument("--limit", type=int, default=20, help="so many at most")
    compare = add("diff", _diff, "what a state changed against the one before")
    compare.add_argument("supplier", help="its name")
    compare.add_argument("before", nargs="?", metavar="BEFORE", help="a run (default: the state before)")
    compare.add_argument("after", nargs="?", metavar="AFTER", help="a run (default: the current state)")
    traced = add("trace", _trace, "why something is for sale, or is not")
    traced.add_argument("supplier", help="its name")
    traced.add_argument("sku", help="the code of an article")
    traced.add_argument("--limit", type=int, default=10, help="runs that are looked at")
    old = add("retention", _retention, "remove what is older than it may be")
    old.add_argument("supplier", help="its name")
    old.add_argument("--dry-run", action="store_true", help="name it, and remove nothing")
    return made


def _with_services(
    settings: Settings, options: argparse.Namespace, work: Callable[[argparse.Namespace, Services], int]
) -> int:
    db = database.Database(settings.database_url, name="headworks cli")
    try:
        return work(options, services.connect(settings, db))
    finally:
        db.close()


def _print(found: Any) -> None:
    print(json.dumps(found, indent=1, ensure_ascii=False, default=str))


def _list(_: argparse.Namespace, found: Services) -> int:
    for supplier in found.layout.suppliers():
        about = history.overview(found, supplier)
        age = f"{about.age.seconds / 3600:.1f} h" if about.age.seconds is not None else "-"
        last = about.last.status if about.last else "-"
        age += ", too old" if about.age.too_old else ""
        facts = str(about.age.current.fact_count) if about.age.current else "-"
        print(supplier, facts, age, last, (about.last and about.last.reason_code) or "-", sep="\t")
    return 0


def _run(options: argparse.Namespace, found: Services) -> int:
    outcome = run.run(found, options.supplier)
    _print(dataclasses.asdict(outcome))
    for name in outcome.waiting:
        print(f"{name} may still be growing: it is read once it has not changed for a while", file=sys.stderr)
    return EXIT_CODES[outcome.status]


def _check(options: argparse.Namespace, found: Services) -> int:
    checked = check.check(found, options.supplier, options.file)
    _print(dataclasses.asdict(checked))
    return EXIT_CODES[checked.status]


def _requeue(options: argparse.Namespace, found: Services) -> int:
    path = requeue.requeue(found, options.supplier, options.file, who="command line", why=options.reason)
    print(f"{path.name} is in the inbox again", file=sys.stderr)
    return 0


def _history(options: argparse.Namespace, found: Services) -> int:
    for told in history.runs(found, options.supplier, limit=options.limit):
        print(
            told.run_id, told.status, told.reason_code or "-", told.good_rows, told.bad_rows, told.facts,
            told.input_filename, sep="\t",
        )  # fmt: skip
    return 0


def _diff(options: argparse.Namespace, found: Services) -> int:
    _print(diff.diff(found, options.supplier, options.before, options.after).as_json())
    return 0


def _trace(options: argparse.Namespace, found: Services) -> int:
    found_in = trace.trace(found, options.supplier, options.sku, limit=options.limit)
    _print([dataclasses.asdict(one) for one in found_in])
    return 0


def _retention(options: argparse.Namespace, found: Services) -> int:
    for one in retention.expire(found, options.supplier, dry_run=options.dry_run):
        print(one.kind, one.what, sep="\t")
    return 0
