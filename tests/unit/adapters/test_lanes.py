"""A lane beside a list: what is handed out, what is settled, and in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.adapters.topics import Message
from app.adapters.topics.lanes import Lane, take_in_turn


def message(number: int) -> Message:
    return Message("t", 0, f"{number}-0", "k", str(number).encode(), {})


class Lanes(RuleBasedStateMachine):
    """The model: how many messages there are, who is handled, how far the handing out is."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane()
        self.added = 0
        self.next = 0
        self.settled = 0
        self.handled: set[int] = set()

    @rule(count=st.integers(1, 5))
    def add(self, count: int) -> None:
        for number in range(self.added, self.added + count):
            self.lane.add(message(number))
        self.added += count

    @rule(limit=st.integers(1, 5))
    def take(self, limit: int) -> None:
        expected = list(range(self.next, min(self.next + limit, self.added)))
        assert [int(m.value) for m in self.lane.take(limit)] == expected
        self.next += len(expected)

    @rule(numbers=st.lists(st.integers(0, 30), max_size=6))
    def settle(self, numbers: list[int]) -> None:
        self.lane.settle([message(number) for number in numbers])
        self.handled |= {n for n in numbers if self.settled <= n < self.next}
        while self.settled in self.handled:
            self.settled += 1

    @rule(number=st.integers(0, 30))
    def rewind(self, number: int) -> None:
        self.lane.rewind(message(number))
        if self.settled <= number < self.next:
            self.next = number
            self.handled = {n for n in self.handled if n < number}

    @invariant()
    def the_lane_says_the_same(self) -> None:
        assert self.lane.count == self.settled
        assert self.lane.settled == (f"{self.settled - 1}-0" if self.settled else None)
        assert (self.lane.waiting, self.lane.outstanding) == (
            self.added - self.next,
            self.next - self.settled,
        )
        assert self.lane.last == (f"{self.added - 1}-0" if self.added else None)


TestLanes = Lanes.TestCase


@given(waiting=st.lists(st.integers(0, 20), max_size=6), limit=st.integers(1, 40), turn=st.integers(0, 9))
def test_lanes_give_in_turn_and_none_waits_while_another_gives_much_more(
    waiting: list[int], limit: int, turn: int
) -> None:
    lanes = [Lane() for _ in waiting]
    for lane, count in zip(lanes, waiting, strict=True):
        for number in range(count):
            lane.add(message(number))
    taken = take_in_turn(lanes, limit, turn=turn)
    assert len(taken) == min(limit, sum(waiting))
    starved = [lane.outstanding for lane in lanes if lane.waiting]
    if starved:
        # Rounds of equal shares, and a last one of single messages.
        assert max(lane.outstanding for lane in lanes) - min(starved) <= max(1, limit // 2)


def test_each_turn_begins_with_another_lane() -> None:
    lanes = [Lane(), Lane(), Lane()]
    for lane in lanes:
        lane.add(message(0))
    for turn in range(3):
        take_in_turn(lanes, 1, turn=turn)
    assert [lane.outstanding for lane in lanes] == [1, 1, 1]
