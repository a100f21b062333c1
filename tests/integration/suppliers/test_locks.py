"""One run of a supplier at a time: on one host, and on several that share a bucket."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters import database
from app.suppliers import locks
from app.suppliers.bucket_states import BucketStates
from app.suppliers.locks import Busy, FileLocks, LeaseLocks, LockLost, Locks
from app.suppliers.states import States
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.suppliers.tree import A, B, Tree, tree
from tests.integration.threads import at_once


@pytest.fixture
def db(database_url: str) -> Iterator[database.Database]:  # noqa: F811
    found = database.Database(database_url, name="tests")
    yield found
    found.close()


@pytest.fixture(params=["file", "lease"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Locks:
    if request.param == "file":
        return FileLocks(tree(tmp_path).layout)
    return LeaseLocks(request.getfixturevalue("db"))


def test_a_second_run_is_refused_and_may_come_later(kept: Locks) -> None:
    with kept.hold("acme"):
        with pytest.raises(Busy), kept.hold("acme"):
            raise AssertionError("two hold the lock")
        with kept.hold("other") as check:
            check()
    with kept.hold("acme") as check:
        check()


def test_a_lock_is_free_after_a_run_that_failed(kept: Locks) -> None:
    with pytest.raises(ZeroDivisionError), kept.hold("acme"):
        raise ZeroDivisionError
    with kept.hold("acme"):
        pass


def test_of_many_at_once_one_holds_the_lock(kept: Locks) -> None:
    inside, most, lock = [0], [0], threading.Lock()

    def try_it() -> str:
        try:
            with kept.hold("acme"):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                time.sleep(0.05)
                with lock:
                    inside[0] -= 1
                return "held"
        except Busy:
            return "busy"

    outcomes = at_once(*[try_it] * 8)
    assert most[0] == 1 and "held" in outcomes


def test_the_kernel_takes_a_lock_back_from_a_process_that_dies(tmp_path: Path) -> None:
    mine = tree(tmp_path)
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from app.suppliers.layout import Layout\n"
        "from app.suppliers.locks import FileLocks\n"
        "with FileLocks(Layout(Path(sys.argv[1]), Path(sys.argv[1]))).hold('acme'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(mine.layout.root)], timeout=60)
    assert died.returncode == -9
    with mine.services.locks.hold("acme"):
        pass


def test_a_lease_is_extended_for_as_long_as_the_run_takes(db: database.Database) -> None:
    kept = LeaseLocks(db, lease_seconds=0.6)
    with kept.hold("acme") as check:
        time.sleep(1.5)
        with pytest.raises(Busy), LeaseLocks(db).hold("acme"):
            raise AssertionError("two hold the lock")
        check()


def test_a_run_that_was_away_too_long_is_told_before_it_publishes(
    db: database.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaseLocks, "_beat", lambda *_: None)  # the process was stopped
    asleep = LeaseLocks(db, lease_seconds=0.2)
    with asleep.hold("acme") as check:
        time.sleep(0.4)
        with LeaseLocks(db).hold("acme") as theirs:
            with pytest.raises(LockLost):
                check()
            theirs()
    with LeaseLocks(db).hold("acme") as free:
        free()


def test_the_zombie_of_a_run_publishes_nothing(
    db: database.Database,
    bucket_states: BucketStates,
    on: Callable[[States], Tree],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two hosts, one bucket, one tree: a run is stopped before its switch, and wakes after another's."""
    mine = on(bucket_states)
    first = replace(mine, services=replace(mine.services, locks=LeaseLocks(db, lease_seconds=0.3)))
    second = replace(mine, services=replace(mine.services, locks=LeaseLocks(db)))
    mine.put(A)
    real = BucketStates.switch
    asleep: list[int] = []

    def switch(self: BucketStates, *arguments: object, **named: object) -> None:
        if not asleep:
            asleep.append(1)
            time.sleep(0.6)
            mine.put(B)
            while (outcome := second.run()).status == "NOOP":
                time.sleep(0.05)
            asleep.append(2)
            assert outcome.status == "PASS"
        real(self, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as stopped:
        stopped.setattr(LeaseLocks, "_beat", lambda *_: None)
        stopped.setattr(BucketStates, "switch", switch)
        with pytest.raises(LockLost):
            first.run()
    current = bucket_states.current("acme")
    assert current is not None and asleep == [1, 2]
    assert current.input_filename == "price.csv"
    while (outcome := second.run()).status != "NOOP" or outcome.waiting:
        pass
    assert mine.files(mine.layout.inbox("acme")) == []


def test_two_runs_at_once_publish_once(mine: Tree) -> None:
    mine.put(A)

    def run() -> str:
        try:
            return mine.run().status
        except Busy:
            return "busy"

    outcomes = at_once(*[run] * 4)
    assert outcomes.count("PASS") == 1 and set(outcomes) <= {"PASS", "busy", "NOOP"}
    assert len(mine.services.states.stored("acme")) == 1


def test_twenty_suppliers_are_read_at_the_same_time(tmp_path: Path) -> None:
    all_of_them = [tree(tmp_path).of(f"supplier-{number:02}") for number in range(20)]
    for one in all_of_them:
        one.configure()
        one.put(A)
    outcomes = at_once(*[one.run for one in all_of_them])
    assert [outcome.status for outcome in outcomes] == ["PASS"] * 20
    assert all(len(one.published() or []) == 2 for one in all_of_them)


def test_a_lock_says_who_is_busy_in_a_sentence() -> None:
    assert locks.Busy().code == "supplier_busy" and "at work" in locks.Busy().sentence
