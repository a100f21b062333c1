"""`headworks doctor|cleanup|requeue|webhooks`: what an operator does to a whole instance."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from app.adapters.settings import Settings
from app.client import Client, RequestRefused
from app.kernel.clock import SystemClock

MARKS = {"ok": "ok  ", "warning": "WARN", "failed": "FAIL"}

Connect = Callable[[argparse.Namespace], Client]
Configure = Callable[[argparse.Namespace], Settings]


def add_doctor(doctor: argparse.ArgumentParser, configure: Configure) -> list[argparse.ArgumentParser]:
    """The parser knows its options; returns what needs to find an instance, as the others do."""
    doctor.add_argument("--json", action="store_true", help="the findings as JSON")
    doctor.set_defaults(run=lambda options: _doctor(options, configure(options)))
    return [doctor]


def add_cleanup(parser: argparse.ArgumentParser, configure: Configure) -> list[argparse.ArgumentParser]:
    """The parser knows `cleanup run`."""
    of_cleanup = parser.add_subparsers(required=True, metavar="COMMAND")
    clean = of_cleanup.add_parser("run", help="drop expired staging now; the fleet does it every hour")
    clean.set_defaults(run=lambda options: _cleanup(configure(options)))
    return [clean]


def add_requeue(requeue: argparse.ArgumentParser, connect: Connect) -> list[argparse.ArgumentParser]:
    """The parser knows which uploads can be meant."""
    which = requeue.add_mutually_exclusive_group(required=True)
    which.add_argument("upload_id", nargs="?", help="this one")
    which.add_argument("--status", choices=("failed", "partial"), help="all that are in this state")
    requeue.add_argument(
        "--workspace", type=UUID, metavar="UUID", help="of these: where to look; needed there"
    )
    requeue.add_argument(
        "--error-code", metavar="CODE", help="of these: only those that ended for this reason"
    )
    requeue.add_argument("--dry-run", action="store_true", help="of these: name them, and requeue none")
    requeue.add_argument("--reason", required=True, help="stands in the audit log")
    requeue.set_defaults(run=lambda options: _requeue(options, requeue, connect))
    return [requeue]


def add_webhooks(parser: argparse.ArgumentParser, connect: Connect) -> list[argparse.ArgumentParser]:
    """The parser knows `webhooks redeliver`."""
    of_webhooks = parser.add_subparsers(required=True, metavar="COMMAND")
    redeliver = of_webhooks.add_parser("redeliver", help="send again what a receiver has refused or missed")
    redeliver.add_argument(
        "subscription_id", type=UUID, metavar="UUID", help="all of its deliveries that failed"
    )
    redeliver.add_argument("--dry-run", action="store_true", help="name them, and send none")
    redeliver.set_defaults(run=lambda options: _redeliver(options, connect))
    return [redeliver]


def _doctor(options: argparse.Namespace, settings: Settings) -> int:
    from app.doctor import checks  # looks at everything, and so imports everything

    findings = checks.examine(settings, SystemClock())
    if options.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{MARKS[finding.state]}  {finding.check:<9} {finding.found}")
            if finding.advice:
                print(f"                → {finding.advice}")
    return int(any(finding.state == "failed" for finding in findings))


def _cleanup(settings: Settings) -> int:
    from app.uploads import cleanup, services  # the other commands ask the instance over HTTP

    found = services.connect(settings, name="headworks cli")
    try:
        days = cleanup.drop_expired(found)
        deliveries = cleanup.forget_deliveries(found)
    finally:
        found.db.close()
    print(f"staging of {days} days is gone, and {deliveries} webhook deliveries", file=sys.stderr)
    return 0


def _requeue(options: argparse.Namespace, parser: argparse.ArgumentParser, connect: Connect) -> int:
    if options.status and options.workspace is None:
        parser.error("--status needs --workspace")
    api = connect(options)
    if options.upload_id:
        _requeue_one(api, options.upload_id, options.reason)
        return 0
    refused = 0
    for upload in _uploads(api, options):
        print(upload["upload_id"], upload["status"], upload["error_code"] or "-", sep="\t")
        if not options.dry_run:
            try:
                _requeue_one(api, upload["upload_id"], options.reason)
            except RequestRefused as error:
                print(error, file=sys.stderr)
                refused += 1
    return int(refused > 0)


def _requeue_one(api: Client, upload_id: str, reason: str) -> None:
    answer = api.post(f"/v1/uploads/{upload_id}/requeue", {"reason": reason})
    print(f"upload {answer['upload_id']} is {answer['status']} again", file=sys.stderr)


def _redeliver(options: argparse.Namespace, connect: Connect) -> int:
    api, refused = connect(options), 0
    path = f"/v1/webhooks/{options.subscription_id}/deliveries"
    for delivery in _failed_deliveries(api, path):
        print(delivery["delivery_id"], delivery["created_at"], delivery["error_code"], sep="\t")
        if not options.dry_run:
            try:
                api.post(f"{path}/{delivery['delivery_id']}/redeliver", {})
            except RequestRefused as error:
                print(error, file=sys.stderr)
                refused += 1
    return int(refused > 0)


def _failed_deliveries(api: Client, path: str) -> list[dict[str, Any]]:
    """Oldest first, all found before the first of them is sent again."""
    found: list[dict[str, Any]] = []
    query: dict[str, str] = {}
    while True:
        page = api.get(path, **query)
        found += [one for one in page["deliveries"] if one["status"] == "failed"]
        if not page["cursor"]:
            return found[::-1]
        query = {"cursor": page["cursor"]}


def _uploads(api: Client, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All that are asked for, found before the first of them is changed."""
    query = {"workspace_id": str(options.workspace), "status": options.status}
    found: list[dict[str, Any]] = []
    while True:
        page = api.get(f"/v1/uploads?{urllib.parse.urlencode(query)}")
        found += page["uploads"]
        if not page["cursor"]:
            break
        query["cursor"] = page["cursor"]
    # In the order of their creation, as they would have been worked off.
    return (
        upload
        for upload in reversed(found)
        if not options.error_code or upload["error_code"] == options.error_code
    )
