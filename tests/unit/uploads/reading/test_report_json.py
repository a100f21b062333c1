"""JSON: every shape in which the three platforms and their connectors save their answers."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import Any

import pytest
from report import CODES_OF_FILES, read


def _meta(**changes: Any) -> dict[str, Any]:
    row = {
        "date_start": "2025-09-01",
        "date_stop": "2025-09-01",
        "account_currency": "USD",
        "campaign_id": "120215500000000011",
        "campaign_name": "Kiln",
        "spend": "1.50",
        "impressions": "10",
    }
    return {key: value for key, value in {**row, **changes}.items() if value is not ...}


def _google(**metrics: Any) -> dict[str, Any]:
    return {
        "customer": {"id": "1234567890", "currencyCode": "USD"},
        "campaign": {"resourceName": "customers/1/campaigns/7", "id": "7", "name": "Kiln"},
        "segments": {"date": "2025-09-01"},
        "metrics": {"costMicros": "1500000", "impressions": "10", **metrics},
    }


def _tiktok(ad: int = 7402238017842757633) -> dict[str, Any]:
    return {
        "dimensions": {"ad_id": ad, "stat_time_day": "2025-09-01 00:00:00"},
        "metrics": {
            "campaign_id": 1714125042508817,
            "campaign_name": "Kiln",
            "adgroup_id": 7402238017842750001,
            "spend": "1.50",
            "impressions": "10",
            "currency": "USD",
        },
    }


ROW = _meta()


@pytest.mark.parametrize(
    ("platform", "document"),
    [
        pytest.param("meta", [ROW], id="array"),
        pytest.param("meta", {"data": [ROW]}, id="data"),
        pytest.param("meta", {"rows": [ROW]}, id="rows"),
        pytest.param("meta", {"results": [ROW]}, id="results"),
        pytest.param("meta", {"list": [ROW]}, id="list"),
        pytest.param("meta", {"paging": {"cursors": {}}, "data": [ROW]}, id="data comes last"),
        pytest.param("meta", {"data": [ROW], "summary": {"spend": "99"}}, id="with a summary"),
        pytest.param("meta", {"data": [ROW], "error": None}, id="without an error"),
        pytest.param("google", {"results": [_google()]}, id="search"),
        pytest.param("google", [{"results": [_google()]}], id="searchStream"),
        pytest.param("google", [{"results": []}, {"results": [_google()]}], id="an empty batch"),
        pytest.param(
            "google",
            [{"results": [_google()], "fieldMask": "x"}, {"summaryRow": {"metrics": {}}}],
            id="a batch that is a summary",
        ),
        pytest.param("google", [_google()], id="rows of Google"),
        pytest.param("tiktok", {"code": 0, "data": {"list": [_tiktok()]}}, id="TikTok"),
        pytest.param(
            "tiktok",
            {"message": "OK", "data": {"page_info": {}, "list": [_tiktok()]}, "code": 0},
            id="TikTok in another order",
        ),
        pytest.param("tiktok", [_tiktok()], id="rows of TikTok"),
    ],
)
def test_a_document_of_any_shape_is_read(platform: str, document: object) -> None:
    for indent in (None, 1):
        report = read(json.dumps(document, indent=indent), platform)
        assert (report.refused, report.data, report.rejects) == (None, 1, ())
        assert (report.names, report.total("spend")) == (["Kiln"], {"USD": 1.5})
        assert (report.delimiter, report.header_line) == (None, None)


@pytest.mark.parametrize(
    ("platform", "text"),
    [
        ("meta", "[]"),
        ("meta", '{"data": []}'),
        ("meta", '{"data": [], "paging": {}}'),
        ("meta", '{"rows": []}'),
        ("google", "[]"),
        ("google", '{"results": []}'),
        ("google", '[{"results": []}]'),
        ("google", '[{"results": [], "fieldMask": "campaign.id", "requestId": "x"}]'),
        ("tiktok", '{"code": 0, "message": "OK", "data": {"list": [], "page_info": {}}}'),
        ("tiktok", '{"data": {"list": []}, "code": 0, "message": "OK"}'),
    ],
)
def test_a_document_without_rows_is_an_empty_report(platform: str, text: str) -> None:
    report = read(text, platform, "USD")
    assert (report.refused, report.data, report.daily) == (None, 0, ())


@pytest.mark.parametrize(
    ("platform", "document", "message"),
    [
        pytest.param(
            "meta",
            {"error": {"message": "Session has expired", "type": "OAuthException", "code": 190}},
            "Session has expired",
            id="Meta",
        ),
        pytest.param(
            "google",
            {"error": {"code": 401, "message": "Invalid grant", "status": "UNAUTHENTICATED"}},
            "Invalid grant",
            id="Google",
        ),
        pytest.param(
            "google",
            [{"error": {"code": 403, "message": "No permission", "status": "DENIED"}}],
            "No permission",
            id="Google's stream",
        ),
        pytest.param(
            "google",
            [{"results": [_google()]}, {"error": {"code": 500, "message": "Internal trouble"}}],
            "Internal trouble",
            id="Google's stream, later",
        ),
        pytest.param(
            "tiktok",
            {"code": 40105, "message": "Token revoked", "data": {}},
            "Token revoked",
            id="TikTok",
        ),
        pytest.param(
            "tiktok",
            {"data": {}, "request_id": "x", "message": "Token revoked", "code": 40105},
            "Token revoked",
            id="TikTok in another order",
        ),
        pytest.param("tiktok", {"code": 51001, "message": "Busy", "data": {"list": []}}, "Busy", id="a list"),
        pytest.param("tiktok", {"code": 40002, "message": "Bad dates"}, "Bad dates", id="no data"),
    ],
)
def test_an_error_of_the_platform_is_no_report(platform: str, document: object, message: str) -> None:
    report = read(json.dumps(document), platform, "USD")
    assert report.refused == "api_error"
    assert message in report.sentence


@pytest.mark.parametrize(
    ("document", "more"),
    [
        ({"data": [ROW], "paging": {"next": "https://graph.example/?after=x"}}, True),
        ({"paging": {"next": "https://graph.example/?after=x"}, "data": [ROW]}, True),
        ({"data": [ROW], "paging": {"cursors": {"after": "x"}}}, False),
        ({"data": [ROW], "paging": {"previous": "https://graph.example/"}}, False),
        ({"data": [ROW]}, False),
    ],
)
def test_a_next_page_is_warned_of(document: object, more: bool) -> None:
    report = read(json.dumps(document))
    assert ("more_pages" in report.warnings) is more


def _lines(*rows: object, end: str = "\n") -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + end for row in rows)


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(
    "broken",
    [
        '{"date_start": "2025-09-01", "date_st',
        "{]",
        "[1, 2]",
        "null",
        "5",
        '"text"',
        "{} {}",
        "<html>",
        '{"spend": NaN}',
        "[" * 5000,
    ],
)
def test_a_line_that_is_no_row_is_rejected_alone(broken: str, end: str) -> None:
    rows: list[object] = [
        _meta(date_start=f"2025-09-{n:02d}", date_stop=f"2025-09-{n:02d}") for n in range(1, 20)
    ]
    report = read(_lines(*rows[:7], "", broken, *rows[7:], end=end))
    assert (report.refused, report.data) == (None, 20)
    assert report.rejects == ((9, "malformed_row"),)


def test_newline_delimited_rows_may_be_packed_and_end_without_a_line_end() -> None:
    text = _lines(ROW, _meta(campaign_id="8")).rstrip("\n")
    report = read(gzip.compress(text.encode()))
    assert (report.data, report.total("spend")) == (2, {"USD": 3})


def test_one_line_is_one_row() -> None:
    report = read(_lines(ROW))
    assert (report.data, report.total("spend")) == (1, {"USD": 1.5})


def test_the_line_of_a_row_is_known_only_where_rows_are_lines() -> None:
    rows = [_meta(campaign_id=str(n)) for n in range(19)] + [_meta(spend="x")]
    assert read(_lines(*rows)).rejects == ((20, "invalid_number"),)
    assert read(json.dumps(rows, indent=1)).rejects == ((None, "invalid_number"),)


@pytest.mark.parametrize("odd", [5, None, "text", [1], True])
def test_an_element_that_is_no_row_is_rejected_alone(odd: object) -> None:
    rows = [_meta(campaign_id=str(n)) for n in range(1, 20)]
    report = read(json.dumps([*rows[:9], odd, *rows[9:]]))
    assert (report.refused, report.data, report.codes) == (None, 20, ["malformed_row"])


@pytest.mark.parametrize(
    "key",
    ["campaign_id", "adset_id", "ad_id"],
)
@pytest.mark.parametrize("number", [7002238017842757633, 9007199254740993, 12345678901234567890])
def test_an_id_above_two_to_the_53_keeps_every_digit(key: str, number: int) -> None:
    report = read(json.dumps([_meta(**{key: number})]))
    found = {one.external_id for one in report.campaigns + report.ad_sets + report.ads}
    assert str(number) in found


@pytest.mark.parametrize("number", ["1.20E+17", "1.2025e17", "1e17"])
def test_an_id_in_scientific_notation_is_lost_in_json_too(number: str) -> None:
    text = json.dumps([*[_meta(campaign_id=n) for n in range(9)], _meta(campaign_id="@")])
    assert read(text.replace('"@"', number)).codes == ["id_scientific_notation"]


@pytest.mark.parametrize(
    ("spend", "amount"),
    [
        ("1.005", "1.005"),
        ("0.1", "0.1"),
        ("1e2", "100"),
        ("1.5E-3", "0.0015"),
        ("123456789012.123456", "123456789012.123456"),  # more digits than a float holds
        ("1.234", "1.234"),  # a number of JSON has a point for its decimals
        ("12000", "12000"),
        ("-5", "-5"),
        ("0", "0"),
        ("null", None),
        ('"--"', None),
        ('""', None),
    ],
)
def test_a_number_of_json_is_exact(spend: str, amount: str | None) -> None:
    text = json.dumps([_meta(spend="@")]).replace('"@"', spend)
    report = read(text)
    assert report.rejects == ()
    assert report.column("spend") == [None if amount is None else Decimal(amount)]


@pytest.mark.parametrize("value", [True, [1], "abc", "NaN", "1_0"])
@pytest.mark.parametrize("key", ["spend", "impressions"])
def test_what_is_no_number_is_an_error(value: object, key: str) -> None:
    rows = [_meta(campaign_id=n) for n in range(9)]
    assert read(json.dumps([*rows, _meta(**{key: value})])).codes == ["invalid_number"]


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_json_does_not_have_is_not_read_as_a_number(word: str) -> None:
    rows = [_meta(campaign_id=n) for n in range(9)]
    text = json.dumps([*rows, _meta(spend="@")]).replace('"@"', word)
    report = read(text)
    assert report.refused == "malformed_json" or report.rejected == 1


def _actions(**values: str) -> list[dict[str, str]]:
    kinds = {"pixel": "offsite_conversion.fb_pixel_purchase", "omni": "omni_purchase"}
    return [{"action_type": kinds.get(kind, kind), "value": value} for kind, value in values.items()]


@pytest.mark.parametrize(
    ("actions", "conversions"),
    [
        (_actions(omni="5", purchase="4", pixel="3"), 5),
        (_actions(pixel="3", purchase="4", omni="5"), 5),
        (_actions(purchase="4", pixel="3"), 4),
        (_actions(pixel="3", purchase="4"), 4),
        (_actions(pixel="3"), 3),
        (_actions(link_click="86", omni="2.5"), Decimal("2.5")),
        (_actions(omni="0", purchase="4"), 0),
        (_actions(web_in_store_purchase="9", purchase="4"), 4),
        ([{"action_type": "purchase", "value": "4", "1d_click": "1", "7d_click": "3"}], 4),
        ([{"action_type": "purchase", "value": 4}], 4),
    ],
)
def test_one_family_of_purchases_is_chosen(actions: object, conversions: object) -> None:
    assert read(json.dumps([_meta(actions=actions)])).column("conversions") == [conversions]


def test_the_values_are_those_of_the_same_family() -> None:
    row = _meta(
        actions=_actions(purchase="4", omni="5"),
        action_values=_actions(purchase="40.00", omni="50.25"),
    )
    report = read(json.dumps([row]))
    assert report.column("conversion_value") == [Decimal("50.25")]


@pytest.mark.parametrize(
    ("platform", "row", "spend"),
    [
        ("google", {"metrics": {"costMicros": "1500000"}}, "1.5"),
        ("google", {"metrics": {"cost_micros": 1500000}}, "1.5"),
        ("google", {"metrics.cost_micros": 1500000}, "1.5"),
        ("google", {"metrics.costMicros": "1500001"}, "1.500001"),
        ("google", {"cost_micros": 7}, "0.000007"),
    ],
)
def test_millionths_are_told_by_the_key(platform: str, row: dict[str, Any], spend: str) -> None:
    rest = {"campaign.id": 7, "segments.date": "2025-09-01", "metrics.clicks": 3}
    if "metrics" in row:
        row["metrics"]["clicks"] = 3
        rest = {"campaign": {"id": 7}, "segments": {"date": "2025-09-01"}}  # type: ignore[dict-item]
    report = read(json.dumps([{**rest, **row}]), platform, "USD")
    assert (report.column("spend"), report.column("clicks")) == ([Decimal(spend)], [3])


def test_averages_in_millionths_are_not_stored() -> None:
    row = _google(averageCpc=1234567.5, ctr=0.05, clicks="3")
    report = read(json.dumps([{"results": [row]}]), "google")
    assert (report.rejects, report.column("spend")) == ((), [1.5])


def test_a_key_may_first_appear_on_the_last_row() -> None:
    # the platforms leave out what is zero or unknown
    rows = [_meta(campaign_id=str(n)) for n in range(1, 1000)]
    rows.append(_meta(campaign_id="1000", reach="77", clicks="5", adset_id="9", adset_name="Last"))
    for text in (json.dumps({"data": rows}), _lines(*rows)):
        report = read(text)
        assert (report.column("reach")[-1], report.column("clicks")[-1]) == (77, 5)
        assert [one.name for one in report.ad_sets] == ["Last"]


def test_a_missing_key_is_null() -> None:
    report = read(json.dumps([_meta(spend=...), _meta(campaign_id="8", impressions=...)]))
    assert report.column("spend") == [None, 1.5]
    assert report.column("impressions") == [10, None]


def test_keys_may_be_the_names_of_columns() -> None:
    row = {"Day": "2025-09-01", "Campaign name": "Kiln", "Amount spent (EUR)": 1.5, "Reach": None}
    report = read(json.dumps({"rows": [row]}))
    assert (report.currency_found, report.total("spend")) == (("EUR",), {"EUR": 1.5})
    assert report.column("reach") == [None]


def test_hours_and_devices_of_json_are_breakdowns() -> None:
    rows = [_google(clicks="1") for _ in range(3)]
    for device, row in zip(["MOBILE", "DESKTOP", "TABLET"], rows, strict=True):
        row["segments"]["device"] = device
    report = read(json.dumps([{"results": rows}]), "google")
    assert (report.merged, report.column("clicks")) == (2, [3])


@pytest.mark.parametrize("text", [r"K\u0000ln", r"K\ud83dln", r"\ud83d\ud83d", r"\udc00"])
def test_a_character_that_cannot_be_stored_rejects_its_row(text: str) -> None:
    rows = [_meta(campaign_id=n) for n in range(9)]
    document = json.dumps([*rows, _meta(campaign_name="@")]).replace("@", text)
    report = read(document)
    assert (report.refused, report.codes) == (None, ["invalid_character"])


def test_every_cut_of_a_document_is_refused() -> None:
    document = json.dumps({"data": [_meta(campaign_name="Größe 🔥")]}, ensure_ascii=False).encode()
    refused = {read(document[:size]).refused for size in range(1, len(document))}
    assert refused <= {"malformed_json", "undecodable_text", "unknown_header"}
    assert "malformed_json" in refused


def test_every_cut_of_a_long_document_is_refused() -> None:
    document = json.dumps([_meta(campaign_id=n) for n in range(300)])
    for size in range(len(document) // 2, len(document), 997):
        assert read(document[:size]).refused == "malformed_json"


@pytest.mark.parametrize("tail", ["x", "]", ",{}", "{", " 5"])
def test_what_follows_a_document_breaks_it(tail: str) -> None:
    assert read(json.dumps({"data": [ROW]}) + tail).refused == "malformed_json"


@pytest.mark.parametrize("text", ['{"data": 5}', '{"data": "x"}', '{"a": {"b": 1}}', '{"data": {}}'])
def test_a_document_that_holds_no_rows_is_refused_or_empty(text: str) -> None:
    report = read(text, currency="USD")
    assert report.refused in CODES_OF_FILES or report.daily == ()
