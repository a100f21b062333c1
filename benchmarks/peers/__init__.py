"""What a user would take instead of this product to bring an advertising report into PostgreSQL.

Each is a script, run as a whole process in an environment of its own: `python <module>.py FILE DSN` leaves
the table `peer.ads` with one row for each day and ad, the last of the file. Each is written as a user would
who has read the tool's guide and wants it fast. What the file's columns are is in `ads`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg2

from benchmarks.peers import ads

HERE = Path(__file__).parent
MOST_SECONDS = 600.0
LAST_LINES = 20


class PeerError(Exception):
    """A peer could not be installed or did not do its work; the message holds its last lines."""


@dataclass(frozen=True)
class Peer:
    """One of the programs."""

    name: str
    module: str
    upserts: bool
    """The tool upserts by key itself; otherwise SQL written by hand does, after the tool's load."""
    requirements: Path | None
    """Exact pins; None where the program is no Python package."""
    note: str


@dataclass(frozen=True)
class Run:
    """What one run took, and the rows that the table has after it."""

    seconds: float
    peak_mib: float
    """Resident, of the largest of its processes."""
    rows: int


def _peer(name: str, module: str, note: str, *, upserts: bool = False, packages: bool = True) -> Peer:
    return Peer(name, module, upserts, HERE / f"{name}.txt" if packages else None, note)


PEERS = (
    _peer("dlt", "dlt_merge", "merge by delete-insert", upserts=True),
    _peer("singer", "singer_target", "own tap, Meltano's target-postgres with COPY", upserts=True),
    _peer("pangres", "pangres_upsert", "read_csv in chunks, pangres.upsert", upserts=True),
    _peer("pandas", "pandas_copy", "read_csv in chunks, to_sql by COPY, SQL by hand"),
    _peer("polars_adbc", "polars_adbc", "read_csv, write_database by ADBC, SQL by hand"),
    _peer("csvkit", "csvkit_insert", "csvsql --insert --no-inference, SQL by hand"),
    _peer("psql", "psql_copy", "\\copy, SQL by hand", packages=False),
)


def prepare(peer: Peer, folder: Path) -> Path:
    """The peer's environment is below `folder`, made once for each set of pins; its python comes back.

    `PeerError` where pip fails, or where there is no psql.
    """
    if peer.requirements is None:
        if shutil.which("psql") is None:
            raise PeerError(f"{peer.name} needs the program psql. Is it in PATH?")
        return Path(sys.executable)
    environment = folder.absolute() / peer.name
    python, stamp = environment / "bin" / "python", environment / "requirements.sha256"
    pins = hashlib.sha256(peer.requirements.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == pins:
        return python
    _install(peer, [sys.executable, "-m", "venv", "--clear", str(environment)])
    _install(peer, [str(python), "-m", "pip", "install", "--requirement", str(peer.requirements)])
    stamp.write_text(pins)
    return python


def _install(peer: Peer, argv: list[str]) -> None:
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise PeerError(f"{peer.name} could not be installed. The last lines:\n{_tail(done.stdout)}")


def run(peer: Peer, python: Path, file: Path, dsn: str, work: Path) -> Run:
    """The file is in the table `peer.ads` of the database; `python` is what `prepare` gave.

    `work` is made where it is missing; the peer's output is in its output.log. `PeerError` where the peer
    exits with anything but 0, or takes more than 600 seconds.
    """
    argv = [str(python.absolute()), str(HERE / f"{peer.module}.py"), str(file.absolute()), dsn]
    seconds, peak_mib = measure(argv, work)
    with contextlib.closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {ads.TARGET}")
        return Run(seconds, peak_mib, cursor.fetchone()[0])


def measure(argv: Sequence[str], work: Path) -> tuple[float, float]:
    """Seconds and MiB of a command that has exited with 0, run in `work` with an environment of its own.

    The MiB are those of the largest process of the command's tree, not of all together.
    """
    work = work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    log = work / "output.log"
    with log.open("wb") as output:
        watch = subprocess.Popen(
            [sys.executable, "-I", "-S", str(HERE / "stopwatch.py"), *argv], cwd=work, env=_environ(work),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            figures, _ = watch.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            raise _failed(argv, f"took more than {MOST_SECONDS:.0f} seconds", log) from None
        finally:
            if watch.poll() is None:
                os.killpg(watch.pid, signal.SIGKILL)
                watch.wait()
    if watch.returncode != 0:
        raise _failed(argv, f"exited with {watch.returncode}", log)
    seconds, peak_mib = figures.split()
    return float(seconds), float(peak_mib)


def _environ(work: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath), "HOME": str(work), "TMPDIR": str(work),
        "LANG": "C.UTF-8", "TZ": "UTC", "RUNTIME__DLTHUB_TELEMETRY": "false", "DO_NOT_TRACK": "1",
    }  # fmt: skip


def _failed(argv: Sequence[str], what: str, log: Path) -> PeerError:
    name = " ".join(Path(part).name for part in argv[:2])
    return PeerError(f"{name} {what}. The last lines:\n{_tail(log.read_text(errors='replace'))}")


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-LAST_LINES:])
