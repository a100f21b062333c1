"""How processes of the chart are asked whether they work, how they end, and how many of them there are."""

from __future__ import annotations

import ast
import inspect

import pytest
import werkzeug.routing

import celeryconfig
from app.adapters import database, patience
from app.refdata import config
from app.refdata.query import pod
from tests.deploy import chart
from tests.deploy.chart import CASES, Rendered, component, rendered


@pytest.fixture(params=CASES)
def made(request: pytest.FixtureRequest) -> Rendered:
    return rendered(str(request.param))


# -- how a process is asked, and how it ends


def test_the_web_is_asked_at_addresses_that_it_has(made: Rendered, routes: werkzeug.routing.Map) -> None:
    known = {rule.rule for rule in routes.iter_rules()}
    container = made.container("web")
    asked = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert asked == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert {*asked.values(), "/metrics"} <= known


def test_reads_are_asked_at_addresses_that_they_have(made: Rendered) -> None:
    source = (chart.ROOT / "app" / "refdata" / "query" / "reads.py").read_text(encoding="utf-8")
    container = made.container("refdata-query")
    asked = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert asked["readinessProbe"].endswith("/readiness")
    assert asked["livenessProbe"].endswith("/liveness")  # not ready is no reason to be started again
    for path in {*asked.values(), "/actuator/prometheus"}:
        assert f'b"{path}"' in source


def test_a_process_without_an_address_is_asked_for_the_file_that_it_touches(made: Rendered) -> None:
    for process, container in made.containers():
        if process in ("web", "refdata-query", "migrate"):
            continue
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            words = container[probe]["exec"]["command"]
            assert words[:3] == ["python", "-m", "app.probe"]
            if process == "flower":
                assert (
                    words[3]
                    == f"http://127.0.0.1:{made.values(process)['HEADWORKS_FLOWER_PORT']}/healthcheck"
                )
            else:
                assert words[3] == made.values(process)["HEADWORKS_ALIVE_FILE"]


def constant(path: str, name: str) -> float:
    """A number of a module that is not to be imported here."""
    tree = ast.parse((chart.ROOT / path).read_text(encoding="utf-8"))
    (found,) = (
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if [ast.unparse(target) for target in node.targets] == [name]
    )
    return float(found)


def drain_seconds(process: str, args: list[str], made: Rendered) -> float:
    """How long the process takes at most from SIGTERM on."""
    if process == "web":
        return float(args[args.index("--graceful-timeout") + 1])
    if process == "refdata-query":
        drain = config.parse(made.refdata(), dict.fromkeys(made.secrets(process), "given")).refdata.query
        assert drain.drain_seconds < pod.LONGEST_STOP_SECONDS
        return 2 * pod.LONGEST_STOP_SECONDS  # its readers, then its loader
    if process.startswith("refdata-"):  # what it is at: one transaction
        statement = inspect.signature(database.Database).parameters["timeout_seconds"].default
        return float(statement + patience.GRACE_SECONDS)
    soft, lost = celeryconfig.worker_soft_shutdown_timeout, celeryconfig.worker_lost_wait
    return soft + lost + constant("workers/fleet.py", "ANSWER_SECONDS")


def test_a_process_is_killed_only_after_the_time_in_which_it_ends_by_itself(made: Rendered) -> None:
    for process in made.processes():
        spec = made.pods()[process]["spec"]
        (container,) = spec["containers"]
        before = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        needed = before + drain_seconds(process, container["args"], made)
        assert spec["terminationGracePeriodSeconds"] >= 1.25 * needed, process


def test_a_worker_that_is_stopped_hands_its_work_back(made: Rendered) -> None:
    for process, container in made.containers():
        if "worker" in container["args"]:
            assert made.values(process)["REMAP_SIGTERM"] == "SIGQUIT", process


def test_who_is_sent_requests_answers_until_none_are_sent_any_more(made: Rendered) -> None:
    served = {component(one) for one in made.of("Service")}
    for process in served:
        container = made.container(process)
        assert container["lifecycle"]["preStop"]["sleep"]["seconds"] >= 5


# -- how many


def fewest(made: Rendered, process: str) -> int:
    name = made.processes()[process]["metadata"]["name"]
    for one in made.of("HorizontalPodAutoscaler"):
        if one["spec"]["scaleTargetRef"]["name"] == name:
            return int(one["spec"]["minReplicas"])
    return int(made.processes()[process]["spec"]["replicas"])


def test_the_clock_runs_once_and_never_twice(made: Rendered) -> None:
    beat = made.processes()["beat"]["spec"]
    assert (beat["replicas"], beat["strategy"]) == (1, {"type": "Recreate"})
    assert not [one for one in made.of("HorizontalPodAutoscaler") if "beat" in one["metadata"]["name"]]


def test_an_autoscaler_alone_says_how_many(made: Rendered) -> None:
    scaled = {one["spec"]["scaleTargetRef"]["name"] for one in made.of("HorizontalPodAutoscaler")}
    for deployment in made.of("Deployment"):
        assert ("replicas" in deployment["spec"]) != (deployment["metadata"]["name"] in scaled)
    for one in made.of("HorizontalPodAutoscaler"):
        assert one["spec"]["minReplicas"] < one["spec"]["maxReplicas"]


def test_what_waits_for_a_stage_scales_its_process() -> None:
    external = {
        component(one): metric["external"]["metric"]
        for one in rendered("everything").of("HorizontalPodAutoscaler")
        for metric in one["spec"]["metrics"]
        if metric["type"] == "External"
    }
    assert external == {
        stage: {"name": "headworks_uploads_waiting", "selector": {"matchLabels": {"stage": stage}}}
        for stage in ("parse", "promote")
    }


def test_a_disruption_takes_one_and_never_all(made: Rendered) -> None:
    budgets = {component(one): one for one in made.of("PodDisruptionBudget")}
    several = {process for process in made.processes() if fewest(made, process) > 1}
    assert set(budgets) == several
    for process, one in budgets.items():
        assert 1 <= one["spec"]["maxUnavailable"] < fewest(made, process)
