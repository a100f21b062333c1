"""`python -m app.observe.reference` writes `docs/metrics.md`, of what the code says of its metrics."""

from __future__ import annotations

import sys

from app.adapters import exposition
from app.adapters.exposition import Described

HEAD = """\
# Metrics

This page is made from the code: `python -m app.observe.reference > docs/metrics.md`.

| what is scraped | where | what it has |
|---|---|---|
| the web process | `/metrics` at `HEADWORKS_BIND`, without a key | everything of the processes that share its folder `PROMETHEUS_MULTIPROC_DIR`, and where the whole instance stands now |
| a worker, or a process of reference data, with a folder of its own | `/metrics` at `HEADWORKS_METRICS_BIND`, without a key; `/healthz` beside it | what this worker has counted |
| a pod of reads | `/actuator/prometheus` at `HEADWORKS_REFDATA_BIND` | what this pod has counted |
| `headworks pipeline serve` | `/api/v1/pipeline/metrics`, with a token | the pipeline alone |

`PROMETHEUS_MULTIPROC_DIR` names a folder that is there, and empty when the processes start; `./scripts/up` makes one for all
processes of the machine. It belongs to the processes of one machine, or of one container, and its owner is scraped by one address: a scrape
merges what ended processes have left. A process takes 64 KiB for each kind of metric (three), and more as labels come; on a full disk it
counts in memory until there is room. Scrape each folder once: the pipeline's address of an instance has what its `/metrics` has.

Gauges marked *asked* are kept by nobody: a scrape asks database, broker and workers, which takes some two seconds (Prometheus waits for
ten), and what was said holds for five. A part that is silent has `headworks_part_up` 0, and its gauges are not there. Every web
process says the same of an instance: take `max` over them. No label holds an id, so that the number of series has an end.

Alerts are in `deploy/observability/alerts/`, dashboards in `deploy/observability/dashboards/`; [the runbook](runbook.md) has what to do.
"""  # noqa: E501

SECTIONS = (
    # title              its metrics begin with one of these
    ("Suppliers", ("headworks_supplier_",)),
    ("Catalog", ("headworks_catalog_",)),
    ("Pipeline", ("headworks_pipeline_",)),
    (
        "Reference data",
        ("headworks_refdata_", "dict_", "cache_", "redis_stream_", "kafka_", "postgres_fallback_"),
    ),
    (
        "Uploads",
        (
            "headworks_upload", "headworks_rows_", "headworks_stage_", "headworks_outbox_",
            "headworks_events_", "headworks_leases_", "headworks_webhook",
        ),
    ),
    ("Web and fleet", ("headworks_",)),
)  # fmt: skip


def page() -> str:
    """The whole page."""
    parts: dict[str, list[Described]] = {title: [] for title, _ in SECTIONS}
    for one in exposition.described():
        parts[_section(one)].append(one)
    order = [SECTIONS[-1][0], "Uploads", *(title for title, _ in SECTIONS[:-2])]
    return HEAD + "".join(_table(title, parts[title]) for title in order)


def _section(one: Described) -> str:
    return next(title for title, beginnings in SECTIONS if one.name.startswith(beginnings))


def _table(title: str, found: list[Described]) -> str:
    lines = [f"\n## {title}\n", "| name | type | labels | meaning |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {_kind(one)} | {_labels(one)} | {one.meaning} |" for one in found]
    return "\n".join(lines) + "\n"


def _kind(one: Described) -> str:
    return f"{one.kind}, *asked*" if one.is_asked else one.kind


def _labels(one: Described) -> str:
    return ", ".join(f"`{label}`" for label in one.labels) or "–"


if __name__ == "__main__":
    sys.stdout.write(page())
