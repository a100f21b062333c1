"""The log lines of workers carry what one looks for: upload, run, supplier, task, trace."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from app.adapters import logs
from app.kernel import errors
from app.kernel.clock import SystemClock
from app.suppliers import watch
from app.uploads import batches, claims_store, promote, recover
from app.uploads.services import Services
from tests.conftest import work_off
from tests.integration.catalog.conftest import catalog_db, world  # noqa: F401
from tests.integration.catalog.test_rankings import entries, put
from tests.integration.catalog.world import World
from tests.integration.observe.log_lines import Lines, lines, without  # noqa: F401
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.suppliers.tree import CONFIG, A, tree
from tests.integration.uploads.conftest import Uploads, report
from workers.measured import Measured

OwnerSql = Callable[[str], list[Any]]
UPLOAD = ("upload_id", "workspace_id")


@pytest.fixture
def uploads(services: Services) -> Uploads:
    return Uploads(services)


def events(found: list[dict[str, Any]]) -> set[str]:
    return {line["event"] for line in found}


def test_every_line_of_an_upload_names_it_and_its_workspace(uploads: Uploads, lines: Lines) -> None:  # noqa: F811
    good, bad = uploads.pending(), uploads.pending(b"a,b\n1,2\n3,4\n")
    refused = uploads.pending(report("2025-05-01,Spring,101,many,1,1.50"))
    work_off(uploads.services)
    found = lines("app.uploads")
    assert {"upload_created", "upload_claimed", "upload_failed"} <= events(found)
    assert without(found, *UPLOAD) == []
    ends = {
        line["upload_id"]: (line["status"], line["code"]) for line in found if line["event"] == "upload_ended"
    }
    assert ends == {
        str(good): ("completed", None),
        str(bad): ("failed", "unknown_header"),
        str(refused): ("failed", "too_many_rejects"),
    }


def test_what_the_sweep_takes_from_the_dead_is_named(
    uploads: Uploads, lines: Lines, owner_sql: OwnerSql  # noqa: F811
) -> None:  # fmt: skip
    uploads.pending()
    with uploads.services.db.transaction("dispatch") as conn:
        assert claims_store.claim_upload(conn, "parse", owner_id="gone", lease_seconds=60)
    owner_sql("UPDATE data_uploads SET attempts = 5, lease_expires_at = now() - interval '1 s'")
    recover.sweep(uploads.services)
    found = lines("app.uploads")
    assert {"lease_expired", "upload_failed", "upload_ended"} <= events(found)
    assert without(found, *UPLOAD) == []


def test_lines_of_batches_that_are_written_side_by_side_name_their_upload(
    uploads: Uploads, lines: Lines, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    for module in (batches, promote):
        monkeypatch.setattr(module, "PROMOTION_BATCH_ROWS", 2)
    write, failed = batches.write, []

    def refuse_once(*given: Any) -> Any:
        if not failed and threading.current_thread().name.startswith("lane"):
            failed.append(1)
            logs.get(batches.__name__).warning("in_a_lane")
            raise errors.Deadlock()
        return write(*given)

    monkeypatch.setattr(batches, "write", refuse_once)
    upload_id = uploads.pending(
        report(*(f"2025-{1 + day // 28:02}-{1 + day % 28:02},A,101,9,1,1.50" for day in range(60)))
    )
    work_off(uploads.services)
    assert uploads.show(upload_id).status == "completed"
    found = lines("app.uploads")
    assert "in_a_lane" in events(found)
    assert without(found, *UPLOAD) == []


def test_a_task_stands_in_every_line_until_it_ends(uploads: Uploads, lines: Lines) -> None:  # noqa: F811
    measured, task = Measured(SystemClock()), SimpleNamespace(name="uploads.parse")
    measured.begin(task_id="11", task=task)
    uploads.finished()
    measured.end(task_id="11", task=task, state="SUCCESS")
    found = lines("app.uploads")
    assert {(line["task"], line["task_id"]) for line in found} == {("uploads.parse", "11")}
    uploads.finished()
    assert not any("task_id" in line for line in lines("app.uploads"))


def test_a_line_within_a_recorded_span_names_it(lines: Lines) -> None:  # noqa: F811
    tracer = TracerProvider().get_tracer("tests")
    log = logs.get("app.uploads.work")
    log.info("before")
    with tracer.start_as_current_span("one") as span:
        log.info("within")
    before, within = lines("app.uploads")
    assert "trace_id" not in before
    of = span.get_span_context()
    assert (within["trace_id"], within["span_id"]) == (f"{of.trace_id:032x}", f"{of.span_id:016x}")


def test_every_line_of_a_run_of_a_supplier_names_it(
    tmp_path: Path, lines: Lines  # noqa: F811
) -> None:  # fmt: skip
    mine = tree(tmp_path)
    mine.write_config(CONFIG)
    mine.put(A)
    assert watch.observed(mine.services, "acme").status == "PASS"
    mine.put(b"no list")
    assert watch.observed(mine.services, "acme").status == "FAIL"
    found = lines("app.suppliers")
    assert "supplier_run_ended" in events(found)
    assert without(found, "supplier") == []
    assert without([line for line in found if line["event"] == "supplier_run_ended"], "run_id") == []


def test_every_line_of_a_run_of_the_catalog_names_it(world: World, lines: Lines) -> None:  # noqa: F811
    put(world, entries(world, 1, 3))
    world.run("JOB-R-01", only=["0"])
    found = lines("app.catalog")
    assert {"ranking_with_missing_ranks", "job_ended"} <= events(found)
    assert without(found, "job_id", "run_id") == []


def test_the_fields_of_a_subsystem_are_there_even_where_nothing_sets_them(lines: Lines) -> None:  # noqa: F811
    for module, fields in logs.FIELDS.items():
        logs.get(f"{module}.somewhere").info("something")
        (line,) = lines(module)
        assert set(fields) <= set(line), module
    logs.get("app.uploads_of_others").info("something")
    (line,) = lines("app.uploads_of_others")
    assert "upload_id" not in line


def test_lines_for_people_are_no_json(
    capsys: pytest.CaptureFixture[str], lines: Lines, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setenv("HEADWORKS_LOG_FORMAT", "text")
    monkeypatch.setenv("HEADWORKS_LOG_LEVEL", "WARNING")
    logs.configure("worker")
    logs.get("app.uploads.work").info("unseen")
    logs.get("app.uploads.work").warning("seen", upload_id="1")
    written = capsys.readouterr().err
    assert "unseen" not in written
    assert "seen" in written and "upload_id=1" in written and "{" not in written
