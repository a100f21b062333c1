"""Ids are text and cleaned; entities without ids are known by the path of their names."""

from __future__ import annotations

import unicodedata

import pytest
from report import lines, read, table

from app.kernel.canonical import natural_key_hash
from app.uploads.reading.levels import key_hasher

BIG = "120240987654321012"


def _with_id(*cells: str, column: str = "Campaign ID") -> str:
    rows = [[f"2025-09-{n + 1:02d}", "Kiln", cell, "1", "1.50"] for n, cell in enumerate(cells)]
    return table([["Day", "Campaign name", column, "Impressions", "Amount spent (USD)"], *rows])


@pytest.mark.parametrize(
    ("cell", "external_id"),
    [
        (BIG, BIG),
        (f'="{BIG}"', BIG),
        (f"'{BIG}", BIG),
        (f"cg:{BIG}", BIG),
        (f"c:{BIG}", BIG),
        (f"a:{BIG}", BIG),
        (f"  {BIG} ", BIG),
        (f"\xa0{BIG}", BIG),
        ("9223372036854775808", "9223372036854775808"),  # one more than a bigint
        ("12345678901234567890", "12345678901234567890"),
        ("123456.0", "123456"),  # a spreadsheet took it for a number, without loss
        ("7", "7"),
    ],
)
def test_an_id_is_cleaned_to_its_digits(cell: str, external_id: str) -> None:
    report = read(_with_id(cell))
    assert report.rejects == ()
    assert [(one.external_id, one.id_source) for one in report.campaigns] == [(external_id, "platform")]


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("1.20E+17", "id_scientific_notation"),
        ("1.2025E+17", "id_scientific_notation"),
        ("1,20E+17", "id_scientific_notation"),  # saved where decimals have a comma
        ("1.2e17", "id_scientific_notation"),
        ("1E+17", "id_scientific_notation"),
        ('="1.20E+17"', "id_scientific_notation"),
        ("c:1.20E+17", "id_scientific_notation"),
        ("12 and 13", "invalid_id"),
        ("#REF!", "invalid_id"),
    ],
)
def test_an_id_that_is_lost_or_none_rejects_its_row(cell: str, code: str) -> None:
    for column in ("Campaign ID", "Ad Set ID", "Ad ID"):
        report = read(_with_id("1", cell, *["2"] * 8, column=column))
        assert report.rejects == ((3, code),)


@pytest.mark.parametrize("cell", ["123-456-7890", "act_1234567890", "1234567890", "--"])
@pytest.mark.parametrize(("platform", "column"), [("meta", "Account ID"), ("google", "Customer ID")])
def test_an_account_id_may_be_written_in_its_own_way(platform: str, column: str, cell: str) -> None:
    names = {"meta": "Campaign name", "google": "Campaign"}
    text = table([["Day", names[platform], column, "Impressions"], ["2025-09-01", "Kiln", cell, "1"]])
    assert read(text, platform, "USD").rejects == ()


@pytest.mark.parametrize("cell", ["", "--", " --", "-", "N/A"])
def test_without_an_id_the_name_is_the_id(cell: str) -> None:
    report = read(_with_id(cell))
    assert [one.id_source for one in report.campaigns] == ["name"]
    assert report.campaigns[0].external_id.startswith("name:")


def test_the_forms_of_one_id_are_one_entity() -> None:
    report = read(_with_id(BIG, f'="{BIG}"', f"'{BIG}", f"cg:{BIG}"))
    assert (report.entities, len(report.daily)) == ((1, 0, 0), 4)


def test_one_id_with_two_names_is_one_campaign_and_the_last_name_counts() -> None:
    text = lines(
        "Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)",
        "2025-09-01,Old name,7,1,1.50",
        "2025-09-02,New name,7,1,1.50",
    )
    assert [one.name for one in read(text).campaigns] == ["New name"]


def test_one_name_under_two_ids_is_two_campaigns() -> None:
    text = lines(
        "Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)",
        "2025-09-01,Kiln,7,1,1.50",
        "2025-09-01,Kiln,8,1,1.50",
    )
    report = read(text)
    assert (report.entities, len(report.daily)) == ((2, 0, 0), 2)


def test_an_id_needs_no_name() -> None:
    text = lines("campaign_id,stat_time_day,spend,clicks", "7,2025-09-01 00:00:00,1.50,3")
    report = read(text, "tiktok", "USD")
    assert [(one.external_id, one.name) for one in report.campaigns] == [("7", None)]


PATHS = "Day,Campaign name,Ad set name,Ad name,Impressions,Amount spent (USD)"


