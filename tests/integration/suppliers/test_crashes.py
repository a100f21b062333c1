"""A run is killed before each of its steps on the file system, and the next one puts everything right."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.suppliers import durable, journal, settle
from app.suppliers import run as runner
from app.suppliers.reading import job
from tests.integration.suppliers.tree import A, B, Tree, tree

STEPS = ("rename", "replace", "link", "symlink", "mkdir", "unlink", "fsync", "open")
"""Everything that changes a name or makes it durable. Dying after a step is dying before the next one."""

C = b"Code;Name;Price;Stock\nC-1;Old;1;1\n"
REFUSED = b"Code;Name;Stock\nA-1;Bolt;5\n"
WEEK = 7 * 86_400.0


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder in memory: thousands of syncs would take minutes on a disk, and dying loses no page of it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def reads_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of the reading process are steps of the run here, to be killed at as well."""

    def extract(source: Path, *, previous: Path | None = None, **rest: Any) -> Any:
        with tempfile.TemporaryDirectory() as unpacked:
            read = job.Job(
                source=source, previous=previous, room=Path(unpacked), asked_by=os.getpid(), **rest
            )
            return job.read(read)

    monkeypatch.setattr(runner, "extract", extract)


def first(mine: Tree) -> None:
    mine.put(A)


def newer(mine: Tree) -> None:
    mine.put(A, mtime=WEEK)
    assert mine.run().status == "PASS"
    mine.put(B, mtime=2 * WEEK)


def refused(mine: Tree) -> None:
    newer(mine)
    mine.run()
    mine.put(REFUSED, mtime=3 * WEEK)


def many(mine: Tree) -> None:
    mine.put(A, mtime=WEEK)
    assert mine.run().status == "PASS"
    mine.put(A, "again.csv", mtime=3 * WEEK)
    mine.put(C, "passed over.csv", mtime=1.5 * WEEK)
    mine.put(B, mtime=2 * WEEK)


SCENARIOS: list[Callable[[Tree], None]] = [first, newer, refused, many]


def prepared(root: Path, scenario: Callable[[Tree], None]) -> Tree:
    mine = tree(root)
    mine.configure()
    scenario(mine)
    return mine


def killed_run(mine: Tree, step: int) -> bool:
    """A run dies before its step of this number; False when it has fewer steps and came to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            _die_before(step)
            mine.run()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _die_before(step: int) -> None:
    left = [step]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    durable.rename_new = counted(durable.rename_new)


def end_of(mine: Tree) -> dict[str, Any]:
    """All that counts once nothing is left to do: readers' view, where every file is, what was published."""
    while (outcome := mine.run()).status != "NOOP" or outcome.waiting:
        assert outcome.reason_code in (None, "COLUMN_MISSING")
    layout, supplier = mine.layout, mine.supplier
    known = journal.Journal(layout, supplier)
    published = [e.run_id for e in known.entries if e.event == journal.PUBLISHED]
    archived = mine.files(layout.archive(supplier))
    return {
        "facts": [fact["payload"] for fact in mine.published() or []],
        "inbox": mine.files(layout.inbox(supplier)),
        "archived": [name.partition("__")[2] for name in archived],
        "obsolete": mine.files(layout.obsolete(supplier)),
        "duplicates": mine.files(layout.duplicates(supplier)),
        "broken": mine.files(layout.broken(supplier)),
        "published": [mine.manifest(run_id)["input_sha256"] for run_id in published],
        "accepted": sorted(path.name for path in (layout.root / "accepted_runs").rglob("*.json")),
        "states": len(mine.services.states.stored(supplier)),
        "left": [str(p) for p in (layout.root / "runs").glob("*/input/*")],
        "open": known.open_runs(),
    }


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_run_that_is_killed_at_any_step_loses_and_repeats_nothing(
    scenario: Callable[[Tree], None], room: Path
) -> None:
    calm = prepared(room / "calm", scenario)
    before = seen(calm)
    expected = end_of(calm)
    after = seen(calm)
    step = 0
    while True:
        mine = prepared(room / str(step), scenario)
        died = killed_run(mine, step)
        assert seen(mine) in (before, after), step  # a reader sees a whole state, whenever it looks
        assert end_of(mine) == expected, step
        if not died:
            break
        step += 1
    assert step > 30


def seen(mine: Tree) -> Any:
    facts = mine.published()
    return facts and [fact["payload"] for fact in facts]


@pytest.mark.parametrize("seed", range(40))
def test_the_run_that_mends_may_be_killed_as_well(seed: int, room: Path) -> None:
    chance = random.Random(seed)
    scenario = chance.choice(SCENARIOS)
    expected = end_of(prepared(room / "calm", scenario))
    mine = prepared(room / "mine", scenario)
    for _ in range(4):
        killed_run(mine, chance.randrange(60))
    assert end_of(mine) == expected


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """The steps that are taken, with the path that each is about."""
    taken: list[tuple[str, str]] = []

    def recorded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            if name == "fsync":
                handle = args[0] if isinstance(args[0], int) else args[0].fileno()
                taken.append((name, str(Path(f"/proc/self/fd/{handle}").readlink())))
            else:
                taken.append((name, str(args[-1])))
            return result

        return call

    for name in STEPS:
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    yield taken


def test_what_readers_see_is_on_disk_before_they_see_it(room: Path, steps: list[tuple[str, str]]) -> None:
    mine = prepared(room, first)
    steps.clear()
    run_id = str(mine.run().run_id)
    root = mine.layout.root
    store = root / "state_store" / "acme"
    order = [
        ("fsync", str(store / f".{run_id}" / "facts.ndjson")),
        ("fsync", str(store / f".{run_id}")),
        ("rename", str(store / run_id)),
        ("fsync", str(store)),
        ("fsync", str(root / "runs" / run_id / ".manifest.json.next")),
        ("replace", str(root / "runs" / run_id / "manifest.json")),
        ("fsync", str(root / "runs" / run_id)),
        ("replace", str(root / "state" / "current" / "acme")),
        ("fsync", str(root / "state" / "current")),
    ]
    at = -1
    for step in order:
        assert step in steps[at + 1 :], step
        at = steps.index(step, at + 1)


def test_a_state_that_was_never_published_does_not_stay(room: Path) -> None:
    for step in range(200):
        mine = prepared(room / str(step), newer)
        assert killed_run(mine, step)
        if len(mine.services.states.stored("acme")) == 2:
            break
    assert [payload["name"] for payload in seen(mine)] == ["Bolt", "Nut"]
    with mine.services.locks.hold("acme"):
        settle.reconcile(mine.services, "acme", journal.Journal(mine.layout, "acme"))
    assert len(mine.services.states.stored("acme")) == 1
    assert mine.files(mine.layout.inbox("acme")) == ["price.csv"]
