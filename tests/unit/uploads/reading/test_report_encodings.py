"""Encodings: what a file's bytes say, found and reported, never guessed into mojibake."""

from __future__ import annotations

import codecs
import gzip
from decimal import Decimal

import pytest
from report import lines, meta, read, table

# locale → platform, file, campaign of the first row, spend of the file
LOCAL = {
    "es": (
        "google",
        table(
            [
                ["Informe de campañas"],
                ["1 de septiembre de 2025 - 2 de septiembre de 2025"],
                [
                    "Día",
                    "Campaña",
                    "Código de moneda",
                    "Coste",
                    "Impr.",
                    "Clics",
                    "Conversiones",
                ],
                ["2025-09-01", "Otoño – niños «20 €»", "EUR", "1.204,50", "9.380", "12", "1,33"],
                ["2025-09-02", "Otoño – niños «20 €»", "EUR", "95,50", "380", "2", "0,00"],
            ],
            delimiter=";",
            end="\r\n",
        ),
        "Otoño – niños «20 €»",
        "1300",
    ),
    "it": (
        "google",
        table(
            [
                [
                    "Giorno",
                    "Campagna",
                    "Codice valuta",
                    "Costo",
                    "Impr.",
                    "Clic",
                    "Conversioni",
                ],
                ["2025-09-01", "Città d’autunno – più caffè", "EUR", "10,00", "100", "1", "0,50"],
                ["2025-09-02", "Perché no? Già – qualità", "EUR", "20,25", "100", "1", "0,50"],
            ],
            delimiter=";",
        ),
        "Città d’autunno – più caffè",
        "30.25",
    ),
    "nl": (
        "meta",
        table(
            [
                ["Dag", "Campagnenaam", "Weergaven", "Linkklikken", "Besteed bedrag (EUR)"],
                ["2025-09-01", "Café één – Zuid € 5", "1.000", "3", "12,50"],
                ["2025-09-02", "Café één – Zuid € 5", "2.000", "3", "12,50"],
            ],
            delimiter=";",
        ),
        "Café één – Zuid € 5",
        "25",
    ),
    "pt-BR": (
        "meta",
        table(
            [
                ["Dia", "Nome da campanha", "Impressões", "Cliques (todos)", "Valor usado (BRL)"],
                ["2025-09-01", "Promoção de verão – São João", "1.000", "3", "1.012,50"],
                ["2025-09-02", "Promoção de verão – São João", "2.000", "3", "12,50"],
            ],
            delimiter=";",
        ),
        "Promoção de verão – São João",
        "1025",
    ),
    "fr": (
        "meta",
        table(
            [
                [
                    "Jour",
                    "Nom de la campagne",
                    "Nom de l’ensemble de publicités",
                    "Impressions",
                    "Montant dépensé (CHF)",
                ],
                ["2025-09-01", "Cœur d’été", "Été – 18 à 25", "1\xa0000", "1\xa0012,50"],
                ["2025-09-02", "Cœur d’été", "Été – 18 à 25", "2\xa0000", "12,50"],
            ],
            delimiter=";",
        ),
        "Cœur d’été",
        "1025",
    ),
    "de": (
        "meta",
        table(
            [
                [
                    "Tag",
                    "Name der Kampagne",
                    "Indikator für Ergebnisse",
                    "Impressionen",
                    "Ausgegebener Betrag (EUR)",
                ],
                ["01.09.2025", "Frühjahrsmüdigkeit – Größe „M“", "--", "1.000", "1.012,50"],
                ["13.09.2025", "Frühjahrsmüdigkeit – Größe „M“", "--", "2.000", "12,50"],
            ],
            delimiter=";",
        ),
        "Frühjahrsmüdigkeit – Größe „M“",
        "1025",
    ),
    "ru": (
        "google",
        table(
            [
                ["День", "Кампания", "Код валюты", "Расход", "Показы", "Клики"],
                ["01.09.2025", "Осенняя распродажа – «Ромашка»", "RUB", "1\xa0012,50", "1", "1"],
                ["13.09.2025", "Осенняя распродажа – «Ромашка»", "RUB", "12,50", "1", "1"],
            ],
            delimiter=";",
        ),
        "Осенняя распродажа – «Ромашка»",
        "1025",
    ),
    "ja": (
        "google",
        table(
            [
                ["日", "キャンペーン", "通貨コード", "費用", "表示回数", "クリック数"],
                ["2025年9月1日", "秋のセール①～北浜店", "JPY", "1012", "100", "1"],
                ["2025年9月2日", "表示・ソフト能力", "JPY", "13", "100", "1"],
            ],
            end="\r\n",
        ),
        "秋のセール①～北浜店",
        "1025",
    ),
    "zh-CN": (
        "meta",
        table(
            [
                ["报告开始日期", "报告结束日期", "广告系列名称", "展示次数", "已花费金额 (CNY)"],
                ["2025-09-01", "2025-09-01", "春节大促【限时】全场", "100", "1012.00"],
                ["2025-09-02", "2025-09-02", "镕新品上市——开箱", "100", "13.00"],
            ]
        ),
        "春节大促【限时】全场",
        "1025",
    ),
    "zh-TW": (
        "meta",
        table(
            [
                ["Day", "行銷活動名稱", "廣告組合名稱", "曝光次數", "花費金額 (TWD)"],
                ["2025-09-01", "春節優惠【限時】全場", "北部客群", "100", "1012.00"],
                ["2025-09-02", "春節優惠【限時】全場", "北部客群", "100", "13.00"],
            ]
        ),
        "春節優惠【限時】全場",
        "1025",
    ),
    "ko": (
        "google",
        table(
            [
                ["일", "캠페인", "광고그룹", "통화 코드", "비용", "노출수", "클릭수"],
                ["2025-09-01", "가을 세일 – 서울", "검색 1", "KRW", "1012", "100", "1"],
                ["2025-09-02", "가을 세일 – 서울", "검색 1", "KRW", "13", "100", "1"],
            ]
        ),
        "가을 세일 – 서울",
        "1025",
    ),
    "ar": (
        "meta",
        table(
            [
                ["Day", "اسم الحملة", "مرات الظهور", "المبلغ الذي تم إنفاقه (AED)"],
                ["2025-09-01", "حملة الشتاء، الرياض", "100", "1012.50"],
                ["2025-09-02", "حملة الشتاء، الرياض", "100", "12.50"],
            ]
        ),
        "حملة الشتاء، الرياض",
        "1025",
    ),
}
BOMS = {
    "utf-8-sig": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
}


