"""A short run of random faults; `scripts/chaos` makes a long one."""

from __future__ import annotations

import os
import random

from tests.faults.chaos import Chaos
from tests.faults.world import World

SECONDS = float(os.environ.get("CHAOS_SECONDS", "25"))
SEED = int(os.environ.get("CHAOS_SEED", "20261127"))


def test_random_faults_leave_what_serial_processing_leaves(world: World) -> None:
    chaos = Chaos(world, random.Random(SEED))
    chaos.run(SECONDS)
    assert chaos.handed_in > 10
    assert sum(chaos.faults.values()) > 3
