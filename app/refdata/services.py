"""What a process of the reference data works with: its configuration, databases, topics and Redis."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from app.adapters import topics
from app.adapters.database import Database
from app.adapters.settings import ENVIRON, Settings
from app.kernel.clock import Clock, SystemClock
from app.refdata import config as configuration
from app.refdata import store
from app.refdata.commands import WIRE_BYTES
from app.refdata.config import Config, Dictionary
from app.refdata.live import Live
from app.refdata.tenants import Rules, Tenants
from app.refdata.waiting import Waiting
from app.refdata.yaml_lines import BadConfig


class Databases(Mapping[str, Database]):
    """The databases of a configuration by their names, each opened when it is first asked for.

    Before it is handed out it has the platform's tables.
    """

    def __init__(self, live: Live, *, name: str, environ: Mapping[str, str]) -> None:
        self._live = live
        self._name = name
        self.environ = environ
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, Database]] = {}

    def url_of(self, name: str) -> str:
        """The address of a database. BadConfig names a variable that is not set."""
        return self._live.current.databases[name].url(self.environ)

    def __getitem__(self, name: str) -> Database:
        url = self.url_of(name)
        with self._lock:
            known = self._open.get(name)
            if known is not None and known[0] == url:
                return known[1]
            size = self._live.current.databases[name].pool.max_size
            found = Database(url, name=self._name, pool_size=size)
            try:
                store.apply_ddl(found)
            except BaseException:
                found.close()
                raise
            if known is not None:
                known[1].close()
            self._open[name] = (url, found)
            return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._live.current.databases)

    def __len__(self) -> int:
        return len(self._live.current.databases)

    def close(self) -> None:
        """Every connection is closed."""
        with self._lock:
            for _, database in self._open.values():
                database.close()
            self._open.clear()


class Services:
    """The parts that every process of the reference data has."""

    def __init__(
        self, live: Live, databases: Databases, engine: topics.Engine, clock: Clock, *, api_key: str = "",
        open_here: bool = False, patience_seconds: float = 1.0,
    ) -> None:  # fmt: skip
        self.live = live
        self._patience_seconds = patience_seconds  # how long a caller may be held up for keys
        self.api_key = api_key  # of the instance itself: it speaks for every tenant
        self.open_here = open_here  # whether whoever sits at this machine needs no token
        self.databases = databases
        self.topics = engine
        self.publisher = engine.publisher()
        self.clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, Waiting] = {}
        self._tenants: tuple[Config, Tenants] | None = None

    @property
    def config(self) -> Config:
        """The configuration as it is now."""
        self.live.look()
        return self.live.current

    @property
    def tenants(self) -> Tenants | None:
        """Who may speak for which tenant, by the configuration as it is now; None: it says nothing of it."""
        config = self.config
        with self._lock:
            if self._tenants is None or self._tenants[0] is not config:
                if self._tenants is not None:
                    self._tenants[1].close()
                self._tenants = (config, self._open(config.tenants)) if config.tenants else None
            return self._tenants and self._tenants[1]

    def _open(self, rules: Rules) -> Tenants:
        environ = self.databases.environ
        return Tenants.open(
            rules, self.clock, environ, embedded=self.open_here, patience_seconds=self._patience_seconds
        )

    def dictionary(self, dict_code: str) -> Dictionary | None:
        """The dictionary of this code, if there is one and it is enabled."""
        found = self.config.dictionaries.get(dict_code)
        return found if found is not None and found.enabled else None

    def ensure_topics(self) -> None:
        """The topics of commands and of dead letters are there. ConnectionLost."""
        kafka = self.config.refdata.kafka
        for topic in (kafka.commands_topic, kafka.dead_letter_topic):
            self.topics.ensure(topic, partitions=kafka.partitions, max_bytes=WIRE_BYTES)

    def waiting(self, dictionary: Dictionary) -> Waiting:
        """Those who wait for requests of this dictionary."""
        url = self.databases.url_of(dictionary.database)
        with self._lock:
            if url not in self._waiting:
                self._waiting[url] = Waiting(url)
            return self._waiting[url]

    def close(self) -> None:
        """Nothing is held any more."""
        with self._lock:
            for waiting in self._waiting.values():
                waiting.close()
            self._waiting.clear()
        self.publisher.close()
        self.databases.close()


def connect(
    settings: Settings, *, name: str, environ: Mapping[str, str] = ENVIRON, open_here: bool = False,
    patience_seconds: float = 1.0,
) -> Services:  # fmt: skip
    """The parts as HEADWORKS_REFDATA_CONFIG has them. BadConfig when it cannot be used."""
    clock = SystemClock()
    if not settings.refdata_config:
        raise BadConfig("HEADWORKS_REFDATA_CONFIG is not set: it names the configuration.")
    live = Live(Path(settings.refdata_config), monotonic=clock.monotonic)
    kafka = live.current.refdata.kafka
    place = topics.Topics(options=kafka.all_options(environ), lease_seconds=kafka.lease_seconds)
    if kafka.bootstrap_from_env:
        place = replace(place, bootstrap=configuration.of_environ(environ, kafka.bootstrap_from_env))
    else:
        place = replace(place, redis_url=live.current.refdata.redis.urls(environ))
    return Services(
        live, Databases(live, name=name, environ=environ), topics.connect(place, clock), clock,
        api_key=settings.api_key, open_here=open_here, patience_seconds=patience_seconds,
    )  # fmt: skip
