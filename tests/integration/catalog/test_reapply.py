"""From the raw store alone: what is applied again, and what is checked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.catalog import etl_service, runs
from app.catalog.entities import RULES
from app.catalog.reapply import reapply, verify
from app.kernel import errors
from tests.integration.catalog.world import START, World


def codes(world: World, count: int) -> list[str]:
    return sorted(world.api.ids("item"))[:count]


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The items' applier is of the next version."""
    version = RULES["item"].apply_version + 1
    monkeypatch.setitem(RULES, "item", replace(RULES["item"], apply_version=version))
    return version


def test_what_another_version_applied_is_applied_again_without_the_api(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = codes(world, 5)
    world.run("JOB-I-01", only=some)
    before = world.tables()
    requests = len(world.api.requests)
    assert reapply(world.services, "JOB-I-01", job_start_at=START).reason_code == "no_targets"
    monkeypatch.setitem(RULES, "item", replace(RULES["item"], apply_version=7))
    found = reapply(world.services, "JOB-I-01", job_start_at=START + timedelta(days=2))
    assert found.summary["outcomes"] == {"reapplied": 5}
    assert len(world.api.requests) == requests
    assert {world.ledger("item", code)[1] for code in some} == {7}
    after = world.tables()
    for name in after.keys() - {"staging"}:
        assert after[name] == before[name], name
    assert reapply(world.services, "JOB-I-01", job_start_at=START).reason_code == "no_targets"


def test_applied_again_the_tables_come_back_with_images_in_their_order(world: World) -> None:
    some = codes(world, 20)
    world.run("JOB-I-01", only=some)
    before = world.tables()
    assert before["item_image"]
    world.sql("TRUNCATE apl.item CASCADE")
    found = reapply(world.services, "JOB-I-01", job_start_at=START, everything=True)
    assert found.summary["outcomes"] == {"reapplied": 20}
    after = world.tables()
    for name in ("staging", "item", "item_image", "item_tag", "raw"):
        assert after[name] == before[name], name


def test_a_run_of_raw_objects_does_not_go_on_with_the_api(
    world: World, monkeypatch: pytest.MonkeyPatch, raised: int
) -> None:
    world.run("JOB-I-01", only=codes(world, 1))
    world.sql("UPDATE apl.staging SET applied_version = 1")
    with monkeypatch.context() as patch:
        patch.setattr(etl_service, "normalize", lambda *_: {}["no"])
        broken = reapply(world.services, "JOB-I-01", job_start_at=START)
    assert broken.status == "failed"
    with pytest.raises(errors.Refused):
        world.run("JOB-I-01", resume=broken.run_id)
    assert reapply(world.services, "JOB-I-01", job_start_at=START).summary["outcomes"] == {"reapplied": 1}


def test_what_is_applied_again_and_the_same_says_when_it_changed(world: World) -> None:
    world.run("JOB-I-01", only=codes(world, 3))
    world.run("JOB-T-01", only=["1003726"])
    tables = ("item", "shop", "tag", "tag_group")
    before = [world.sql(f"SELECT * FROM apl.{name} ORDER BY 1") for name in tables]
    assert all(before)
    for job in ("JOB-I-01", "JOB-T-01"):
        assert reapply(world.services, job, job_start_at=START, everything=True).status == "success"
    assert [world.sql(f"SELECT * FROM apl.{name} ORDER BY 1") for name in tables] == before
    world.sql("UPDATE apl.item SET item_name = 'x'")
    reapply(world.services, "JOB-I-01", job_start_at=START, everything=True)
    found = world.sql("SELECT bool_and(updated_at > created_at), min(item_name) FROM apl.item")
    assert (found[0][0], found[0][1] == "x") == (True, False)


def test_a_job_applies_what_another_version_applied(world: World, raised: int) -> None:
    (code,) = codes(world, 1)
    world.run("JOB-I-01", only=[code])
    world.sql("UPDATE apl.staging SET applied_version = 1")
    before = world.sql("SELECT saved_at FROM apl.staging")
    found = world.run("JOB-I-01")
    assert world.ends(found) == {code: ("reapplied", None)}
    assert (world.ledger("item", code)[1], len(world.raw_objects())) == (raised, 1)
    assert world.sql("SELECT saved_at FROM apl.staging") == before
    assert world.run("JOB-I-01").reason_code == "no_targets"


def test_what_nobody_has_applied_is_applied(world: World) -> None:
    (code,) = codes(world, 1)
    world.run("JOB-I-01", only=[code])
    world.sql("UPDATE apl.staging SET applied_version = NULL, applied_at = NULL")
    assert world.ends(world.run("JOB-I-01")) == {code: ("reapplied", None)}


def test_the_version_that_stands_is_that_of_the_code_that_ran(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer version is deployed while a run of the older one is at work."""
    (code,) = codes(world, 1)
    real = etl_service.normalize

    def deployed(entity: str, raw: Any) -> Any:
        monkeypatch.setitem(RULES, "item", replace(RULES["item"], apply_version=2))
        return real(entity, raw)

    monkeypatch.setattr(etl_service, "normalize", deployed)
    found = world.run("JOB-I-01", only=[code])
    assert (world.ledger("item", code)[1], runs.one(world.db, found.run_id).apply_version) == (1, 1)


def test_an_object_that_is_gone_is_one_targets_failure(world: World) -> None:
    some = codes(world, 30)
    world.run("JOB-I-01", only=some)
    (world.folder / "raw" / world.ledger("item", some[0])[2]).unlink()
    found = reapply(world.services, "JOB-I-01", job_start_at=START, everything=True)
    assert world.ends(found)[some[0]] == ("failed", "raw_store")
    assert found.summary["outcomes"] == {"reapplied": 29, "failed": 1}


def test_a_job_without_records_has_nothing_to_apply_again(world: World) -> None:
    with pytest.raises(errors.Refused):
        reapply(world.services, "JOB-A-01", job_start_at=START)


# What is stored


def test_what_is_stored_is_checked_object_by_object(world: World) -> None:
    some = codes(world, 5)
    world.run("JOB-I-01", only=some)
    world.run("JOB-G-01", only=["551172"])
    assert list(verify(world.services)) == [None] * 6
    paths = [world.folder / "raw" / world.ledger("item", code)[2] for code in some]
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-5])
    paths[2].write_bytes(paths[3].read_bytes())
    text = paths[4].read_text(encoding="utf-8")
    paths[4].write_text(text.replace('"itemPrice":', '"itemPrice":1'), encoding="utf-8")
    found = {flaw.source_id: flaw.what for flaw in verify(world.services) if flaw is not None}
    assert found == {
        some[0]: "gone", some[1]: "damaged", some[2]: "of another content", some[4]: "of another content",
    }  # fmt: skip
    assert list(verify(world.services, entity="genre")) == [None]


def test_a_line_that_names_the_object_of_another_content_is_told(world: World) -> None:
    one, other = codes(world, 2)
    world.run("JOB-I-01", only=[one, other])
    world.sql(
        "UPDATE apl.staging SET s3_key = %(key)s WHERE source_id = %(id)s",
        key=world.ledger("item", other)[2], id=one,
    )  # fmt: skip
    assert [flaw.source_id for flaw in verify(world.services) if flaw] == [one]


def test_an_object_under_the_key_of_another_content_is_told(world: World) -> None:
    (code,) = codes(world, 1)
    world.run("JOB-I-01", only=[code])
    _, _, key = world.ledger("item", code)
    other = key.replace(key[-69:-5], "0" * 64)
    shutil.copy(world.folder / "raw" / key, world.folder / "raw" / other)
    world.sql("UPDATE apl.staging SET s3_key = %(key)s", key=other)
    assert [flaw.what for flaw in verify(world.services) if flaw] == ["of another content"]
