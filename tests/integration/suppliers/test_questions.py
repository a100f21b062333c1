"""What can be asked of a supplier's lists, and what goes when its time is over."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.adapters import metrics
from app.kernel import errors
from app.suppliers import check, diff, history, retention, trace, watch
from app.suppliers.journal import Journal
from app.suppliers.locks import Busy
from tests.integration.suppliers.tree import CONFIG, HEADER, A, B, Tree, tree

SPOILED = "\n".join(
    [HEADER, "A-1;Bolt;11;4", *(f"B-{n};Pin;1;1" for n in range(12)), "A-2;Nut;free;1"]
).encode()


def later(mine: Tree, **delta: float) -> None:
    mine.services.clock.ahead += timedelta(**delta)  # type: ignore[attr-defined]


def published(mine: Tree, *contents: bytes) -> list[str]:
    """The runs that published these lists, one after the other."""
    runs = []
    for content in contents:
        mine.put(content)
        outcome = mine.run()
        assert outcome.status == "PASS", outcome
        runs.append(str(outcome.run_id))
    return runs


def test_two_states_are_compared_by_goods(mine: Tree) -> None:
    first, second = published(mine, A, B)
    found = diff.diff(mine.services, "acme")
    assert (found.before, found.after) == (first, second)
    assert found.counts == {"added": 1, "removed": 1, "price": 1, "qty": 1}
    assert found.first["price"] == [diff.Change("A-1", None, (1050, 1100), (5, 4))]
    assert found.first["added"] == [diff.Change("A-3", None, (None, 700), (None, 9))]
    assert found.first["removed"] == [diff.Change("A-2", None, (300, None), (0, None))]
    back = diff.diff(mine.services, "acme", second, first)
    assert (back.counts["added"], back.first["added"][0].sku) == (1, "A-2")


def test_a_first_state_and_another_suppliers_runs_are_not_compared(mine: Tree) -> None:
    (first,) = published(mine, A)
    for before, after in ((None, None), (None, "other_20260101T000000Z_000000")):
        with pytest.raises(errors.NotFound):
            diff.diff(mine.services, "acme", before, after)
    for run_id in ("../../etc", "acme_2026", f"{first}/x"):
        with pytest.raises(errors.NotFound):
            diff.diff(mine.services, "acme", run_id, first)


def test_why_something_is_not_for_sale(mine: Tree) -> None:
    first, second = published(mine, A, SPOILED)
    found = trace.trace(mine.services, "acme", "A-2", limit=10)
    assert [(one.run_id, one.published, one.found, one.row_number, one.reason_code) for one in found] == [
        (second, True, "bad", 15, "PRICE_UNPARSABLE"),
        (first, False, "good", 3, None),
    ]
    assert [one.found for one in trace.trace(mine.services, "acme", "Z-9", limit=1)] == ["absent"]
    (bad,) = history.bad_rows(mine.services, second)
    assert (bad["sku"], bad["raw"]) == ("A-2", "free") and "number" in bad["supplier_action"]


def test_what_is_passed_over_is_traced_as_well(mine: Tree) -> None:
    mine.configure(duplicates="first", columns={"price": {"from": "Price", "on_request": ["ask"]}})
    rows = [HEADER, "A-1;Bolt;1;1", "A-1;Bolt;2;1", "A-2;Nut;ask;1"]
    published(mine, "\n".join(rows).encode())
    for sku, code in (("A-1", "DUPLICATE_ROW"), ("A-2", "PRICE_ON_REQUEST")):
        found = trace.trace(mine.services, "acme", sku, limit=1)
        assert [one.reason_code for one in found if one.found == "skipped"] == [code]


def test_a_check_says_what_a_run_would_and_changes_nothing(mine: Tree, tmp_path: Path) -> None:
    published(mine, A)
    before = sorted(str(path) for path in mine.layout.root.rglob("*"))
    file = tmp_path / "list.csv"
    file.write_bytes(SPOILED)
    found = check.check(mine.services, "acme", file)
    assert (found.status, found.extracted and found.extracted.lost_skus) == ("PASS", 1)
    assert [row["reason_code"] for row in found.bad_rows] == ["PRICE_UNPARSABLE"]
    file.write_bytes(b"nothing of the kind")
    refused = check.check(mine.services, "acme", file)
    assert (refused.status, refused.reason_code, refused.fail_stage) == ("FAIL", "HEADER_NOT_FOUND", "gate")
    assert sorted(str(path) for path in mine.layout.root.rglob("*")) == before


def test_the_overview_tells_what_is_published_and_how_the_last_list_fared(mine: Tree) -> None:
    (first,) = published(mine, A)
    mine.put(b"no list")
    later(mine, seconds=90)
    assert mine.run().status == "FAIL"
    found = history.overview(mine.services, "acme")
    assert found.age.current is not None and found.age.current.run_id == first
    assert found.age.seconds is not None and 80 < found.age.seconds < 200
    assert found.last is not None and found.last.reason_code == "HEADER_NOT_FOUND"


@pytest.mark.parametrize(
    ("guards", "hours", "too_old"), [({}, 47, 0), ({}, 49, 1), ({"max_state_age_hours": None}, 9000, 0)]
)
def test_a_state_is_too_old_when_its_config_says_so(
    guards: dict[str, Any], hours: int, too_old: int, mine: Tree
) -> None:
    published(mine, A)
    config = {**CONFIG, "guards": guards}
    mine.write_config(config)
    later(mine, seconds=hours * 3600)
    watch.measure(mine.services)
    assert history.age(mine.services, "acme").too_old == bool(too_old)
    assert metrics.supplier_state_too_old.labels("acme")._value.get() == too_old


@pytest.mark.parametrize(("lists", "refused"), [([A], 0), ([A, b"no list"], 1), ([b"no list", A], 0)])
def test_the_metrics_know_whose_last_list_was_refused(
    lists: list[bytes], refused: int, mine: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    gauge = metrics.supplier_last_list_refused.labels("acme")
    for content in lists:
        mine.put(content)
        later(mine, seconds=90)
        watch.observed(mine.services, "acme")
    assert gauge._value.get() == refused
    # a process that has seen none of its runs asks once
    monkeypatch.setattr(watch, "_told", set())
    gauge.set(7)
    watch.measure(mine.services)
    assert gauge._value.get() == refused
    gauge.set(7)
    watch.measure(mine.services)
    assert gauge._value.get() == 7


# -- what goes


def left(mine: Tree) -> dict[str, int]:
    root = mine.layout.root
    return {
        "duplicates": len(mine.files(mine.layout.duplicates("acme"))),
        "broken": len(mine.files(mine.layout.broken("acme"))),
        "archive": len(mine.files(mine.layout.archive("acme"))),
        "facts": len(list((root / "runs").glob("*/facts.ndjson"))),
        "diag": len(list((root / "runs").glob("*/diag"))),
        "manifests": len(list((root / "runs").glob("*/manifest.json"))),
        "accepted": len(list((root / "accepted_runs").rglob("*.json"))),
        "states": len(mine.services.states.stored("acme")),
    }


def test_everything_stays_for_its_time_and_then_goes(mine: Tree) -> None:
    published(mine, A, B)
    mine.put(A, "again.csv")
    mine.run()
    mine.put(b"no list", "bad.csv")
    mine.run()
    full = {
        "duplicates": 1, "broken": 1, "archive": 2, "facts": 2, "diag": 2, "manifests": 3, "accepted": 2,
        "states": 2,
    }  # fmt: skip
    assert left(mine) == full
    steps = (
        ({"hours": 11}, {}),
        ({"hours": 2}, {"states": 1}),
        ({"days": 7}, {"diag": 1}),  # the current state's run is whole
        ({"days": 23}, {"duplicates": 0, "broken": 0, "archive": 0, "facts": 1}),
        ({"days": 340}, {"manifests": 1, "accepted": 1}),
    )
    expected = dict(full)
    for wait, changed in steps:
        later(mine, **wait)
        named = retention.expire(mine.services, "acme", dry_run=True)
        assert left(mine) == expected
        assert bool(named) == bool(changed)
        retention.expire(mine.services, "acme")
        expected |= changed
        assert left(mine) == expected, wait
    assert [fact["payload"]["sku"] for fact in mine.published() or []] == ["A-1", "A-3"]
    mine.put(B, "again.csv")
    assert mine.run().status == "NOOP"  # what is current stays accepted, however old it is


def test_nothing_goes_while_a_run_is_at_work(mine: Tree) -> None:
    published(mine, A)
    with mine.services.locks.hold("acme"), pytest.raises(Busy):
        retention.expire(mine.services, "acme")
    retention.expire_all(mine.services)


def test_a_state_that_was_replaced_just_now_is_kept_for_its_readers(mine: Tree) -> None:
    published(mine, A)
    later(mine, days=3)
    published(mine, B)
    retention.expire(mine.services, "acme")
    assert left(mine)["states"] == 2


def test_the_journal_forgets_what_is_older_than_an_accepted_list(mine: Tree) -> None:
    published(mine, A)
    later(mine, days=400)
    published(mine, B)
    retention.expire(mine.services, "acme")
    assert len({entry.run_id for entry in Journal(mine.layout, "acme").entries}) == 1


# -- the fleet's side


class Hints:
    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, task: str, *, within: float = 0.0) -> None:
        self.sent.append(task)


def test_a_hint_goes_out_for_each_supplier_that_waits(mine: Tree) -> None:
    other, idle = mine.of("other"), mine.of("idle")
    for one in (other, idle):
        one.configure()
    mine.put(A)
    other.put(A)
    (idle.layout.inbox("idle")).mkdir(parents=True)
    (idle.layout.inbox("idle") / "folder").mkdir()
    hints = Hints()
    watch.scan(mine.services, hints)
    assert hints.sent == ["suppliers.run"] * 2
    assert watch.waiting(mine.services) == ["acme", "other"]
    with mine.services.locks.hold("acme"):  # the next one is taken, whatever the first one does
        outcome = watch.run_next(mine.services)
    assert outcome is not None and str(outcome.run_id).startswith("other_")
    outcome = watch.run_next(mine.services)
    assert outcome is not None and str(outcome.run_id).startswith("acme_")
    assert watch.run_next(mine.services) is None


def test_a_list_over_which_runs_die_is_given_up(mine: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.suppliers import run as runner

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    mine.put(A)
    with monkeypatch.context() as deadly:
        deadly.setattr(runner, "extract", dies)
        for _ in range(runner.MOST_INTERRUPTIONS):
            with pytest.raises(KeyboardInterrupt):
                while mine.run().status == "NOOP":
                    pass
    while (outcome := mine.run()).status == "NOOP":
        pass
    assert (outcome.status, outcome.reason_code) == ("FAIL", "READER_CRASHED")
    assert mine.files(mine.layout.broken("acme")) == ["price.csv"]


# -- the guide


def test_the_list_of_the_guide_comes_to_what_the_guide_says(tmp_path: Path) -> None:
    samples = Path(__file__).parents[3] / "docs" / "samples"
    theirs = tree(tmp_path, configs=samples).of("tyres")
    found = check.check(theirs.services, "tyres", samples / "tyres.csv")
    assert (found.status, found.failed_checks) == ("PASS", ())
    assert found.extracted is not None
    assert (found.extracted.facts, found.extracted.bad_rows, found.extracted.skipped_rows) == (3, 1, 3)
    assert [(row["reason_code"], row["row_number"]) for row in found.bad_rows] == [("PRICE_EMPTY", 9)]
    theirs.put((samples / "tyres.csv").read_bytes())
    later(theirs, seconds=31)
    assert theirs.run().status == "PASS"
    first = (theirs.published() or [])[0]["payload"]
    assert (first["sku"], first["price_minor"], first["qty"], first["qty_min"]) == (
        "00025365",
        549000,
        40,
        True,
    )


def test_the_ids_of_runs_tell_their_order_whatever_the_clock_says(mine: Tree) -> None:
    rows = [f"{HEADER}\nA-{number};Bolt;1;1\n".encode() for number in range(4)]
    later(mine, days=1)
    made = published(mine, *rows[:3])
    later(mine, days=-1)
    made += published(mine, rows[3])
    assert made == sorted(made) and len(set(made)) == 4
    assert list(mine.layout.runs("acme")) == made[::-1]
