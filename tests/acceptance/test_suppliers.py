"""A supplier drops its list, and the fleet publishes it; an operator asks what became of it."""

from __future__ import annotations

import json
import re
import urllib.request
import uuid
from pathlib import Path

import pytest

from app.suppliers.layout import Layout
from tests.acceptance.conftest import Run, RunningFleet
from tests.integration.suppliers.tree import A, B, Tree, tree
from tests.integration.threads import wait_until


@pytest.fixture
def mine(fleet: RunningFleet) -> Tree:
    """A supplier of the running fleet."""
    layout = Layout(fleet.data / "etl_data" / "raw_v1", Path(fleet.env["HEADWORKS_SUPPLIER_CONFIGS_DIR"]))
    found = tree(layout.root.parent, configs=layout.configs).of(f"acme-{uuid.uuid4().hex[:8]}")
    found.configure()
    return found


def test_the_fleet_publishes_what_is_dropped(mine: Tree, fleet: RunningFleet, run: Run) -> None:
    mine.put(A)
    wait_until(mine.published, seconds=60)
    assert [fact["payload"]["sku"] for fact in mine.published() or []] == ["A-1", "A-2"]
    wait_until(lambda: mine.files(mine.layout.archive(mine.supplier)), seconds=10)
    code, out, _ = run("supplier", "history", mine.supplier)
    assert (code, out.split("\t")[1:3]) == (0, ["PASS", "-"])
    listed = next(
        line for line in run("supplier", "list")[1].splitlines() if line.startswith(f"{mine.supplier}\t")
    )
    assert re.fullmatch(r"acme-\w+\t2\t0\.\d h\tPASS\t-", listed)
    with urllib.request.urlopen(f"{fleet.api.url}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    labels = f'reason="",status="PASS",supplier="{mine.supplier}"'
    assert f"headworks_supplier_runs_total{{{labels}}} 1.0" in metrics


def test_an_operator_works_with_a_suppliers_lists(mine: Tree, run: Run, tmp_path: Path) -> None:
    mine.configure(file_stability_window=3600)  # the fleet leaves it to the operator
    mine.put(A)
    code, out, err = run("supplier", "run", mine.supplier)
    assert (code, json.loads(out)["status"]) == (0, "NOOP") and "still be growing" in err
    mine.configure(delivery="atomic_rename")
    wait_until(mine.published, seconds=60)

    broken = mine.put(b"no list", "broken.csv")
    wait_until(lambda: not broken.exists(), seconds=60)
    wait_until(lambda: mine.files(mine.layout.broken(mine.supplier)), seconds=10)
    file = tmp_path / "next.csv"
    file.write_bytes(B)
    code, out, _ = run("supplier", "check", mine.supplier, str(file))
    assert (code, json.loads(out)["extracted"]["lost_skus"]) == (0, 1)
    mine.put(B, "next.csv")
    wait_until(lambda: "A-3" in str(mine.published()), seconds=60)
    wait_until(lambda: len(mine.files(mine.layout.archive(mine.supplier))) == 2, seconds=10)
    code, out, _ = run("supplier", "diff", mine.supplier)
    assert json.loads(out)["counts"] == {"added": 1, "removed": 1, "price": 1, "qty": 1}
    code, out, _ = run("supplier", "trace", mine.supplier, "A-2")
    assert [one["found"] for one in json.loads(out)] == ["absent", "absent", "good"]
    code, _, err = run("supplier", "requeue", mine.supplier, "broken.csv", "--reason", "the config was wrong")
    assert (code, err) == (0, "broken.csv is in the inbox again\n")
    code, out, _ = run("supplier", "retention", mine.supplier, "--dry-run")
    assert (code, out) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "../etc"), "small letters"),
        (("history", "A B"), "small letters"),
        (("diff", "nobody"), "Nothing of this supplier is published"),
        (("requeue", "nobody", "../../etc/passwd", "--reason", "x"), "no refused file"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(arguments: tuple[str, ...], said: str, run: Run) -> None:
    code, out, err = run("supplier", *arguments)
    assert (code != 0, out) == (True, "") and said in err
