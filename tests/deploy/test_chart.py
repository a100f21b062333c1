"""The chart can be installed: what it makes is valid, and values that lead nowhere are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.deploy import chart
from tests.deploy.chart import CASES, CHART, helm, rendered

KUBERNETES = ("1.30", "1.37")
"""The oldest that Chart.yaml allows, and the newest whose schemas are known."""

SCHEMAS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (Path(__file__).parent / "schemas").glob("*.json")
    if path.stem != "compose-spec"
}


@pytest.mark.parametrize(
    ("case", "version"), [(case, KUBERNETES[1]) for case in CASES] + [("everything", KUBERNETES[0])]
)
def test_every_object_is_one_that_the_cluster_knows(case: str, version: str) -> None:
    for one in rendered(case).objects:
        if one["kind"] in SCHEMAS:
            jsonschema.validate(one, SCHEMAS[one["kind"]])
        else:
            kubernetes_validate.validate(one, version, strict=True)


def test_an_object_that_no_cluster_knows_is_noticed() -> None:
    wrong = json.loads(json.dumps(rendered("everything").of("Deployment")[0]))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[0], strict=True)
    rule = json.loads(json.dumps(rendered("everything").of("DestinationRule")[0]))
    rule["spec"]["trafficPolicy"]["outlierDetektion"] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(rule, SCHEMAS["DestinationRule"])


@pytest.mark.parametrize("case", CASES)
def test_helm_has_nothing_to_say_against_it(case: str) -> None:
    report = helm.lint(CHART, chart.values_of(case), strict=True, kube_version="v1.31.0")
    assert [one for one in report["messages"] if one["severity"] > 1] == []
    assert report["errors"] == []


@pytest.mark.parametrize("case", CASES)
def test_a_name_stands_once(case: str) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in rendered(case).objects]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for _, name in names)


def test_everything_makes_every_kind_of_object() -> None:
    """What is not made there is not looked at by any test."""
    kinds = {one["kind"] for one in rendered("everything").objects}
    assert kinds >= {
        "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Ingress", "Job", "NetworkPolicy",
        "PodDisruptionBudget", "Secret", "Service", "ServiceAccount", *(SCHEMAS.keys() - {"PrometheusRule"}),
    }  # fmt: skip
    assert rendered("default").of("PersistentVolumeClaim")


RULES = {
    "groups": [{"name": "one", "rules": [{"alert": "Away", "expr": "up == 0", "for": "5m", "labels": {}}]}]
}


def test_rules_and_dashboards_travel_with_the_chart(tmp_path: Path) -> None:
    """It has no copies: its folders lead to those of the repository, and a package has what is there."""
    for kind in ("alerts", "dashboards"):
        assert (CHART / "files" / kind).resolve() == chart.ROOT / "deploy" / "observability" / kind
    shutil.copytree(chart.ROOT / "deploy", tmp_path / "deploy", symlinks=True)
    observability = tmp_path / "deploy" / "observability"
    (observability / "alerts" / "away.yaml").write_text(yaml.safe_dump(RULES), encoding="utf-8")
    (observability / "dashboards" / "one.json").write_text('{"title": "{{ x }}"}', encoding="utf-8")
    package = helm.package(tmp_path / "deploy" / "chart" / "headworks", destination=tmp_path)
    found = chart.Rendered(chart.render(chart.values_of("everything"), path=Path(package)))
    rule = found.named("PrometheusRule", "hw-away")
    jsonschema.validate(rule, SCHEMAS["PrometheusRule"])
    assert (rule["spec"], rule["metadata"]["labels"]["release"]) == (RULES, "prometheus")
    board = found.named("ConfigMap", "hw-dashboard-one")
    assert json.loads(board["data"]["one.json"]) == {"title": "{{ x }}"}
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        # what the schema refuses
        ({"replica": 3}, "replica"),
        ({"image": {"tag": "latest"}}, "tag"),
        ({"app": {"secret": "short"}}, "secret"),
        ({"redis": {"url": "redis+cluster://redis:6379"}}, "url"),
        ({"processes": {"beat": {"replicas": 2}}}, "replicas"),
        ({"processes": {"web": {"resources": {"limits": None}}}}, "limits"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
        # what the chart itself refuses: values that contradict each other
        ({"sharedVolume": {"enabled": False}}, "a place that every pod sees"),
        ({"storageUrl": "s3://bucket/uploads"}, "s3.enabled"),
        ({"suppliers": {"stateUrl": "s3://bucket/states"}}, "suppliers.stateUrl is in S3"),
        ({"processes": {"suppliers": {"replicas": 2}}}, "take turns by leases"),
        ({"refdata": {"config": {"kafka": {"bootstrapFromEnv": "KAFKA_BOOTSTRAP"}}}}, "kafka.enabled"),
    ],
)
def test_values_that_lead_to_no_working_release_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(helm.HelmError, match=why):
        chart.render(values)


def test_the_readme_has_every_value_with_its_default() -> None:
    lines = (CHART / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[1:4] for line in lines if line.startswith("| `")]
    told = {name.strip().strip("`"): default.strip().strip("`") for name, default, _ in rows}
    assert all(len(meaning.strip()) > 3 for _, _, meaning in rows)
    found: dict[str, str] = {}
    for path, value in chart.leaves(chart.merged({})):
        if path.startswith("processes."):  # alike for each: the defaults stand in values.yaml
            _, _, name = path.split(".", 2)
            found[f"processes.<process>.{name.split('.')[0]}"] = "see values.yaml"
        else:
            found[path] = "see values.yaml" if path == "refdata.config" else chart.plain(value)
    assert found == told


def test_every_value_is_in_the_schema() -> None:
    """With `additionalProperties: false` everywhere the defaults themselves would be refused otherwise."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    open_sections = [
        name
        for name, section in schema["properties"].items()
        if section.get("type") == "object" and section.get("additionalProperties", True) is True
    ]
    assert open_sections == ["global"]  # Helm's own
    chart.render({})