@pytest.mark.parametrize("locale", LOCAL)
@pytest.mark.parametrize(
    ("encoding", "bom"),
    [
        ("utf-8", b""),
        ("utf-8-sig", BOMS["utf-8-sig"]),
        ("utf-16-le", BOMS["utf-16-le"]),  # what Google calls "Excel .csv"
        ("utf-16-be", BOMS["utf-16-be"]),
        ("utf-16-le", b""),  # only the zero bytes tell, and kanji have none
        ("utf-16-be", b""),
    ],
    ids=["utf-8", "utf-8 bom", "utf-16-le bom", "utf-16-be bom", "utf-16-le", "utf-16-be"],
)
def test_a_unicode_file_of_any_language_is_read(locale: str, encoding: str, bom: bytes) -> None:
    platform, text, name, spend = LOCAL[locale]
    report = read(bom + text.encode(encoding.removesuffix("-sig")), platform)
    assert (report.refused, report.encoding) == (None, encoding)
    assert report.names[0] == name
    assert list(report.total("spend").values()) == [Decimal(spend)]


@pytest.mark.parametrize(
    ("locale", "encoding"),
    [
        ("es", "cp1252"),
        ("it", "cp1252"),  # only the names have accents, the headers are ASCII
        ("nl", "cp1252"),
        ("pt-BR", "cp1252"),
        ("fr", "cp1252"),
        ("de", "cp1252"),
        ("ru", "cp1251"),
        ("ja", "cp932"),  # with the vendor's own ① and a name whose second bytes are backslashes
        ("zh-CN", "gb18030"),
    ],
)
def test_a_legacy_encoding_is_detected_and_reported(locale: str, encoding: str) -> None:
    platform, text, name, spend = LOCAL[locale]
    report = read(text.encode(encoding), platform)
    assert (report.refused, report.encoding) == (None, encoding)
    assert report.names[0] == name
    assert list(report.total("spend").values()) == [Decimal(spend)]


