"""Each process of the chart runs its line of the Procfile, with all that it needs and no more than it may."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import celeryconfig
from app.adapters import settings
from app.refdata import config
from app.refdata.tenant_rules import Rules
from app.suppliers.reading.limits import Limits
from tests.deploy import chart, procfile
from tests.deploy.chart import CASES, Object, Rendered, component, rendered, selects

PROCESSES = {case: set(procfile.LINES) - ({"flower"} if case != "everything" else set()) for case in CASES}
OTHERS = {
    # not settings of Headworks: what reads them
    "AWS_ACCESS_KEY_ID": "boto3", "AWS_SECRET_ACCESS_KEY": "boto3", "AWS_DEFAULT_REGION": "boto3",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "opentelemetry", "PROMETHEUS_MULTIPROC_DIR": "prometheus_client",
    "REMAP_SIGTERM": "celery", "FLOWER_BASIC_AUTH": "flower",
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(case: str) -> Rendered:
    return rendered(case)


# -- processes


def test_each_process_of_the_procfile_runs_its_very_line(case: str, made: Rendered) -> None:
    assert set(made.processes()) == PROCESSES[case]
    for process, pod_template in made.pods().items():
        (container,) = pod_template["spec"]["containers"]
        assert "command" not in container  # the image's own: it reaps what is left behind
        if process == "migrate":
            assert container["args"] == ["headworks", "migrate"]
            continue
        known = made.values(process)
        words = procfile.filled(container["args"], r"\$\((\w+)\)", known)
        assert words == procfile.command(process, known)


def test_every_variable_is_one_that_something_reads(made: Rendered) -> None:
    named = set(re.findall(r"FromEnv: (\w+)|[\w.]+: (\w+_PASSWORD)\b", made.refdata()))
    known = {f"HEADWORKS_{name.upper()}" for name in settings.Settings.__dataclass_fields__}
    known |= {*OTHERS, *procfile.variables(), *(name for pair in named for name in pair if name)}
    assert {one["name"] for process in made.pods() for one in made.env(process)} <= known


def test_a_variable_stands_once(made: Rendered) -> None:
    for process in made.pods():
        names = [one["name"] for one in made.env(process)]
        assert len(names) == len(set(names)), process


def test_every_process_finds_the_settings_that_it_needs(made: Rendered) -> None:
    for process in made.processes():
        found = made.values(process) | dict.fromkeys(made.secrets(process), "redis://given")
        needs = () if process.startswith("refdata-") else settings.INSTANCE
        settings.Settings.from_env(found, needs=needs)


def test_the_configuration_of_reference_data_can_be_used(made: Rendered) -> None:
    for process in ("web", "refdata-apply", "refdata-relay", "refdata-kafka-adapter", "refdata-query"):
        found = made.values(process) | dict.fromkeys(made.secrets(process), "given")
        configured = config.parse(made.refdata(), found)
        for database in configured.databases.values():
            assert database.url(found)
        assert configured.refdata.redis.urls(found)
        assert configured.refdata.kafka.all_options(found) is not None
        if name := configured.refdata.kafka.bootstrap_from_env:
            assert found[name]
        assert configured.tenants is None or isinstance(configured.tenants, Rules)


# -- one object refers to another


def test_every_selector_has_its_pods(made: Rendered) -> None:
    labels = {name: pod_template["metadata"]["labels"] for name, pod_template in made.pods().items()}
    for name, deployment in made.processes().items():
        wanted = deployment["spec"]["selector"]["matchLabels"]
        assert [one for one in labels if selects(labels[one], wanted)] == [name]
    for kind in ("Service", "PodDisruptionBudget", "PodMonitor"):
        for one in made.of(kind):
            selector = one["spec"]["selector"]
            wanted = selector if kind == "Service" else selector["matchLabels"]
            found = [name for name in labels if selects(labels[name], wanted)]
            assert found == [component(one)]
    for one in made.of("HorizontalPodAutoscaler"):
        assert made.named("Deployment", one["spec"]["scaleTargetRef"]["name"])


def ports(made: Rendered, process: str) -> set[str]:
    container = made.container(process)
    return {one["name"] for one in container.get("ports", [])}


def test_every_port_is_one_that_a_container_has(made: Rendered) -> None:
    for service in made.of("Service"):
        process = component(service)
        assert {one["targetPort"] for one in service["spec"]["ports"]} <= made.ports(process)
    for monitor in made.of("PodMonitor"):
        process = component(monitor)
        assert {one["port"] for one in monitor["spec"]["podMetricsEndpoints"]} <= made.ports(process)
    for process, container in made.containers():
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if "httpGet" in container.get(probe, {}):
                assert container[probe]["httpGet"]["port"] in made.ports(process)
    for ingress in made.of("Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                service = made.named("Service", path["backend"]["service"]["name"])
                assert path["backend"]["service"]["port"]["name"] in {
                    one["name"] for one in service["spec"]["ports"]
                }
    for kind in ("DestinationRule", "VirtualService"):
        for one in made.of(kind):
            host = one["spec"].get("host") or one["spec"]["hosts"][0]
            assert host.endswith(f".{chart.NAMESPACE}.svc.cluster.local")
            assert made.named("Service", host.split(".")[0])


def test_containers_listen_where_their_ports_are(made: Rendered) -> None:
    binds = {"web": "HEADWORKS_BIND", "refdata-query": "HEADWORKS_REFDATA_BIND"}
    for process in made.processes():
        container = made.container(process)
        known = made.values(process)
        for port in container.get("ports", []):
            name = binds.get(process, "HEADWORKS_METRICS_BIND")
            assert known[name] == f"0.0.0.0:{port['containerPort']}", process


def test_every_secret_and_configuration_that_is_named_exists_with_its_key(case: str, made: Rendered) -> None:
    held = {one["metadata"]["name"]: set(one["stringData"]) for one in made.of("Secret")}
    values = chart.merged(chart.values_of(case))
    for process in made.pods():
        for secret, key in made.secrets(process).values():
            if secret in held:
                assert key in held[secret], (process, key)
            else:  # somebody else's
                assert secret in (values["existingSecret"], "kafka-users"), (process, secret)
    maps = {one["metadata"]["name"]: set(one["data"] or {}) for one in made.of("ConfigMap")}
    claims = {one["metadata"]["name"] for one in made.of("PersistentVolumeClaim")}
    for process, pod_template in made.pods().items():
        for volume in pod_template["spec"]["volumes"]:
            if "configMap" in volume:
                assert volume["configMap"]["name"] in maps, process
            if "persistentVolumeClaim" in volume:
                name = volume["persistentVolumeClaim"]["claimName"]
                assert name in claims | {values["sharedVolume"]["existingClaim"]}, process


def test_everything_is_in_secrets_of_the_chart_where_it_is_given_as_text() -> None:
    """Nobody has to make a Secret beside that, but for what is named as one of somebody else's."""
    made = rendered("everything")
    named = {secret for process in made.pods() for secret, _ in made.secrets(process).values()}
    assert named == {"hw", "hw-migrate", "kafka-users"}
    for secret in made.of("Secret"):
        used = {key for process in made.pods() for name, key in made.secrets(process).values()
                if name == secret["metadata"]["name"]}  # fmt: skip
        assert set(secret["stringData"]) == used, "a key that nobody reads"


