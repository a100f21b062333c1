"""The pages of the pipeline, as somebody who runs the instance uses them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from app.pipeline.client import PipelineClient, Task
from tests.acceptance import browser as person
from tests.acceptance.browser import PHONE, Visit, visit
from tests.acceptance.conftest import Api, Problem, Run, RunningFleet
from tests.conftest import KEY, run_statement

HOSTILE = "<script>alert(1)</script> " + "x" * 300


@pytest.fixture
def operator(chromium: Browser, fleet: RunningFleet) -> Iterator[Visit]:
    with visit(chromium, fleet.api.url) as found:
        yield found


@pytest.fixture
def daemon(fleet: RunningFleet) -> Iterator[PipelineClient]:
    """A daemon of the fleet's pipeline, which nobody else uses meanwhile."""
    yield PipelineClient(fleet.api.url, token=KEY, worker_id="splitter-1")
    run_statement(
        fleet.env["HEADWORKS_PIPELINE_DATABASE_URL"], "TRUNCATE pipeline_tracking, pipeline_history"
    )


@pytest.fixture
def filename(daemon: PipelineClient, fleet: RunningFleet) -> str:
    """A file of five shards: two failed, one done, one stuck, one that waits."""
    found = uuid.uuid4().hex
    daemon.register(found, range(5))
    daemon.finish_ingest(found)
    held: list[Task] = daemon.claim("shard-splitter", limit=4, lease_seconds=600)
    daemon.fail(held[0], code="BAD_EVENTS", message=HOSTILE)
    daemon.fail(held[1], code="NO_SPACE")
    daemon.done(held[2])
    run_statement(
        fleet.env["HEADWORKS_PIPELINE_DATABASE_URL"],
        "UPDATE pipeline_tracking SET shard_splitter_lease_expires_at = NULL,"
        " shard_splitter_started_at = now() - interval '4 min' WHERE shard_splitter_status = 'started'",
    )
    return found


def test_an_operator_sees_what_is_stuck_and_retries_what_failed(filename: str, operator: Visit) -> None:
    page = operator.goto("/")
    page.click("nav >> text=Pipeline")
    splitter = page.locator(
        "[aria-label='Tasks by stage'] tr:has(th:text-is('shard-splitter')) td:not(:last-child)"
    )
    expect(splitter).to_have_text(["1", "1", "1", "2"])
    expect(page.locator("[aria-label='Stuck tasks'] tbody tr")).to_have_count(1)
    expect(page.locator("[aria-label='Stuck tasks'] tbody tr")).to_contain_text("180 s")
    expect(page.locator("#failed-shard-splitter")).to_have_text("2 failed in shard-splitter")

    page.click(f"[aria-label='Retry: {filename}, shard 0, shard-splitter']")
    expect(page.locator("h1")).to_have_text(filename)
    shards = page.locator("[aria-label='Shards by stages'] tbody tr")
    expect(shards.nth(0)).to_contain_text("new")
    expect(shards.nth(1)).to_contain_text("NO_SPACE")
    expect(page.locator("[aria-label=History] tbody tr").first).to_contain_text("failed → new")

    page.click("text=Pipeline >> nth=-1")
    page.click("text=Retry all of shard-splitter")
    expect(splitter).to_have_text(["3", "1", "1", "0"])
    expect(page.locator("#failed-shard-splitter")).to_have_count(0)


def test_files_are_filtered_by_where_a_shard_stands(
    filename: str, daemon: PipelineClient, operator: Visit
) -> None:
    daemon.register("another", [0])
    page = operator.goto("/pipeline")
    files = page.locator("[aria-label='Files by stages'] tbody tr")
    expect(files).to_have_count(2)
    page.select_option("#status", "failed")
    page.click("text=Show")
    expect(files).to_have_count(1)
    expect(files).to_contain_text(filename)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_them_on_a_phone_too(
    scheme: str, filename: str, chromium: Browser, fleet: RunningFleet
) -> None:
    with visit(chromium, fleet.api.url, color_scheme=scheme, **PHONE) as found:
        for path in ("/pipeline", "/pipeline?status=done", f"/pipeline/files/{filename}"):
            page = found.goto(path)
            assert person.audit(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, path


@pytest.mark.parametrize("path", ["/pipeline/files/none", "/pipeline?status=none", "/pipeline?cursor=a/b"])
def test_what_is_not_there_is_a_page_that_says_so(path: str, operator: Visit) -> None:
    page = operator.goto(path)
    expect(page.locator("h1")).not_to_have_text("Pipeline")
    assert "Traceback" not in page.content()


def test_the_key_of_one_workspace_shows_nothing_of_the_pipeline(
    fleet: RunningFleet, run: Run, filename: str
) -> None:
    workspace = str(uuid.uuid4())
    _, key, _ = run(
        "keys", "create", "--workspace", workspace, "--scope", "read", "--scope", "ops", "--name", "CI"
    )
    mine = Api(fleet.api.url, key.strip())
    assert mine.get("/v1/uploads", workspace_id=workspace)["uploads"] == []
    for path in ("/pipeline", f"/pipeline/files/{filename}"):
        with pytest.raises(Problem) as refused:
            mine.send(path)
        assert refused.value.status == 404
