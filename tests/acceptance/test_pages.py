"""The pages as people use them: with a mouse, a keyboard, a phone, a screen reader, without scripts."""

from __future__ import annotations

import csv
import io
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance import browser as person
from tests.acceptance.browser import PHONE, SECONDS, Visit, visit
from tests.acceptance.conftest import KEY, RunningFleet
from tests.conftest import CORPUS, Servers

HEADER = "Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD)"
GOOD = f"{HEADER}\n2025-05-01,Spring,101,100,10,1.50\n2025-05-02,Summer,102,200,20,2.50\n".encode()
BROKEN = CORPUS / "tiktok" / "en_just_under_90_percent.csv"
LONG = CORPUS / "google" / "en_device_and_hour_20000_rows.csv"


@pytest.fixture
def analyst(chromium: Browser, fleet: RunningFleet) -> Iterator[Visit]:
    with visit(chromium, fleet.api.url) as found:
        yield found


@pytest.fixture
def without_scripts(chromium: Browser, fleet: RunningFleet) -> Iterator[Visit]:
    with visit(chromium, fleet.api.url, java_script_enabled=False) as found:
        yield found


def mended(content: str, mend: dict[str, dict[str, str]]) -> bytes:
    """The downloaded rejected rows, with cells corrected as a person would; by line."""
    delimiter = ";" if ";" in content.splitlines()[0] else ","
    rows = list(csv.DictReader(io.StringIO(content.removeprefix("\ufeff")), delimiter=delimiter))
    for row in rows:
        row.update(mend[row["line"]])
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def downloaded(visited: Visit, link: str) -> tuple[str, bytes]:
    with visited.page.expect_download() as waiting:
        visited.page.click(link)
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


# -- uploading


def test_a_report_is_uploaded_and_watched_until_it_is_completed(analyst: Visit) -> None:
    sockets: list[list[Any]] = []

    def remember(socket: Any) -> None:
        frames: list[Any] = []
        sockets.append(frames)
        socket.on("framereceived", lambda frame: frames.append(json.loads(frame)))

    analyst.page.on("websocket", remember)
    analyst.goto("/")
    analyst.choose(LONG)
    expect(analyst.page.locator(".file-note")).to_have_text("Looks like a report of Google Ads.")
    analyst.follow("button[value=upload]")
    analyst.page.evaluate("window.sameDocument = true")
    assert analyst.ended() == "Completed"
    assert analyst.page.evaluate("window.sameDocument"), "the page was loaded again"
    expect(analyst.page.locator(".callout h2")).to_have_text("All 20,000 rows of the file are in your data")
    assert (
        analyst.page.evaluate("document.activeElement.textContent")
        == "All 20,000 rows of the file are in your data"
    )
    assert analyst.tile("In your data") == "20,000"

    (frames,) = sockets
    assert frames[-1]["terminal"] and frames[-1]["status"] == "completed"
    assert "poll_after_seconds" not in frames[-1]
    states = list(dict.fromkeys(frame["status"] for frame in frames))
    assert len(states) >= 2, states
    staged = [frame["staged_rows"] for frame in frames]
    assert staged == sorted(staged)


def test_a_report_with_mistakes_is_understood_mended_and_completed(analyst: Visit) -> None:
    page = analyst.page
    analyst.upload(BROKEN, currency="USD")
    assert analyst.ended() == "Failed"
    expect(page.locator(".callout h2")).to_have_text("Too many rows were rejected")
    reasons = page.locator(".codes tbody tr")
    assert [text.split("\n")[0] for text in reasons.locator("th").all_inner_texts()] == [
        "No date", "Not a number", "Negative count",
    ]  # fmt: skip
    rejected = page.locator(".rejected tbody tr")
    assert rejected.locator("th").all_inner_texts() == ["6", "13", "22"]
    assert [text.split()[-1] for text in rejected.locator("mark").all_inner_texts()] == [
        "-3",
        "n.a.?",
        "empty",
    ]

    analyst.follow("text=Take the 26 valid rows")
    assert analyst.ended() == "Completed, 3 rejected"
    assert (analyst.tile("In your data"), analyst.tile("Rejected")) == ("26", "3")

    name, content = downloaded(analyst, "a:text-is('Download the rejected rows')")
    assert name == "en_just_under_90_percent-rejected.csv"
    mend = {"6": {"Clicks (destination)": "3"}, "13": {"Cost": "10.00"}, "22": {"Date": "2025-03-21"}}
    page.click("text=Upload the fixed rows")
    assert page.input_value("#currency") == "USD" and page.input_value("#platform") == "tiktok"
    analyst.choose((name, mended(content.decode(), mend)))
    analyst.follow("button[value=upload]")
    assert analyst.ended() == "Completed"
    assert (analyst.tile("In your data"), analyst.tile("Rejected")) == ("3", "0")
    name, original = downloaded(analyst, "a:text-is('Original file')")
    assert b"reason" in original and name == "en_just_under_90_percent-rejected.csv"


