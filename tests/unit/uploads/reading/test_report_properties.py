"""What holds for every file: what was written is read, and only a refusal is ever raised."""

from __future__ import annotations

import csv
import io
import json
import string
import unicodedata
from datetime import date
from decimal import Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report import CODES_OF_FILES, CODES_OF_ROWS, Report, lines, read

PLATFORMS = ["meta", "google", "tiktok"]
SETTINGS = settings(
    deadline=None,
    max_examples=50,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

# what only these scripts have is read back only from encodings that have it
WORDS = {
    "utf-8": "Größe 🔥 مبצע 春节 | , ; \" ' \t\n «ё» = + @".split(" "),
    "utf-8-sig": ["Größe", "🔥", "春节", "|", ",", ";", '"', '""', "\n", "\t", "'", "--", "Total"],
    "utf-16": ["Größe", "🔥", "春节", "|", ",", ";", '"', "\r\n", "\t", "All", "(", "1.5"],
    "utf-16-le": ["Größe", "春节", "|", ",", ";", '"', "\n", "ограничение"],
    "utf-16-be": ["Größe", "春节", "|", ",", ";", '"', "\n", "ограничение"],
    "cp1251": ["Осенняя", "распродажа", "«Ромашка»", "— скидки", ",", "|", ";", '"', "\n"],
    "cp932": ["キャンペーン", "北浜の春", "セール①", "表示能力", ",", "|", ";", '"', "\n"],
}
LOCALES = {
    "cp1251": ("День", "Название кампании", "Показы", "Клики (все)", "Потраченная сумма (RUB)"),
    "cp932": ("日", "キャンペーン名", "インプレッション", "クリック(すべて)", "消化金額 (RUB)"),
}
ENGLISH = ("Day", "Campaign name", "Impressions", "Clicks (all)", "Amount spent (RUB)")
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ")
DATES = {
    "ISO": lambda day: day.isoformat(),
    "D/M/Y": lambda day: f"{day.day}/{day.month}/{day.year}",
    "M/D/Y": lambda day: f"{day.month:02d}/{day.day:02d}/{day.year}",
    "D.M.Y": lambda day: f"{day.day:02d}.{day.month:02d}.{day.year}",
    "name": lambda day: f"{MONTHS[day.month - 1]} {day.day}, {day.year}",
    "kanji": lambda day: f"{day.year}年{day.month}月{day.day}日",
    "midnight": lambda day: f"{day.isoformat()} 00:00:00",
}
MARKS = [(".", ","), (".", ""), (",", "."), (",", " "), (",", ""), (".", "'")]


def _number(value: Decimal, decimal: str, thousands: str) -> str:
    return f"{value:,}".translate({ord(","): thousands, ord("."): decimal})


@st.composite
def _written(draw: st.DrawFn) -> tuple[bytes, list[tuple[object, ...]]]:
    """A file in some dialect, and the rows that stand in it."""
    encoding = draw(st.sampled_from(sorted(WORDS)))
    written_as = draw(st.sampled_from(sorted(DATES)))
    if written_as == "kanji" and encoding == "cp1251":
        written_as = "ISO"
    decimal, thousands = draw(st.sampled_from(MARKS))
    texts = st.lists(st.sampled_from(WORDS[encoding]), min_size=1, max_size=4).map(" ".join)
    if encoding.startswith("utf"):
        alphabet = st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"], exclude_characters="\ufffd")
        texts = texts | st.text(alphabet, min_size=1, max_size=12)
    drawn = draw(
        st.lists(
            st.tuples(
                st.dates(date(2020, 1, 1), date(2026, 11, 1)),
                texts,
                st.integers(0, 10**9),
                st.integers(0, 10**6),
                st.decimals(0, 10**8, places=2),
            ),
            min_size=1,
            max_size=12,
        )
    )
    # one day above 12, and a name that no total or token has
    rows: list[tuple[object, ...]] = []
    for n, (day, text, impressions, clicks, spend) in enumerate(drawn):
        day = day.replace(day=20) if n == 0 else day
        name = unicodedata.normalize("NFC", f"K{n} {text}").strip()
        rows.append((day.isoformat(), name, impressions, clicks, spend))
    records = [LOCALES.get(encoding, ENGLISH)]
    for (day, *_), (iso, name, impressions, clicks, spend) in zip(drawn, rows, strict=True):
        day = date.fromisoformat(str(iso))
        records.append(
            (
                DATES[written_as](day),
                str(name),
                _number(Decimal(str(impressions)), decimal, thousands),
                str(clicks),
                _number(Decimal(str(spend)), decimal, thousands),
            )
        )
    text_file = io.StringIO(newline="")
    csv.writer(
        text_file,
        delimiter=draw(st.sampled_from(",;\t|")),
        lineterminator=draw(st.sampled_from(["\n", "\r\n"])),
        quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
    ).writerows(records)
    above = draw(st.sampled_from(["", "A report\n", "A report\n\n", '"One, two; 2025"\nAll time\n']))
    if not encoding.startswith("utf"):
        above = ""
    return (above + text_file.getvalue()).encode(encoding), rows


@given(_written())
@SETTINGS
def test_what_was_written_is_read(written: tuple[bytes, list[tuple[object, ...]]]) -> None:
    data, rows = written
    report = read(data)
    assert (report.refused, report.rejects) == (None, ())
    read_rows = [
        (
            row.date,
            row.campaign.name if row.campaign else None,
            row.impressions,
            row.clicks,
            row.spend,
        )
        for row in report.daily
    ]
    assert read_rows == rows


def _sane(report: Report) -> None:
    assert report.refused is None or report.refused in CODES_OF_FILES
    assert set(report.codes) <= CODES_OF_ROWS
    assert report.data == report.valid + report.rejected
    assert report.valid >= 0
    assert len(report.daily) == report.valid - report.merged - report.identical
    assert report.refused is None or report.sentence


@given(st.binary(max_size=300), st.sampled_from(PLATFORMS), st.sampled_from([None, "EUR"]))
@SETTINGS
def test_any_bytes_are_refused_or_read(data: bytes, platform: str, currency: str | None) -> None:
    _sane(read(data, platform, currency))


CELLS = [
    *["", "--", " --", "All", "Total", "Total: Account", "Kiln", "Loft", "2025-09-01", "01/02/2025"],
    *["13/09/2025", "1.50", "1,234", "1.234,56", "-5", "(5)", "abc", "7", "1.20E+17", "USD", "US"],
    *['="7"', "c:7", "< 10%", "No data available.", "\0", "18-24", "2025-09-01 09:00:00", "NaN"],
]
COLUMNS = {
    "meta": [
        *["Day", "Campaign name", "Campaign ID", "Ad set name", "Ad ID", "Age", "Reporting starts"],
        *["Reporting ends", "Impressions", "Clicks (all)", "Reach", "Amount spent (USD)"],
        *["Amount spent", "Currency", "Purchases", "Note"],
    ],
    "google": [
        *["Day", "Campaign", "Campaign ID", "Ad group", "Device", "Month", "Cost", "Impr."],
        *["Clicks", "Currency code", "Conversions", "cost_micros", "Headline 1", "Note"],
    ],
    "tiktok": [
        *["Date", "Campaign name", "Ad group name", "Ad ID", "Age", "Cost", "Spend", "Impressions"],
        *["Clicks", "Currency", "Conversions", "stat_time_hour", "Note"],
    ],
}


@st.composite
def _odd_tables(draw: st.DrawFn) -> tuple[str, str]:
    platform = draw(st.sampled_from(PLATFORMS))
    header = draw(st.lists(st.sampled_from(COLUMNS[platform]), min_size=1, max_size=9))
    row = st.lists(st.sampled_from(CELLS), max_size=len(header) + 1)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", delimiter=draw(st.sampled_from(",;\t|")))
    writer.writerow(header)
    writer.writerows(draw(st.lists(row, max_size=8)))
    return platform, text.getvalue()


@given(_odd_tables(), st.sampled_from([None, "EUR"]))
@SETTINGS
def test_any_table_of_known_columns_is_refused_or_read(table: tuple[str, str], currency: str | None) -> None:
    platform, text = table
    _sane(read(text, platform, currency))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(CELLS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=5,
)
KEYS = [
    *["date_start", "date_stop", "campaign_id", "campaign_name", "adset_id", "spend", "actions"],
    *["impressions", "account_currency", "metrics", "segments", "dimensions", "campaign", "age"],
    *["metrics.cost_micros", "stat_time_day", "segments.date", "Day", "Amount spent (USD)"],
]
ROWS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)
WRAPPERS = ["data", "rows", "results", "list", "error", "paging", "code", "message", "summaryRow"]
DOCUMENTS = (
    st.lists(ROWS | VALUES, max_size=4)
    | st.dictionaries(st.sampled_from(WRAPPERS), st.lists(ROWS, max_size=3) | VALUES)
    | st.lists(st.dictionaries(st.sampled_from(WRAPPERS), st.lists(ROWS, max_size=3)), max_size=3)
)


