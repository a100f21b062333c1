"""Total rows: found in any language and place, never promoted, and a checksum of the rest."""

from __future__ import annotations

from decimal import Decimal

import pytest
from report import lines, read, table

GOOGLE = ["Day", "Campaign", "Campaign ID", "Cost", "Impr."]
PLAIN = [
    ["2025-09-01", "Kiln", "1", "10.00", "100"],
    ["2025-09-01", "Loft", "2", "20.00", "200"],
]


@pytest.mark.parametrize(
    "label",
    [
        "Total",
        "Total: Campaigns",
        "Total: Account",
        "Total: Search",
        "Total - filtered",
        "Total - all experiments",
        "Total: All but removed keywords",
        "Gesamt: Konto",
        "Gesamt: Kampagnen",
        "Gesamt",
        "Summe",
        "Total : compte",
        "Total\xa0: campagnes",
        "Total: Conta",
        "Total: campañas",
        "Totale: account",
        "Totaal: account",
        "Итого",
        "Итого: аккаунт",
        "合計",
        "合計: アカウント",
        "合計：キャンペーン",
        "全2件の結果",
        "합계: 계정",
        "总计：账号",
        "總計",
        "Total of 2 results",
        "TOTAL",
    ],
)
def test_a_total_row_is_skipped_in_any_language(label: str) -> None:
    for place in (0, 1):
        total = ["", "", "", "30.00", "300"]
        total[place] = label
        report = read(table([GOOGLE, *PLAIN, total]), "google", "EUR")
        assert (report.data, report.rejects, report.totals_skipped) == (2, (), 1)
        assert (report.names, report.total("spend")) == (["Kiln", "Loft"], {"EUR": 30})
        assert report.totals is not None
        assert (report.totals.file_total, report.totals.matches) == (30, True)


@pytest.mark.parametrize("null", ["", " --", "--", "-", "—", "N/A"])
@pytest.mark.parametrize("top", [True, False], ids=["top", "bottom"])
def test_a_row_without_names_is_a_total(null: str, top: bool) -> None:
    total = [null, null, null, "30.00", "300"]
    rows = [total, *PLAIN] if top else [*PLAIN, total]
    report = read(table([GOOGLE, *rows]), "google", "EUR")
    assert (report.data, report.rejects, report.totals_skipped) == (2, (), 1)
    assert report.total("impressions") == {"EUR": 300}


def test_the_summary_of_a_single_day_is_no_row_of_that_day() -> None:
    report = read(
        lines(
            "Campaign name,Ad set name,Reach,Impressions,Amount spent (JPY),Reporting starts,Reporting ends",
            ",,250,300,3000,2025-09-01,2025-09-01",
            "Kiln,A,100,100,1000,2025-09-01,2025-09-01",
            "Kiln,B,200,200,2000,2025-09-01,2025-09-01",
        )
    )
    assert (report.data, report.totals_skipped, report.rejects) == (2, 1, ())
    assert report.total("spend") == {"JPY": 3000}
    assert report.totals is not None
    assert report.totals.matches


@pytest.mark.parametrize(
    "name",
    [
        "Total Wine",
        "Totally Kale",
        "Total Flex | Conversões",
        "Total",
        "Total: Body Workout",
        "Total - Body",
        "Total of 3 results",
        "Grand Total Prix",
        "Gesamtsortiment, Zürich",
        "Gesamt",
        "Summer Sale",
        "Summe der Teile",
        "Итоговая распродажа",
        "合計金額キャンペーン",
        "全品セール",
        "全2件の結果発表会",
        "All",
        "All - Broad",
    ],
)
def test_a_campaign_with_a_day_and_an_id_is_never_a_total(name: str) -> None:
    report = read(table([GOOGLE, *PLAIN, ["2025-09-01", name, "3", "5.00", "50"]]), "google", "EUR")
    assert (report.data, report.rejects, report.totals_skipped) == (3, (), 0)
    assert report.names == ["Kiln", "Loft", name]
    assert report.total("spend") == {"EUR": 35}


