"""`headworks keys …`: keys are made, listed and revoked in the database itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

from app.access import command_line, keys, principal, store
from app.adapters import database
from app.kernel import errors

MAX_DAYS = 3650
MAX_NAME = 100

Connect = Callable[[argparse.Namespace], database.Database]


def add_commands(parser: argparse.ArgumentParser, connect: Connect) -> list[argparse.ArgumentParser]:
    """The parser knows `keys create|list|revoke`; returns those that need to find an instance."""
    of_keys = parser.add_subparsers(required=True, metavar="COMMAND")
    create = of_keys.add_parser("create", help="make a key and print it, this once")
    where = create.add_mutually_exclusive_group(required=True)
    where.add_argument("--workspace", type=UUID, metavar="UUID", help="the key sees this workspace alone")
    where.add_argument("--all-workspaces", action="store_true", help="the key sees every workspace")
    create.add_argument(
        "--scope", action="append", required=True, choices=list(principal.SCOPES), dest="scopes",
        help="what it may do; give it once for each",
    )  # fmt: skip
    create.add_argument("--name", type=_name, default="no name", help="stands in the audit trail")
    create.add_argument("--expires", type=_days, metavar="DAYS", help="it opens nothing afterwards")
    create.set_defaults(run=lambda options: _create(options, connect(options)))

    listed = of_keys.add_parser("list", help="all keys, without their secrets")
    listed.add_argument("--workspace", type=UUID, metavar="UUID", help="only those of this workspace")
    listed.set_defaults(run=lambda options: _list(options, connect(options)))

    revoke = of_keys.add_parser("revoke", help="the key opens nothing any more, at once")
    revoke.add_argument("public_id", help="the eight characters after hw_")
    revoke.set_defaults(run=lambda options: _revoke(options, connect(options)))
    return [create, listed, revoke]


def _name(text: str) -> str:
    if not text.isprintable() or not 0 < len(text) <= MAX_NAME:
        raise argparse.ArgumentTypeError(f"a name has 1 to {MAX_NAME} printable characters")
    return text


def _days(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MAX_DAYS:
        raise argparse.ArgumentTypeError(f"a number of days from 1 to {MAX_DAYS}")
    return int(text)


def _create(options: argparse.Namespace, db: database.Database) -> int:
    key = keys.create(
        db,
        workspace_id=options.workspace,
        scopes=frozenset(options.scopes),
        name=options.name,
        created_by=command_line.who(),
        expires_days=options.expires,
    )
    print("the key is shown this once: only its hash is kept", file=sys.stderr)
    print(key.text)
    return 0


def _list(options: argparse.Namespace, db: database.Database) -> int:
    with db.transaction("access") as conn:
        found = store.list_keys(conn, workspace_id=options.workspace)
    for key in found:
        print(
            f"hw_{key.id}", key.workspace_id or "every workspace", ",".join(key.scopes), key.name,
            _time("created", key.created_at), f"by {key.created_by}", _time("expires", key.expires_at),
            _time("revoked", key.revoked_at), _time("last used", key.last_used_at), sep="\t",
        )  # fmt: skip
    return 0


def _time(what: str, when: Any) -> str:
    return f"{what} {when:%Y-%m-%d %H:%M}" if when else f"{what} never"


def _revoke(options: argparse.Namespace, db: database.Database) -> int:
    # Whoever has the whole key at hand may paste it: only the public part is used, and repeated.
    public_id = options.public_id.removeprefix("hw_").partition("_")[0]
    if not public_id.isalnum():
        raise errors.Refused("A public id is the eight characters after hw_.")
    keys.revoke(db, public_id)
    print(f"key hw_{public_id} is revoked, and its sessions have ended", file=sys.stderr)
    return 0