@pytest.mark.parametrize(
    ("first", "second", "entities"),
    [
        pytest.param("Kiln,A,x", "Kiln,A,x", (1, 1, 1), id="the same path"),
        pytest.param("Kiln,A,x", "Kiln,B,x", (1, 2, 2), id="one ad name in two ad sets"),
        pytest.param("Kiln,A,x", "Loft,A,x", (2, 2, 2), id="one ad set name in two campaigns"),
        pytest.param("Kiln,A,x", "kiln,A,x", (2, 2, 2), id="case is part of a name"),
        pytest.param("Kiln,A,x", " Kiln , A,x ", (1, 1, 1), id="blanks around are not"),
        pytest.param("Kiln,A,x", "Kiln\xa0,A,\u3000x", (1, 1, 1), id="nor are wide ones"),
        pytest.param("Kiln,A,x", "Kiln,A, --", (1, 1, 1), id="one row of the ad set itself"),
        pytest.param("Kiln, --,--", "Kiln,,", (1, 0, 0), id="of the campaign"),
        pytest.param('"A,B",C,x', 'A,"B,C",x', (2, 2, 2), id="a path is no joined text"),
        pytest.param("A / B,C,x", "A,B / C,x", (2, 2, 2), id="nor joined by slashes"),
        pytest.param("Café,A,x", unicodedata.normalize("NFD", "Café,A,x"), (1, 1, 1), id="accents composed"),
    ],
)
def test_entities_without_ids_are_paths_of_names(
    first: str, second: str, entities: tuple[int, int, int]
) -> None:
    report = read(lines(PATHS, f"2025-09-01,{first},1,1.50", f"2025-09-02,{second},1,1.50"))
    assert (report.rejects, report.entities) == ((), entities)


def test_the_ids_of_names_are_the_same_in_every_file() -> None:
    one = read(lines(PATHS, "2025-09-01,Kiln,A,x,1,1.50"))
    other = read(
        lines(
            "Ad name;Ad set name;Campaign name;Reporting starts;Reporting ends;Amount spent (EUR)",
            "x;A; Kiln;2025-10-01;2025-10-01;9,50",
        )
    )
    assert (one.campaigns, one.ad_sets, one.ads) == (other.campaigns, other.ad_sets, other.ads)


def test_the_deepest_name_is_the_grain_of_a_row() -> None:
    rows = ["2025-09-01,Kiln,A,x,1,1.50", "2025-09-01,Kiln,A,,1,1.50", "2025-09-01,Kiln,,,1,1"]
    report = read(lines(PATHS, *rows))
    grains = [(row.ad_set is not None, row.ad is not None) for row in report.daily]
    assert grains == [(True, True), (True, False), (False, False)]


@pytest.mark.parametrize(
    "name",
    [
        '=HYPERLINK("https://example.test","x")',
        "=1+1",
        "+49 30 1234",
        "-20% off",
        "@handle",
        "🔥 Sommer 👨‍👩‍👧‍👦",
        "מבצע | חורף",
        "NULL",
        "None",
        "nan",
        "0",
        "123",
        "1.20E+17",
        "a\u200bb",
        "first\nsecond",
        "a\tb",
        "2025-09-01",
        "Campaign name",
        "n" * 2000,
    ],
)
def test_a_name_is_stored_as_given(name: str) -> None:
    report = read(table([PATHS.split(","), ["2025-09-01", name, name, name, "1", "1.50"]]))
    assert [one.name for one in report.campaigns + report.ad_sets + report.ads] == [name] * 3


def test_a_name_is_composed_and_trimmed() -> None:
    given = "  " + unicodedata.normalize("NFD", "Café Zoë") + "\xa0"
    report = read(table([PATHS.split(","), ["2025-09-01", given, "A", "x", "1", "1.50"]]))
    assert report.names == ["Café Zoë"]


def test_a_character_that_cannot_be_stored_rejects_its_row() -> None:
    rows = [f"2025-09-{n:02d},Kiln,A,x,1,1.50" for n in range(1, 10)]
    report = read(lines(PATHS, *rows, "2025-09-10,K\0,A,x,1,1.50"))
    assert report.rejects == ((11, "invalid_character"),)


def test_a_headline_names_an_ad_that_has_an_id_and_no_name() -> None:
    text = lines(
        "Day,Campaign,Ad group,Ad ID,Headline 1,Cost,Impr.",
        "2025-09-01,Kiln,A,77,Warm bricks,1.50,1",
    )
    report = read(text, "google", "USD")
    assert [(one.external_id, one.name) for one in report.ads] == [("77", "Warm bricks")]


def test_a_headline_alone_makes_no_ad() -> None:
    text = lines(
        "Day,Campaign,Ad group,Headline 1,Cost,Impr.",
        "2025-09-01,Kiln,A,Warm bricks,1.50,1",
        "2025-09-01,Kiln,A,Cold bricks,2.50,2",
    )
    report = read(text, "google", "USD")
    assert (report.entities, report.merged, report.total("spend")) == ((1, 1, 0), 1, {"USD": 4})


@pytest.mark.parametrize("header", ["Ad name", "Ad ID", "Ad set name"])
def test_an_ad_without_any_campaign_is_rejected(header: str) -> None:
    header += ",Day,Impressions,Amount spent (USD)"
    report = read(lines(header, "77,2025-09-01,1,1.50", "78,2025-09-01,1,1.50"))
    assert report.codes == ["missing_campaign", "missing_campaign"]


@pytest.mark.parametrize("external_id", ["123", 'a"b', "back\\slash", "tab\there", "ключ", "e\u0301"])
def test_an_entitys_key_is_the_hash_of_its_natural_key(external_id: str) -> None:
    expected = natural_key_hash(["w", None, "meta", "ad", external_id])
    assert key_hasher(["w", None, "meta"], "ad")(external_id) == expected
