"""Dashboards that Grafana takes, about metrics that exist."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.integration.observe.promql import labels_of, metrics_of, promtool
from tests.integration.observe.test_alerts import RECORDED, SAMPLES, SUBSYSTEMS

FOLDER = Path(__file__).parents[3] / "deploy" / "observability"
FILES = sorted((FOLDER / "dashboards").glob("*.json"))
UNITS = {"short", "s", "percentunit", "reqps", "ops"}
OVERVIEW = "overview"


def told(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in told(path)["panels"] if panel["type"] != "row"]


TARGETS = [
    pytest.param(target["expr"], id=f"{path.stem}: {panel['title']} {target['refId']}")
    for path in FILES
    for panel in panels(path)
    for target in panel["targets"]
]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_dashboards", FOLDER / "make_dashboards.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_files_are_what_their_source_says(maker: ModuleType) -> None:
    made = {name: maker.as_text(found) for name, found in maker.dashboards().items()}
    assert {path.name: path.read_text(encoding="utf-8") for path in FILES} == made, (
        "renew them: python deploy/observability/make_dashboards.py"
    )


def test_there_is_an_overview_and_one_of_each_subsystem() -> None:
    assert {path.stem for path in FILES} == {OVERVIEW, *SUBSYSTEMS} - {"fleet"}
    assert len({told(path)["uid"] for path in FILES}) == len(FILES)
    assert len({told(path)["title"] for path in FILES}) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_can_be_imported_anywhere(path: Path) -> None:
    found = told(path)
    assert found["schemaVersion"] >= 36 and 0 < len(found["uid"]) <= 40
    (variable,) = found["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(path):
        assert panel["datasource"]["uid"] == "${datasource}"
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_panel_says_what_it_shows(path: Path) -> None:
    found = panels(path)
    assert len(found) >= 5
    for panel in found:
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        refs = [target["refId"] for target in panel["targets"]]
        assert refs and len(set(refs)) == len(refs)
        assert all(target["legendFormat"] for target in panel["targets"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_panel_lies_upon_another(path: Path) -> None:
    def cells(place: dict[str, int]) -> set[tuple[int, int]]:
        across, down = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        return set(itertools.product(across, down))

    taken: set[tuple[int, int]] = set()
    for panel in told(path)["panels"]:
        mine = cells(panel["gridPos"])
        assert not taken & mine, panel["title"]
        assert max(x for x, _ in mine) < 24
        taken |= mine


@pytest.mark.parametrize("expr", TARGETS)
def test_a_target_is_about_metrics_and_labels_that_exist(expr: str) -> None:
    known = metrics_of(expr)
    assert known and known <= {*SAMPLES, *RECORDED}
    labels = labels_of(expr)
    of_all = {label for metric in known & set(SAMPLES) for label in SAMPLES[metric].labels}
    assert labels.pop("", set()) <= {*of_all, "le"}
    for metric, selected in labels.items():
        assert selected <= {*SAMPLES[metric].labels, "le"}


def test_every_metric_is_on_a_dashboard_or_in_an_alert() -> None:
    from tests.integration.observe.test_alerts import EVERY

    expressions = [str(of.values[0]) for of in TARGETS] + [rule["expr"] for rule in EVERY]
    shown = {SAMPLES[name].name for expr in expressions for name in metrics_of(expr) if name in SAMPLES}
    unseen = {one.name for one in SAMPLES.values()} - shown
    assert unseen == {"headworks_task_seconds"}  # for whoever looks for a slow task


def test_prometheus_parses_every_target(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": str(of.values[0]).replace("$__rate_interval", "5m")}
        for number, of in enumerate(TARGETS)
    ]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    done = promtool("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(TARGETS)} rules found" in done.stdout
