"""`headworks refdata …`: what an operator asks of the reference data and does with it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.adapters import topics
from app.adapters.database import Database
from app.adapters.settings import ENVIRON, Settings
from app.kernel import errors
from app.refdata import commands, config, rollback, services, store
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
    letters = add("dead-letters", _dead_letters, "commands that somebody has to look at")
    letters.add_argument("--replay", action="store_true", help="send them again, and forget them here")
    letters.add_argument("--limit", type=int, default=20, help="so many at most")
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


def _dead_letters(options: argparse.Namespace, of: Services) -> int:
    kafka = of.config.refdata.kafka
    consumer = of.topics.consumer(kafka.dead_letter_topic, group="refdata-dead-letters")
    try:
        left = options.limit
        while left > 0 and (messages := consumer.poll(left, 3.0)):
            for message in messages:
                headers = {name: value.decode("utf-8", "replace") for name, value in message.headers.items()}
                print(json.dumps({"key": message.key, **headers, "bytes": len(message.value)}))
                if options.replay:
                    _send_again(of, message)
            left -= len(messages)
            if options.replay:
                consumer.commit(messages)
    except errors.NotFound:
        pass  # nothing was ever buried
    finally:
        consumer.close()
    return 0


def _send_again(of: Services, message: topics.Message) -> None:
    """The message is in the topic of commands once more, as if it had never been refused."""
    with suppress(commands.Malformed):  # what is no command was not noted either
        command = commands.decode(message.value, now=of.clock.now(), most_bytes=commands.WIRE_BYTES)
        for db in of.databases.values():
            store.forget_refusal(db, command)
    topic = of.config.refdata.kafka.commands_topic
    of.publisher.publish(topic, key=message.key, value=message.value)


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
