"""The stages of the pipeline and how a task moves through each, as data."""

from __future__ import annotations

from dataclasses import dataclass

from app.kernel.states import Edge, Machine


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its name in addresses, its name in columns, and when work on it is stuck."""

    name: str
    column: str
    stuck_seconds: int


INGEST = Stage("event-ingest", "event_ingest", 300)
STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        INGEST,
        Stage("shard-splitter", "shard_splitter", 180),
        Stage("shard-worker", "shard_worker", 600),
        Stage("mysql-sender", "mysql_sender", 300),
    )
}
"""In their order: each begins when the one before it is done."""

QUEUES: dict[str, Stage] = {name: stage for name, stage in STAGES.items() if stage is not INGEST}
"""The stages whose tasks are handed out."""

BEFORE: dict[str, Stage] = dict(zip(QUEUES, STAGES.values(), strict=False))

MACHINE = Machine(
    initial="new",
    states=("new", "started", "done", "failed"),
    edges=(
        Edge("new", "started", "start, claim", "the stage before is done"),
        Edge("started", "done", "done", "the work is done"),
        Edge("new", "failed", "fail", "it cannot be done"),
        Edge("started", "failed", "fail", "it could not be done"),
        Edge("started", "new", "expiry", "the lease has run out"),
        Edge("failed", "new", "retry", "somebody asks for it", manual=True),
    ),
)

TARGETS = {"start": "started", "done": "done", "fail": "failed", "retry": "new"}
"""The status that each transition leads to."""

LEASE_EXPIRED = "LEASE_EXPIRED"
"""The error code of a task in its history when its lease has run out."""
