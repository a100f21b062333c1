"""A configuration is used whole, or refused with its line; what runs takes a better one and no worse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.refdata import config
from app.refdata.config import parse
from app.refdata.live import Live
from app.refdata.tenants import Source
from app.refdata.yaml_lines import BadConfig

FIRST = Path(config.__file__).with_name("first.yaml")
SEED = """\
refdata:
  postgres:
    jdbcUrl: jdbc:postgresql://pg-host:5432/app
    username: app_user
    passwordFromEnv: PG_PASSWORD
    schema: public
    pool:
      maxSize: 50

  consistency:
    waitCommitTimeoutMs: 300

  security:
    tenant:
      source: JWT_CLAIM
      claim: tenant_id
      allowHeaderOverrideForTrustedClients: false

  kafka:
    commandsTopic: refdata.commands
    keyTemplate: "{tenantId}:{dictCode}"

  redis:
    mode: cluster
    nodes:
      - redis-0:6379
      - redis-1:6379
      - redis-2:6379
    pubChannel: refdata:inv:pub
    streamKey: refdata:inv:stream
    consumerGroup: refdata-query-pods

  dictionaries:
    - code: COUNTRY
      enabled: true
      loadSql: |
        select code as k, to_jsonb(t) as v
        from mdm_country t
        where t.tenant_id = :tenantId and t.deleted = false
      driftCheckSql: |
        select coalesce(max(updated_at_epoch),0)::bigint as version
        from mdm_country
        where tenant_id = :tenantId
      apply:
        mode: SQL_TEMPLATE
        upsertSql: |
          insert into mdm_country(tenant_id, code, name, updated_at_epoch, deleted)
          values (:tenantId, :key, cast(:payload->>'name' as text), :eventEpoch, false)
          on conflict (tenant_id, code) do update
          set name = excluded.name,
              updated_at_epoch = excluded.updated_at_epoch,
              deleted = false
        deleteSql: |
          update mdm_country
          set deleted = true,
              updated_at_epoch = :eventEpoch
          where tenant_id = :tenantId
            and code = :key
        snapshotStrategy: FULL_REPLACE
        snapshotReplaceSql: |
          select refdata_replace_country_snapshot(:tenantId, :snapshotJson)
      reloadOnEvent: FULL
