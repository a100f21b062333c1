"""What the product counts and measures, as Prometheus knows it.

Names of our own begin with `headworks_` and end with their unit, counters with `_total`; those of reference
data that have no such beginning are given by its contract. Labels take few values: codes, stages, queues,
names of a configuration; never an id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily

from app.adapters import metric_room

metric_room.install()  # before the first of them is made


@dataclass(frozen=True, slots=True)
class Asked:
    """A gauge whose values nobody keeps: they are asked for when somebody wants to see them."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()

    def of(self, values: Mapping[tuple[str, ...], float] | float) -> GaugeMetricFamily:
        """Its values by their labels; or the one, where there are no labels."""
        family = GaugeMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, value in (values if isinstance(values, Mapping) else {(): values}).items():
            family.add_metric(labels, value)
        return family


# -- the fleet and the web

http_requests = Counter(
    "headworks_http_requests_total",
    "Requests that the web process answered, by route and status.",
    ["endpoint", "method", "status"],
)
http_request_seconds = Histogram(
    "headworks_http_request_seconds",
    "From a request's beginning until its answer is ready, by route; sockets are left out.",
    ["endpoint"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
keys_refused = Counter(
    "headworks_keys_refused_total",
    "Keys that open nothing, by where they were shown (key, login) and why.",
    ["door", "reason"],
)
tasks = Counter("headworks_tasks_total", "Tasks that workers have ended, by outcome.", ["task", "outcome"])
task_seconds = Histogram(
    "headworks_task_seconds",
    "Duration of one task of a worker.",
    ["task"],
    buckets=(0.01, 0.05, 0.25, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
)
part_up = Asked(
    "headworks_part_up",
    "1 while this part of the instance answers the web process: database, broker, fleet, disk,"
    " pipeline, refdata.",
    ("part",),
)
queue_messages = Asked("headworks_queue_messages", "Hints that wait in a queue.", ("queue",))
queue_workers = Asked("headworks_queue_workers", "Workers that answer for a queue.", ("queue",))
database_connections = Asked(
    "headworks_database_connections", "Connections that PostgreSQL has, whoever made them."
)
database_connections_most = Asked(
    "headworks_database_connections_most", "Connections that it takes; whoever comes after is turned away."
)
disk_free_bytes = Asked("headworks_disk_free_bytes", "Free on the disk of HEADWORKS_DATA_DIR.")
disk_size_bytes = Asked("headworks_disk_size_bytes", "Size of that disk.")

# -- uploads

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
uploads_created = Counter(
    "headworks_uploads_created_total", "Reports that were taken in.", ["platform", "source"]
)
upload_failures = Counter(
    "headworks_upload_failures_total",
    "Uploads that failed, by the code of the upload and whose fault it is: file, ours.",
    ["code", "fault"],
)
upload_seconds = Histogram(
    "headworks_upload_seconds",
    "From an upload's creation to its end; of one that was requeued, since it was handed in.",
    ["status"],
    buckets=(1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 14400),
)
uploads_deferred = Counter(
    "headworks_uploads_deferred_total", "Uploads that were put off, by the reason.", ["reason"]
)
rows_rejected = Counter(
    "headworks_rows_rejected_total", "Source rows that were refused while reading, by code.", ["code"]
)
uploads_open = Asked("headworks_uploads", "Uploads on their way, by status.", ("status",))
uploads_oldest_seconds = Asked(
    "headworks_uploads_oldest_seconds",
    "How long the upload that is longest in this status has been in it.",
    ("status",),
)
uploads_waiting = Asked("headworks_uploads_waiting", "Uploads that a worker could take now.", ("stage",))
uploads_waiting_seconds = Asked(
    "headworks_uploads_waiting_seconds", "How long the oldest of them has waited.", ("stage",)
)
uploads_put_off = Asked(
    "headworks_uploads_put_off", "Uploads whose next try lies ahead: a service or a disk asked for it."
)
outbox_events = Asked("headworks_outbox_events", "Committed events that are on no stream yet.")
outbox_oldest_seconds = Asked("headworks_outbox_oldest_seconds", "How long the oldest of them has waited.")
events_published = Counter("headworks_events_published_total", "Events put on their streams.", ["topic"])
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
webhooks_due = Asked("headworks_webhooks_due", "Deliveries of webhooks whose time has come.")
webhooks_due_seconds = Asked("headworks_webhooks_due_seconds", "How long the oldest of them has been due.")

# -- suppliers

supplier_runs = Counter(
    "headworks_supplier_runs_total", "Suppliers' lists that were read, by their end.",
    ["supplier", "status", "reason"],
)  # fmt: skip
supplier_alerts = Counter(
    "headworks_supplier_alerts_total", "What somebody should look at, by code.", ["supplier", "code"]
)
supplier_last_list_refused = Gauge(
    "headworks_supplier_last_list_refused", "1 while the newest list that was read was refused.",
    ["supplier"], multiprocess_mode="mostrecent",
)  # fmt: skip
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

# -- the catalog

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
catalog_nightly = Asked(
    "headworks_catalog_nightly", "1 where the fleet begins a net each night: it has an application id."
)
catalog_net_age_seconds = Asked(
    "headworks_catalog_net_age_seconds",
    "Since when no net has been a success; since the first one began, when none ever was.",
)
catalog_net_running_seconds = Asked(
    "headworks_catalog_net_running_seconds", "How long the net at work has been so; 0 when there is none."
)

# -- reference data

refdata_commands = Counter(
    "headworks_refdata_commands_total",
    "Commands of reference data, by what became of them.",
    ["dict_code", "outcome"],
)
refdata_dead_letters = Counter(
    "headworks_refdata_dead_letters_total", "Commands that somebody has to look at.", ["code"]
)
refdata_announced = Counter("headworks_refdata_announced_total", "Versions that were announced.")
refdata_outbox_events = Asked(
    "headworks_refdata_outbox_events", "Versions that wait to be announced.", ("database",)
)
refdata_outbox_oldest_seconds = Asked(
    "headworks_refdata_outbox_oldest_seconds", "How long the oldest of them has waited.", ("database",)
)
refdata_pod_ready = Asked("headworks_refdata_pod_ready", "1 while this pod answers reads.")
refdata_loader_up = Asked(
    "headworks_refdata_loader_up",
    "1 while this pod's loader is heard of. Without it the pod answers from memory, and grows old.",
)
refdata_poll_timestamp_seconds = Gauge(
    "headworks_refdata_poll_timestamp_seconds",
    "When a process that applies commands last heard from its topic, since 1970.",
    multiprocess_mode="mostrecent",
)
kafka_consumer_lag = Gauge(
    "kafka_consumer_lag",
    "Messages that a partition holds and that nobody has worked off.",
    ["topic", "partition"],
    multiprocess_mode="mostrecent",
)
dict_version_lag = Asked(
    "dict_version_lag",
    "How many versions a pod is behind what it has heard of, of the tenant that is furthest behind.",
    ("dict_code",),
)
cache_reload_duration = Histogram(
    "cache_reload_duration",
    "Seconds from the beginning of a reload until the readers are told.",
    ["dict_code"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)
cache_reload_errors = Counter("cache_reload_errors", "Reloads that failed, by code.", ["dict_code", "code"])
redis_stream_lag = Asked("redis_stream_lag", "Announcements on the stream that the pod has not read.")
postgres_fallback_reads = Counter(
    "postgres_fallback_reads", "Reads that the database answered itself.", ["dict_code"]
)
refdata_staleness_seconds = Asked(
    "headworks_refdata_staleness_seconds",
    "Since when a dictionary was not found to be as its database has it.",
    ("dict_code",),
)
refdata_drifts = Counter(
    "headworks_refdata_drifts_total", "Changes of tables that no command has made.", ["dict_code"]
)
refdata_reads = Counter("headworks_refdata_reads_total", "Reads of reference data.", ["kind", "status"])

# -- the pipeline

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
pipeline_claims = Counter(
    "headworks_pipeline_claims_total",
    "Requests of daemons for work, by whether there was some: found, empty.",
    ["stage", "outcome"],
)
pipeline_tasks = Asked("headworks_pipeline_tasks", "Tasks by stage and status.", ("stage", "status"))
pipeline_oldest_ready = Asked(
    "headworks_pipeline_oldest_ready_age_seconds",
    "How long the task that waits longest for the stage has been known.",
    ("stage",),
)
pipeline_stuck = Asked(
    "headworks_pipeline_stuck_tasks",
    "Tasks at work for longer than their stage should take, under no lease that runs; 100 at most.",
    ("stage",),
)
