"""Alerts that can fire, about metrics that exist, each with what to do in the runbook."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.adapters import exposition
from tests.integration.observe.promql import labels_of, metrics_of, promtool

ROOT = Path(__file__).parents[3]
RULES = sorted((ROOT / "deploy" / "observability" / "alerts").glob("*.yaml"))
HISTORIES = sorted((ROOT / "tests" / "observability").glob("*.yaml"))
RUNBOOK = ROOT / "docs" / "runbook.md"
SUBSYSTEMS = ["catalog", "fleet", "pipeline", "refdata", "suppliers", "uploads"]


def rules(path: Path) -> list[dict[str, Any]]:
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [rule for group in told["groups"] for rule in group["rules"]]


EVERY = [rule for path in RULES for rule in rules(path)]
ALERTS = [rule for rule in EVERY if "alert" in rule]
RECORDED = {rule["record"] for rule in EVERY if "record" in rule}
SAMPLES = {sample: one for one in exposition.described() for sample in one.samples}


def named(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def sections() -> list[str]:
    """The alerts that the runbook has a section for."""
    text = RUNBOOK.read_text(encoding="utf-8")
    part = text.split("\n## Alerts\n")[1].split("\n## ")[0]
    return re.findall(r"^### (\w+)$", part, re.MULTILINE)


def test_every_subsystem_has_its_rules_and_their_histories() -> None:
    assert [path.stem for path in RULES] == SUBSYSTEMS
    assert [path.stem for path in HISTORIES] == SUBSYSTEMS


def test_alerts_are_few_and_have_one_name_each() -> None:
    assert 20 <= len(ALERTS) <= 30
    assert max(Counter(map(named, EVERY)).values()) == 1


@pytest.mark.parametrize("rule", EVERY, ids=named)
def test_a_rule_is_about_metrics_and_labels_that_exist(rule: dict[str, Any]) -> None:
    known = metrics_of(rule["expr"])
    assert known, rule["expr"]
    assert known - set(SAMPLES) - RECORDED == set()
    labels = labels_of(rule["expr"])
    grouped = labels.pop("", set())
    for metric, selected in labels.items():
        assert selected <= {*SAMPLES[metric].labels, "le"}, metric
    of_all = {label for metric in known & set(SAMPLES) for label in SAMPLES[metric].labels}
    assert grouped <= {*of_all, "le"}


@pytest.mark.parametrize("rule", ALERTS, ids=named)
def test_an_alert_says_what_it_means_and_where_to_go_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    told = rule["annotations"]
    assert set(told) == {"summary", "description", "runbook_url"}
    assert told["summary"].endswith(".") and told["description"].endswith(".")
    assert told["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
    used = set(re.findall(r"\$labels\.(\w+)", told["summary"] + told["description"]))
    assert used <= labels_of(rule["expr"]).get("", set()), "a label that the result does not have"


def test_the_runbook_has_a_section_for_each_alert_and_for_no_other() -> None:
    assert sorted(sections()) == sorted(map(named, ALERTS))


def test_of_each_alert_a_history_fires_it_and_another_does_not() -> None:
    names = {
        test["name"]: {found for series in test["input_series"] for found in metrics_of(series["series"])}
        for path in HISTORIES
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
    }
    for alert in map(named, ALERTS):
        assert any(name.startswith(f"{alert} fires") for name in names), alert
        assert any(name.startswith(f"{alert} is silent: ") for name in names), alert
    unknown = {metric for found in names.values() for metric in found} - set(SAMPLES)
    assert unknown == {"up"}  # Prometheus's own, where nothing else is there


def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", *RULES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_only_then(path: Path) -> None:
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_history_that_ends_otherwise_is_noticed(tmp_path: Path) -> None:
    text = HISTORIES[-1].read_text(encoding="utf-8")
    assert "exp_samples: []" in text
    wrong = tmp_path / "wrong.yaml"
    rules_path = f"{ROOT}/deploy/observability/"
    wrong.write_text(
        text.replace("exp_samples: []", "exp_samples: [{labels: '{}', value: 1}]").replace(
            "../../deploy/observability/", rules_path
        )
    )
    assert promtool("test", "rules", wrong).returncode == 1


@pytest.mark.parametrize(
    ("expression", "metrics"),
    [
        ('sum by (a) (rate(x_total{b="c_total"}[5m])) / on () y > 2', {"x_total", "y"}),
        ("a:b:c offset 1h unless max(d) and absent(e{f!~'g'})", {"a:b:c", "d", "e"}),
        ("histogram_quantile(0.5, sum by (le) (rate(s_bucket[5m]))) or time() - m", {"s_bucket", "m"}),
    ],
)
def test_the_reading_of_expressions_finds_metrics(expression: str, metrics: set[str]) -> None:
    assert metrics_of(expression) == metrics
