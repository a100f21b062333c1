"""The configuration (section 5): databases, topics, Redis, tenants, dictionaries; read anew while running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote

import pydantic
import pydantic.alias_generators
from pydantic import ConfigDict, Field, model_validator

from app.adapters.settings import ENVIRON
from app.refdata import templates
from app.refdata.templates import Template, TemplateRefused, compile_template
from app.refdata.tenant_rules import Rules, RulesRefused
from app.refdata.yaml_lines import BadConfig, Lines, Path, dotted, line_of, lines_before
from app.refdata.yaml_lines import read as read_yaml

MOST_BYTES = 1 << 20
KEYS_FROM_ENV = {"jwksFile": "HEADWORKS_REFDATA_JWKS_FILE", "jwksUrl": "HEADWORKS_REFDATA_JWKS_URL"}


class _Part(pydantic.BaseModel):
    """One section; unknown keys are refused, since a misspelt limit would be no limit."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=pydantic.alias_generators.to_camel
    )


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Sql = Annotated[str, Field(min_length=1, max_length=100_000)]
Variable = Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]{0,100}$")]
Milliseconds = Annotated[int, Field(ge=0, le=60_000)]
Options = Annotated[dict[str, str | int | bool], Field(max_length=100)]


class Pool(_Part):
    """How many connections a process keeps."""

    max_size: Annotated[int, Field(ge=1, le=200)] = 4