@pytest.mark.parametrize(
    ("locale", "encoding"),
    [("zh-TW", "big5"), ("ko", "cp949"), ("ar", "cp1256"), ("ru", "koi8-r")],
)
def test_other_legacy_encodings_are_read_right_or_refused(locale: str, encoding: str) -> None:
    platform, text, name, _ = LOCAL[locale]
    report = read(text.encode(encoding, "replace").replace(b"?", b"-"), platform)
    if report.refused is None:
        assert report.names[0] == name.replace("–", "-")
    else:
        assert report.refused in {"undecodable_text", "unknown_header"}


@pytest.mark.parametrize("locale", ["ja", "de"])
def test_the_encoding_of_a_gzip_is_that_of_the_text_inside(locale: str) -> None:
    platform, text, name, _ = LOCAL[locale]
    encoding = {"ja": "cp932", "de": "cp1252"}[locale]
    report = read(gzip.compress(text.encode(encoding)), platform)
    assert (report.encoding, report.names[0]) == (encoding, name)


def test_plain_ascii_is_reported_as_utf_8() -> None:
    assert read(meta("1.50")).encoding == "utf-8"


@pytest.mark.parametrize(
    ("byte", "name", "encoding"),
    [
        (b"Caf\xe9 du c\x9cur \x96 \x80", "Café du cœur – €", "cp1252"),
        ("Café du cœur – €".encode(), "Café du cœur – €", "utf-8"),
    ],
    ids=["cp1252", "utf-8"],
)
def test_the_first_byte_above_ascii_may_stand_at_the_very_end(byte: bytes, name: str, encoding: str) -> None:
    head = lines("Day,Campaign name,Campaign ID,Impressions,Amount spent (EUR)").encode()
    body = b"".join(b"2025-09-01,Campaign %d,%d,1,1.50\n" % (n, n) for n in range(6000))
    report = read(head + body + b"2025-09-01," + byte + b",99999,1,1.50\n")
    assert (report.refused, report.encoding) == (None, encoding)
    assert report.names[-1] == name


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_a_character_may_lie_across_any_block_of_bytes(shift: int) -> None:
    head = lines("Day,Campaign name,Campaign ID,Impressions,Amount spent (JPY)" + "," * shift)
    name = "北浜" * 300
    body = "".join(f"2025-09-01,{name},{n},1,150\n" for n in range(300))
    report = read(head + body)
    assert (report.refused, report.encoding, report.data) == (None, "utf-8", 300)
    assert set(report.names) == {name}


@pytest.mark.parametrize("at", [1, 3000], ids=["near the top", "behind any sample"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_replacement_character_fails_the_file(at: int, encoding: str) -> None:
    records = [f"2025-09-01,Campaign {n},{n},1,1.50" for n in range(4000)]
    records[at] = f"2025-09-01,Caf\ufffd,{at},1,1.50"
    text = lines("Day,Campaign name,Campaign ID,Impressions,Amount spent (EUR)", *records)
    assert read(text.encode(encoding)).refused == "undecodable_text"


def test_half_a_pair_of_surrogates_fails_the_file() -> None:
    raw = meta("1.50").replace("Kiln", "Kiln\ud83d").encode("utf-16-le", "surrogatepass")
    assert read(codecs.BOM_UTF16_LE + raw).refused == "undecodable_text"


def test_one_zero_byte_does_not_make_a_file_utf_16() -> None:
    text = meta(*["1.50"] * 10).replace("Kiln", "Ki\0ln", 1)
    report = read(text)
    assert (report.encoding, report.rejects) == ("utf-8", ((2, "invalid_character"),))


def test_a_byte_order_mark_inside_of_a_header_is_no_part_of_it() -> None:
    report = read(meta("1.50").replace("Campaign name", "\ufeffCampaign name", 1))
    assert (report.refused, report.names) == (None, ["Kiln"])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_json_document_may_have_a_byte_order_mark(encoding: str) -> None:
    text = (
        '[{"date_start":"2025-09-01","date_stop":"2025-09-01","campaign_name":"Größe 🔥",'
        '"account_currency":"EUR","spend":"1.50"}]'
    )
    report = read(text.encode(encoding))
    assert (report.refused, report.names) == (None, ["Größe 🔥"])