def test_a_missing_currency_is_given_on_the_page_of_the_failure(analyst: Visit) -> None:
    analyst.upload(CORPUS / "tiktok" / "en_currency_missing.csv")
    assert analyst.ended() == "Failed"
    analyst.page.fill("#again-currency", "eur")
    analyst.follow("text=Read it in this currency")
    assert analyst.ended() == "Completed"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("tiktok/en_ambiguous_dates.csv", "Dates are day first"),
        ("google/de_ambiguous_number.csv", "Decimals have a comma"),
    ],
)
def test_what_the_file_leaves_open_is_asked_and_answered_with_a_click(
    name: str, answer: str, analyst: Visit
) -> None:
    analyst.upload(CORPUS / name, currency="USD")
    assert analyst.ended() == "Failed"
    analyst.follow(f"button:has-text('{answer}')")
    assert analyst.ended() == "Completed"
    expect(analyst.page.locator(".facts").first).to_contain_text("as you chose")


def test_mended_rows_are_read_as_the_whole_file_was(analyst: Visit) -> None:
    """Alone, they do not tell which of two readings is right."""
    header = "Day;Campaign name;Campaign ID;Impressions;Amount spent (EUR)"
    days = [f"{day:02}/03/2025;Frühling;101;100;1,50" for day in range(10, 30)]
    file = "\n".join([header, *days, "03/04/2025;Sommer;102;viele;1.250"]).encode()
    analyst.upload(("maerz.csv", file), platform="meta")
    assert analyst.ended() == "Completed, 1 rejected"
    name, content = downloaded(analyst, "a:text-is('Download the rejected rows')")
    assert b";line;code;reason" in content  # parted as the file is
    analyst.page.click("text=Upload the fixed rows")
    fixed = mended(content.decode(), {"22": {"Impressions": "70"}})
    analyst.choose((name, fixed))
    analyst.follow("button[value=upload]")
    assert analyst.ended() == "Completed"
    analyst.page.click("text=See them")
    row = analyst.page.locator(".days tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("3 Apr 2025")
    expect(row).to_contain_text("1,250.00")


def test_a_wrong_platform_is_doubted_and_can_be_corrected(analyst: Visit) -> None:
    analyst.goto("/?platform=tiktok")
    analyst.choose(CORPUS / "google" / "ja_campaign_by_day_cp932.csv")
    expect(analyst.page.locator(".file-note")).to_contain_text("it looks like Google Ads")
    assert analyst.page.input_value(".file select") == "google"
    analyst.page.select_option(".file select", "tiktok")
    analyst.follow("button[value=upload]")
    assert analyst.ended() == "Failed"
    analyst.page.select_option("#again-platform", "google")
    analyst.follow("text=Read it as this platform’s report")
    assert analyst.ended() == "Completed"


def test_several_files_are_sent_one_by_one_and_each_says_what_became_of_it(analyst: Visit) -> None:
    page = analyst.page
    analyst.goto("/")
    analyst.choose(("may.csv", GOOD), ("book.xlsx", b"PK\x03\x04" + bytes(50)), BROKEN)
    notes = page.locator(".file-note")
    expect(notes.nth(1)).to_contain_text("Excel workbook")
    expect(notes.nth(2)).to_contain_text("TikTok Ads")
    page.click("text=Upload 3 files")
    expect(notes.nth(0)).to_have_text("Completed, 2 rows in your data.", timeout=SECONDS)
    expect(notes.nth(1)).to_contain_text("Excel workbook")
    expect(notes.nth(2)).to_have_text("Failed: open it to see why", timeout=SECONDS)
    assert page.locator(".file-actions a").count() == 2
    expect(page.locator("button[value=upload]")).to_have_text("Upload")  # the refused one is left


def test_several_files_go_into_one_new_workspace(analyst: Visit) -> None:
    page = analyst.page
    page.goto(f"{analyst.url}/")
    analyst.choose(("one.csv", GOOD), ("two.csv", GOOD.replace(b"05-0", b"06-0")))
    expect(page.locator(".file-note", has_text="Meta Ads")).to_have_count(2)
    page.select_option("#into", "new")
    page.click("button[value=upload]")
    expect(page.locator(".file-note", has_text="2 rows in your data")).to_have_count(2, timeout=SECONDS)
    page.click("text=Open >> nth=0")
    page.click("text=Uploads >> nth=0")
    expect(page.locator("table.list tbody tr")).to_have_count(2)


def test_an_upload_that_was_taken_in_part_says_so_wherever_it_is_named(analyst: Visit) -> None:
    page = analyst.page
    rows = "".join(f"2025-05-{day:02},Spring,101,100,10,1.50\n" for day in range(1, 20))
    content = f"{HEADER}\n{rows}2025-05-20,Spring,101,many,10,1.50\n".encode()
    analyst.goto("/")
    analyst.choose(("part.csv", content), ("whole.csv", GOOD))
    page.click("button[value=upload]")
    expect(page.locator(".file-note", has_text="1 rejected")).to_have_count(1, timeout=SECONDS)
    for path in ("/", "/uploads"):
        analyst.goto(path)
        expect(page.locator(".badge.warn")).to_have_text("Completed, 1 rejected")


def test_the_valid_rows_are_taken_before_the_rejected_ones_are_mended(analyst: Visit) -> None:
    """Who mends the rejected rows of a file that was not taken would have these alone."""
    analyst.upload(BROKEN, currency="USD")
    assert analyst.ended() == "Failed"
    buttons = analyst.page.locator(".callout button, .callout .button").all_inner_texts()
    assert buttons == ["Take the 26 valid rows", "Upload the whole file, fixed"]
    failed = analyst.page.url
    analyst.follow("text=Take the 26 valid rows")
    assert analyst.ended().startswith("Completed")
    analyst.page.goto(failed)
    assert analyst.page.locator(".callout form").count() == 0
    expect(analyst.page.locator(".note")).to_contain_text("taken later")


def test_a_guess_that_comes_late_does_not_undo_what_was_chosen(analyst: Visit) -> None:
    page = analyst.goto("/")
    held: list[Any] = []
    page.route("**/guess", lambda route: held.append(route))
    analyst.choose(("may.csv", GOOD))
    page.select_option(".file select", "google")
    while not held:
        page.wait_for_timeout(50)
    with page.expect_response("**/guess"):
        held[0].continue_()
    page.wait_for_timeout(300)
    assert page.input_value(".file select") == "google"


def test_the_report_of_another_platform_is_doubted_when_it_is_taken(analyst: Visit) -> None:
    wrong = f"{HEADER.replace('Campaign name', 'Campaign')}\n2025-05-01,Spring,101,100,10,1.50\n".encode()
    analyst.goto("/")
    analyst.choose(("wrong.csv", wrong))
    analyst.page.select_option(".file select", "google")
    analyst.page.fill("#currency", "USD")
    analyst.follow("button[value=upload]")
    assert analyst.ended() == "Completed"
    expect(analyst.page.locator(".callout.warn")).to_contain_text("No spend")


def test_a_form_that_is_refused_leads_back_to_its_page(without_scripts: Visit) -> None:
    without_scripts.upload(CORPUS / "tiktok" / "en_currency_missing.csv")
    assert without_scripts.ended() == "Failed"
    page = without_scripts.page
    asked = page.url
    page.fill("#again-currency", "dol")
    page.click("text=Read it in this currency")
    page.click("text=Back, to correct it")
    assert page.url == asked


def test_a_file_that_is_dropped_on_the_page_is_chosen(analyst: Visit) -> None:
    page = analyst.goto("/")
    data = page.evaluate_handle(
        "text => { const d = new DataTransfer(); d.items.add(new File([text], 'dropped.csv')); return d; }",
        GOOD.decode(),
    )
    page.dispatch_event("body", "dragover", {"dataTransfer": data})
    expect(page.locator(".drop.over")).to_have_count(1)
    page.dispatch_event("body", "drop", {"dataTransfer": data})
    expect(page.locator(".file-name bdi")).to_have_text("dropped.csv")
    expect(page.locator(".file-note")).to_contain_text("Meta Ads")
    page.click("[aria-label='Remove dropped.csv']")
    expect(page.locator(".file")).to_have_count(0)


# -- checking beforehand


def test_a_check_explains_the_rows_stores_nothing_and_the_file_can_be_uploaded_then(
    analyst: Visit, fleet: RunningFleet
) -> None:
    page = analyst.page
    analyst.goto("/")
    analyst.choose(BROKEN)
    page.fill("#currency", "USD")
    page.click("button[value=check]")
    expect(page.locator(".file-result .badge")).to_have_text("Would be refused", timeout=SECONDS)
    assert analyst.tile("Rejected") == "3"
    assert page.locator(".file-result mark").count() == 3
    assert person.audit(page) == []
    page.set_viewport_size({"width": 340, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 340
    assert fleet.api.get("/v1/uploads", workspace_id=analyst.workspace)["uploads"] == []

    page.check("#force_partial")
    page.click("[aria-label='Check en_just_under_90_percent.csv']")
    expect(page.locator(".file-result .badge")).to_contain_text("with rejected rows", timeout=SECONDS)
    analyst.follow("button[value=upload]")
    assert analyst.ended() == "Completed, 3 rejected"


# -- without scripts


def test_without_scripts_a_report_is_uploaded_and_its_page_looks_again_by_itself(
    without_scripts: Visit,
) -> None:
    without_scripts.upload(LONG)
    assert without_scripts.ended() == "Completed"
    assert without_scripts.tile("In your data") == "20,000"


def test_without_scripts_files_are_checked_and_uploaded_together(without_scripts: Visit) -> None:
    page = without_scripts.page
    without_scripts.goto("/")
    page.click("button[value=upload]")
    expect(page.locator("[role=alert]")).to_contain_text("Choose a file first")

    without_scripts.choose(("may.csv", GOOD), BROKEN)
    page.click("button[value=check]")
    expect(page.locator("h1")).to_have_text("Checked, nothing uploaded")
    assert page.locator(".checked .badge").all_inner_texts() == ["Would be taken", "Would be refused"]

    without_scripts.goto("/")
    without_scripts.choose(("may.csv", GOOD), ("page.csv", b"<html>sign in</html>"))
    page.click("button[value=upload]")
    expect(page.locator("h1")).to_have_text("1 file uploaded")
    assert page.locator("tbody .badge").all_inner_texts() == ["Taken in", "Refused"]

    without_scripts.goto("/")
    without_scripts.choose(("page.csv", b"<html>sign in</html>"))
    page.click("button[value=upload]")
    expect(page.locator("[role=alert] h2")).to_have_text("page.csv: Not a CSV or JSON report")


def test_without_scripts_a_failed_upload_is_requeued_with_a_reason(without_scripts: Visit) -> None:
    page = without_scripts.page
    without_scripts.upload(CORPUS / "tiktok" / "en_currency_missing.csv")
    assert without_scripts.ended() == "Failed"
    page.click("summary:text-is('Requeue')")
    page.fill("#reason", "the <disk> was full")
    without_scripts.follow("button:text-is('Requeue')")
    assert without_scripts.ended() == "Failed"
    expect(page.locator(".history")).to_contain_text("the <disk> was full")
    expect(page.locator(".history tr:has-text('Sent on its way again') td:nth-child(4)")).not_to_have_text(
        "–"
    )


# -- keyboard, phone, screen reader


def test_a_report_is_uploaded_with_the_keyboard_alone(analyst: Visit) -> None:
    analyst.page.on("filechooser", lambda _: None)  # no dialog of the system's, from the beginning on
    page = analyst.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files([{"name": "keys.csv", "mimeType": "text/csv", "buffer": GOOD}])
    expect(page.locator(".file-note")).to_contain_text("Meta Ads")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.value") == "upload":
            break
    with page.expect_navigation(url="**/uploads/*"):
        page.keyboard.press("Enter")
    assert analyst.ended() == "Completed"


@pytest.fixture(scope="module")
def furnished(chromium: Browser, fleet: RunningFleet) -> dict[str, str]:
    """A workspace with an upload of each kind, and the paths of all pages about it."""
    workspace = str(uuid.uuid4())
    paths = {
        "upload": "/",
        "list": "/uploads",
        "nothing found": "/uploads?status=partial",
        "data": "/data",
        "clicks": "/data?metric=clicks",
        "no data": "/data?from=1999-01-01&to=1999-01-02",
        "templates": "/templates",
        "audit log": "/audit",
        "missing": "/nowhere",
    }
    files = {
        "failed": (BROKEN, "USD"),
        "mistakes": (CORPUS / "meta" / "en_duplicate_rows_with_ids.csv", ""),
        "wide": (CORPUS / "google" / "en_60_columns_month_first.csv", ""),
        "currencies": (CORPUS / "meta" / "en_three_currencies.csv", ""),
        "mismatch": (CORPUS / "google" / "en_total_wine_checksum_mismatch.csv", ""),
        "hostile": (("x" * 180 + ".csv", hostile_report()), ""),
    }
    with visit(chromium, fleet.api.url, workspace) as visited:
        for name, (file, currency) in files.items():
            paths[name] = visited.upload(file, currency=currency).removeprefix(fleet.api.url)
        for name in files:
            visited.goto(paths[name])
            visited.ended()
    return {"workspace": workspace, **paths}


def pages_of(furnished: dict[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, path) for name, path in furnished.items() if name != "workspace")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_by_everybody(
    scheme: str, chromium: Browser, fleet: RunningFleet, furnished: dict[str, str]
) -> None:
    with visit(chromium, fleet.api.url, furnished["workspace"], color_scheme=scheme) as visited:
        wrongs = {name: person.audit(visited.goto(path)) for name, path in pages_of(furnished)}
    assert {name: found for name, found in wrongs.items() if found} == {}


def test_the_keyboards_place_is_seen_on_every_page(
    chromium: Browser, fleet: RunningFleet, furnished: dict[str, str]
) -> None:
    with visit(chromium, fleet.api.url, furnished["workspace"]) as visited:
        wrongs = {
            name: person.unseen_focus(visited.goto(furnished[name]))
            for name in ("upload", "list", "failed", "data", "templates")
        }
    assert {name: found for name, found in wrongs.items() if found} == {}


def test_no_page_is_wider_than_a_phone(
    chromium: Browser, fleet: RunningFleet, furnished: dict[str, str]
) -> None:
    width = PHONE["viewport"]["width"]
    with visit(chromium, fleet.api.url, furnished["workspace"], **PHONE) as visited:
        widths = {
            name: visited.goto(path).evaluate("document.documentElement.scrollWidth")
            for name, path in pages_of(furnished)
        }
    assert {name: found for name, found in widths.items() if found > width} == {}


# -- hostile names

NAMES = (
    "<script>alert('name')</script>",
    "<img src=x onerror=alert(1)>",
    "\u202egnp.exe",
    "=HYPERLINK(\"http://x\",\"y\")",
    "{{ 7 * 7 }}",
    "حملة الربيع",
    "n" * 400,
)  # fmt: skip


def hostile_report() -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*HEADER.split(","), "<b>Extra</b>"])
    for number, name in enumerate(NAMES):
        writer.writerow(["2025-05-01", name, 100 + number, "many", 1, "1.00", name])
    for number in range(90):
        writer.writerow(["2025-05-02", f"Fine {number}", 500 + number, 1, 1, "1.00", ""])
    return out.getvalue().encode()


def test_hostile_names_are_shown_as_text_everywhere(analyst: Visit) -> None:
    page = analyst.page
    filename = "<img src=x onerror=alert('file')>.csv"
    address = analyst.upload((filename, hostile_report()))
    analyst.ended()
    expect(page.locator("h1")).to_have_text(filename)
    text = page.inner_text(".rejected")
    assert all(name in text for name in NAMES)
    assert page.locator(".rejected img, .rejected script, .rejected b").count() == 0
    analyst.goto("/uploads")
    expect(page.locator("tbody th a")).to_have_text(filename)
    analyst.goto("/")
    expect(page.locator(".recent a")).to_have_text(filename)

    page.goto(address)
    name, _ = downloaded(analyst, "a:text-is('Original file')")
    assert not re.search(r"[<>/\\:*?\"|]", name) and name.endswith(".csv")
    _, content = downloaded(analyst, "a:text-is('Download the rejected rows')")
    cells = [cell for row in csv.reader(io.StringIO(content.decode("utf-8-sig"))) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]

    analyst.goto("/")
    analyst.choose((filename, hostile_report()))
    page.click("button[value=check]")
    expect(page.locator(".file-result h2")).to_have_text(filename, timeout=SECONDS)
    assert page.locator(".file-result img").count() == 0


# -- looking


def test_the_list_is_filtered_and_turned_page_by_page(
    analyst: Visit, fleet: RunningFleet, servers: Servers
) -> None:
    servers.sql(
        f"INSERT INTO workspaces (id) VALUES ('{analyst.workspace}');"
        "INSERT INTO data_uploads (id, workspace_id, platform, source, filename, status, created_at,"
        " finished_at, error_code)"
        f" SELECT gen_random_uuid(), '{analyst.workspace}', (ARRAY['meta', 'google'])[1 + n % 2], 'manual',"
        " 'report ' || n, (ARRAY['failed', 'completed'])[1 + n % 3 % 2],"
        " '2025-05-01'::timestamptz + n * interval '1 hour', now(), 'empty_file'"
        " FROM generate_series(1, 120) n",
        dsn=fleet.dsn,
    )
    page = analyst.goto("/uploads")
    names = [f"report {n}" for n in range(120, 0, -1)]
    seen = page.locator("tbody th a").all_inner_texts()
    while (older := page.locator("text=Older uploads")).count():
        older.click()
        seen += page.locator("tbody th a").all_inner_texts()
    assert seen == names

    analyst.goto("/uploads")
    page.select_option("#platform", "google")
    page.select_option("#status", "completed")
    page.fill("#from", "2025-05-02")
    page.fill("#to", "2025-05-03")
    page.click("text=Filter")
    expected = [n for n in range(24, 72) if n % 2 == 1 and n % 3 % 2 == 1]
    assert sorted(page.locator("tbody th a").all_inner_texts()) == sorted(f"report {n}" for n in expected)
    page.click("text=Clear")
    assert page.input_value("#platform") == ""


def test_amounts_of_different_currencies_are_drawn_and_summed_apart(analyst: Visit) -> None:
    analyst.upload(CORPUS / "meta" / "en_three_currencies.csv")
    analyst.ended()
    page = analyst.goto("/data")
    titles = page.locator("section.card h2").all_inner_texts()
    assert titles == ["Spend in EUR by day", "Spend in JPY by day", "Spend in USD by day"]
    sums = [row.split("\t")[1:3] for row in page.locator("#sums-title ~ .scroll tbody tr").all_inner_texts()]
    assert sums == [["EUR", "1,871.51"], ["JPY", "596,245"], ["USD", "2,280.81"]]
    assert page.locator("svg title").first.text_content()
    page.select_option("#metric", "impressions")
    page.click("text=Show >> nth=-1")
    assert page.locator("section.card h2").all_inner_texts() == ["Impressions by day"]
    assert page.locator(".days tbody tr").count() == 18


@pytest.mark.parametrize("platform", ["meta", "google", "tiktok"])
def test_a_template_uploads_cleanly_empty_and_filled_in(platform: str, analyst: Visit) -> None:
    analyst.goto("/templates")
    _, content = downloaded(analyst, f"a[href$='{platform}.csv']")
    columns = next(csv.reader(io.StringIO(content.decode().splitlines()[1])))
    examples = [
        analyst.page.locator(f"section:has(#{platform}-title) tbody tr").nth(at).locator("td").nth(1)
        .text_content() for at in range(len(columns))
    ]  # fmt: skip
    analyst.upload(("template.csv", content))
    assert analyst.ended() == "Completed"
    expect(analyst.page.locator(".callout h2")).to_have_text("The report has no rows")
    analyst.upload(("filled.csv", content + ",".join(str(e) for e in examples).encode() + b"\n"))
    assert analyst.ended() == "Completed"
    assert analyst.tile("In your data") == "1"
    assert not analyst.page.locator("text=Not known:").count()


# -- errors


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        (f"/uploads/{uuid.UUID(int=5)}", 404),
        (f"/uploads/{uuid.UUID(int=5)}/rejected.csv", 404),
        ("/templates/orkut.csv", 404),
        ("/uploads?status=lost", 422),
        ("/uploads?from=yesterday", 422),
        ("/uploads?to=9999-12-31", 422),
        ("/uploads?cursor=%00", 422),
        ("/uploads?workspace_id=7", 422),
        ("/data?from=1900-01-01&to=2025-01-01", 422),
        ("/data?metric=luck", 422),
        ("/audit?action=nothing", 422),
        ("/audit?cursor=-1", 422),
        (f"/uploads/{uuid.UUID(int=5)}/again", 405),
    ],
)
def test_an_error_is_a_page_for_people_and_a_problem_for_programs(
    path: str, status: int, analyst: Visit, fleet: RunningFleet
) -> None:
    context, page = analyst.context, analyst.page
    answer = page.goto(fleet.api.url + path)
    assert answer is not None and answer.status == status
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert page.locator("h1").count() == 1 and page.locator("a.button").count() == 2
    program = context.request.get(
        fleet.api.url + path, headers={"Accept": "application/json", "Authorization": f"Bearer {KEY}"}
    )
    assert program.status == status
    assert program.headers["content-type"] == "application/problem+json"
    assert program.json()["detail"]


