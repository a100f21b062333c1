"""The model of many pods, and the page that it is written down in."""

from __future__ import annotations

import pytest

from benchmarks import capacity
from benchmarks.capacity import BEGIN, END, PAGE, Load, Measured


def test_the_page_says_what_the_script_computes() -> None:
    found = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    assert found == capacity.tables(Measured.read())


@pytest.mark.parametrize(
    ("starts", "demand", "capacity_", "most", "ends"),
    [
        ([0.0], 1.0, 2.0, 1.0, [1.0]),  # one job does not get two cores
        ([0.0] * 4, 1.0, 2.0, 1.0, [2.0] * 4),
        ([0.0, 5.0], 1.0, 2.0, 1.0, [1.0, 6.0]),
        ([0.0, 1.0], 2.0, 1.0, 1.0, [3.0, 4.0]),
    ],
)
def test_jobs_share_what_there_is(
    starts: list[float], demand: float, capacity_: float, most: float, ends: list[float]
) -> None:
    assert capacity.shared(starts, demand, capacity_, most) == pytest.approx(ends)


def test_more_pods_load_later_and_bear_fewer_changes() -> None:
    load = Load(database_cpu=0.1, pod_cpu=0.05, sent_bytes=1e5)
    assert capacity.stampede(load, 50)[1] < capacity.stampede(load, 100)[1] < capacity.stampede(load, 400)[1]
    assert capacity.most_changes(load, 400) == pytest.approx(16 / (400 * 0.1))
