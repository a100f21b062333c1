"""Currencies: of the row, else of a header, else declared with the upload, never assumed."""

from __future__ import annotations

import pytest
from report import lines, read, table


def _file(*cells: str, spend: str = "Amount spent", more: str = "Note") -> str:
    rows = [[f"2025-09-{n + 1:02d}", "Kiln", "1.50", cell, "1"] for n, cell in enumerate(cells)]
    return table([["Day", "Campaign name", spend, "Currency", more], *rows])


@pytest.mark.parametrize(
    ("text", "declared", "found", "currency"),
    [
        pytest.param(_file("USD"), "EUR", ("USD",), "USD", id="row over declared"),
        pytest.param(_file("USD", spend="Amount spent (EUR)"), None, ("USD",), "USD", id="row over header"),
        pytest.param(
            lines("Day,Campaign name,Amount spent (EUR)", "2025-09-01,Kiln,1.50"),
            "USD",
            ("EUR",),
            "EUR",
            id="header over declared",
        ),
        pytest.param(
            lines("Day,Campaign name,Amount spent", "2025-09-01,Kiln,1.50"),
            "SEK",
            (),
            "SEK",
            id="declared",
        ),
        pytest.param(
            lines("Day,Campaign name,Amount spent,CPC (all) (EUR)", "2025-09-01,Kiln,1.50,0.50"),
            None,
            ("EUR",),
            "EUR",
            id="the suffix of another column",
        ),
        pytest.param(
            lines(
                "Day,Campaign name,Amount spent,Purchases conversion value (PLN)",
                "2025-09-01,Kiln,1.50,9.50",
            ),
            None,
            ("PLN",),
            "PLN",
            id="the suffix of a value",
        ),
    ],
)
def test_where_the_currency_comes_from(
    text: str, declared: str | None, found: tuple[str, ...], currency: str
) -> None:
    report = read(text, currency=declared)
    assert (report.refused, report.currency_found) == (None, found)
    assert list(report.total("spend")) == [currency]


@pytest.mark.parametrize("cell", ["1.50", "€1.50", "$1.50", "¥150"])
def test_a_currency_is_never_assumed_not_even_from_a_sign(cell: str) -> None:
    text = lines("Day,Campaign name,Amount spent,Impressions", f"2025-09-01,Kiln,{cell},1")
    assert read(text).refused == "currency_missing"


def test_each_row_has_its_own_currency_and_nothing_is_added_over_them() -> None:
    report = read(_file("USD", "EUR", "JPY", "USD"), currency="GBP")
    assert report.total("spend") == {"USD": 3, "EUR": 1.5, "JPY": 1.5}
    assert sorted(report.currency_found) == ["EUR", "JPY", "USD"]


@pytest.mark.parametrize("blank", ["", "--", " --"])
def test_a_row_without_currency_falls_back_on_the_header_and_the_upload(blank: str) -> None:
    by_header = read(_file("USD", blank, spend="Amount spent (USD)"))
    declared = read(_file("USD", blank), currency="USD")
    for report in (by_header, declared):
        assert (report.rejects, report.total("spend")) == ((), {"USD": 3})


def test_a_row_that_nothing_gives_a_currency_is_rejected() -> None:
    report = read(_file("USD", "", "USD"))
    assert (report.refused, report.rejects) == (None, ((3, "missing_currency"),))


@pytest.mark.parametrize("cell", ["US Dollar", "XX", "12", "USDX", "€", "U5D"])
def test_a_currency_must_be_a_code(cell: str) -> None:
    assert read(_file("USD", cell), currency="USD").rejects == ((3, "invalid_currency"),)


def test_rows_of_one_key_with_two_currencies_are_rejected() -> None:
    text = lines(
        "Day,Campaign name,Campaign ID,Age,Amount spent,Currency",
        "2025-09-01,Kiln,1,18-24,1.50,USD",
        "2025-09-01,Kiln,1,25-34,1.50,EUR",
        "2025-09-02,Kiln,1,18-24,1.50,USD",
    )
    report = read(text)
    assert report.rejects == ((2, "currency_conflict"), (3, "currency_conflict"))
    assert report.total("spend") == {"USD": 1.5}


def test_the_currency_of_an_api_is_that_of_the_account() -> None:
    meta = '[{"date_start":"2025-09-01","date_stop":"2025-09-01","campaign_id":"1",' + (
        '"account_currency":"THB","spend":"1.50"}]'
    )
    google = '[{"results":[{"customer":{"currencyCode":"SEK"},"campaign":{"id":"1"},' + (
        '"segments":{"date":"2025-09-01"},"metrics":{"costMicros":"1500000"}}]}]'
    )
    assert read(meta).total("spend") == {"THB": 1.5}
    assert read(google, "google").total("spend") == {"SEK": 1.5}


def test_a_total_row_may_have_a_blank_currency() -> None:
    text = lines(
        "Day,Campaign,Currency code,Cost,Impr.",
        "2025-09-01,Kiln,USD,1.50,1",
        "Total: Account,,,1.50,1",
    )
    report = read(text, "google")
    assert (report.refused, report.rejects, report.totals_skipped) == (None, (), 1)