@given(DOCUMENTS, st.sampled_from(PLATFORMS), st.sampled_from([None, "EUR"]))
@SETTINGS
def test_any_document_is_refused_or_read(document: object, platform: str, currency: str | None) -> None:
    _sane(read(json.dumps(document), platform, currency))


@given(st.lists(ROWS | VALUES, min_size=1, max_size=5), st.sampled_from(PLATFORMS))
@SETTINGS
def test_any_lines_of_json_are_refused_or_read(rows: list[object], platform: str) -> None:
    _sane(read("\n".join(map(json.dumps, rows)), platform, "EUR"))


HEADER = "Day,Campaign name,Campaign ID,Age,Impressions,Reach,Amount spent (USD),Purchases"
BODY = [
    "2025-09-01,Kiln,7,18-24,10,9,1.50,1",
    "2025-09-01,Kiln,7,25-34,20,19,2.50,--",
    "2025-09-01,Kiln,7,All,30,25,4.00,1",
    "2025-09-01,Loft,8,18-24,10,9,1.50,1",
    "2025-09-01,Loft,8,18-24,10,9,1.50,1",
    '2025-09-02,"Kiln, ""new""",7,18-24,"1,000",,3.25,',
    "2025-09-02,Loft,8,18-24,5,5,0.10,0",
    "2025-09-02,Loft,8,18-24,6,5,0.20,0",
    "2025-09-03,Loft,8,18-24,ten,5,0.20,0",
    "2025-09-03,Loft,1.20E+17,18-24,10,5,0.20,0",
    ",Loft,8,18-24,10,5,0.20,0",
    ",,,,1111,500,12.65,3",
]
MUTABLE = [
    lines("A report", HEADER, *BODY).encode(),
    b"\xff\xfe" + lines(HEADER, *BODY).replace(",", "\t").encode("utf-16-le"),
    json.dumps([{"date": "2025-09-01", "campaign_id": 7, "spend": 1.5, "impressions": "3"}]).encode(),
]


