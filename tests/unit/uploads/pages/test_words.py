"""Every code that a person may meet has words for them."""

from __future__ import annotations

import csv
import io
import re
import uuid
from typing import Any

import pytest

from app.uploads import codes, guess, intake, states
from app.uploads.pages import blank, figures, words
from app.uploads.reading import aliases, encodings, header


def test_every_code_state_and_platform_has_words() -> None:
    assert set(words.ROWS) == set(codes.ROW_CODES)
    assert set(words.FILES) == set(codes.FILE_CODES)
    assert set(words.WARNING_TITLES) == set(codes.WARNINGS)
    assert set(words.STATES) == set(states.UPLOAD.states)
    assert set(words.MOVES) == {edge.target for edge in states.UPLOAD.edges if not edge.manual}
    assert set(words.PLATFORMS) == set(aliases.table())
    assert set(words.SOURCES) == set(intake.SOURCES)
    assert {*encodings.LEGACY, *(name for _, name in encodings.BOMS), "utf-8"} <= set(words.ENCODINGS)
    assert set(words.DELIMITERS) == set(header.DELIMITERS)


def test_every_column_that_is_stored_has_words_and_exists() -> None:
    fields = {alias.field for names in aliases.table().values() for alias in names.values()}
    stored = {*aliases.METRIC_OF, *aliases.ENTITY_FIELDS, *aliases.DATE_FIELDS, "currency", "breakdown"}
    assert stored <= set(words.FIELDS) <= fields


@pytest.mark.parametrize("advice", [*words.ROWS.values(), *words.FILES.values()], ids=lambda a: a.title)
def test_words_are_short_and_say_what_to_do(advice: words.Advice) -> None:
    assert len(advice.title) <= 45
    assert advice.title[0].isupper() and not advice.title.endswith(".")
    assert "_" not in advice.todo and len(advice.todo) <= 170
    if advice.todo:
        assert advice.todo.endswith(".")


def test_what_to_do_is_said_by_the_words_or_by_the_codes_own_sentence() -> None:
    """A sentence of a file's code gives a reason first, and then what to do."""
    assert all(advice.todo for advice in words.ROWS.values())
    for code, advice in words.FILES.items():
        sentence = codes.FILE_CODES[code]
        assert advice.todo or re.search(r"[.:] [A-Z]|\{advice\}|Remove|Export|Upload", sentence), code


def test_a_code_without_words_is_shown_all_the_same() -> None:
    assert words.row("brand_new_code").title == "Brand new code"
    assert words.file("brand_new_code").todo


@pytest.mark.parametrize("platform", words.PLATFORMS)
def test_a_template_has_known_columns_and_is_recognised(platform: str) -> None:
    content = blank.content(platform)
    found = header.find(platform, content.removeprefix("\ufeff").splitlines(keepends=True))
    assert found is not None and found.line == 2
    assert all(column.field for column in found.columns)
    assert {"metric_date", "campaign_name", "campaign_id", "spend", "impressions", "clicks", "currency"} <= {
        column.field for column in found.columns
    }
    assert guess.guess(content.encode()).platform == platform
    explanation = next(csv.reader(io.StringIO(content.removeprefix("\ufeff"))))
    assert len(explanation) == 1 and not explanation[0].startswith(("=", "+", "-", "@"))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.number(1234567), "1,234,567"),
        (figures.number(None), "–"),
        (figures.amount("1234.505", "EUR"), "1,234.51"),
        (figures.amount("1234.5", "JPY"), "1,235"),
        (figures.exact("31311.9"), "31,311.90"),
        (figures.exact("0.123456"), "0.123456"),
        (figures.exact("1E+3"), "1,000.00"),
        (figures.size(0), "0 bytes"),
        (figures.size(5 * 2**20), "5.0 MB"),
        (figures.duration(0.2), "about 1 s"),
        (figures.duration(600), "about 10 min"),
        (figures.short(uuid.UUID(int=7)), "00000000…0007"),
        (figures.percent(1, 0), "–"),
        (figures.lines(1, "row", "rows"), "1 row"),
    ],
)
def test_figures_are_readable(shown: Any, expected: str) -> None:
    assert shown == expected
