"""The pipeline's API for daemons written in Python: typed calls, tried again where an answer may be lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import tenacity
import urllib3
import urllib3.exceptions

from app.kernel import errors
from app.kernel.clock import Clock, SystemClock

MOST_TRIES = 6
FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 5.0
LONGEST_CODE, LONGEST_MESSAGE = 100, 4096
_NO_CODE = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)


class Unavailable(errors.Transient):
    """The pipeline cannot be reached, or does not answer as it should."""

    code = "pipeline_unavailable"


class Problem(errors.HeadworksError):
    """The pipeline has refused a call; its code says why."""

    def __init__(
        self, sentence: str = "", *, code: str = "refused", status: int = 0, current_status: str = ""
    ) -> None:
        super().__init__(sentence, code=code)
        self.status = status
        self.current_status = current_status


class LeaseLost(Problem):
    """The task is another's by now: what was done with it does not count."""


@dataclass(frozen=True, slots=True)
class Task:
    """A shard of a file, held under a lease."""

    stage: str
    filename: str
    shard: int
    attempt: int
    lease_token: str


class PipelineClient:
    """One daemon's way to the pipeline."""

    def __init__(self, url: str, *, token: str = "", worker_id: str, clock: Clock | None = None) -> None:
        """`url` is that of the server, such as http://127.0.0.1:8001."""
        self._url = f"{url.rstrip('/')}/api/v1/pipeline"
        self._worker_id = worker_id
        self._clock = clock or SystemClock()
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        self._pool = urllib3.PoolManager(
            headers=headers, retries=False, timeout=urllib3.Timeout(connect=5, read=30), maxsize=4
        )

    def register(self, filename: str, shards: Sequence[int]) -> bool:
        """Every shard of the file has a task; whether one of them is new."""
        return bool(
            self._again("POST", "/files/register", {"filename": filename, "shards": list(shards)})["created"]
        )

    def finish_ingest(self, filename: str) -> int:
        """The ingest of the file is done; of how many shards."""
        return int(self._again("POST", "/stages/event-ingest/done", {"filename": filename})["updated_rows"])

    def claim(self, stage: str, *, limit: int = 1, lease_seconds: int = 60) -> list[Task]:
        """Tasks of the stage, this worker's own now.

        Not tried again: what a lost answer has claimed comes back when its lease has run out.
        """
        body = {"worker_id": self._worker_id, "limit": limit, "lease_seconds": lease_seconds}
        items = self._once("POST", f"/queues/{stage}/claim", body)["items"]
        return [
            Task(stage, item["filename"], item["shard"], item["attempt"], item["lease_token"])
            for item in items
        ]

    def extend_lease(self, task: Task, *, lease_seconds: int = 60) -> None:
        """The task stays this worker's for so long from now. LeaseLost when it is another's."""
        self._again(
            "POST", f"/queues/{task.stage}/heartbeat", self._of(task) | {"lease_seconds": lease_seconds}
        )

    def done(self, task: Task) -> None:
        """The task's stage is done. LeaseLost when it is another's."""
        self._again("POST", f"/stages/{task.stage}/done", self._of(task))

    def fail(self, task: Task, *, code: str, message: str = "") -> None:
        """The task's stage has failed, for this reason. LeaseLost when it is another's."""
        storable = message[:LONGEST_MESSAGE].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
        reason = {"error_code": _NO_CODE.sub("_", code)[:LONGEST_CODE] or "FAILED", "error_message": storable}
        self._again("POST", f"/stages/{task.stage}/fail", self._of(task) | reason)

    def retry_failed(self, stage: str, *, filename: str | None = None, error_code: str | None = None) -> int:
        """Failed tasks of the stage that match wait for it again; how many."""
        body = {"filename": filename, "error_code": error_code}
        return int(self._again("POST", f"/stages/{stage}/retry-failed", body)["retried"])

    def file(self, filename: str, *, details: bool = False) -> dict[str, Any]:
        """Where every shard of the file stands."""
        return self._again("GET", f"/files/{filename}", details=str(details).lower())

    def summary(self) -> dict[str, Any]:
        """How many tasks stand where."""
        return self._again("GET", "/metrics/summary")

    def _of(self, task: Task) -> dict[str, Any]:
        return {
            "filename": task.filename, "shard": task.shard, "lease_token": task.lease_token,
        }  # fmt: skip

    def _again(self, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        """The answer to a call that may be repeated: the pipeline takes a repeat for what it is."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unavailable),
            stop=tenacity.stop_after_attempt(MOST_TRIES),
            wait=tenacity.wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
            sleep=self._clock.sleep,
            reraise=True,
        )
        call: Callable[..., dict[str, Any]] = self._once
        return retrying(call, method, path, body, **query)

    def _once(self, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        address = self._url + path + (f"?{urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body).encode()
        try:
            answer = self._pool.request(method, address, body=content)
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"The pipeline cannot be reached: {type(error).__name__}.") from error
        return _found(answer.status, answer.data)


def _found(status: int, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if status >= 500 or status == 429 or not isinstance(found, dict):
        raise Unavailable(f"The pipeline answers {status}.")
    if status == 200:
        return found
    kind = LeaseLost if found.get("code") == "lease_lost" else Problem
    raise kind(
        str(found.get("detail")), code=str(found.get("code")), status=status,
        current_status=str(found.get("current_status", "")),
    )  # fmt: skip
