"""Names of columns: normalised, looked up exactly, doubled ones compared."""

from __future__ import annotations

import unicodedata

import pytest
from report import lines, read, table

ROW = ("2025-09-01", "Kiln", "10", "1.50")


def _with(column: int, name: str) -> str:
    header = ["Day", "Campaign name", "Impressions", "Amount spent (USD)"]
    header[column] = name
    return table([header, ROW])


@pytest.mark.parametrize(
    "name",
    [
        "campaign name",
        "CAMPAIGN NAME",
        "  Campaign   name ",
        "Campaign\xa0name",
        "Campaign\u202fname",
        "\ufeffCampaign name",
        "Campaign name\u200b",
        "Ｃａｍｐａｉｇｎ\u3000ｎａｍｅ",
        "キャンペーン名",  # all languages of the platform are looked up together
        "ｷｬﾝﾍﾟｰﾝ名",  # half-width katakana
        "اسم الحملة",
        unicodedata.normalize("NFD", "Название кампании"),
        unicodedata.normalize("NFD", "Nombre de la campaña"),
    ],
)
def test_a_header_is_known_however_it_is_written(name: str) -> None:
    report = read(_with(1, name))
    assert (report.refused, report.names) == (None, ["Kiln"])


@pytest.mark.parametrize(
    ("platform", "names"),
    [
        ("meta", ["Nom de l’ensemble de publicités", "Nom de l'ensemble de publicités"]),
        ("tiktok", ["クリック（誘導先）", "クリック(誘導先)"]),
        ("tiktok", ["Clicks (destination)", "Clicks (Destination)", "CLICKS (DESTINATION)"]),
    ],
    ids=["apostrophes", "parentheses", "case"],
)
def test_marks_and_case_of_a_header_do_not_matter(platform: str, names: list[str]) -> None:
    for name in names:
        report = read(
            table([["Date", "Campaign name", "Impressions", name], ["2025-09-01", "K", "1", "7"]]),
            platform,
            "EUR",
        )
        assert report.refused is None
        seen = [row.clicks if platform == "tiktok" else row.ad_set for row in report.daily]
        assert (seen == [7]) if platform == "tiktok" else (seen[0].name == "7")


@pytest.mark.parametrize(
    ("name", "currency"),
    [
        ("Amount spent (USD)", "USD"),
        ("Amount spent（JPY）", "JPY"),
        ("Amount spent  (EUR) ", "EUR"),
        ("AMOUNT SPENT (GBP)", "GBP"),
        ("Amount spent\xa0(CHF)", "CHF"),
        ("Amount spent (ALL)", "ALL"),  # the Albanian lek
        ("消化金額（JPY）", "JPY"),
        ("Ausgegebener Betrag (EUR)", "EUR"),
    ],
)
def test_the_suffix_of_a_header_is_the_currency(name: str, currency: str) -> None:
    report = read(_with(3, name))
    assert (report.currency_found, report.total("spend")) == ((currency,), {currency: 1.5})


def test_all_in_small_letters_is_no_currency() -> None:
    text = lines("Day,Campaign name,Clicks (all),Amount spent", "2025-09-01,Kiln,3,1.50")
    report = read(text, currency="SEK")
    assert (report.currency_found, report.column("clicks")) == ((), [3])
    assert report.total("spend") == {"SEK": 1.5}


@pytest.mark.parametrize(
    ("platform", "header", "metric"),
    [
        ("google", "Avg. cost", "spend"),
        ("google", "Cost / conv.", "spend"),
        ("google", "Cost per store visit", "spend"),
        ("google", "Total cost", "spend"),  # of TikTok
        ("google", "All conv.", "conversions"),
        ("google", "Conversions (by conv. time)", "conversions"),
        ("google", "View-through conv.", "conversions"),
        ("google", "Interactions", "clicks"),
        ("google", "Clicks to call", "clicks"),
        ("meta", "Cost per result", "spend"),
        ("meta", "Results", "conversions"),
        ("meta", "Link clicks", "clicks"),
        ("meta", "Unique Clicks (All)", "clicks"),
        ("tiktok", "Clicks (all)", "clicks"),
        ("tiktok", "Results", "conversions"),
        ("tiktok", "Cost per conversion", "conversions"),
    ],
)
def test_a_column_that_only_resembles_another_is_not_taken_for_it(
    platform: str, header: str, metric: str
) -> None:
    campaign = "Campaign" if platform == "google" else "Campaign name"
    text = table([["Day", campaign, "Impressions", header], ["2025-09-01", "Kiln", "10", "3"]])
    report = read(text, platform, "USD")
    assert (report.refused, report.column(metric)) == (None, [None])


