"""Which inputs were published once: each content only once (ETL CANON §11)."""

from __future__ import annotations

from app.suppliers import durable
from app.suppliers.layout import Layout
from app.suppliers.manifest import Manifest


def is_accepted(layout: Layout, supplier: str, sha256: str) -> bool:
    """Whether a list of this very content was published before."""
    return layout.accepted(supplier, sha256).exists()


def accept(layout: Layout, told: Manifest, *, at: str) -> None:
    """The content of the run's input counts as published. Twice is as good as once."""
    path = layout.accepted(told.supplier, told.input_sha256)
    known = durable.read_json(path)
    if known and known.get("run_id") == told.run_id:
        return
    durable.write_json(
        path,
        {
            "run_id": told.run_id,
            "accepted_at": at,
            "input_filename": told.input_filename,
            "manifest_path": str(layout.manifest(told.run_id).relative_to(layout.root)),
        },
    )
