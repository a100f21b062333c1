"""The page of the API as people use it: read, try, with a key, and at the machine without one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.browser import SECONDS, Visit, visit
from tests.acceptance.conftest import KEY, RunningFleet
from tests.integration.openapi.schemas import operations

OPERATION = "#operations-Uploads-listUploads"


@pytest.fixture
def reader(chromium: Browser, fleet: RunningFleet) -> Iterator[Visit]:
    """Nobody has let this person in."""
    with visit(chromium, fleet.api.url, key=None) as found:
        yield found


def listed(reader: Visit) -> str:
    """The status under which the page says the list of uploads was answered."""
    page = reader.page
    page.click(f"{OPERATION} .opblock-summary-control")
    page.click(f"{OPERATION} .try-out__btn")
    page.fill(f"{OPERATION} [data-param-name=workspace_id] input", reader.workspace)
    page.click(f"{OPERATION} .execute")
    status = page.locator(f"{OPERATION} .live-responses-table tbody td.response-col_status")
    expect(status).to_be_visible(timeout=SECONDS)
    return status.inner_text().split()[0]


def test_the_api_is_read_and_tried_with_a_key(reader: Visit) -> None:
    page = reader.page
    page.goto(f"{reader.url}/docs")
    expect(page.locator(OPERATION)).to_be_visible(timeout=SECONDS)
    assert page.locator(".opblock").count() == len(operations())
    page.click(".btn.authorize")
    page.fill(".auth-container input", KEY)
    page.click(".auth-btn-wrapper .authorize")
    page.click(".auth-btn-wrapper .btn-done")
    assert listed(reader) == "200"


def test_what_another_address_answers_is_shown_and_not_to_be_tried(reader: Visit) -> None:
    page = reader.page
    page.goto(f"{reader.url}/docs")
    for name, is_tried in (("Reference_data-showUpdate", True), ("Reads_of_reference_data-readItem", False)):
        place = f"#operations-{name}"
        page.click(f"{place} .opblock-summary-control")
        expect(page.locator(f"{place} .responses-wrapper")).to_be_visible(timeout=SECONDS)
        assert page.locator(f"{place} .try-out__btn").count() == is_tried, name
    expect(page.locator("#operations-tag-Reads_of_reference_data")).to_contain_text("127.0.0.1:8093")


def test_whoever_has_logged_in_tries_it_without_a_key(chromium: Browser, fleet: RunningFleet) -> None:
    with visit(chromium, fleet.api.url) as reader:
        page = reader.goto("/")
        page.click("footer a")
        expect(page.locator(OPERATION)).to_be_visible(timeout=SECONDS)
        assert listed(reader) == "200"
        upload_id = "0d8f7c1e-51a0-4b52-9d3c-2f6f3f0d8a11"  # of nobody
        place = "#operations-Uploads-requeueUpload"
        page.click(f"{place} .opblock-summary-control")
        page.click(f"{place} .try-out__btn")
        page.fill(f"{place} [data-param-name=upload_id] input", upload_id)
        page.click(f"{place} .execute")
        status = page.locator(f"{place} .live-responses-table tbody td.response-col_status")
        expect(status).to_be_visible(timeout=SECONDS)
        assert status.inner_text().split()[0] == "404"  # let in with its token, not refused for want of one
