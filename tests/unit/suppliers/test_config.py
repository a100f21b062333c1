"""Configs: what a supplier's file may say, and what it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.suppliers import config
from app.suppliers.failures import SupplierFailure

GOOD: dict[str, Any] = {
    "version": 1,
    "supplier": "acme",
    "category_key": "goods",
    "currency": "RUB",
    "columns": {"sku": {"from": "Code"}, "price": {"from": "Price"}, "qty": {"from": "Stock"}},
    "dq": {"min_fact_count": 1, "max_bad_ratio": 0.1, "allow_empty_snapshot": False},
}


def load(folder: Path, content: Any, supplier: str = "acme") -> config.Config:
    path = folder / f"{supplier}.yaml"
    text = content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True)
    path.write_text(text, encoding="utf-8")
    return config.load(path, supplier)


def refused(folder: Path, content: Any) -> str:
    with pytest.raises(SupplierFailure) as caught:
        load(folder, content)
    assert caught.value.stage == "config"
    return caught.value.code


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    found = load(tmp_path, GOOD)
    assert (found.file_stability_window, found.older_input, found.drift_alert_after) == (30, "obsolete", 3)
    assert (found.exponent, found.key, found.duplicates) == (2, ("sku",), "bad")
    assert (
        str(found.guards.max_sku_drop_ratio.warn) == "0.30" and found.guards.max_sku_drop_ratio.fail is None
    )
    assert str(found.dq.max_bad_ratio) == "0.1"  # a tenth, not the binary number beside it
    assert len(found.sha256) == 64


@pytest.mark.parametrize("missing", ["min_fact_count", "max_bad_ratio", "allow_empty_snapshot"])
def test_without_every_limit_nothing_is_read(missing: str, tmp_path: Path) -> None:
    limits = {name: value for name, value in GOOD["dq"].items() if name != missing}
    assert refused(tmp_path, {**GOOD, "dq": limits}) == "CONFIG_DQ_MISSING"
    with pytest.raises(SupplierFailure) as caught:
        config.load(tmp_path / "nobody.yaml", "nobody")
    assert caught.value.code == "CONFIG_DQ_MISSING"


@pytest.mark.parametrize(
    "patch",
    [
        {"supplier": "other"},
        {"version": 2},
        {"currency": "rubles"},
        {"colums": {}},
        {"category_key": None, "sheets": []},
        {"sheets": [{"name": "A", "category_key": "a"}]},  # and a category of all
        {"key": ["warehouse"]},
        {"key": ["sku", "warehouse"]},  # no column names one
        {"duplicates": "sum", "columns": {**GOOD["columns"], "warehouse": {"from": "Store"}}},  # of which?
        {"columns": {**GOOD["columns"], "qty": {"from": "Stock", "fixed": 1}}},
        {"columns": {**GOOD["columns"], "qty": {"from": "Stock", "words": {"есть": 1, "ЕСТЬ ": 2}}}},
        {"extra": {"sku": {"from": "Other"}}},
        {"extra": {"price": {"from": "Retail", "type": "money"}}},  # it would be the price
        {"extra": {"rrp": {"from": "A", "type": "money"}, "rrp_minor": {"from": "B"}}},
        {"dq": {**GOOD["dq"], "max_bad_ratio": 1.5}},
        {"dq": {**GOOD["dq"], "min_fact_count": "1"}},
        {"file_stability_window": -1},
        {"input": {"encoding": "klingon"}},
        {"sha256": "0" * 64},
    ],
    ids=str,
)
def test_what_breaks_the_rules_is_refused(patch: dict[str, Any], tmp_path: Path) -> None:
    assert refused(tmp_path, {**GOOD, **patch}) == "CONFIG_INVALID"


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "key: [unclosed",
        "a: 1\na: 2",
        "a: &x [1, 1]\nb: [*x, *x]",
        "!!python/object/apply:os.getcwd []",
        "[" * 20_000,
        "a: " + "x" * config.MAX_BYTES,
        "\udcff".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
    ids=["a list", "broken", "a key twice", "aliases", "a tag", "deep", "large", "no mapping"],
)
def test_what_is_no_plain_mapping_is_refused(text: str, tmp_path: Path) -> None:
    assert refused(tmp_path, text) == "CONFIG_INVALID"