class Postgres(_Part):
    """A database: an address in the environment, or its parts with the password there."""

    url_from_env: Variable | None = None
    jdbc_url: Annotated[str, Field(pattern=r"^jdbc:postgresql://[^/?#\s]+/[^/?#\s]+$")] | None = None
    username: str | None = None
    password_from_env: Variable | None = None
    schema_: Annotated[str, Field(alias="schema", pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = "public"
    pool: Pool = Pool()

    @model_validator(mode="after")
    def _is_an_address(self) -> Postgres:
        if (self.url_from_env is None) == (self.jdbc_url is None):
            raise ValueError("give either urlFromEnv or jdbcUrl")
        return self

    def url(self, environ: Mapping[str, str]) -> str:
        """The address for the driver. BadConfig names a variable that is not set."""
        if self.url_from_env:
            return of_environ(environ, self.url_from_env)
        place = str(self.jdbc_url).removeprefix("jdbc:postgresql://")
        password = of_environ(environ, self.password_from_env) if self.password_from_env else ""
        user = quote(self.username or "", safe="") + (f":{quote(password, safe='')}" if password else "")
        return f"postgresql://{user}{'@' if user else ''}{place}"


class Consistency(_Part):
    """How long somebody waits: a writer for the commit, a reader for a reload."""

    wait_commit_timeout_ms: Annotated[int, Field(ge=50, le=1000)] = 300
    read_wait_ms: Milliseconds = 100


class Source(_Part):
    """An outside topic whose messages become commands of one tenant."""

    topic: Name
    tenant_id: Name
    dict_code: Name | None = None  # None: the message names it


class Kafka(_Part):
    """The topics of commands; without `bootstrapFromEnv` they are streams of Redis."""

    bootstrap_from_env: Variable | None = None
    commands_topic: Name = "refdata.commands"
    dead_letter_topic: Name = "refdata.commands.dlq"
    key_template: Literal["{tenantId}:{dictCode}"] = "{tenantId}:{dictCode}"  # whatever else breaks the order
    partitions: Annotated[int, Field(ge=1, le=1024)] = 8
    lease_seconds: Annotated[int, Field(ge=1, le=300)] = 10  # so long a dead member keeps its partitions
    group: Name = "refdata-apply"
    adapter_group: Name = "refdata-kafka-adapter"
    options: Options = {}  # librdkafka's own
    secrets_from_env: dict[str, Variable] = {}  # of these options the values: sasl.password
    sources: tuple[Source, ...] = ()

    def all_options(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The options of the client. BadConfig names a variable that is not set."""
        secrets = {name: of_environ(environ, variable) for name, variable in self.secrets_from_env.items()}
        return {name: str(value) for name, value in self.options.items()} | secrets


class Redis(_Part):
    """Where changes are announced."""

    mode: Literal["single", "cluster"] = "single"
    url_from_env: Variable | None = None
    nodes: tuple[Annotated[str, Field(pattern=r"^[^:\s]+:[0-9]{1,5}$")], ...] = ()
    password_from_env: Variable | None = None
    pub_channel: Annotated[str, Field(min_length=1, max_length=200)] = "refdata:inv:pub"
    stream_key: Annotated[str, Field(min_length=1, max_length=200)] = "refdata:inv:stream"
    stream_length: Annotated[int, Field(ge=100, le=10_000_000)] = 100_000
    consumer_group: Name = "refdata-query-pods"

    @model_validator(mode="after")
    def _is_an_address(self) -> Redis:
        if bool(self.nodes) == (self.url_from_env is not None):
            raise ValueError("give either nodes or urlFromEnv")
        return self

    def urls(self, environ: Mapping[str, str]) -> str:
        """The addresses, separated by commas. BadConfig names a variable that is not set."""
        if self.url_from_env:
            return of_environ(environ, self.url_from_env)
        password = of_environ(environ, self.password_from_env) if self.password_from_env else ""
        login = f":{quote(password, safe='')}@" if password else ""
        return ",".join(f"redis://{login}{node}" for node in self.nodes)


class Query(_Part):
    """How the pods that answer reads keep up with what is written."""

    coalesce_ms: Annotated[int, Field(ge=0, le=1000)] = 20  # changes so close together are loaded at once
    jitter_ms: Annotated[int, Field(ge=0, le=5000)] = 50  # so that pods do not all load at the same moment
    parallel_reloads: Annotated[int, Field(ge=1, le=32)] = 2
    check_seconds: Annotated[float, Field(ge=0.5, le=3600)] = 5.0  # between two looks at all versions
    refresh_seconds: Annotated[float, Field(ge=1, le=86_400)] = (
        60.0  # between two looks at unannounced changes
    )
    primary_reads: Annotated[int, Field(ge=1, le=64)] = 4  # so many at once ask the database itself
    keep_versions: Annotated[int, Field(ge=1, le=1000)] = 8
    keep_seconds: Annotated[int, Field(ge=0, le=86_400)] = 60
    drain_seconds: Annotated[float, Field(ge=0, le=300)] = 1.0  # not ready, before connections are closed


class Limits(_Part):
    """How long things are kept."""

    snapshot_seconds: Annotated[int, Field(ge=1, le=7 * 86_400)] = 3600  # from a snapshot's last chunk
    dedup_days: Annotated[int, Field(ge=1, le=3650)] = 30
    archived_versions: Annotated[int, Field(ge=0, le=100)] = 3  # before a snapshot, to go back to
    announced_hours: Annotated[int, Field(ge=1, le=8760)] = 24


class Apply(_Part):
    """How changes get into the dictionary's tables; without it the dictionary is read-only."""

    mode: Literal["SQL_TEMPLATE", "DICTIONARY_ITEM"] = "SQL_TEMPLATE"
    upsert_sql: Sql | None = None
    delete_sql: Sql | None = None
    snapshot_strategy: Literal["FULL_REPLACE"] = "FULL_REPLACE"
    snapshot_replace_sql: Sql | None = None
    snapshot_stage_sql: Sql | None = None
    snapshot_finalize_sql: Sql | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Apply:
        given = [name for name, value in self if name.endswith("_sql") and value is not None]
        if self.mode == "DICTIONARY_ITEM" and given:
            raise ValueError("DICTIONARY_ITEM has SQL of its own: leave yours out, or use SQL_TEMPLATE")
        if self.snapshot_replace_sql and (self.snapshot_stage_sql or self.snapshot_finalize_sql):
            raise ValueError("give either snapshotReplaceSql or snapshotStageSql and snapshotFinalizeSql")
        if (self.snapshot_stage_sql is None) != (self.snapshot_finalize_sql is None):
            raise ValueError("snapshotStageSql and snapshotFinalizeSql belong together")
        return self


class Validation(_Part):
    """What a dictionary has to be; a command after which it is not has no effect."""

    min_items: Annotated[int, Field(ge=0)] = 0
    max_drop_percent: Annotated[int, Field(ge=0, le=100)] = 100  # of the entries, by one command
    required_keys: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=1000)] = ()


class DictionaryConfig(_Part):
    """One dictionary as it is configured."""

    code: Name
    enabled: bool = True
    database: Name = "postgres"
    load_sql: Sql | None = None
    drift_check_sql: Sql | None = None
    apply: Apply | None = None
    reload_on_event: Literal["FULL", "KEYS"] = "FULL"
    validation: Validation | None = None

    @model_validator(mode="after")
    def _can_be_loaded(self) -> DictionaryConfig:
        is_item = self.apply is not None and self.apply.mode == "DICTIONARY_ITEM"
        if is_item == (self.load_sql is not None):
            raise ValueError("give loadSql, or apply.mode DICTIONARY_ITEM, which has its own")
        return self


class Security(_Part):
    """Who may name which tenant; read by `tenants`."""

    tenant: dict[str, Any] = {}


class Refdata(_Part):
    """All of it."""

    postgres: Postgres
    databases: dict[Name, Postgres] = {}
    consistency: Consistency = Consistency()
    security: Security = Security()
    kafka: Kafka = Kafka()
    redis: Redis
    query: Query = Query()
    limits: Limits = Limits()
    dictionaries: Annotated[tuple[DictionaryConfig, ...], Field(max_length=10_000)] = ()


@dataclass(frozen=True, slots=True)
class Dictionary:
    """One dictionary, its SQL ready to be executed; what is None cannot be done with it."""

    code: str
    enabled: bool
    database: str
    reload_on_event: str
    is_item: bool
    """Whether its entries are in refdata.dictionary_item."""
    load: Template | None
    drift_check: Template | None
    upsert: Template | None
    delete: Template | None
    replace: Template | None
    stage: Template | None
    finalize: Template | None
    validation: Validation | None

    @property
    def takes_deltas(self) -> bool:
        """Whether single entries can be changed."""
        return self.is_item or (self.upsert is not None and self.delete is not None)

    @property
    def is_read_only(self) -> bool:
        """Whether no command changes it, so that its version never does either."""
        return not self.takes_deltas and not self.takes_snapshots

    @property
    def takes_snapshots(self) -> bool:
        """Whether all entries can be replaced."""
        return self.is_item or self.replace is not None or self.stage is not None


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration that can be used."""

    refdata: Refdata
    dictionaries: Mapping[str, Dictionary]
    tenants: Rules | None
    """Who may speak for which tenant; None: nobody by a token of their own."""

    @property
    def databases(self) -> Mapping[str, Postgres]:
        """Every database by its name; that of the platform is `postgres`."""
        return {"postgres": self.refdata.postgres, **self.refdata.databases}


def parse(text: str, environ: Mapping[str, str] = ENVIRON) -> Config:
    """The configuration in this YAML. BadConfig says what is wrong, and in which line."""
    if len(text) > MOST_BYTES:
        raise BadConfig("The configuration has more than 1 MiB.")
    found, lines = read_yaml(text)
    try:
        refdata = _Whole.model_validate(_frozen(found)).refdata
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = tuple(part for part in first["loc"] if not str(part).startswith(("function-", "tuple[")))
        raise BadConfig(f"Line {line_of(lines, path)}, {dotted(path)}: {first['msg']}.") from None
    dictionaries: dict[str, Dictionary] = {}
    for index, one in enumerate(refdata.dictionaries):
        place = ("refdata", "dictionaries", index)
        if one.code in dictionaries:
            raise BadConfig(
                f"Line {line_of(lines, (*place, 'code'))}: there are two dictionaries {one.code}."
            )
        if one.database not in ("postgres", *refdata.databases):
            raise BadConfig(
                f"Line {line_of(lines, (*place, 'database'))}: no database is called {one.database}."
            )
        dictionaries[one.code] = _dictionary(one, lines, place)
    return Config(refdata, dictionaries, _rules(refdata.security.tenant, environ, lines))


def _frozen(value: Any) -> Any:
    """The same without lists: a number that is written as a text is none, so nothing is converted later."""
    if isinstance(value, dict):
        return {key: _frozen(one) for key, one in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class _Whole(_Part):
    refdata: Refdata


def _rules(written: dict[str, Any], environ: Mapping[str, str], lines: Lines) -> Rules | None:
    """The rules as they are written; where the keys are may be left to the environment."""
    if not written:
        return None
    if not {*KEYS_FROM_ENV, "secretFromEnv"} & {*written}:
        known = {key: environ[name] for key, name in KEYS_FROM_ENV.items() if environ.get(name)}
        written = written | (known if written.get("source", "JWT_CLAIM") == "JWT_CLAIM" else {})
    try:
        return Rules.of(written)
    except RulesRefused as error:
        line = line_of(lines, ("refdata", "security", "tenant"))
        raise BadConfig(f"Line {line}, refdata.{error.sentence}") from None


def _dictionary(one: DictionaryConfig, lines: Lines, place: Path) -> Dictionary:
    def sql(text: str | None, allowed: frozenset[str], *path: str, reads: bool = False) -> Template | None:
        if text is None:
            return None
        try:
            return compile_template(text, allowed, reads=reads)
        except TemplateRefused as error:
            line = line_of(lines, (*place, *path)) + lines_before(lines, (*place, *path)) + error.line - 1
            raise BadConfig(f"Line {line}, {one.code}.{path[-1]}: {error.sentence}") from None

    apply = one.apply or Apply()
    return Dictionary(
        code=one.code,
        enabled=one.enabled,
        database=one.database,
        reload_on_event=one.reload_on_event,
        is_item=apply.mode == "DICTIONARY_ITEM",
        load=sql(one.load_sql, templates.LOAD, "loadSql", reads=True),
        drift_check=sql(one.drift_check_sql, templates.LOAD, "driftCheckSql", reads=True),
        upsert=sql(apply.upsert_sql, templates.ITEM, "apply", "upsertSql"),
        delete=sql(apply.delete_sql, templates.ITEM, "apply", "deleteSql"),
        replace=sql(apply.snapshot_replace_sql, templates.SNAPSHOT, "apply", "snapshotReplaceSql"),
        stage=sql(apply.snapshot_stage_sql, templates.CHUNK, "apply", "snapshotStageSql"),
        finalize=sql(apply.snapshot_finalize_sql, templates.EVENT, "apply", "snapshotFinalizeSql"),
        validation=one.validation,
    )


def of_environ(environ: Mapping[str, str], name: str) -> str:
    """The variable's value. BadConfig where it is not set."""
    if not environ.get(name):
        raise BadConfig(f"{name} is not set, and the configuration of the reference data names it.")
    return environ[name]