@pytest.mark.parametrize("header", ["CTR", "Avg. CPC", "Final URL", "Search impr. share", "My note"])
def test_what_is_not_stored_cannot_make_a_row_wrong(header: str) -> None:
    cells = ["garbage", "#VALUE!", "< 10%", "-5", "1,2,3", "1.00"]
    rows = [[f"2025-09-0{n + 1}", "Kiln", "1", "1.50", cell] for n, cell in enumerate(cells)]
    report = read(table([["Day", "Campaign", "Impr.", "Cost", header], *rows]), "google", "USD")
    assert (report.refused, report.rejects, report.total("spend")) == (None, (), {"USD": 9})


@pytest.mark.parametrize(
    ("headers", "cells", "refused"),
    [
        pytest.param(("Cost", "Cost"), ("1.50", "1.50"), None, id="equal"),
        pytest.param(("Cost", "Cost"), ("1.50", "1.51"), "ambiguous_column", id="different"),
        pytest.param(("Cost", " COST "), ("1.50", "1.50"), None, id="equal when normalised"),
        pytest.param(("Cost", "ＣＯＳＴ"), ("1.50", "2.50"), "ambiguous_column", id="normalised"),
        pytest.param(("Cost", "Coste"), ("1.50", "1.50"), None, id="two words, equal"),
        pytest.param(("Campaign", "Campaign"), ("A", "B"), "ambiguous_column", id="names"),
        pytest.param(("Day", "Day"), ("2025-09-01", "2025-09-02"), "ambiguous_column", id="days"),
        pytest.param(("Note", "Note"), ("a", "b"), None, id="unknown"),
        pytest.param(("CTR", "CTR"), ("1%", "2%"), None, id="never stored"),
        pytest.param(("Device", "Network"), ("a", "b"), None, id="two breakdowns"),
        pytest.param(("", ""), ("a", "b"), None, id="without a name"),
    ],
)
def test_a_header_that_stands_twice(
    headers: tuple[str, str], cells: tuple[str, str], refused: str | None
) -> None:
    header = ["Day", headers[0], "Campaign", "Impr.", headers[1], "Cost"]
    row = ["2025-09-01", cells[0], "Kiln", "10", cells[1], "1.50"]
    if headers[0] == "Cost":
        del header[-1], row[-1]
    text = table([header, row])
    assert read(text, "google", "USD").refused == refused


def test_two_columns_may_first_differ_on_the_last_row() -> None:
    rows = [f"2025-09-01,Campaign {n},{n},1.50,1,1.50" for n in range(2000)]
    rows[-1] = "2025-09-01,Campaign 1999,1999,1.50,1,2.50"
    header = "Day,Campaign,Campaign ID,Cost,Impr.,Cost"
    assert read(lines(header, *rows), "google", "USD").refused == "ambiguous_column"


def test_two_currencies_of_one_amount_are_two_columns_of_one_name() -> None:
    text = lines(
        "Day,Campaign name,Impressions,Amount spent (USD),Amount spent (EUR)",
        "2025-09-01,Kiln,10,1.50,1.40",
    )
    assert read(text).refused == "ambiguous_column"


def test_a_column_of_another_attribution_window_is_not_added_or_preferred() -> None:
    text = lines(
        "Day,Campaign name,Amount spent (USD),Purchases [28 Days After Clicking],Purchases",
        "2025-09-01,Kiln,1.50,9,4",
    )
    report = read(text)
    assert (report.refused, report.column("conversions")) == (None, [4])


def test_the_field_names_of_an_api_are_headers_too() -> None:
    text = lines(
        "campaign.id,campaign.name,segments.date,segments.device,metrics.cost_micros,metrics.clicks",
        "21004567891,Fern,2025-09-01,MOBILE,1500000,3",
        "21004567891,Fern,2025-09-01,DESKTOP,250001,4",
    )
    report = read(text, "google", "NZD")
    assert (report.merged, report.column("clicks")) == (1, [7])
    assert f"{report.column('spend')[0]:f}" == "1.750001"
