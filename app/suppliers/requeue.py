"""A refused list goes back into the inbox, once what refused it is mended."""

from __future__ import annotations

from pathlib import Path

from app.adapters import logs
from app.kernel import errors
from app.suppliers import durable
from app.suppliers.layout import check_supplier
from app.suppliers.services import Services

log = logs.get(__name__)


def requeue(services: Services, supplier: str, name: str, *, who: str, why: str) -> Path:
    """The file is in the inbox again, with the time that it came with; who and why stand in the log.

    NotFound when no file of this name is quarantined as broken.
    """
    check_supplier(supplier)
    with services.locks.hold(supplier):
        source = services.layout.broken(supplier) / name
        if name != source.name or not source.is_file():
            raise errors.NotFound(f"There is no refused file {name!r} of this supplier.")
        target = durable.move(source, services.layout.inbox(supplier) / name)
    log.info("supplier_requeued", supplier=supplier, file=name, who=who, why=why)
    return target
