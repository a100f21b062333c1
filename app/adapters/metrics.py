"""Prometheus metrics of every process of the instance, gathered by the web process."""

from __future__ import annotations

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram, multiprocess

rows_staged = Counter("headworks_rows_staged_total", "Source rows committed to staging.")
rows_promoted = Counter("headworks_rows_promoted_total", "Source rows committed to production.")
uploads_finished = Counter(
    "headworks_uploads_finished_total", "Uploads that reached a terminal state.", ["status"]
)
stage_seconds = Histogram(
    "headworks_stage_seconds",
    "Duration of one stage of one upload.",
    ["stage"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
leases_expired = Counter("headworks_leases_expired_total", "Leases taken from an owner that is gone.")
webhook_deliveries = Counter(
    "headworks_webhook_deliveries_total", "Tries to deliver a webhook, by what came of them.", ["outcome"]
)
webhook_seconds = Histogram(
    "headworks_webhook_seconds",
    "Duration of one try to deliver a webhook.",
    ["outcome"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
supplier_runs = Counter(
    "headworks_supplier_runs_total", "Suppliers' lists that were read, by their end.",
    ["supplier", "status", "reason"],
)  # fmt: skip
supplier_alerts = Counter(
    "headworks_supplier_alerts_total", "What somebody should look at, by code.", ["supplier", "code"]
)
supplier_current_age_seconds = Gauge(
    "headworks_supplier_current_age_seconds",
    "Age of the state that is published.",
    ["supplier"],
    multiprocess_mode="mostrecent",
)
supplier_state_too_old = Gauge(
    "headworks_supplier_state_too_old", "1 while the published state is older than it may be.", ["supplier"],
    multiprocess_mode="mostrecent",
)  # fmt: skip


def exposition() -> tuple[bytes, str]:
    """The metrics of all processes as text, and its content type.

    With PROMETHEUS_MULTIPROC_DIR set (by `headworks up` and the Procfile) every process writes to
    that folder; without it only this process is seen.
    """
    registry = prometheus_client.CollectorRegistry()
    try:
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    except ValueError:
        registry = prometheus_client.REGISTRY
    return prometheus_client.generate_latest(registry), prometheus_client.CONTENT_TYPE_LATEST


catalog_requests = Counter(
    "headworks_catalog_requests_total", "Requests to the marketplace, by what came of them.",
    ["entity", "outcome"],
)  # fmt: skip
catalog_targets = Counter(
    "headworks_catalog_targets_total", "Targets of the catalog's jobs, by their end.", ["entity", "outcome"]
)
catalog_runs = Counter(
    "headworks_catalog_runs_total",
    "Runs of the catalog's jobs, by their end.",
    ["job_id", "status", "reason"],
)
refdata_commands = Counter(
    "headworks_refdata_commands_total",
    "Commands of reference data, by what became of them.",
    ["dict_code", "outcome"],
)
refdata_dead_letters = Counter(
    "headworks_refdata_dead_letters_total", "Commands that somebody has to look at.", ["code"]
)
refdata_announced = Counter("headworks_refdata_announced_total", "Versions that were announced.")
refdata_outbox_events = Gauge(
    "headworks_refdata_outbox_events",
    "Versions that wait to be announced.",
    ["database"],
    multiprocess_mode="mostrecent",
)
refdata_outbox_oldest_seconds = Gauge(
    "headworks_refdata_outbox_oldest_seconds",
    "How long the oldest of them has waited.",
    ["database"],
    multiprocess_mode="mostrecent",
)
kafka_consumer_lag = Gauge(
    "kafka_consumer_lag",
    "Messages that a partition holds and that nobody has worked off.",
    ["topic", "partition"],
    multiprocess_mode="mostrecent",
)
dict_version_lag = Gauge(
    "dict_version_lag",
    "How many versions a pod is behind what it has heard of, of the tenant that is furthest behind.",
    ["dict_code"],
    multiprocess_mode="mostrecent",
)
cache_reload_duration = Histogram(
    "cache_reload_duration",
    "Seconds from the beginning of a reload until the readers are told.",
    ["dict_code"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)
cache_reload_errors = Counter("cache_reload_errors", "Reloads that failed, by code.", ["dict_code", "code"])
redis_stream_lag = Gauge(
    "redis_stream_lag",
    "Announcements on the stream that the pod has not read.",
    multiprocess_mode="mostrecent",
)
postgres_fallback_reads = Counter(
    "postgres_fallback_reads", "Reads that the database answered itself.", ["dict_code"]
)
refdata_staleness_seconds = Gauge(
    "headworks_refdata_staleness_seconds",
    "Since when a dictionary was not found to be as its database has it.",
    ["dict_code"],
    multiprocess_mode="mostrecent",
)
refdata_drifts = Counter(
    "headworks_refdata_drifts_total", "Changes of tables that no command has made.", ["dict_code"]
)
refdata_reads = Counter("headworks_refdata_reads_total", "Reads of reference data.", ["kind", "status"])
pipeline_transitions = Counter(
    "headworks_pipeline_transitions_total",
    "Changes of a task's status in a stage.",
    ["stage", "source", "target"],
)
pipeline_conflicts = Counter(
    "headworks_pipeline_conflicts_total", "Changes that a task's status did not allow.", ["stage", "code"]
)
pipeline_leases_expired = Counter(
    "headworks_pipeline_leases_expired_total", "Tasks whose worker was not heard of any more.", ["stage"]
)
pipeline_stage_seconds = Histogram(
    "headworks_pipeline_stage_seconds",
    "From the start of a stage of a task to its end.",
    ["stage", "status"],
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600),
)