def test_the_first_migration_needs_nothing_that_the_release_brings(made: Rendered) -> None:
    """Hooks before an installation run when nothing else of it is there."""
    (job,) = made.of("Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    spec = job["spec"]["template"]["spec"]
    assert "serviceAccountName" not in spec
    assert all("emptyDir" in volume for volume in spec["volumes"])
    for secret, _ in made.secrets("migrate").values():
        for own in made.of("Secret"):
            if own["metadata"]["name"] == secret:
                annotations = own["metadata"]["annotations"]
                assert annotations["helm.sh/hook"] == job["metadata"]["annotations"]["helm.sh/hook"]
                assert int(annotations["helm.sh/hook-weight"]) < 0


def test_mounted_folders_are_those_that_the_settings_name(made: Rendered) -> None:
    for process in made.processes():
        container = made.container(process)
        mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
        known = made.values(process)
        places = [
            value.removeprefix("file://") for value in known.values() if value.startswith(("/", "file:///"))
        ]
        for place in places:
            assert any(Path(place).is_relative_to(mount) for mount in mounts), (process, place)
        assert {"/data", "/tmp", "/metrics"} <= set(mounts)
        assert "subPath" not in str(mounts)  # with it a changed configuration would never arrive


# -- what a container may be


def test_no_image_is_the_latest(made: Rendered) -> None:
    for _, container in made.containers():
        assert re.search(r"@sha256:[0-9a-f]{64}$|:(?!latest$)[\w][\w.-]*$", container["image"])


def test_no_container_is_without_bounds_probes_and_confinement(made: Rendered) -> None:
    for process, container in made.containers():
        for kind in ("requests", "limits"):
            assert set(container["resources"][kind]) >= {"cpu", "memory"}, process
        if process != "migrate":
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container), process
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
    for process, pod_template in made.pods().items():
        spec = pod_template["spec"]
        assert spec["automountServiceAccountToken"] is False, process
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == image_user()
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        assert not any("hostPath" in volume for volume in spec["volumes"])


def image_user() -> int:
    text = (chart.ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    (user,) = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    return int(user)


UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
ITSELF = 150 * 2**20  # a worker's own process: 108 MB after its imports


def memory_of(container: Object) -> int:
    number, unit = re.fullmatch(r"(\d+)(\wi)", container["resources"]["limits"]["memory"]).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def test_a_worker_has_room_for_what_its_processes_may_take(made: Rendered) -> None:
    child = celeryconfig.worker_max_memory_per_child * 1024
    for process, container in made.containers():
        if "worker" in container["args"]:
            children = int(container["args"][container["args"].index("-c") + 1])
            reading = Limits().memory_bytes if process == "suppliers" else 0
            assert memory_of(container) >= ITSELF + children * child + reading, process
