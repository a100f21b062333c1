"""When a list that could be read is good enough to be published, and what is told of one that is not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from app.suppliers import codes, config, dq
from app.suppliers.extracted import Extracted


def rules(**patch: Any) -> config.Config:
    """Limits that nothing but the patch makes strict."""
    limits = {"min_fact_count": 0, "max_bad_ratio": 1, "allow_empty_snapshot": True}
    return config.Config.model_validate(
        {
            "version": 1, "supplier": "acme", "category_key": "goods", "currency": "RUB",
            "columns": {"sku": {"from": "Code"}, "price": {"from": "Price"}, "qty": {"from": "Stock"}},
            "dq": {**limits, **{k: v for k, v in patch.items() if k in limits}},
            "guards": {"max_sku_drop_ratio": patch.get("drop", {"warn": None})},
        }
    )  # fmt: skip


def read(good: int, bad: int = 0, *, facts: int | None = None, skipped: int = 0, **more: int) -> Extracted:
    """A list with so many rows of each kind, each good one a fact."""
    found = good if facts is None else facts
    return Extracted(
        good_rows=good, bad_rows=bad, skipped_rows=skipped, facts=found, skus=found, content_sha256="",
        facts_sha256="", format="csv", **more,
    )  # fmt: skip


def failed(found: Extracted, **patch: Any) -> tuple[str, ...]:
    verdict = dq.judge(found, rules(**patch))
    assert verdict.passed is (verdict.failed_checks == ())
    return verdict.failed_checks


def test_a_list_that_breaks_no_limit_passes() -> None:
    verdict = dq.judge(read(10), rules(min_fact_count=10, max_bad_ratio=0, allow_empty_snapshot=False))
    assert (verdict.passed, verdict.failed_checks, verdict.warns_of_drop) == (True, (), False)


# -- the share of bad rows


@pytest.mark.parametrize(
    ("good", "bad", "limit", "passes"),
    [
        (9, 1, 0.10, True),  # a tenth is not more than a tenth
        (900, 100, 0.10, True),
        (899, 101, 0.10, False),  # a row more is
        (8, 1, 0.10, False),
        (27, 3, 0.1, True),
        (93, 7, 0.07, True),  # as binary fractions 0.07 and 7/100 are not equal
        (971, 29, 0.029, True),
        (2, 1, 0.3333, False),
        (1, 0, 0, True),
        (10**6, 1, 0, False),
        (1, 99, 1, True),
    ],
)
def test_a_list_fails_with_more_bad_rows_than_agreed(good: int, bad: int, limit: float, passes: bool) -> None:
    assert failed(read(good, bad), max_bad_ratio=limit) == (() if passes else ("BAD_RATIO_EXCEEDED",))


def test_rows_that_are_no_data_do_not_thin_out_the_bad_ones() -> None:
    assert failed(read(9, 2, skipped=1000), max_bad_ratio=0.10) == ("BAD_RATIO_EXCEEDED",)
    assert dq.bad_ratio(read(3, 1, skipped=4)) == Decimal("0.25")


def test_several_facts_of_a_row_do_not_thin_out_the_bad_ones() -> None:
    assert failed(read(8, 1, facts=800), max_bad_ratio=0.10) == ("BAD_RATIO_EXCEEDED",)


def test_no_rows_are_no_bad_ones() -> None:
    assert dq.bad_ratio(read(0, 0, skipped=5)) == 0
    assert failed(read(0, 0), max_bad_ratio=0) == ()


def test_none_but_bad_rows_are_a_ratio_of_one() -> None:
    assert dq.bad_ratio(read(0, 3)) == 1
    assert failed(read(0, 3), max_bad_ratio=0.99) == ("BAD_RATIO_EXCEEDED",)
    assert failed(read(0, 3), max_bad_ratio=1) == ()


# -- how many facts


@pytest.mark.parametrize(("facts", "passes"), [(9, False), (10, True), (11, True)])
def test_a_list_fails_with_fewer_facts_than_agreed(facts: int, passes: bool) -> None:
    assert failed(read(facts), min_fact_count=10) == (() if passes else ("TOO_FEW_FACTS",))


def test_what_counts_are_facts_and_not_rows() -> None:
    assert failed(read(5, facts=10), min_fact_count=10) == ()
    assert failed(read(10, facts=9), min_fact_count=10) == ("TOO_FEW_FACTS",)


@pytest.mark.parametrize("least", [0, 1000])
@pytest.mark.parametrize("allowed", [True, False])
def test_whether_a_list_may_be_empty_is_for_one_setting_to_say(allowed: bool, least: int) -> None:
    checks = failed(read(0), min_fact_count=least, allow_empty_snapshot=allowed)
    assert checks == (() if allowed else ("EMPTY_SNAPSHOT",))


@pytest.mark.parametrize(
    ("found", "patch", "checks"),
    [
        (read(0, 5), {"max_bad_ratio": 0.1, "allow_empty_snapshot": False},
         ("BAD_RATIO_EXCEEDED", "EMPTY_SNAPSHOT")),
        (read(3, 5), {"max_bad_ratio": 0.1, "min_fact_count": 4}, ("BAD_RATIO_EXCEEDED", "TOO_FEW_FACTS")),
    ],
)  # fmt: skip
def test_every_check_that_fails_is_told_the_ratio_first(
    found: Extracted, patch: dict[str, Any], checks: tuple[str, ...]
) -> None:
    assert failed(found, **patch) == checks


# -- goods that are missing

DROP = {"warn": 0.30, "fail": 0.50}


@pytest.mark.parametrize(
    ("lost", "warns", "fails"),
    [(0, False, False), (30, False, False), (31, True, False), (50, True, False), (51, True, True)],
)
def test_goods_that_are_missing_warn_and_then_fail(lost: int, warns: bool, fails: bool) -> None:
    verdict = dq.judge(read(500, previous_skus=100, lost_skus=lost), rules(drop=DROP))
    assert (verdict.warns_of_drop, verdict.failed_checks) == (warns, ("SKU_DROP",) if fails else ())


def test_a_drop_fails_only_where_the_config_says_so_and_warns_as_well_by_default() -> None:
    gone = read(1, previous_skus=1000, lost_skus=1000)
    default = config.Drop()
    assert (str(default.warn), default.fail) == ("0.30", None)
    verdict = dq.judge(gone, rules(drop={}))
    assert (verdict.passed, verdict.warns_of_drop) == (True, True)
    verdict = dq.judge(gone, rules(drop={"warn": None, "fail": 0.5}))
    assert (verdict.failed_checks, verdict.warns_of_drop) == (("SKU_DROP",), False)
    assert dq.judge(gone, rules()).warns_of_drop is False


def test_an_empty_list_that_is_allowed_is_a_drop_all_the_same() -> None:
    verdict = dq.judge(read(0, previous_skus=10, lost_skus=10), rules(drop=DROP))
    assert verdict.failed_checks == ("SKU_DROP",)


def test_without_published_goods_nothing_can_be_missing() -> None:
    strict = rules(drop={"warn": 0, "fail": 0})
    verdict = dq.judge(read(1), strict)  # neither a state nor goods in it
    assert (verdict.passed, verdict.warns_of_drop) == (True, False)
    assert dq.judge(read(1, previous_skus=1, lost_skus=1), strict).failed_checks == ("SKU_DROP",)


def test_the_drop_is_no_reason_where_there_is_another_one() -> None:
    found = read(1, 9, previous_skus=100, lost_skus=99)
    verdict = dq.judge(found, rules(max_bad_ratio=0.1, drop=DROP))
    assert (verdict.failed_checks, verdict.warns_of_drop) == (("BAD_RATIO_EXCEEDED",), True)


def test_every_reason_is_a_code_of_a_list_that_fails_at_dq() -> None:
    for code in ("BAD_RATIO_EXCEEDED", "EMPTY_SNAPSHOT", "TOO_FEW_FACTS", "SKU_DROP"):
        assert codes.of_kind(code, "fail").stage == "dq"
