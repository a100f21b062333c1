"""Many small reports: how soon one is completed, and how many are in a second."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.uploads import report
from benchmarks.uploads.fleet import Fleet

ROWS = 100
SENDERS = 8


@dataclass(frozen=True)
class AtOnce:
    """Uploads in a second: accepted, and completed."""

    accepted: float
    completed: float


def content(number: int, rows: int = ROWS) -> bytes:
    """A report of as many ads; the days of each number are others."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(report.HEADER)
    writer.writerows(report.usual(rows, begin=report.BEGIN + timedelta(number), clean=True))
    return out.getvalue().encode()


def one_by_one(fleet: Fleet, uploads: int) -> list[float]:
    """Seconds from each POST until the upload is completed, with nothing else to do."""
    workspace_id, seconds = fleet.new_workspace(), []
    for number in range(uploads):
        ended = fleet.upload(content(number), workspace_id=workspace_id, look_seconds=0.003)
        assert ended.status == "completed", ended
        seconds.append(ended.seconds)
        time.sleep(0.05)
    return seconds


def at_once(fleet: Fleet, uploads: int, workspaces: int) -> AtOnce:
    """All uploads are sent as fast as they are taken, and completed."""
    ids = [fleet.new_workspace() for _ in range(workspaces)]
    contents = [content(number) for number in range(uploads)]
    began = time.time()
    _send_all(fleet, contents, lambda number: ids[number % workspaces])
    taken = time.time() - began
    left = "SELECT count(*) FROM data_uploads WHERE finished_at IS NULL AND workspace_id::text = ANY(%s)"
    while fleet.sql(left, ids)[0].count:
        time.sleep(0.05)
    return AtOnce(uploads / taken, uploads / (time.time() - began))


def accepted(fleet: Fleet, uploads: int) -> float:
    """Uploads accepted in a second."""
    workspace_id = fleet.new_workspace()
    contents = [content(number) for number in range(uploads)]
    began = time.time()
    _send_all(fleet, contents, lambda _: workspace_id)
    return uploads / (time.time() - began)


def _send_all(fleet: Fleet, contents: list[bytes], workspace_of: Callable[[int], str]) -> None:
    def send(number: int) -> None:
        fleet.send(contents[number], workspace_id=workspace_of(number))

    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(send, range(len(contents))))
