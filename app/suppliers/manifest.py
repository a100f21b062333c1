"""The manifest of a run: what was read, what came of it, and why (ETL CANON §10)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from app.suppliers import durable
from app.suppliers.layout import Layout


@dataclass(frozen=True, slots=True)
class Manifest:
    """The trace of one run; the counts are None where the list was never read."""

    run_id: str
    supplier: str
    input_filename: str
    input_sha256: str
    input_mtime_ns: int
    input_size_bytes: int
    started_at: str
    finished_at: str
    status: str  # PASS: audited and good. Whether it is published, the states say.
    code_commit: str
    good_rows: int | None = None
    bad_rows: int | None = None
    skipped_rows: int | None = None
    total_rows: int | None = None
    facts: int | None = None
    reason_code: str | None = None
    fail_stage: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    failed_checks: tuple[str, ...] = ()
    alerts: tuple[dict[str, Any], ...] = ()
    config_sha256: str | None = None
    content_sha256: str | None = None
    content_unchanged: bool | None = None
    facts_sha256: str | None = None
    previous_run_id: str | None = None
    format: str | None = None
    encoding: str | None = None
    sheets: tuple[str, ...] = ()
    price_rounded: int | None = None
    row_id_alg: str = "sha256/rfc8785"

    @property
    def passed(self) -> bool:
        return self.status == "PASS"

    def write(self, layout: Layout) -> None:
        """The manifest stands in the folder of its run."""
        durable.write_json(layout.manifest(self.run_id), asdict(self))


def read(layout: Layout, run_id: str) -> Manifest | None:
    """The manifest of a run; None while it has none."""
    found = durable.read_json(layout.manifest(run_id))
    if found is None:
        return None
    known = {name: value for name, value in found.items() if name in Manifest.__dataclass_fields__}
    lists = {name: tuple(known.get(name, ())) for name in ("failed_checks", "alerts", "sheets")}
    return Manifest(**{**known, **lists})
