"""`headworks refdata …`: what an operator asks of the reference data and does with it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.access import command_line
from app.adapters import topics
from app.adapters.database import Database
from app.adapters.settings import ENVIRON, Settings
from app.kernel import errors
from app.refdata import config, letters, rollback, services, store
from app.refdata.services import Services
from app.refdata.yaml_lines import BadConfig

Configure = Callable[[argparse.Namespace], Settings]


def add_commands(parser: argparse.ArgumentParser, configure: Configure) -> list[argparse.ArgumentParser]:
    """The parser knows these commands; returns those that need to find an instance."""
    of_refdata = parser.add_subparsers(required=True, metavar="COMMAND")
    made: list[argparse.ArgumentParser] = []

    def add(name: str, work: Callable[[argparse.Namespace, Services], int], help: str) -> Any:
        command = of_refdata.add_parser(name, help=help)
        command.set_defaults(run=lambda options: _with_services(configure(options), options, work))
        made.append(command)
        return command

    checked = of_refdata.add_parser("check", help="whether a configuration can be used; nothing is changed")
    checked.add_argument("file", type=Path, help="the YAML file")
    checked.set_defaults(run=_check)
    dead = add("dead-letters", _dead_letters, "commands that somebody has to look at")
    what = dead.add_mutually_exclusive_group()
    what.add_argument("--replay", action="store_true", help="send them again, and forget them here")
    what.add_argument("--discard", action="store_true", help="forget them here, and never send them again")
    dead.add_argument("--key", metavar="TENANT:DICTIONARY", help="not with --replay: only those of this key")
    dead.add_argument("--code", help="not with --replay: only those that were refused for this reason")
    dead.add_argument("--dry-run", action="store_true", help="of --discard: name them, and discard none")
    dead.add_argument("--reason", help="of --discard, needed unless it is a dry run: kept beside who did it")
    dead.add_argument("--limit", type=int, default=20, help="so many at most")
    with_services = dead.get_default("run")
    dead.set_defaults(run=lambda options: with_services(_understood(dead, options)))
    epoch = add("new-epoch", _new_epoch, "after a restore of a database: everybody loads everything anew")
    epoch.add_argument("--database", default="postgres", help="its name in the configuration")
    for name, work, help in (
        ("versions", _versions, "where a dictionary stands, and which earlier versions are kept"),
        ("rollback", _rollback, "an earlier version's entries become a new version"),
        ("pin", _pin, "the dictionary takes no changes; they become dead letters"),
        ("unpin", _unpin, "the dictionary takes changes again"),
    ):
        changed = add(name, work, help)
        changed.add_argument("tenant", help="whose dictionary")
        changed.add_argument("dictionary", help="its code, such as COUNTRY")
        if name == "rollback":
            changed.add_argument(
                "--to", type=int, required=True, metavar="VERSION", help="an archived version"
            )
            changed.add_argument("--pin", action="store_true", help="and it takes no changes then")
        if name in ("rollback", "pin"):
            changed.add_argument("--reason", default="", help="for whoever finds it pinned")
    return made


def _with_services(
    settings: Settings, options: argparse.Namespace, work: Callable[[argparse.Namespace, Services], int]
) -> int:
    of = services.connect(settings, name="headworks refdata cli")
    try:
        return work(options, of)
    finally:
        of.close()


def _check(options: argparse.Namespace) -> int:
    try:
        found = config.parse(options.file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise BadConfig(f"{options.file} is not in UTF-8.") from None
    for name, database in found.databases.items():
        try:
            database.url(ENVIRON)
        except BadConfig as error:
            print(f"{name}: {error.sentence}", file=sys.stderr)
    for one in found.dictionaries.values():
        can = {"deltas": one.takes_deltas, "snapshots": one.takes_snapshots}
        does = [kind for kind in can if can[kind]]
        print(f"{one.code}\t{'enabled' if one.enabled else 'disabled'}\t{' and '.join(does) or 'read-only'}")
    return 0


def _understood(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    if options.discard and not options.dry_run and not (options.reason or "").strip():
        parser.error("--discard needs --reason: it is kept with what was discarded")
    if options.replay and (options.key or options.code or options.dry_run):
        parser.error("--replay takes all that are not discarded")
    return options


def _dead_letters(options: argparse.Namespace, of: Services) -> int:
    left, discarded = options.limit, 0
    with letters.Letters(of) as found:
        while left > 0 and (some := found.some(left)):
            chosen = [one for one in some if _is_asked_for(one, options)]
            for one in chosen:
                headers = {name: letters.header(one, name) for name in one.headers}
                print(json.dumps({"key": one.key, **headers, "bytes": len(one.value)}))
            if options.replay:
                found.send_again(chosen)
            elif options.discard and not options.dry_run:
                found.discard(chosen, who=command_line.who(), reason=options.reason.strip())
                discarded += len(chosen)
            left -= len(chosen)
    if options.discard:
        print(f"{discarded} dead letters are discarded", file=sys.stderr)
    return 0


def _is_asked_for(letter: topics.Message, options: argparse.Namespace) -> bool:
    return options.key in (None, letter.key) and options.code in (None, letters.header(letter, "error-code"))


def _new_epoch(options: argparse.Namespace, of: Services) -> int:
    if options.database not in of.databases:
        raise BadConfig(f"The configuration has no database {options.database}.")
    print(store.renew_epoch(of.databases[options.database]))
    return 0


def _place(options: argparse.Namespace, of: Services) -> tuple[Database, tuple[str, str]]:
    dictionary = of.dictionary(options.dictionary)
    if dictionary is None:
        raise errors.NotFound(f"No dictionary is called {options.dictionary}.")
    return of.databases[dictionary.database], (options.tenant, options.dictionary)


def _versions(options: argparse.Namespace, of: Services) -> int:
    db, place = _place(options, of)
    stands = store.pinned(db, place)
    if stands is None:
        raise errors.NotFound("The tenant never wrote this dictionary.")
    pinned = (
        f"pinned since {stands.pinned_at:%Y-%m-%d %H:%M}: {stands.pin_reason}" if stands.pinned_at else ""
    )
    print(f"{stands.version}\tnow\t{pinned}".rstrip())
    for row in reversed(store.archived(db, place)):
        print(f"{row.version}\tuntil {row.archived_at:%Y-%m-%d %H:%M}\t{row.entries} entries")
    return 0


def _rollback(options: argparse.Namespace, of: Services) -> int:
    _, place = _place(options, of)
    version = rollback.roll_back(of, place, options.to, reason=options.reason, pin=options.pin)
    print(f"Version {version} has the entries of version {options.to}.")
    return 0


def _pin(options: argparse.Namespace, of: Services) -> int:
    db, place = _place(options, of)
    if not store.pin(db, place, options.reason):
        raise errors.NotFound("The tenant never wrote this dictionary.")
    return 0


def _unpin(options: argparse.Namespace, of: Services) -> int:
    db, place = _place(options, of)
    if not store.unpin(db, place):
        print("It was not pinned.", file=sys.stderr)
    return 0
