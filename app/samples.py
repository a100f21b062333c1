"""Three sample reports, handed in over HTTP as anybody would, and the numbers they led to."""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.client import TERMINAL, Client

FOLDER = Path(__file__).parent.parent / "docs" / "samples"
WORKSPACE_ID = "5a3b1e00-0000-4000-8000-000000000001"
DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Sample:
    """A report in `docs/samples`; `currency` is declared where the file does not name one."""

    platform: str
    currency: str | None = None

    @property
    def path(self) -> Path:
        """Of the report."""
        return FOLDER / f"{self.platform}.csv"


SAMPLES = (Sample("meta"), Sample("google"), Sample("tiktok", currency="SGD"))


class SampleError(RuntimeError):
    """A sample was not taken, or not finished in time."""


def ingest(client: Client, check: Callable[[], None]) -> list[dict[str, Any]]:
    """The uploads of all samples, each in a final state.

    `check` is called between polls and may raise. Raises `SampleError`.
    """
    ids = [_hand_in(client, sample) for sample in SAMPLES]
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        uploads = [client.get(f"/v1/uploads/{upload_id}") for upload_id in ids]
        waiting = [upload for upload in uploads if upload["status"] not in TERMINAL]
        if not waiting:
            return uploads
        if time.monotonic() > deadline:
            slow = ", ".join(f"{upload['platform']} is {upload['status']}" for upload in waiting)
            raise SampleError(f"the samples were not done after {DEADLINE_SECONDS:.0f} s: {slow}")
        check()
        time.sleep(POLL_SECONDS)


def _hand_in(client: Client, sample: Sample) -> str:
    """The upload's id: the same one however often this sample is handed in."""
    fields = {
        "workspace_id": WORKSPACE_ID,
        "platform": sample.platform,
        "source": "manual",
        "currency": sample.currency,
    }
    digest = hashlib.sha256(sample.path.read_bytes()).hexdigest()[:16]
    key = f"sample-{sample.platform}-{digest}"
    return str(client.upload(sample.path, fields, idempotency_key=key)["upload_id"])


def uploads_table(uploads: Iterable[dict[str, Any]]) -> str:
    """What became of each file, for people."""
    head = [
        *("platform", "file", "status", "rows", "valid", "rejected"),
        *("campaigns", "ad sets", "ads", "daily metrics"),
    ]
    lines = []
    for upload in uploads:
        rows, upserted = upload.get("rows") or {}, upload.get("upserted") or {}
        status = ": ".join(filter(None, (upload["status"], upload.get("error_code"))))
        cells = [upload["platform"], upload.get("filename") or "", status]
        cells += [rows.get(key) for key in ("data", "valid", "rejected")]
        cells += [upserted.get(key) for key in ("campaigns", "ad_sets", "ads", "daily_metrics")]
        lines.append(cells)
    return _table(head, lines, text_columns=3)


def performance_table(client: Client) -> str:
    """What the samples' workspace holds for each platform and currency, for people."""
    keys = ("platform", "currency", "spend", "impressions", "clicks")
    answer = client.get("/v1/performance", workspace_id=WORKSPACE_ID, by="platform")
    return _table(keys, [[row.get(key) for key in keys] for row in answer["rows"]], text_columns=2)


def _table(head: Sequence[str], lines: Iterable[Sequence[object]], *, text_columns: int) -> str:
    cells = [list(head)] + [["–" if cell is None else str(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )
