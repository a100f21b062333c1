"""What a pod serves is in its folder, too: it can start from there while no database answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import msgspec

from app.adapters import logs
from app.refdata.query.image import BadImage, Image, Standing
from app.refdata.query.table import Place, Table

log = logs.get(__name__)

NAME = "tables"


class _Saved(msgspec.Struct, array_like=True, frozen=True):
    tenant_id: str
    dict_code: str
    epoch: UUID
    version: int
    image: str
    changes: dict[bytes, bytes | None]


_decoder = msgspec.msgpack.Decoder(list[_Saved])


def save(folder: Path, tables: Sequence[Table]) -> None:
    """The folder says which images are the tables, and what has changed since."""
    content = msgspec.msgpack.encode([
        _Saved(
            *table.place, table.standing.epoch, table.standing.version, table.base.path.name,
            dict(table.changes),
        )
        for table in tables
    ])  # fmt: skip
    if (folder / NAME).exists() and (folder / NAME).read_bytes() == content:
        return
    unfinished = folder / f"{NAME}.part"
    unfinished.write_bytes(content)
    unfinished.replace(folder / NAME)


def restore(folder: Path) -> tuple[dict[Place, Table], bool]:
    """The tables that the folder has, and whether they are all that it says; other images are removed."""
    found: dict[Place, Table] = {}
    try:
        entries = _decoder.decode((folder / NAME).read_bytes())
    except FileNotFoundError:
        entries = []
    except (OSError, msgspec.DecodeError) as error:
        log.warning("refdata_folder_not_read", kind=type(error).__name__)
        entries = []
    for one in entries:
        place = (one.tenant_id, one.dict_code)
        try:
            base = Table.of(place, Image(folder / Path(one.image).name).verified())
        except BadImage as error:
            log.warning("refdata_image_not_restored", dictCode=one.dict_code, reason=error.sentence)
            continue
        found[place] = base.after(Standing(one.epoch, one.version), one.changes)
    kept = {table.base.path for table in found.values()}
    for path in (*folder.glob("*.image"), *folder.glob("*.part")):
        if path not in kept:
            path.unlink(missing_ok=True)
    return found, bool(found) and len(found) == len(entries)
