"""A list that is sent to PostgreSQL is there what it was here."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import hypothesis
import pytest
from hypothesis import strategies

from app.uploads.services import Services
from tests.integration.one_database import database_url, emptied  # noqa: F401

TEXTS = strategies.text(strategies.characters(blacklist_categories=("Cs",), blacklist_characters="\0"))


def echo(services: Services, values: list[Any], array_type: str) -> Any:
    """What the server makes of the list."""
    with services.db.transaction(None) as conn, conn.cursor() as cursor:
        cursor.execute(f"SELECT CAST(%s AS {array_type})", (values,))
        return cursor.fetchone()[0]


@hypothesis.given(values=strategies.lists(strategies.none() | TEXTS))
@hypothesis.settings(
    deadline=None, max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_any_texts_come_back(values: list[str | None], services: Services) -> None:
    assert echo(services, values, "text[]") == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NULL",
        "null",
        'a"b',
        "a\\b",
        "\\",
        '\\"',
        "a,b",
        "{a}",
        "{",
        "'",
        "''; DROP TABLE ads; --",
        "%s",
        " a ",
    ],
)
def test_a_text_is_no_part_of_the_statement(text: str, services: Services) -> None:
    assert echo(services, [text, None, text], "text[]") == [text, None, text]


@pytest.mark.parametrize(
    ("values", "array_type"),
    [
        ([], "text[]"),
        ([], "bigint[]"),
        ([1, None, -(2**63), 2**63 - 1], "bigint[]"),
        ([None], "integer[]"),
        ([[1, 2], [3, None]], "integer[]"),
        ([["a", "b"], ["NULL", None]], "text[]"),
        ([True, False, None], "boolean[]"),
        ([1.5, float("inf"), None], "float8[]"),
        ([Decimal("1.10"), None], "numeric[]"),
        ([date(2025, 5, 1), None], "date[]"),
        ([[date(2025, 5, 1)], [date(2025, 5, 2)]], "date[]"),
        ([UUID(int=1)], "uuid[]"),
    ],
)
def test_lists_of_other_things_come_back(values: list[Any], array_type: str, services: Services) -> None:
    found = echo(services, values, array_type)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_a_list_is_compared_without_being_told_its_type(services: Services) -> None:
    with services.db.transaction(None) as conn, conn.cursor() as cursor:
        cursor.execute(
            "SELECT 'b' = ANY(%s) AS a, 2 = ANY(%s) AS b, 'x' = ANY(%s) AS c", (["a", "b"], [1, 2], [])
        )
        assert cursor.fetchone() == (True, True, False)


def test_a_character_that_cannot_be_stored_is_refused(services: Services) -> None:
    with pytest.raises(ValueError, match="NUL"):
        echo(services, ["a\0b"], "text[]")
