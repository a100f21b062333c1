"""Where the columns of a list are: names, synonyms, what is there twice and what is not there at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.suppliers import config
from app.suppliers.failures import SupplierFailure
from app.suppliers.reading import cells, header
from app.suppliers.reading.sheets import Merge

USUAL: dict[str, Any] = {
    "version": 1, "supplier": "acme", "category_key": "goods", "currency": "RUB",
    "columns": {
        "sku": {"from": ["Артикул", "Код"]}, "name": {"from": "Наименование"}, "price": {"from": "Цена"},
        "qty": {"from": "Остаток"},
    },
    "dq": {"min_fact_count": 1, "max_bad_ratio": 0.1, "allow_empty_snapshot": False},
}  # fmt: skip
NAMES = ["Код", "Наименование", "Цена", "Остаток"]


def rules(*, columns: dict[str, Any] | None = None, **patch: Any) -> config.Config:
    return config.Config.model_validate(
        {**USUAL, **patch, "columns": {**USUAL["columns"], **(columns or {})}}
    )


def numbered(*rows: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    return iter(list(enumerate(rows, start=1)))


def find(*rows: list[Any], merges: list[Merge] | None = None, **patch: Any) -> header.Header:
    return header.find(rules(**patch), numbered(*rows), merges or [])


def refusal(*rows: list[Any], **patch: Any) -> tuple[str, dict[str, Any]]:
    """The code of the refusal, and what it says beside."""
    with pytest.raises(SupplierFailure) as caught:
        find(*rows, **patch)
    assert caught.value.stage == "gate"
    return caught.value.code, caught.value.detail


# -- names


def test_each_field_has_the_column_of_its_name() -> None:
    found = find(["Остаток", "Цена", "Код", "Прочее", "Наименование"])
    assert found.columns == {"sku": 2, "price": 1, "qty": 0, "name": 4}
    assert (found.missing, found.at) == ((), 1)


@pytest.mark.parametrize(
    "written",
    ["ЦЕНА", " цена ", "\u00a0Цена\u202f", "Цена\n", "\tЦенА"],
)
def test_case_and_white_space_around_a_name_do_not_count(written: str) -> None:
    assert find(["Код", "Наименование", written, "Остаток"]).columns["price"] == 2


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("Цена, руб.", "Цена,\nруб."),  # a line break in the cell
        ("Цена, руб.", "ЦЕНА,  \u00a0 руб."),
        ("№ склада", "No склада"),  # NFKC
        ("Price (RUB)", "Ｐｒｉｃｅ\u3000（ＲＵＢ）"),  # full width
        ("Цена й", "Цена и\u0306"),  # a letter and what stands above it
        ("Größe", "GRÖSSE"),
    ],
)
def test_names_are_compared_by_what_they_say_and_not_by_how_it_is_spelled(asked: str, written: str) -> None:
    found = find(["Код", "Имя", written, "Остаток"], columns={"price": {"from": asked}})
    assert found.columns["price"] == 2


@pytest.mark.parametrize("written", ["Цена руб", "Цена.", "Це на", "Цeна"])  # the last with a Latin e
def test_a_name_that_says_something_else_is_another_name(written: str) -> None:
    assert refusal(["Код", "Имя", written, "Остаток"]) == ("COLUMN_MISSING", {"column": "Цена"})


def test_of_synonyms_the_first_that_is_there_counts_wherever_it_stands() -> None:
    assert find(["Код", "Артикул", "Цена", "Остаток"]).columns["sku"] == 1
    assert find(["Код", "Цена", "Остаток"]).columns["sku"] == 0
    turned = {"sku": {"from": ["Код", "Артикул"]}}
    assert find(["Артикул", "Код", "Цена", "Остаток"], columns=turned).columns["sku"] == 1


def test_a_number_in_the_header_is_a_name_as_it_is_shown() -> None:
    assert find(["Код", 2026.0, "Остаток"], columns={"price": {"from": "2026"}}).columns["price"] == 1


# -- what is there twice


def test_a_required_name_that_is_there_twice_is_ambiguous() -> None:
    assert refusal(["Код", "Цена", "Остаток", "цена "]) == ("COLUMN_AMBIGUOUS", {"column": "Цена"})
    store = {"warehouse": {"from": "Склад"}}
    assert refusal([*NAMES, "Склад", "Склад"], columns=store)[0] == "COLUMN_AMBIGUOUS"


def test_a_required_name_twice_does_not_matter_where_another_one_counts() -> None:
    assert find(["Код", "Артикул", "Код", "Цена", "Остаток"]).columns["sku"] == 1


def test_of_an_optional_name_that_is_there_twice_the_left_one_counts() -> None:
    found = find(["Код", "Цена", "Наименование", "Остаток", "Наименование"])
    assert found.columns["name"] == 2
    extra = {"note": {"from": "Прочее"}}
    assert find([*NAMES, "Прочее", "Прочее"], extra=extra).columns["extra.note"] == 4
    stores = {"qty": {"warehouses": [{"from": "Склад", "warehouse": "w", "optional": True}]}}
    assert find(["Код", "Цена", "Склад", "Склад"], columns=stores).columns["qty.0"] == 2


# -- what is not there


def test_optional_names_that_are_not_there_are_told() -> None:
    found = find(["Код", "Цена", "Остаток"], extra={"note": {"from": ["Прочее", "Примечание"]}})
    assert found.missing == ("Наименование", "Прочее")
    assert "name" not in found.columns and "extra.note" not in found.columns


WITH_STORE: dict[str, Any] = {"columns": {"warehouse": {"from": "Склад"}}}  # four required columns


@pytest.mark.parametrize(
    ("row", "patch", "refused"),
    [
        (["Код", "Цена"], {}, ("COLUMN_MISSING", {"column": "Остаток"})),  # two of three
        (["Код"], {}, ("HEADER_NOT_FOUND", {})),  # one of three
        (["Код", "Остаток"], WITH_STORE, ("COLUMN_MISSING", {"column": "Цена"})),  # two of four
        (["Код", "Наименование"], WITH_STORE, ("HEADER_NOT_FOUND", {})),  # one, and one optional
        (["Прочее"], {}, ("HEADER_NOT_FOUND", {})),
        ([], {}, ("HEADER_NOT_FOUND", {})),
    ],
)
def test_a_row_with_half_of_the_names_is_a_header_that_lacks_one(
    row: list[Any], patch: dict[str, Any], refused: tuple[str, dict[str, Any]]
) -> None:
    assert refusal(["Прайс"], row, ["A-1", 5.0], **patch) == refused


def test_what_is_missing_is_told_of_the_row_that_comes_nearest() -> None:
    nearest, as_near = ["Код", "Остаток", "Склад"], ["Цена", "Остаток", "Склад"]
    refused = refusal(["Код", "Цена"], nearest, as_near, ["Цена", "Код"], **WITH_STORE)
    assert refused == ("COLUMN_MISSING", {"column": "Цена"})


@pytest.mark.parametrize("name", ["sku", "price"])
def test_what_a_blank_cell_falls_back_on_must_be_there(name: str) -> None:
    source = USUAL["columns"][name]["from"]
    columns = {name: {"from": source, "fallback": "Запасное"}}
    assert refusal(NAMES, columns=columns) == ("COLUMN_MISSING", {"column": "Запасное"})
    assert find([*NAMES, "Запасное"], columns=columns).columns[f"{name}.fallback"] == 4


def test_currency_and_warehouses_that_are_not_optional_must_be_there() -> None:
    assert refusal(NAMES, columns={"currency": {"from": "Валюта"}})[1] == {"column": "Валюта"}
    stores = [
        {"from": "Север", "warehouse": "n"}, {"from": "Юг", "warehouse": "s", "optional": True},
    ]  # fmt: skip
    columns = {"qty": {"warehouses": stores}}
    assert refusal(["Код", "Цена", "Юг"], columns=columns)[1] == {"column": "Север"}
    assert find(["Код", "Цена", "Север"], columns=columns).missing == ("Юг", "Наименование")


# -- where it is searched


def test_the_first_row_that_has_every_required_name_is_the_header_and_no_more_is_taken() -> None:
    rows = numbered(["Прайс"], ["Код", "Цена"], NAMES, ["A-1"], ["Артикул", "Цена", "Остаток"])
    found = header.find(rules(), rows, [])
    assert (found.at, found.columns["sku"]) == (3, 0)
    assert next(rows) == (4, ["A-1"])


@pytest.mark.parametrize("above", [4, 5])
def test_a_header_is_searched_in_so_many_rows(above: int) -> None:
    rows = [*[["Прайс"]] * above, NAMES]
    if above == 4:
        assert find(*rows, header={"search_rows": 5}).at == 5
    else:
        assert refusal(*rows, header={"search_rows": 5}) == ("HEADER_NOT_FOUND", {})


# -- two rows


TWO: dict[str, Any] = {
    "header": {"rows": 2},
    "columns": {"price": {"from": "Цена / опт"}, "qty": {"from": "Склад / остаток"}},
}


def test_two_rows_are_composed_and_a_blank_or_equal_part_is_told_once() -> None:
    found = find(["Код", "", "Цена", "Склад"], ["код", "Наименование", "опт", "остаток"], **TWO)
    assert found.columns == {"sku": 0, "name": 1, "price": 2, "qty": 3}
    assert (found.at, found.names[0]) == (2, "код")


def test_a_merged_range_has_its_name_in_every_cell_and_no_further() -> None:
    top = ["Код", "Цена", None, "Склад", None, None]
    bottom = [None, "розн", "опт", "резерв", "остаток", "Наименование"]
    assert refusal(top, bottom, **TWO)[0] == "HEADER_NOT_FOUND"
    merges = [(1, 2, 0, 0), (1, 1, 1, 2), (1, 1, 3, 4)]
    assert find(top, bottom, merges=merges, **TWO).columns == {"sku": 0, "price": 2, "qty": 4, "name": 5}
    short = [(1, 2, 0, 0), (1, 1, 1, 2)]
    assert refusal(top, bottom, merges=short, **TWO) == ("COLUMN_MISSING", {"column": "Склад / остаток"})
    elsewhere = [(2, 2, 1, 2), (2, 2, 3, 4)]
    assert refusal(top, bottom, merges=elsewhere, **TWO)[0] == "HEADER_NOT_FOUND"


def test_a_pair_may_begin_in_any_of_the_rows_that_are_searched() -> None:
    pair = ["Код", "Цена", "Склад"], ["", "опт", "остаток"]
    searched = {**TWO, "header": {"rows": 2, "search_rows": 3}}
    assert find(["Прайс"], ["на сегодня"], *pair, **searched).at == 4
    assert refusal(["Прайс"], ["на"], ["сегодня"], *pair, **searched) == ("HEADER_NOT_FOUND", {})


def test_blank_cells_take_the_name_to_their_left_only_where_the_config_says_so() -> None:
    pair = ["Код", "Цена", "", "Склад", ""], ["", "розн", "опт", "резерв", "остаток"]
    assert refusal(*pair, **TWO)[0] == "HEADER_NOT_FOUND"
    filled = {**TWO, "header": {"rows": 2, "fill_right": True}}
    assert find(*pair, **filled).columns == {"sku": 0, "price": 2, "qty": 4}


# -- columns by number


def test_columns_by_number_are_where_the_config_says() -> None:
    columns: dict[str, Any] = {
        "sku": {"from": 3, "fallback": 2}, "name": {"from": 2}, "price": {"from": 1}, "qty": {"from": [5]},
    }  # fmt: skip
    found = header.by_number(rules(columns=columns, header={"rows": 0}, extra={"n": {"from": 16}}))
    assert found.columns == {
        "sku": 2, "sku.fallback": 1, "name": 1, "price": 0, "qty": 4, "extra.n": 15,
    }  # fmt: skip
    assert (found.names, found.at) == ((), 0)


@pytest.mark.parametrize("name", ["sku", "price", "qty"])
def test_a_required_column_that_has_a_name_only_is_missing_where_there_is_no_header(name: str) -> None:
    columns: dict[str, Any] = {"sku": {"from": 1}, "price": {"from": 2}, "qty": {"from": 3}}
    columns[name] = {"from": "Имя"}
    with pytest.raises(SupplierFailure) as caught:
        header.by_number(rules(columns=columns, header={"rows": 0}))
    assert (caught.value.code, caught.value.detail) == ("COLUMN_MISSING", {"column": "Имя"})


def test_a_column_by_number_may_stand_beside_named_ones() -> None:
    assert find(["Код", "без имени", "Остаток"], columns={"price": {"from": 2}}).columns["price"] == 1


def test_a_fault_in_the_header_is_a_blank_name() -> None:
    assert find(["Код", cells.CELL_ERROR, "Цена", "Остаток"]).names[1] == ""
