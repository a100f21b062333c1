"""Parts of one upload side by side: committed in order, one made at a time, and nothing behind an error."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Iterator

import pytest

from app.uploads import lanes
from app.uploads.lanes import Turn, side_by_side

PARTS = 40
upload = contextvars.ContextVar("upload", default="none")


def test_parts_are_committed_in_their_order_whichever_is_ready_first() -> None:
    turn, committed = Turn(0), []
    second_is_ready = threading.Event()

    def commit(part: int) -> int:
        if part == 0:
            assert second_is_ready.wait(10)
        elif part == 1:
            second_is_ready.set()
        turn.wait_for(part)
        committed.append(part)
        return part + 1

    side_by_side(range(PARTS), commit, turn)
    assert (committed, turn.reached) == (list(range(PARTS)), PARTS)


def test_parts_are_made_by_one_lane_at_a_time_and_no_sooner_than_they_are_wanted() -> None:
    turn, making, on_their_way = Turn(0), threading.Lock(), 0

    def parts() -> Iterator[int]:
        nonlocal on_their_way
        for part in range(PARTS):
            assert making.acquire(blocking=False)
            on_their_way += 1
            assert on_their_way <= lanes.LANES
            time.sleep(0.002)  # the other lane wants the next one meanwhile
            making.release()
            yield part

    def commit(part: int) -> int:
        nonlocal on_their_way
        turn.wait_for(part)
        on_their_way -= 1
        return part + 1

    side_by_side(parts(), commit, turn)
    assert turn.reached == PARTS


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_nothing_behind_an_error_is_committed_and_everything_before_is(kind: type[BaseException]) -> None:
    turn, committed = Turn(0), []

    def commit(part: int) -> int:
        if part == 7:
            raise kind
        turn.wait_for(part)
        committed.append(part)
        return part + 1

    with pytest.raises(kind):
        side_by_side(range(PARTS), commit, turn)
    assert (committed, turn.reached) == (list(range(7)), 7)


def test_an_error_while_a_part_is_made_lets_those_before_it_be_committed() -> None:
    turn = Turn(0)

    def parts() -> Iterator[int]:
        yield from range(5)
        raise ValueError

    def commit(part: int) -> int:
        turn.wait_for(part)
        return part + 1

    with pytest.raises(ValueError):
        side_by_side(parts(), commit, turn)
    assert turn.reached == 5


def test_each_lane_knows_what_its_caller_knows() -> None:
    turn, seen = Turn(0), set()

    def commit(part: int) -> int:
        seen.add(upload.get())
        turn.wait_for(part)
        return part + 1

    token = upload.set("ours")
    side_by_side(range(4), commit, turn)
    upload.reset(token)
    assert seen == {"ours"}
