"""Three sample reports, handed in over HTTP as anybody would, and the numbers they led to."""

import hashlib
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "samples"
WORKSPACE_ID = "5a3b1e00-0000-4000-8000-000000000001"
FINAL = {"completed", "partial", "failed"}
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


class Api:
    """Requests to one Headworks, with its key. Raises `SampleError` for whatever goes wrong."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key
        # Without the proxies of the environment: the address is on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str, **query: str) -> Any:
        """The decoded answer."""
        return self._send(f"{path}?{urllib.parse.urlencode(query)}" if query else path)

    def upload(self, sample: Sample, workspace_id: str) -> str:
        """The upload's id: the same one however often this sample is handed in."""
        content = sample.path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:16]
        fields = {"workspace_id": workspace_id, "platform": sample.platform, "source": "manual"}
        if sample.currency:
            fields["currency"] = sample.currency
        body, content_type = _multipart(fields, sample.path.name, content)
        headers = {
            "Content-Type": content_type,
            "Idempotency-Key": f"sample-{sample.platform}-{digest}",
        }
        return str(self._send("/v1/uploads", body=body, headers=headers)["upload_id"])

    def _send(
        self, path: str, *, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Any:
        request = urllib.request.Request(self._url + path, data=body, headers=headers or {})
        request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with self._opener.open(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            said = error.read(1000).decode("utf-8", "replace")
            raise SampleError(
                f"{request.method} {path} was answered with {error.code}: {said}"
            ) from error
        except (OSError, ValueError) as error:
            raise SampleError(f"{request.method} {path} failed: {error}") from error


def ingest(api: Api, check: Callable[[], None]) -> list[dict[str, Any]]:
    """The uploads of all samples, each in a final state.

    `check` is called between polls and may raise. Raises `SampleError`.
    """
    ids = [api.upload(sample, WORKSPACE_ID) for sample in SAMPLES]
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        uploads = [api.get(f"/v1/uploads/{upload_id}") for upload_id in ids]
        waiting = [upload for upload in uploads if upload["status"] not in FINAL]
        if not waiting:
            return uploads
        if time.monotonic() > deadline:
            slow = ", ".join(f"{upload['platform']} is {upload['status']}" for upload in waiting)
            raise SampleError(f"the samples were not done after {DEADLINE_SECONDS:.0f} s: {slow}")
        check()
        time.sleep(POLL_SECONDS)


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


def performance_table(api: Api) -> str:
    """What the samples' workspace holds for each platform and currency, for people."""
    keys = ("platform", "currency", "spend", "impressions", "clicks")
    answer = api.get("/v1/performance", workspace_id=WORKSPACE_ID, by="platform")
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


def _multipart(fields: dict[str, str], filename: str, content: bytes) -> tuple[bytes, str]:
    """Body and content type of a form with one file, `file`."""
    boundary = uuid.uuid5(uuid.NAMESPACE_OID, hashlib.sha256(content).hexdigest()).hex
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
        "Content-Type: text/csv\r\n\r\n"
    )
    return (
        head.encode() + content + f"\r\n--{boundary}--\r\n".encode(),
        f"multipart/form-data; boundary={boundary}",
    )
