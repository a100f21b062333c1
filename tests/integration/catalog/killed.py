"""A command of the catalog whose process is killed at one step of a target.

    python -m tests.integration.catalog.killed "after the put" 4 run JOB-I-01 …

The n-th time that the step comes, the process ends as with kill -9: nothing is closed, nothing rolled back.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from app import cli
from app.catalog import etl_service, raw_store, runs
from app.catalog.repos.item_repo import ItemRepo
from app.catalog.repos.run_repo import RunRepo
from app.catalog.repos.staging_repo import StagingRepo

STEPS: dict[str, tuple[Any, str, bool]] = {
    "after the fetch": (etl_service, "normalize", False),
    "after the put": (raw_store.FolderRawStore, "put_json", True),
    "in the applier": (ItemRepo, "sync_item_images", False),
    "after the ledger": (StagingRepo, "batch_upsert", True),
    "after the commit": (etl_service._Work, "_apply", True),
    "before the history": (RunRepo, "record", False),
    "before the end of the run": (runs.Run, "end", False),
}
"""Of each step the function, and whether its work is done when the process ends."""

ONCE = ("before the history", "before the end of the run")
"""What comes once in a run."""


def kill_at(step: str, call: int) -> None:
    """The process ends at that call of the step's function."""
    owner, name, behind = STEPS[step]
    real: Callable[..., Any] = getattr(owner, name)
    calls = [0]

    def killing(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not behind:
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*args, **kwargs)
        if calls[0] == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, killing)


if __name__ == "__main__":
    kill_at(sys.argv[1], int(sys.argv[2]))
    sys.exit(cli.main(["catalog", *sys.argv[3:]]))
