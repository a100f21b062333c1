"""What a reader answers from, as the loader tells it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from app.refdata.query import image
from app.refdata.query.frames import Changed, Gone, Pulse, Whole
from app.refdata.query.image import Standing, token_of
from app.refdata.query.shelf import EMPTY_SECONDS, PULSE_SECONDS, Shelf
from tests.unit.refdata_query.clocks import Clock

PLACE = ("tenant-a", "COUNTRY")
EPOCH, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shelf(clock: Clock) -> Shelf:
    return Shelf(clock, keep=lambda: (2, 60.0))


def whole(
    folder: Path, version: int, entries: dict[str, object], *, epoch: uuid.UUID = EPOCH, checked: bool = True
) -> Whole:
    path = folder / f"{uuid.uuid4()}.image"
    image.write(
        path, ((token_of(key.encode()), json.dumps(value).encode()) for key, value in entries.items()),
        Standing(epoch, version),
    )  # fmt: skip
    return Whole(*PLACE, epoch, version, str(path), {}, checked)


def changed(since: int, version: int, **entries: object) -> Changed:
    changes: dict[bytes, bytes | None] = {
        token_of(key.encode()): None if value is None else json.dumps(value).encode()
        for key, value in entries.items()
    }
    return Changed(*PLACE, EPOCH, since, version, changes)


def state(shelf: Shelf) -> tuple[int, bytes | None, bytes]:
    found = shelf.get(PLACE)
    assert found is not None
    return found.version, found.find(token_of(b"a")), found.source


def test_changes_follow_on_what_is_there(shelf: Shelf, tmp_path: Path) -> None:
    assert shelf.whole(whole(tmp_path, 5, {"a": 1}))
    assert shelf.change(changed(5, 7, a=2))
    assert state(shelf) == (7, b"2", b"memory")
    assert shelf.change(changed(5, 6, a=9)), "it is known already"
    assert state(shelf) == (7, b"2", b"memory")
    assert not shelf.change(changed(8, 9, a=9)), "something between is missing"
    assert not shelf.change(Changed(*PLACE, OTHER, 7, 8, {}))
    assert not shelf.change(Changed("tenant-b", "COUNTRY", EPOCH, 7, 8, {}))
    assert state(shelf) == (7, b"2", b"memory")


def test_a_loader_that_begins_with_its_files_does_not_set_a_reader_back(shelf: Shelf, tmp_path: Path) -> None:
    shelf.whole(whole(tmp_path, 5, {"a": 1}))
    assert shelf.whole(whole(tmp_path, 4, {"a": 0}, checked=False))
    assert state(shelf) == (5, b"1", b"memory")
    shelf.whole(whole(tmp_path, 6, {"a": 3}, checked=False))
    assert state(shelf) == (6, b"3", b"snapshot")


def test_a_database_that_went_back_is_followed(shelf: Shelf, tmp_path: Path) -> None:
    shelf.whole(whole(tmp_path, 5, {"a": 1}))
    shelf.whole(whole(tmp_path, 2, {"a": 0}, epoch=OTHER))
    assert state(shelf) == (2, b"0", b"memory")
    assert shelf.exactly(PLACE, 5) is None, "versions of another history are not kept"


def test_an_image_that_is_gone_is_asked_for_again(shelf: Shelf, tmp_path: Path) -> None:
    frame = whole(tmp_path, 5, {"a": 1})
    Path(frame.path).unlink()
    assert not shelf.whole(frame)
    assert shelf.get(PLACE) is None


def test_versions_are_kept_for_their_number_or_for_their_time(
    shelf: Shelf, clock: Clock, tmp_path: Path
) -> None:
    shelf.whole(whole(tmp_path, 1, {"a": 1}))
    for version in range(2, 8):
        shelf.change(changed(version - 1, version, a=version))
    assert [version for version in range(9) if shelf.exactly(PLACE, version)] == [1, 2, 3, 4, 5, 6, 7]
    clock.now_at += 61
    shelf.change(changed(7, 8, a=8))
    kept = [version for version in range(9) if shelf.exactly(PLACE, version)]
    assert kept == [6, 7, 8]
    served = shelf.exactly(PLACE, 6)
    assert served is not None and served.find(token_of(b"a")) == b"6"


def test_a_dictionary_that_nobody_wrote_is_soon_asked_for_again(
    shelf: Shelf, clock: Clock, tmp_path: Path
) -> None:
    shelf.whole(whole(tmp_path, 0, {}))
    assert shelf.get(PLACE) is not None
    clock.now_at += EMPTY_SECONDS + 1
    assert shelf.get(PLACE) is None
    shelf.whole(whole(tmp_path, 0, {}))
    shelf.whole(whole(tmp_path, 1, {"a": 1}))
    assert state(shelf) == (1, b"1", b"memory")


def test_what_is_dropped_is_not_answered(shelf: Shelf, tmp_path: Path) -> None:
    shelf.whole(whole(tmp_path, 1, {"a": 1}))
    shelf.drop(Gone(*PLACE))
    assert shelf.get(PLACE) is None
    shelf.whole(whole(tmp_path, 1, {"a": 1}))
    shelf.only({("tenant-b", "COUNTRY")})
    assert shelf.get(PLACE) is None


def test_whatever_changes_begins_another_generation(shelf: Shelf, tmp_path: Path) -> None:
    seen = {shelf.generation}
    for act in (
        lambda: shelf.whole(whole(tmp_path, 1, {"a": 1})), lambda: shelf.change(changed(1, 2, a=2)),
        lambda: shelf.drop(Gone(*PLACE)),
    ):  # fmt: skip
        act()
        assert shelf.generation not in seen
        seen.add(shelf.generation)


# -- the loader


def pulse(**ages: float | None) -> Pulse:
    return Pulse(True, "", ages, {}, None)


def test_a_loader_that_is_silent_leaves_its_dictionaries_to_grow_old(shelf: Shelf, clock: Clock) -> None:
    shelf.hear(pulse(COUNTRY=2.0, NOTES=0.5))
    assert shelf.hears_loader
    clock.now_at += PULSE_SECONDS + 100
    assert not shelf.hears_loader
    assert shelf.ages() == {"COUNTRY": PULSE_SECONDS + 102, "NOTES": PULSE_SECONDS + 100.5}


def test_a_loader_that_begins_anew_makes_nothing_young_before_it_has_compared_it(
    shelf: Shelf, clock: Clock
) -> None:
    shelf.hear(pulse(COUNTRY=1.0))
    for _ in range(3):  # it ends each time before it could ask the database
        clock.now_at += 60
        shelf.is_linked = False
        shelf.hear(pulse(COUNTRY=None))
    assert shelf.ages() == {"COUNTRY": 181.0}
    shelf.hear(pulse(COUNTRY=0.2))
    assert shelf.ages()["COUNTRY"] == pytest.approx(0.2)


def test_what_nobody_has_compared_yet_grows_old_since_it_was_heard_of(shelf: Shelf, clock: Clock) -> None:
    shelf.hear(pulse(COUNTRY=None))
    clock.now_at += 7
    shelf.hear(pulse(COUNTRY=None))
    assert shelf.ages() == {"COUNTRY": 7.0}


def test_a_dictionary_that_is_not_served_any_more_has_no_age(shelf: Shelf) -> None:
    shelf.hear(pulse(COUNTRY=1.0, NOTES=1.0))
    shelf.hear(Pulse(False, "the databases", {}, {}, None))
    assert set(shelf.ages()) == {"COUNTRY", "NOTES"}, "a loader that has just begun knows nothing yet"
    shelf.hear(pulse(NOTES=1.0))
    assert set(shelf.ages()) == {"NOTES"}
