"""Reading a list in a process of its own: whatever is in the file, this process lives on."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pydantic

from app.kernel import errors
from app.suppliers.config import Config
from app.suppliers.extracted import Extracted
from app.suppliers.failures import SupplierFailure
from app.suppliers.reading.job import Job
from app.suppliers.reading.limits import Limits

ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHASHSEED")
"""All that the reading process is told: no address, no password."""

MOST_TRACE_BYTES = 64 * 1024


def extract(
    source: Path, *, into: Path, config: Config, run_id: str, previous: Path | None = None,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
) -> Extracted:  # fmt: skip
    """`facts.ndjson`, `bad.ndjson` and `stats.json` of the list stand in the folder, synced.

    `previous` are the facts that are published now. SupplierFailure when the list cannot be read, also
    when the reading process dies, takes too long or too much memory.
    """
    with tempfile.TemporaryDirectory(dir=into, prefix=".room-") as room, tempfile.TemporaryFile() as said:
        job = Job(source, into, _plain(config), run_id, previous, limits, Path(room), os.getpid())
        try:
            return _read(job, said)
        except SupplierFailure as failure:
            _discard(into)
            if failure.code == "READER_CRASHED":
                _keep(said, into)
            raise


def _plain(found: Any) -> Any:
    """The same values without the library that has checked them: starting it takes longer than most lists."""
    if isinstance(found, pydantic.BaseModel):
        return SimpleNamespace(**{name: _plain(getattr(found, name)) for name in type(found).model_fields})
    if isinstance(found, dict):
        return {name: _plain(value) for name, value in found.items()}
    return tuple(map(_plain, found)) if isinstance(found, tuple) else found


def _read(job: Job, said: IO[bytes]) -> Extracted:
    child = subprocess.Popen(
        [sys.executable, "-m", "app.suppliers.reading.job"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True,
        env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    )  # fmt: skip
    seconds = job.limits.seconds
    try:
        out, _ = child.communicate(pickle.dumps(job), timeout=seconds)
    except subprocess.TimeoutExpired:
        raise SupplierFailure("READER_TIMEOUT", stage="gate", seconds=int(seconds)) from None
    finally:
        _end(child)
    return _answer(out, child.returncode)


def _discard(into: Path) -> None:
    """What was read up to the failure is a part, and would be taken for the whole."""
    for name in ("facts.ndjson", "bad.ndjson"):
        (into / name).unlink(missing_ok=True)
    shutil.rmtree(into / "diag", ignore_errors=True)


def _keep(said: IO[bytes], into: Path) -> None:
    """The end of what the reading process complained of is there for the operator."""
    said.seek(max(said.seek(0, os.SEEK_END) - MOST_TRACE_BYTES, 0))
    (into / "diag").mkdir()
    (into / "diag" / "reader.txt").write_bytes(said.read(MOST_TRACE_BYTES))


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def _answer(out: bytes, returncode: int) -> Extracted:
    try:
        found = json.loads(out)
    except ValueError:
        raise SupplierFailure("READER_CRASHED", stage="gate", exit_code=returncode) from None
    if "failure" in found:
        raise SupplierFailure(found["failure"], stage="gate", **found["detail"])
    if "disk_full" in found:
        raise errors.DiskFull()
    return Extracted.from_json(found)
