"""A dictionary goes back to what it was: the entries of an earlier version become a new one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson

from app.kernel import errors
from app.refdata import accept, commands, store
from app.refdata.services import Services
from app.refdata.store import Place

LOOK_SECONDS = 0.2


def roll_back(of: Services, place: Place, version: int, *, reason: str, pin: bool) -> int:
    """The version that has the entries of this earlier one; `pin`: it takes no changes then.

    NotFound when it is not kept. Refused with the code of the refusal, such as VALIDATION_FAILED.
    Commands that come between are not lost: a snapshot replaces what they wrote, and they have versions
    of their own; those that come to a pinned dictionary are dead letters.
    """
    tenant_id, dict_code = place
    dictionary = of.dictionary(dict_code)
    if dictionary is None:
        raise errors.NotFound(f"No dictionary is called {dict_code}.")
    db = of.databases[dictionary.database]
    kept = {row.version: row for row in store.archived(db, place)}
    if version not in kept:
        raise errors.NotFound(
            f"Version {version} is not kept; these are: {', '.join(map(str, kept)) or 'none'}."
        )
    stands = store.pinned(db, place)
    snapshot_id = of.clock.new_id()
    if pin or stands.pinned_at is not None:
        store.pin(db, place, reason, allows=snapshot_id)
    chunks = kept[version].chunks
    requests = []
    for index in range(1, chunks + 1):
        items = store.archived_items(db, place, version, index)
        requests.append(_send(of, place, snapshot_id, index, chunks, items))
    while True:
        found = [store.request(db, tenant_id, one.event_id) for one in requests]
        for request in found:
            if request.status == "FAILED":
                raise errors.Refused(request.error_message, code=request.error_code)
        if all(request.status == "COMMITTED" for request in found):
            return int(found[0].committed_version)
        of.clock.sleep(LOOK_SECONDS)


def _send(of: Services, place: Place, snapshot_id: UUID, index: int, total: int, items: str) -> Any:
    body = {
        "dictCode": place[1], "eventType": "SNAPSHOT", "snapshotId": str(snapshot_id), "chunkIndex": index,
        "chunksTotal": total, "items": [one | {"op": "UPSERT"} for one in orjson.loads(items)],
    }  # fmt: skip
    command = commands.decode(
        orjson.dumps(body), now=of.clock.now(), given={"tenantId": place[0], "source": "REST"},
        event_id=of.clock.new_id(), most_bytes=commands.WIRE_BYTES,
    )  # fmt: skip
    return accept.accept(of, of.publisher, command)