"""
ENVIRON = {"PG_PASSWORD": "a b@c/d", "HEADWORKS_REFDATA_JWKS_FILE": "/keys.json"}


def changed(**at: Any) -> str:
    """The configuration of the specification with values set: `redis__mode="x"`; None takes one out."""
    found = yaml.safe_load(SEED)
    for path, value in at.items():
        *parents, last = path.split("__")
        place = found["refdata"]
        for name in parents:
            place = place[int(name) if name.isdigit() else name]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return yaml.safe_dump(found)


def test_the_configuration_of_the_specification_is_used() -> None:
    found = parse(SEED, ENVIRON)
    assert found.refdata.postgres.url(ENVIRON) == "postgresql://app_user:a%20b%40c%2Fd@pg-host:5432/app"
    assert found.refdata.redis.urls({}) == "redis://redis-0:6379,redis://redis-1:6379,redis://redis-2:6379"
    assert found.refdata.postgres.pool.max_size == 50
    assert found.tenants is not None and found.tenants.source is Source.JWT_CLAIM
    country = found.dictionaries["COUNTRY"]
    assert (country.takes_deltas, country.takes_snapshots, country.is_item) == (True, True, False)


def test_the_first_configuration_of_an_instance_is_used() -> None:
    found = parse(FIRST.read_text())
    assert set(found.dictionaries) == {"COUNTRY", "CURRENCY"}
    assert all(one.takes_deltas and one.takes_snapshots for one in found.dictionaries.values())


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"postgres__pool__maxSiz": 1}, "postgres.pool.maxSiz"),
        ({"postgres__pool__maxSize": 0}, "postgres.pool.maxSize"),
        ({"postgres__pool__maxSize": "5"}, "postgres.pool.maxSize"),
        ({"postgres__jdbcUrl": "jdbc:postgresql://h/db?sslmode=disable"}, "postgres.jdbcUrl"),
        ({"postgres__urlFromEnv": "URL"}, "postgres: .*either"),
        ({"postgres__schema": "a; drop"}, "postgres.schema"),
        ({"consistency__waitCommitTimeoutMs": 5}, "waitCommitTimeoutMs"),
        ({"kafka__keyTemplate": "{dictCode}"}, "keyTemplate"),
        ({"redis__mode": "sentinel"}, "redis.mode"),
        ({"redis__nodes": None}, "redis: .*either"),
        ({"redis": None}, "redis"),
        ({"dictionaries__0__code": "A B"}, "code"),
        ({"dictionaries__0__loadSql": None}, "loadSql"),
        ({"dictionaries__0__database": "nowhere"}, "nowhere"),
        ({"dictionaries__0__apply__snapshotStageSql": "select 1"}, "snapshotReplaceSql"),
        ({"dictionaries__0__apply__mode": "DICTIONARY_ITEM"}, "DICTIONARY_ITEM"),
        ({"dictionaries__0__apply__upsertSql": "select :nothing"}, "upsertSql: :nothing"),
        ({"dictionaries__0__loadSql": "delete from t"}, "loadSql"),
        ({"security__tenant__source": "ANYBODY"}, "security.tenant.source"),
        ({"security__tenant__claims": "x"}, "security.tenant.claims"),
    ],
)
def test_what_cannot_be_used_is_named(change: dict[str, Any], place: str) -> None:
    with pytest.raises(BadConfig, match=place):
        parse(changed(**change), ENVIRON)


@pytest.mark.parametrize(
    ("old", "new", "lines_on"),
    [
        ("maxSize: 50", "maxSize: many", 0),
        ("mode: cluster", "mode: clusters", 0),
        ("from mdm_country t\n", "from mdm_country t, :nobody\n", 0),
        ("              deleted = false\n", "              deleted = :no\n", 0),
        ("enabled: true", "enabled: true\n      enabled: true", 1),
        ("code: COUNTRY", "code: COUNTRY\n      code: CURRENCY", 1),
        ("reloadOnEvent: FULL", "reloadOnEvent: [", 1),
        ("mode: cluster", "mode: *cluster", 0),
    ],
)
def test_a_refusal_names_the_line(old: str, new: str, lines_on: int) -> None:
    line = SEED[: SEED.index(old)].count("\n") + 1 + lines_on
    with pytest.raises(BadConfig, match=rf"Line {line}\b"):
        parse(SEED.replace(old, new, 1), ENVIRON)


NO_CONFIGURATION = (
    "", "refdata:", "[]", "refdata: {postgres: &a {urlFromEnv: A}, redis: *a}", "a: " * 2000, "\x00",
    "x" * ((1 << 20) + 1), "refdata: {redis: {urlFromEnv: A}}",
    "refdata: !!python/object/apply:os.system [ls]",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_CONFIGURATION)
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(BadConfig):
        parse(text)


def test_a_variable_that_is_not_set_is_named_and_no_other_is_told() -> None:
    found = parse(SEED, ENVIRON)
    with pytest.raises(BadConfig, match="PG_PASSWORD") as refused:
        found.refdata.postgres.url({"OTHER": "hush"})
    assert "hush" not in str(refused.value)


def test_a_better_file_is_taken_and_a_worse_one_is_not(tmp_path: Path) -> None:
    now = [0.0]
    path = tmp_path / "refdata.yaml"
    path.write_text(FIRST.read_text())
    live = Live(path, monotonic=lambda: now[0])
    assert not live.look()
    path.write_text(FIRST.read_text().replace("CURRENCY", "LANGUAGE") + "\n")
    assert not live.look()  # looked for once a second
    now[0] += 1
    assert live.look()
    assert set(live.current.dictionaries) == {"COUNTRY", "LANGUAGE"}
    for worse in ("refdata: nothing", ""):
        path.write_text(worse)
        now[0] += 1
        assert not live.look()
        assert live.refused is not None
        assert set(live.current.dictionaries) == {"COUNTRY", "LANGUAGE"}
    path.unlink()
    now[0] += 1
    assert not live.look()
    assert live.refused is not None and str(path) in live.refused
    path.write_text(FIRST.read_text())
    now[0] += 1
    assert live.look()
    assert live.refused is None
    assert set(live.current.dictionaries) == {"COUNTRY", "CURRENCY"}
