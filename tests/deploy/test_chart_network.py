"""Who may speak with whom, and what the mesh does to it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

import pytest
import werkzeug.routing

from tests.deploy.chart import CASES, Object, Rendered, rendered, selects


@pytest.fixture(params=CASES)
def made(request: pytest.FixtureRequest) -> Rendered:
    return rendered(str(request.param))


# -- who speaks with whom

PORTS = {
    "dns": {53}, "postgresql": {5432}, "redis": {6379}, "kafka": {9092}, "s3": {443, 9000}, "mesh": {15012},
    "traces": {4318}, "internet": {443}, "identity": {443},
}  # fmt: skip
RABBITMQ = {5671, 5672}
FLEET = {"postgresql", "redis", "broker"}
REFDATA = {"postgresql", "redis", "kafka"}
EXPECTED = {
    # process                connects to, beside DNS
    "web": {*FLEET, "kafka", "s3", "identity"},
    "parse": {*FLEET, "s3"},
    "promote": FLEET,
    "upkeep": {*FLEET, "s3"},
    "relay": FLEET,
    "webhooks": {*FLEET, "internet"},  # whoever subscribed
    "suppliers": {*FLEET, "s3"},
    "catalog": {*FLEET, "s3", "internet"},  # the marketplace
    "refdata-apply": REFDATA,
    "refdata-relay": REFDATA,
    "refdata-kafka-adapter": REFDATA,
    "refdata-query": {*REFDATA, "identity"},
    "beat": {"broker"},
    "flower": {"broker"},
    "migrate": {"postgresql"},
}
STORES = {
    # whoever has this address connects there
    "HEADWORKS_DATABASE_URL": "postgresql", "HEADWORKS_REFDATA_DATABASE_URL": "postgresql",
    "HEADWORKS_PIPELINE_DATABASE_URL": "postgresql", "HEADWORKS_BROKER_URL": "broker",
    "HEADWORKS_REDIS_URL": "redis", "KAFKA_BOOTSTRAP": "kafka", "AWS_ACCESS_KEY_ID": "s3",
}  # fmt: skip
NAMED_ONLY = {"beat": {"postgresql", "redis"}, "flower": {"postgresql", "redis"}}
"""The fleet's settings name them, and these processes never ask them."""


def ports_of(case: str, names: Iterable[str]) -> set[int]:
    """With RabbitMQ, or with Redis as the broker."""
    known = PORTS | {"broker": RABBITMQ if case == "everything" else PORTS["redis"]}
    return {port for name in names for port in known[name]}


def policies(made: Rendered, process: str) -> list[Object]:
    labels = made.pods()[process]["metadata"]["labels"]
    return [
        one for one in made.of("NetworkPolicy") if selects(labels, one["spec"]["podSelector"]["matchLabels"])
    ]


def egress(made: Rendered, process: str) -> set[int]:
    return {
        port["port"]
        for policy in policies(made, process)
        for rule in policy["spec"].get("egress", [])
        for port in rule["ports"]
    }


def test_each_pod_is_denied_everything_that_no_policy_allows(made: Rendered) -> None:
    for process in made.pods():
        deny = [one for one in policies(made, process) if not {"ingress", "egress"} & set(one["spec"])]
        assert len(deny) == 1, process
        assert deny[0]["spec"]["policyTypes"] == ["Ingress", "Egress"]
        for policy in policies(made, process):
            assert all(rule.get("ports") for rule in policy["spec"].get("egress", [])), "every port"


@pytest.mark.parametrize("case", ["production", "everything"])
def test_a_process_may_connect_to_what_it_needs_and_nothing_else(case: str) -> None:
    made = rendered(case)
    for process in made.pods():
        beside = {"dns"} | (set() if process == "migrate" else {"mesh"})
        beside |= {"traces"} if case == "everything" else set()
        assert egress(made, process) == ports_of(case, EXPECTED[process] | beside), process


@pytest.mark.parametrize("case", CASES)
def test_a_process_may_connect_to_the_stores_whose_addresses_it_has(case: str) -> None:
    made = rendered(case)
    for process in made.pods():
        has = {STORES[name] for name in made.secrets(process) if name in STORES} - NAMED_ONLY.get(
            process, set()
        )
        stores = ports_of(case, STORES.values()) - {443}  # at which others are, too
        assert egress(made, process) & stores == ports_of(case, has) - {443}, process


def test_only_webhooks_and_the_catalog_reach_the_internet_and_no_private_network(made: Rendered) -> None:
    reach = {}
    for process in made.pods():
        for policy in policies(made, process):
            for rule in policy["spec"].get("egress", []):
                for peer in rule.get("to", []):
                    if peer.get("ipBlock", {}).get("except") and rule["ports"] == [
                        {"protocol": "TCP", "port": 443}
                    ]:
                        reach.setdefault(process, set()).update(peer["ipBlock"]["except"])
    reach.pop("refdata-query", None), reach.pop("web", None)  # the identity provider of these values
    assert set(reach) == {"webhooks", "catalog"}
    for excluded in reach.values():
        assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8"} <= excluded


def test_nobody_is_let_in_but_where_somebody_answers(made: Rendered) -> None:
    for process in made.pods():
        allowed = {
            port["port"]
            for policy in policies(made, process)
            for rule in policy["spec"].get("ingress", [])
            for port in rule["ports"]
        }
        assert allowed == (made.ports(process) if process != "migrate" else set()), process


# -- the mesh


def streams(made: Rendered, process: str) -> re.Pattern[str]:
    service = made.of_process("VirtualService")[process]
    first, rest = service["spec"]["http"]
    assert (first["timeout"], float(rest["timeout"].rstrip("s")) > 0) == ("0s", True)
    return re.compile(first["match"][0]["uri"]["regex"])


def test_only_what_goes_on_for_ever_has_no_end_in_time(routes: werkzeug.routing.Map) -> None:
    made = rendered("production")
    pattern = streams(made, "web")
    some = {"uuid": str(uuid.uuid4()), "default": "x", "string": "x", "path": "x", "any": "x", "int": "1"}
    found = set()
    for rule in routes.iter_rules():
        path = re.sub(r"<(?:(\w+)(?:\([^)]*\))?:)?\w+>", lambda match: some[match[1] or "default"], rule.rule)
        if pattern.fullmatch(path):
            found.add(rule.rule)
    assert found == {"/v1/uploads/<uuid:upload_id>/events", "/api/v1/pipeline/events"}
    reads = streams(made, "refdata-query")
    assert reads.fullmatch("/v1/tenants/a/dictionaries/COUNTRY/watch")
    assert not reads.fullmatch("/v1/tenants/a/dictionaries/COUNTRY/items/watch")


def test_nothing_that_may_have_had_its_effect_is_sent_again() -> None:
    for one in rendered("production").of("VirtualService"):
        for route in one["spec"]["http"]:
            retried = set(route.get("retries", {}).get("retryOn", "").split(",")) - {""}
            assert retried <= {"connect-failure", "refused-stream"}