@pytest.mark.parametrize("name", ["Total Wine", "Gesamtsortiment", "Итоговая распродажа", "Totals"])
def test_a_campaign_needs_no_id_to_be_none(name: str) -> None:
    report = read(
        lines("Day,Campaign,Cost,Impr.", "2025-09-01,Kiln,1.00,1", f"2025-09-01,{name},2.00,1"),
        "google",
        "EUR",
    )
    assert (report.names, report.totals_skipped) == (["Kiln", name], 0)


@pytest.mark.parametrize(
    ("total", "matches"),
    [
        ("30.00", True),
        ("30.01", True),  # 0.005 for each of two rows
        ("29.99", True),
        ("30.02", False),
        ("29.98", False),
        ("60.00", False),
        ("0.00", False),
    ],
)
def test_the_total_may_be_off_by_half_a_cent_for_each_row(total: str, matches: bool) -> None:
    text = table([GOOGLE, *PLAIN, ["Total: Account", "", "", total, "300"]])
    report = read(text, "google", "EUR")
    assert report.totals is not None
    assert (report.totals.file_total, report.totals.row_sum) == (Decimal(total), 30)
    assert report.totals.matches is matches
    assert (report.refused, report.data) == (None, 2)


def test_only_the_first_total_is_the_checksum() -> None:
    totals = [
        ["Total: Campaigns", "", "", "30.00", "300"],
        ["Total: Account", "", "", "99.00", "990"],
        ["Total: Search", "", "", "10.00", "100"],
    ]
    report = read(table([GOOGLE, *PLAIN, *totals]), "google", "EUR")
    assert (report.totals_skipped, report.data) == (3, 2)
    assert report.totals is not None
    assert report.totals.file_total == 30


def test_a_file_without_total_has_no_checksum() -> None:
    assert read(table([GOOGLE, *PLAIN]), "google", "EUR").totals is None


def test_a_total_stands_in_the_third_column_behind_null_cells() -> None:
    report = read(
        lines(
            "Keyword status,Keyword,Match type,Campaign,Ad group,Cost,Impr.,Day",
            "Paused,kiln,Broad match,Kiln,A,10.00,100,2025-09-01",
            "Paused,loft,Broad match,Kiln,A,20.00,200,2025-09-01",
            " --, --,Total: All but removed keywords,,,30.00,300,",
            ",,Total: Account,,,31.00,310,",
        ),
        "google",
        "EUR",
    )
    assert (report.data, report.totals_skipped, report.merged) == (2, 2, 1)
    assert report.total("spend") == {"EUR": 30}


def test_thousands_in_a_total_are_read_as_in_the_rows() -> None:
    report = read(
        lines(
            "Dia;Campanha;Código da moeda;Custo;Impr.",
            "2025-09-01;Kiln;BRL;1.000,50;1.000",
            "2025-09-01;Loft;BRL;0,50;10",
            "Total: Conta;;BRL;1.001,00;1.010",
        ),
        "google",
    )
    assert report.totals is not None
    assert (report.totals.file_total, report.totals.matches) == (1001, True)


def test_skipped_totals_do_not_count_against_the_rows() -> None:
    totals = [["Total: Account", "", "", " --", "garbage"]] * 20
    report = read(table([GOOGLE, *PLAIN, *totals]), "google", "EUR")
    assert (report.data, report.rejected, report.totals_skipped) == (2, 0, 20)


def test_a_row_with_some_names_missing_is_not_taken_for_a_total() -> None:
    report = read(
        lines(
            "Day,Campaign name,Ad set name,Impressions,Amount spent (USD)",
            "2025-09-01,Kiln,A,10,1.50",
            "2025-09-01,,B,10,1.50",
        )
    )
    assert (report.data, report.totals_skipped) == (2, 0)
    assert report.rejects == ((3, "missing_campaign"),)
