"""The chart as a cluster would get it: rendered offline, and its objects looked up by kind and name."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "deploy" / "chart" / "headworks"
RELEASE, NAMESPACE = "prod", "data"
CASES = {
    "default": None,
    "production": CHART / "values-production.yaml",
    "everything": Path(__file__).with_name("everything.yaml"),
}

helm = pytest.importorskip("helm_python", reason="no Helm for this platform")

Values = dict[str, Any]
Object = dict[str, Any]


def values_of(case: str) -> Values:
    """What is given beside the defaults."""
    path = CASES[case]
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path else {}


def merged(values: Values) -> Values:
    """The defaults with these over them, as an installation has them."""
    with helm.Chart.load(CHART) as chart:
        return chart.merge_values(values)


def render(values: Values, *, path: Path = CHART) -> list[Object]:
    """Every object. HelmError for values that the schema or the chart itself refuses."""
    with helm.Chart.load(path) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name=RELEASE, namespace=NAMESPACE, is_install=True)
    return [
        found
        for path, text in files.items()
        if path.endswith(".yaml")
        for found in yaml.safe_load_all(text)
        if found
    ]


@dataclass(frozen=True)
class Rendered:
    """All objects of one case."""

    objects: list[Object]

    def of(self, kind: str) -> list[Object]:
        return [one for one in self.objects if one["kind"] == kind]

    def named(self, kind: str, name: str) -> Object:
        (found,) = (one for one in self.of(kind) if one["metadata"]["name"] == name)
        return found

    def processes(self) -> dict[str, Object]:
        """The Deployments by the process that each runs."""
        return {
            one["metadata"]["labels"]["app.kubernetes.io/component"]: one for one in self.of("Deployment")
        }

    def pods(self) -> dict[str, Object]:
        """The pods' templates, of the migration, too."""
        jobs = {component(one): one for one in self.of("Job")}
        return {name: one["spec"]["template"] for name, one in (self.processes() | jobs).items()}

    def containers(self) -> Iterator[tuple[str, Object]]:
        """Each container with its process."""
        for name, pod in self.pods().items():
            for one in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
                yield name, one

    def values(self, process: str) -> dict[str, str]:
        """The variables of a process whose values stand in its pod."""
        return {one["name"]: one["value"] for one in self.env(process) if "value" in one}

    def secrets(self, process: str) -> dict[str, tuple[str, str]]:
        """The variables of a process that come from a Secret: its name and key."""
        refs = {
            one["name"]: one["valueFrom"]["secretKeyRef"] for one in self.env(process) if "valueFrom" in one
        }
        return {name: (ref["name"], ref["key"]) for name, ref in refs.items()}

    def container(self, process: str) -> Object:
        (found,) = self.pods()[process]["spec"]["containers"]
        return found

    def env(self, process: str) -> list[Object]:
        return self.container(process).get("env", [])

    def ports(self, process: str) -> set[str]:
        """The names of the ports that its container has."""
        return {one["name"] for one in self.container(process).get("ports", [])}

    def of_process(self, kind: str) -> dict[str, Object]:
        """The objects of a kind of which each process has one."""
        return {component(one): one for one in self.of(kind)}

    def refdata(self) -> str:
        """The configuration of the reference data."""
        (found,) = (one for one in self.of("ConfigMap") if "refdata.yaml" in one["data"])
        return found["data"]["refdata.yaml"]


@functools.cache
def rendered(case: str) -> Rendered:
    """The chart with the values of this case."""
    return Rendered(render(values_of(case)))


def component(one: Object) -> str:
    """The process that an object belongs to."""
    return one["metadata"]["labels"]["app.kubernetes.io/component"]


def selects(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a selector's `matchLabels` match these labels."""
    return all(labels.get(name) == value for name, value in wanted.items())


def leaves(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value by its dotted path; lists, empty sections and the configuration of refdata are one each."""
    if not isinstance(values, dict) or not values or path == "refdata.config" or path.endswith(".resources"):
        yield path, values
        return
    for name, one in values.items():
        yield from leaves(one, f"{path}.{name}" if path else name)


def plain(value: Any) -> str:
    """A default as the table of values shows it."""
    return json.dumps(value) if isinstance(value, dict | list | bool) else str(value)
