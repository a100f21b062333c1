"""What metrics are called, and that all of them are known to whoever asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from app.adapters import exposition, metrics
from app.adapters.exposition import Described
from app.observe import reference

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

OF_THE_CONTRACT = {
    # names that the contract of reference data gives
    "dict_version_lag", "cache_reload_duration", "cache_reload_errors_total", "redis_stream_lag",
    "kafka_consumer_lag", "postgres_fallback_reads_total",
}  # fmt: skip
UNITS = ("_seconds", "_bytes", "_total")


def test_every_metric_of_the_process_is_described() -> None:
    ours = {
        family.name for family in REGISTRY.collect() if not family.name.startswith(("python_", "process_"))
    }
    known = {one.name.removesuffix("_total") for one in exposition.described()}
    assert ours <= known
    assert len(known) == len(exposition.described()) > 50


@pytest.mark.parametrize("one", exposition.described(), ids=lambda one: one.name)
def test_a_metric_is_called_as_is_usual(one: Described) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", one.name)
    assert one.name.startswith("headworks_") or one.name in OF_THE_CONTRACT
    assert (one.kind == "counter") == one.name.endswith("_total")
    if one.kind == "histogram" and one.name not in OF_THE_CONTRACT:
        assert one.name.endswith("_seconds")
    assert one.meaning.endswith(".")
    assert not {"id", "upload_id", "workspace_id", "path", "url"} & set(one.labels), "no end of series"


def test_a_gauge_without_labels_has_one_value() -> None:
    (sample,) = metrics.outbox_events.of(3).samples
    assert (sample.name, sample.labels, sample.value) == ("headworks_outbox_events", {}, 3.0)


def test_what_was_asked_for_stands_behind_what_was_counted() -> None:
    text, kind = exposition.text([metrics.queue_workers.of({("parse",): 2.0})])
    assert kind.startswith("text/plain")
    assert b'headworks_queue_workers{queue="parse"} 2.0' in text
    assert b"# TYPE headworks_rows_staged_total counter" in text


def test_the_page_of_metrics_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.page(), "renew it: python -m app.observe.reference"


def test_the_page_has_each_metric_once() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(one.name for one in exposition.described())
