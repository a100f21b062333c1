"""The Compose file: valid, complete, and confined like the chart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from app.adapters.settings import INSTANCE, Settings
from app.refdata import config
from tests.deploy import procfile
from tests.deploy.test_image import DOCKERFILE

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
TEXT = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
EXAMPLE = dict(
    line.split("=", 1)
    for line in (DEPLOY / "compose.env.example").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)
FILLED = {
    name: value or ("" if name.startswith("CATALOG") else "0123456789abcdef" * 4)
    for name, value in EXAMPLE.items()
}
VARIABLE = re.compile(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}")
STORES = {"postgres", "valkey", "kafka", "minio", "bucket"}
OTHERS = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION",  # boto3's
    "FLOWER_BASIC_AUTH",  # Flower's
}  # fmt: skip


class Unset(Exception):
    """A variable has no value, and the file says that it has to have one."""


def interpolated(text: str, known: dict[str, str]) -> str:
    """The text as Compose reads it with these variables."""

    def value(match: re.Match[str]) -> str:
        name, how, otherwise = match.groups()
        if known.get(name):
            return known[name]
        if how == ":?":
            raise Unset(name)
        return otherwise or ""

    return VARIABLE.sub(value, text)


COMPOSE: dict[str, Any] = yaml.safe_load(interpolated(TEXT, FILLED))
SERVICES: dict[str, Any] = COMPOSE["services"]
PROCESSES = {name: one for name, one in SERVICES.items() if name not in {*STORES, "migrate"}}


def environment(service: str) -> dict[str, str]:
    """What the service's own part sets, and the image beneath it."""
    image = {"HEADWORKS_DATA_DIR": "/data", "HEADWORKS_ALIVE_FILE": "/data/alive"}
    return image | {name: str(value) for name, value in SERVICES[service].get("environment", {}).items()}


def test_it_is_what_the_specification_calls_a_compose_file() -> None:
    schema = json.loads((Path(__file__).parent / "schemas" / "compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(COMPOSE)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate({"services": {"web": {"imaeg": "x"}}})


def test_nothing_starts_while_a_password_is_missing() -> None:
    needed = [name for name in EXAMPLE if name.endswith(("PASSWORD", "SECRET", "API_KEY"))]
    assert len(needed) == 6
    for name in needed:
        with pytest.raises(Unset, match=name):
            interpolated(TEXT, FILLED | {name: ""})


def test_the_example_has_every_variable_and_no_secret() -> None:
    named = {match[1] for match in VARIABLE.finditer(TEXT)} - {"HEADWORKS_IMAGE"}
    assert named == set(EXAMPLE)
    assert {name for name, value in EXAMPLE.items() if value} == {
        "HEADWORKS_URL",
        "HEADWORKS_TRUSTED_PROXIES",
    }


def test_each_process_of_the_procfile_runs_its_very_line() -> None:
    assert set(PROCESSES) == set(procfile.LINES)
    for process, service in PROCESSES.items():
        known = {**environment(process)}
        assert [str(word) for word in service["command"]] == procfile.command(process, known), process


def test_every_variable_is_one_that_something_reads() -> None:
    refdata = (DEPLOY / "refdata.yaml").read_text(encoding="utf-8")
    known = {f"HEADWORKS_{name.upper()}" for name in Settings.__dataclass_fields__}
    known |= {*OTHERS, *procfile.variables(), *re.findall(r"FromEnv: (\w+)", refdata)}
    for process in {*PROCESSES, "migrate"}:
        assert set(environment(process)) <= known, process


def test_every_process_finds_the_settings_that_it_needs() -> None:
    for process in PROCESSES:
        needs = () if process.startswith("refdata-") else INSTANCE
        Settings.from_env(environment(process), needs=needs)
    text = (DEPLOY / "refdata.yaml").read_text(encoding="utf-8")
    for process in ("web", "refdata-apply", "refdata-relay", "refdata-kafka-adapter", "refdata-query"):
        found = config.parse(text, environment(process)).refdata
        assert found.postgres.url(environment(process)).endswith("/refdata")
        assert environment(process)[str(found.kafka.bootstrap_from_env)] == "kafka:9092"
        (mounted,) = SERVICES[process]["configs"]
        assert mounted["target"] == environment(process)["HEADWORKS_REFDATA_CONFIG"]
        assert (DEPLOY / COMPOSE["configs"][mounted["source"]]["file"]).is_file()


def test_the_databases_that_addresses_name_are_made() -> None:
    named = set(re.findall(r"@postgres:5432/(\w+)", str(SERVICES)))
    made = re.findall(
        r"^CREATE DATABASE (\w+);$", (DEPLOY / "compose-databases.sql").read_text(), re.MULTILINE
    )
    assert named == {SERVICES["postgres"]["environment"]["POSTGRES_DB"], *made}


def test_everybody_waits_for_what_it_needs() -> None:
    for process in PROCESSES:
        waits, text = SERVICES[process]["depends_on"], str(environment(process))
        wanted = {"valkey": "service_healthy"}
        if not process.startswith("refdata-"):
            wanted["migrate"] = "service_completed_successfully"
        if "s3://" in text:
            wanted["bucket"] = "service_completed_successfully"
        if "kafka:9092" in text:
            wanted["kafka"] = "service_healthy"
        assert wanted.items() <= {name: one["condition"] for name, one in waits.items()}.items(), process
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "test" in SERVICES[other]["healthcheck"], (name, other)


def test_who_keeps_files_in_the_store_has_its_credentials_and_nobody_else() -> None:
    for process in PROCESSES:
        has = "AWS_SECRET_ACCESS_KEY" in environment(process)
        assert has == ("s3://" in str(environment(process))), process


def test_every_container_is_confined() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("read_only") or name == "kafka", name  # Kafka writes its configuration at a start
        assert "privileged" not in service
        assert "latest" not in service["image"] and ":" in service["image"], name
    user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert user is not None
    for process in PROCESSES:
        places = dict(one.split(":", 1) for one in SERVICES[process]["tmpfs"])
        assert set(places) == {"/tmp", "/data", "/metrics"}
        assert all(f"uid={user[1]},gid={user[2]}" in options for options in places.values())


def test_only_what_has_to_leads_out_of_the_host_and_nothing_in_but_from_it() -> None:
    assert COMPOSE["networks"]["stores"] == {"internal": True}
    outside = {name for name, one in SERVICES.items() if "outside" in one.get("networks", [])}
    assert outside == {"web", "refdata-query", "flower", "webhooks", "catalog"}
    for name, service in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_processes_with_an_address_are_asked_there_and_all_others_by_the_image() -> None:
    own = {name: one["healthcheck"]["test"][-1] for name, one in PROCESSES.items() if "healthcheck" in one}
    assert own == {
        "web": "http://127.0.0.1:8000/readyz",
        "refdata-query": "http://127.0.0.1:8093/actuator/health/readiness",
        "flower": "http://127.0.0.1:5555/healthcheck",
    }
    for name, address in own.items():
        assert str(SERVICES[name]["ports"][0]).endswith(f":{address.split(':')[2].split('/')[0]}")
