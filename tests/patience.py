"""How long a test waits for what has to come: longer than is promised, since the machine does much else."""

from __future__ import annotations

import os
import time

PATIENCE = float(os.environ.get("HEADWORKS_PATIENCE", "8"))
"""What is promised of time is multiplied by this; 1 holds it to its word, on a machine otherwise idle."""


def deadline(seconds: float) -> float:
    """The reading of the monotonic clock until which something promised within these seconds may take."""
    return time.monotonic() + seconds * PATIENCE
