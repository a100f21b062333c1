"""docs/reference/states.md: every state machine of the product, from its edges."""

from __future__ import annotations

from app.kernel.states import Machine
from app.pipeline import states as pipeline
from app.refdata import states as refdata
from app.uploads import states as uploads
from app.uploads.webhooks import states as webhooks
from reference.page import code, codes, fence, page, table

MACHINES: dict[str, tuple[Machine, str]] = {
    "An upload": (
        uploads.UPLOAD,
        "A report from the moment that it is taken in (`app/uploads/states.py`). While it is {active} it"
        " counts among the"
        f" {uploads.MAX_ACTIVE_PER_WORKSPACE} that a workspace may have at a time; in {{owned}} a worker"
        f" holds it under a"
        f" lease. One stage is begun {uploads.MAX_ATTEMPTS} times at most.",
    ),
    "A delivery of a webhook": (
        webhooks.DELIVERY,
        "One message to one subscribed URL (`app/uploads/webhooks/states.py`).",
    ),
    "A task of a pipeline": (
        pipeline.MACHINE,
        f"A shard of a file in each of the stages {codes(pipeline.STAGES)} (`app/pipeline/states.py`). In"
        f" {code(pipeline.INGEST.name)} it begins as `started`.",
    ),
    "A command for reference data": (
        refdata.MACHINE,
        "What `GET /v1/tenants/{tenant_id}/updates/{event_id}` tells (`app/refdata/states.py`).",
    ),
}
BY_OUTCOME = """
## What has outcomes and no edges

| thing | it is at work as | it ends as |
|---|---|---|
| a run over a supplier's list | – (whoever holds the supplier's lock) | `PASS`: published; `FAIL`: refused
as a whole; `NOOP`: nothing to read |
| a run of a catalog's job | `running` (under a lease) | `success`, `failed`; `broken`: its process died,
and it can be resumed |
| a catalog's net of one day | `running` | `success`, `failed` |
| a target of a catalog's run | – | `applied`, `reapplied`, `unchanged`, `not_found`, `failed` |
"""


def states() -> str:
    """The page."""
    parts = [
        "A thing moves along these edges and no others: the sources of an edge stand in the guard of the"
        " SQL that makes the"
        " move. *By hand* marks what only a person's command does.",
    ]
    for title, (machine, about) in MACHINES.items():
        told = about.replace("{active}", codes(uploads.ACTIVE)).replace("{owned}", codes(uploads.OWNED))
        parts += [f"## {title}", told, _edges(machine), fence("mermaid", _diagram(machine))]
    return page("States", *parts, BY_OUTCOME)


def _edges(machine: Machine) -> str:
    rows = [
        (code(edge.source), code(edge.target), edge.owner, edge.when, "by hand" if edge.manual else "")
        for edge in machine.edges
    ]
    return table(("from", "to", "by", "when", ""), rows)


def _diagram(machine: Machine) -> str:
    lines = ["stateDiagram-v2", f"    [*] --> {machine.initial}"]
    for edge in machine.edges:
        lines.append(
            f"    {edge.source} --> {edge.target}: {edge.owner}{' (by hand)' if edge.manual else ''}"
        )
    return "\n".join([*lines, *(f"    {state} --> [*]" for state in machine.terminal)])
