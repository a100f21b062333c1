"""`python deploy/observability/make_dashboards.py`: dashboards/*.json for Grafana, from dashboards.yaml."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SCHEMA_VERSION = 39  # Grafana 10.4 and newer read it, and bring it to their own
WIDTH, HEIGHT, COLUMNS = 8, 8, 24
RANGE = "$__rate_interval"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboards() -> dict[str, dict[str, Any]]:
    """Every dashboard by the name of its file."""
    source = yaml.safe_load((HERE / "dashboards.yaml").read_text(encoding="utf-8"))
    return {f"{name}.json": dashboard(name, told) for name, told in source.items()}


def dashboard(name: str, told: dict[str, Any]) -> dict[str, Any]:
    """One dashboard, as Grafana imports it."""
    numbers, panels, top = itertools.count(1), [], 0
    for row in told["rows"]:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        panels.append(
            {"id": next(numbers), "type": "row", "title": row["title"], "collapsed": False, "gridPos": place,
             "panels": []}
        )  # fmt: skip
        top += 1
        for index, panel in enumerate(row["panels"]):
            across, down = index % (COLUMNS // WIDTH), index // (COLUMNS // WIDTH)
            place = {"h": HEIGHT, "w": WIDTH, "x": across * WIDTH, "y": top + down * HEIGHT}
            panels.append(_panel(next(numbers), panel, place))
        top += HEIGHT * -(-len(row["panels"]) // (COLUMNS // WIDTH))
    return {
        "uid": f"headworks-{name}",
        "title": told["title"],
        "tags": ["headworks"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "links": [
            {"type": "dashboards", "title": "Headworks", "tags": ["headworks"], "asDropdown": True,
             "includeVars": True, "keepTime": True}
        ],
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus",
                 "current": {}, "hide": 0, "refresh": 1}
            ]
        },
        "annotations": {"list": []},
        "panels": panels,
    }  # fmt: skip


def _panel(number: int, told: dict[str, Any], place: dict[str, int]) -> dict[str, Any]:
    kind = told.get("kind", "timeseries")
    targets = [
        {"refId": chr(ord("A") + index), "datasource": DATASOURCE, "legendFormat": legend,
         "expr": expr.replace("[range]", f"[{RANGE}]"), "instant": kind == "stat", "range": kind != "stat"}
        for index, (legend, expr) in enumerate(told["targets"].items())
    ]  # fmt: skip
    return {
        "id": number,
        "type": kind,
        "title": told["title"],
        "description": told["description"],
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": told["unit"], "min": 0, "thresholds": _thresholds(told)},
            "overrides": [],
        },
        "options": _options(kind),
        "targets": targets,
    }


def _thresholds(told: dict[str, Any]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if "red_below" in told:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": told["red_below"]}]
    if "red_above" in told:
        steps.append({"color": "red", "value": told["red_above"] + 1})
    return {"mode": "absolute", "steps": steps}


def _options(kind: str) -> dict[str, Any]:
    if kind == "stat":
        reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"colorMode": "background", "textMode": "value_and_name", "reduceOptions": reduced}
    legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def as_text(found: dict[str, Any]) -> str:
    """The file of a dashboard."""
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Every file is written anew."""
    for name, found in dashboards().items():
        (HERE / "dashboards" / name).write_text(as_text(found), encoding="utf-8")


if __name__ == "__main__":
    main()
