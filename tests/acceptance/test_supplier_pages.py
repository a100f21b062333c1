"""The pages of suppliers' lists, as somebody who runs the instance uses them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from app.suppliers import journal
from app.suppliers.locks import Busy
from tests.acceptance import browser as person
from tests.acceptance.browser import PHONE, Visit, visit
from tests.acceptance.conftest import RunningFleet
from tests.acceptance.test_suppliers import mine  # noqa: F401
from tests.integration.suppliers.tree import HEADER, A, Tree
from tests.integration.threads import wait_until

ROWS = ["A-1;<b>Bolt</b>;11;4", "=1+1;Pin;1;1", "A-3;Ring;free;9", "A-4;Nail;-5;9"]
SPOILED = "\n".join([HEADER, *ROWS]).encode()


@pytest.fixture
def operator(chromium: Browser, fleet: RunningFleet) -> Iterator[Visit]:
    with visit(chromium, fleet.api.url) as found:
        yield found


@pytest.fixture
def known(mine: Tree) -> Tree:  # noqa: F811
    """A supplier with two states and a refused list."""
    mine.configure(dq={"max_bad_ratio": 0.6})
    for content, name in ((A, "monday.csv"), (SPOILED, "tuesday.csv"), (b"no list", "wednesday.csv")):
        mine.put(content, name)
        wait_until(lambda name=name: name in ended(mine), seconds=60)  # the fleet is about it as well
    return mine


def ended(mine: Tree) -> set[str]:  # noqa: F811
    """The files whose runs have ended."""
    with suppress(Busy):
        mine.run()
    entries = journal.Journal(mine.layout, mine.supplier).entries
    return {str(entry.name) for entry in entries if entry.event == journal.ENDED}


def test_a_list_is_looked_into_from_its_supplier_to_one_article(known: Tree, operator: Visit) -> None:
    page = operator.goto("/")
    page.click("nav >> text=Suppliers")
    page.click(f"text={known.supplier}")
    expect(page.locator("h1")).to_have_text(known.supplier)
    expect(page.locator(".badge.bad").first).to_have_text("FAIL")

    page.fill("#sku", "A-3")
    page.click("text=Look it up")
    expect(page.locator("section").first.locator("tbody tr")).to_have_count(3)
    found = page.locator("section").first.locator("tbody tr").all_inner_texts()
    assert ["not in the list" in found[0], "refused" in found[1], "not in the list" in found[2]] == [True] * 3
    page.locator("section").first.locator("tbody tr a").nth(1).click()
    expect(page.locator(".tiles dd")).to_have_text(["2", "2", "0", "2"])
    with page.expect_download() as waiting:
        page.click("text=All of them as CSV")
    rows = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text("utf-8-sig"))))
    assert [row[2:5] for row in rows[1:]] == [["A-3", "price", "free"], ["A-4", "price", "-5"]]

    page.click("text=What it changed")
    expect(page.locator(".tiles dd")).to_have_text(["1", "1", "1", "1"])


def test_a_refused_file_is_put_back_with_a_reason(known: Tree, operator: Visit) -> None:
    page = operator.goto(f"/suppliers/{known.supplier}")
    page.select_option("#file", "wednesday.csv")
    page.fill("#reason", "the config was wrong")
    page.click("text=Put it back")
    expect(page.locator("h1")).to_have_text(known.supplier)
    assert page.url.endswith(f"/suppliers/{known.supplier}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_them_on_a_phone_too(
    scheme: str, known: Tree, chromium: Browser, fleet: RunningFleet
) -> None:
    run_id = next(iter(known.layout.runs(known.supplier)))
    current = known.services.states.current(known.supplier)
    assert current is not None
    paths = ["", f"/{known.supplier}?sku=A-1", f"/runs/{run_id}", f"/runs/{current.run_id}"]
    with visit(chromium, fleet.api.url, color_scheme=scheme, **PHONE) as found:
        for path in [*paths, f"/runs/{current.run_id}/diff"]:
            page = found.goto(f"/suppliers{path}")
            assert person.audit(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
