"""A daemon of one stage as a process: it works a moment on each task, and fails some at first.

python -m tests.faults.pipeline_daemon URL STAGE WORKER_ID LEASE_SECONDS SEED
"""

from __future__ import annotations

import random
import sys
import threading
import time

from app.adapters import logs
from app.pipeline.client import PipelineClient, Task
from app.pipeline.daemon import Daemon, Held, WorkFailed

FAILS = 0.02


def main(url: str, stage: str, worker_id: str, lease_seconds: str, seed: str) -> None:
    """Works until it is killed."""
    source = random.Random(seed)
    logs.configure("pipeline daemon", level="ERROR")

    def work(task: Task, held: Held) -> None:
        time.sleep(source.uniform(0, 0.01))
        if source.random() < FAILS:
            raise WorkFailed("Not this time.", code="UNLUCKY")

    client = PipelineClient(url, worker_id=worker_id)
    Daemon(client, stage, work, lease_seconds=int(lease_seconds)).run(threading.Event())


if __name__ == "__main__":
    main(*sys.argv[1:])
