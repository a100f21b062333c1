"""What the contract of reference data asks of its deployment, by its sections: the values for production."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from app.refdata import config
from tests.deploy import chart, procfile
from tests.deploy.chart import Rendered, rendered

MADE: Rendered = rendered("production")
REFDATA = {"refdata-apply", "refdata-relay", "refdata-kafka-adapter", "refdata-query"}
SERVICES = {"web", *REFDATA}


def configured() -> config.Config:
    return config.parse(MADE.refdata(), dict.fromkeys(MADE.secrets("refdata-query"), "given"))


def test_1_3_reads_grow_by_pods() -> None:
    scaling = MADE.of_process("HorizontalPodAutoscaler")["refdata-query"]["spec"]
    # docs/capacity.md: a hundred cores of the slower server, twenty of the faster one, for 2,000,000 a second
    readers = int(MADE.values("refdata-query")["HEADWORKS_REFDATA_READERS"])
    assert scaling["maxReplicas"] * readers >= 100
    assert scaling["metrics"][0]["resource"]["target"]["averageUtilization"] <= 60


def test_2_1_the_stack_is_kubernetes_with_istio_kafka_postgresql_and_a_redis_cluster() -> None:
    assert {"Deployment", "PeerAuthentication", "DestinationRule"} <= {one["kind"] for one in MADE.objects}
    found = configured().refdata
    assert (found.kafka.bootstrap_from_env, found.redis.mode) == ("KAFKA_BOOTSTRAP", "cluster")
    assert len(found.redis.nodes) >= 3
    assert found.postgres.url_from_env in MADE.secrets("refdata-apply")


def test_3_each_component_is_deployed_by_itself() -> None:
    assert set(MADE.processes()) >= SERVICES  # the web takes commands in
    assert set(procfile.LINES) >= SERVICES


def test_4_9_a_dictionary_is_added_by_configuration_while_pods_run() -> None:
    """A mounted folder follows its ConfigMap, and processes look at the file each second."""
    for process in SERVICES:
        mounts = {one["name"]: one for one in MADE.container(process)["volumeMounts"]}
        folder = Path(mounts["refdata"]["mountPath"])
        assert "subPath" not in mounts["refdata"]
        assert Path(MADE.values(process)["HEADWORKS_REFDATA_CONFIG"]).parent == folder
    values = chart.values_of("production")
    before = chart.Rendered(chart.render(values)).pods()
    defaults = chart.merged(values)["refdata"]["config"]["dictionaries"]
    added = {"code": "LIMIT", "apply": {"mode": "DICTIONARY_ITEM"}}
    values["refdata"]["config"]["dictionaries"] = [*defaults, added]
    changed = chart.Rendered(chart.render(values))
    assert "LIMIT" in config.parse(changed.refdata(), {"HEADWORKS_REFDATA_DATABASE_URL": "x"}).dictionaries
    assert before == changed.pods()  # nothing is rolled


def test_7_commands_are_ordered_by_the_key_of_tenant_and_dictionary() -> None:
    found = configured().refdata.kafka
    assert found.key_template == "{tenantId}:{dictCode}"
    assert found.partitions >= MADE.processes()["refdata-apply"]["spec"]["replicas"]


def test_10_health_and_metrics_are_asked_for_at_their_addresses() -> None:
    query = MADE.container("refdata-query")
    assert query["readinessProbe"]["httpGet"]["path"].startswith("/actuator/health")
    (endpoint,) = MADE.of_process("PodMonitor")["refdata-query"]["spec"]["podMetricsEndpoints"]
    assert endpoint["path"] == "/actuator/prometheus"


def test_11_3_three_of_each_service_run_on_hosts_of_their_own_and_no_disruption_takes_more_than_one() -> None:
    scaled = MADE.of_process("HorizontalPodAutoscaler")
    for process, deployment in MADE.processes().items():
        if process == "beat":  # two would send everything twice
            continue
        spec = deployment["spec"]
        assert (scaled[process]["spec"]["minReplicas"] if process in scaled else spec["replicas"]) >= 3, (
            process
        )
        assert MADE.of_process("PodDisruptionBudget")[process]["spec"]["maxUnavailable"] == 1
        pod = spec["template"]["spec"]
        (term,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
        labels = spec["template"]["metadata"]["labels"]
        assert chart.selects(labels, term["podAffinityTerm"]["labelSelector"]["matchLabels"])
        spread = {one["topologyKey"]: one for one in pod["topologySpreadConstraints"]}
        hosts = spread["kubernetes.io/hostname"]
        assert (hosts["maxSkew"], hosts["whenUnsatisfiable"]) == (1, "DoNotSchedule")
        assert chart.selects(labels, hosts["labelSelector"]["matchLabels"])
        assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_11_4_1_whoever_speaks_to_a_pod_shows_a_certificate_of_the_mesh() -> None:
    (strict,) = MADE.of("PeerAuthentication")
    assert strict["spec"]["mtls"] == {"mode": "STRICT"}
    for process, pod in MADE.pods().items():
        labels = pod["metadata"]["labels"]
        assert chart.selects(labels, strict["spec"]["selector"]["matchLabels"])
        wanted = "false" if process == "migrate" else "true"  # a Job with a sidecar never ends
        assert labels["sidecar.istio.io/inject"] == wanted, process
    for rule in MADE.of("DestinationRule"):
        assert rule["spec"]["trafficPolicy"]["tls"] == {"mode": "ISTIO_MUTUAL"}


def test_11_4_2_callers_from_outside_show_a_token_of_their_tenant() -> None:
    tenants = configured().tenants
    assert tenants is not None
    assert yaml.safe_load(MADE.refdata())["refdata"]["security"]["tenant"]["source"] == "JWT_CLAIM"
    (ingress,) = MADE.of("Ingress")
    assert {one for tls in ingress["spec"]["tls"] for one in tls["hosts"]} == {
        rule["host"] for rule in ingress["spec"]["rules"]
    }


SECRET = re.compile(r"SECRET|PASSWORD|TOKENS?$|_KEY$|ACCESS_KEY|DATABASE_URL|BROKER_URL|BASIC_AUTH|BOOTSTRAP")


def test_11_4_3_secrets_are_in_secrets_alone() -> None:
    for case in chart.CASES:
        made = rendered(case)
        texts = {text for secret in made.of("Secret") for text in secret["stringData"].values()}
        for process in made.processes():
            assert not [name for name in made.values(process) if SECRET.search(name)], process
        elsewhere = str([one for one in made.objects if one["kind"] != "Secret"])
        assert not [text for text in texts if text in elsewhere]


def test_11_5_the_metrics_of_every_process_are_asked_for() -> None:
    assert set(MADE.of_process("PodMonitor")) == set(MADE.processes()) - {"beat"}


def test_12_8_calls_have_an_end_in_time_and_a_breaker() -> None:
    rules = MADE.of_process("DestinationRule")
    assert set(rules) == {"web", "refdata-query"}
    for rule in rules.values():
        policy = rule["spec"]["trafficPolicy"]
        assert policy["outlierDetection"]["consecutive5xxErrors"] >= 1
        assert policy["outlierDetection"]["maxEjectionPercent"] <= 50  # half of them stay, whatever happens
        assert policy["connectionPool"]["tcp"].keys() == {"maxConnections", "connectTimeout"}
        assert policy["connectionPool"]["http"]["http1MaxPendingRequests"] > 0
    for service in MADE.of("VirtualService"):
        assert float(service["spec"]["http"][-1]["timeout"].rstrip("s")) > 0


def test_13_1_3_values_name_the_connections() -> None:
    defaults = chart.merged({})
    for section, name in (("postgresql", "url"), ("redis", "url"), ("kafka", "bootstrap")):
        assert {name, "existingSecret", "key"} <= set(defaults[section])
