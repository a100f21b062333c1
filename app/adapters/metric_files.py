"""The folder in which processes keep what they count: it does not grow with those that have ended.

Each process has files of its own there, named after its number; pool processes are renewed a hundred times a
day, and a scrape reads every file. What the dead have counted is therefore kept in one file of each kind.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import mmap_dict

from app.adapters.metric_room import Roomy

# Its own types say nothing.
_MmapedDict: Any = mmap_dict.MmapedDict

Key = str
Values = dict[Key, tuple[float, float]]
"""What was counted by its key, and when it was set (gauges alone say so)."""

SUMMED = ("counter", "histogram")
NEWEST = "gauge_mostrecent"

OF_THE_DEAD = 0
"""No process has this number."""

_FILE = re.compile(r"(counter|histogram|gauge_mostrecent)_([0-9]+)\.db")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other thread or process of this machine is in such a block for this folder. OSError."""
    with (folder / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        yield


def merge_the_dead(folder: Path) -> int:
    """What processes that are gone have left is in one file of each kind; how many files went.

    Nobody reads the files meanwhile who has not `alone`. The processes are those of this machine, or of this
    container: numbers mean nothing elsewhere. OSError.
    """
    left: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.db")):
        found = _FILE.fullmatch(path.name)
        if found is not None and int(found[2]) != OF_THE_DEAD and _is_gone(int(found[2])):
            left.setdefault(found[1], []).append(path)
    for kind, paths in left.items():
        _merge(folder / f"{kind}_{OF_THE_DEAD}.db", paths, kind)
    return sum(map(len, left.values()))


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's
        return False
    return False


def _merge(kept: Path, paths: Iterable[Path], kind: str) -> None:
    merged: Values = {}
    for path in (kept, *paths) if kept.exists() else paths:
        for key, value, at, _ in _MmapedDict.read_all_values_from_file(str(path)):
            before, before_at = merged.get(key, (0.0, float("-inf")))
            if kind in SUMMED:
                merged[key] = (before + value, 0.0)
            elif at >= before_at:
                merged[key] = (value, at)
    new = kept.with_suffix(".new")
    new.unlink(missing_ok=True)
    written = Roomy(str(new))
    for key, (value, at) in merged.items():
        written.write_value(key, value, at)
    written.close()
    # A crash between the two counts some things twice, and none of them less: rates show it as one step.
    new.replace(kept)
    for path in paths:
        path.unlink()