@given(
    st.sampled_from(MUTABLE),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), st.binary(max_size=4)), max_size=4),
    st.sampled_from(PLATFORMS),
)
@SETTINGS
def test_a_damaged_report_is_refused_or_read(
    data: bytes, damages: list[tuple[float, int, bytes]], platform: str
) -> None:
    for where, cut, put in damages:
        at = int(where * len(data))
        data = data[:at] + put + data[at + cut :]
    _sane(read(data, platform))


@given(st.permutations(BODY))
@SETTINGS
def test_the_order_of_rows_does_not_change_what_they_add_up_to(body: list[str]) -> None:
    def outcome(report: Report) -> tuple[object, ...]:
        return (
            (report.data, report.rejected, report.totals_skipped, report.merged, report.identical),
            sorted(report.codes),
            report.total("spend"),
            report.total("impressions"),
            report.total("reach"),
            report.total("conversions"),
            sorted(report.dates),
            sorted(one.external_id for one in report.campaigns),
            report.totals,
        )

    assert outcome(read(lines(HEADER, *body))) == outcome(read(lines(HEADER, *BODY)))


@given(st.text(string.printable, max_size=60), st.sampled_from(PLATFORMS))
@SETTINGS
def test_any_printable_text_is_refused_or_read(text: str, platform: str) -> None:
    _sane(read(text, platform, "EUR"))