# -- the audit log


def test_the_log_tells_who_did_what_to_an_upload(analyst: Visit) -> None:
    upload = analyst.upload(("mistake.csv", GOOD.replace(b"100", b"many").replace(b"200", b"more")))
    assert analyst.ended() == "Failed"
    analyst.page.click("summary:text-is('Requeue')")
    analyst.page.fill("[name=reason]", "<b>once more</b>")
    analyst.follow("form[action$=requeue] button")
    analyst.ended()
    page = analyst.goto("/audit")
    page.fill("#upload", upload.rpartition("/")[2].partition("?")[0])
    page.select_option("#action", "requeued")
    page.click("text=Filter")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("<b>once more</b>")
    expect(page.locator("tbody tr")).to_contain_text("local key")
    page.click("tbody a")
    expect(page).to_have_url(re.compile(re.escape(upload.rpartition("/")[2].partition("?")[0])))


# -- the door


def test_a_person_logs_in_with_a_key_and_out_again(chromium: Browser, fleet: RunningFleet) -> None:
    context = chromium.new_context(**PHONE)
    page = context.new_page()
    page.goto(f"{fleet.api.url}/uploads?status=failed")
    page.fill("#key", "hw_abcdefgh_" + "x" * 43)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not known here")
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{fleet.api.url}/uploads?status=failed")
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("#key")).to_be_focused()
    page.goto(f"{fleet.api.url}/uploads")
    expect(page.locator("#key")).to_be_visible()
    context.close()
