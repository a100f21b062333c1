"""File drop: a watched folder, `drop/<workspace_id>/<platform>/[<client_id>/]file` (D6.6 §2.1)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from app.adapters import logs
from app.kernel import errors
from app.uploads import intake
from app.uploads.reading import aliases
from app.uploads.services import Services

log = logs.get(__name__)

TAKEN, REFUSED = ".taken", ".refused"
UNFINISHED = (".part", ".partial", ".tmp", ".crdownload", ".download", ".filepart")
"""Endings under which browsers and transfer programs write what is not complete yet."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """One file in the watched folder, and what its path says."""

    path: Path
    workspace_id: UUID
    platform: str
    client_id: UUID | None


def scan(services: Services) -> int:
    """Every complete file in the watched folder is taken in or refused; returns how many were taken.

    A file is complete when nothing has been written to it for `drop_stable_seconds`. A taken one
    moves to `.taken`, a refused one to `.refused`, beside a file with the reason.
    """
    root = services.settings.drop
    root.mkdir(parents=True, exist_ok=True)
    taken = 0
    for dropped in _complete(services, root):
        try:
            _take(services, dropped)
            taken += 1
        except (errors.Refused, errors.Fatal) as error:
            log.warning("drop_refused", file=dropped.path.name, code=error.code)
            _move(dropped.path, root, REFUSED, reason=error)
    return taken


def _complete(services: Services, root: Path) -> Iterator[Dropped]:
    now = services.clock.now().timestamp()
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if any(part.startswith(".") for part in parts) or path.suffix.lower() in UNFINISHED:
            continue
        if path.is_symlink() or not path.is_file():
            continue
        if now - path.stat().st_mtime < services.settings.drop_stable_seconds:
            continue
        try:
            yield _read_path(path, parts)
        except errors.Refused as error:
            log.warning("drop_refused", file=path.name, code=error.code)
            _move(path, root, REFUSED, reason=error)


def _read_path(path: Path, parts: tuple[str, ...]) -> Dropped:
    if len(parts) not in (3, 4) or parts[1] not in aliases.table():
        raise errors.Refused(
            "The file is not where reports are dropped: <workspace id>/<platform>/<file>, or"
            f" <workspace id>/<platform>/<client id>/<file>, with {', '.join(aliases.table())} as"
            " platform.",
            code="invalid_drop_path",
        )
    try:
        client_id = UUID(parts[2]) if len(parts) == 4 else None
        return Dropped(path, UUID(parts[0]), parts[1], client_id)
    except ValueError:
        raise errors.Refused(
            "The folder's workspace or client is no UUID.", code="invalid_drop_path"
        ) from None


def _take(services: Services, dropped: Dropped) -> None:
    stat = dropped.path.stat()
    with dropped.path.open("rb") as file:
        request = intake.Request(
            workspace_id=dropped.workspace_id,
            platform=dropped.platform,
            source="manual",
            client_id=dropped.client_id,
            filename=dropped.path.name,
            who="file drop",
            # Taken once, also when the move below is lost to a crash or two scans meet.
            idempotency_key=f"drop:{dropped.path.name[:100]}:{stat.st_ino}:{stat.st_mtime_ns}:{stat.st_size}",
        )
        receipt = intake.take_in(services, request, file)
    log.info(
        "drop_taken", file=dropped.path.name, upload_id=str(receipt.upload_id),
        workspace_id=str(dropped.workspace_id),
    )  # fmt: skip
    _move(dropped.path, services.settings.drop, TAKEN)


def _move(path: Path, root: Path, folder: str, *, reason: errors.HeadworksError | None = None) -> None:
    target = root / folder / path.relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    number = 0
    while target.exists():  # never over an earlier file of this name
        number += 1
        target = target.with_name(f"{path.stem}.{number}{path.suffix}")
    if reason is not None:
        why = {"code": reason.code, "reason": reason.sentence}
        target.with_name(f"{target.name}.reason.json").write_text(
            json.dumps(why, ensure_ascii=False, indent=1), encoding="utf-8"
        )
    try:
        os.replace(path, target)  # noqa: PTH105 (atomic, and says so)
    except FileNotFoundError:
        return  # another scan was faster
