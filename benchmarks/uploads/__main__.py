"""Uploads from POST to completed, beside what PostgreSQL alone needs for the same rows, and beside peers.

    ./scripts/bench uploads [--rounds 5] [--only whole|steps|unlike|again|small|api|growth|peers|cleanup ...]
                            [--peers FOLDER] [--json FILE]

Everything runs on this machine: the fleet of the Procfile, its PostgreSQL, Valkey and this program. Figures
are medians, of `--rounds` rounds where one takes seconds. Printed are tables for docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from app.adapters import embedded
from benchmarks.peers import PEERS, PeerError, prepare, run
from benchmarks.uploads import fleet, growth, limit, report, small, steps
from benchmarks.uploads.fleet import Fleet

PARTS = ("whole", "steps", "unlike", "again", "small", "api", "growth", "peers", "cleanup")
WORKERS = ("web", "parse", "promote")
PEER_ROUNDS, SLOW_SECONDS = 3, 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--peers", type=Path, default=Path("var/peers"), help="where their environments are")
    parser.add_argument("--json", type=Path, help="also write every figure there")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": f"{platform.machine()}, Python {platform.python_version()}"}
    with tempfile.TemporaryDirectory() as name:
        files = Files(Path(name))
        if "steps" in options.only:
            found["steps"] = _steps(files, options.rounds)
        with fleet.running() as of:
            time.sleep(5)  # what a start leaves to be done is done
            for part in PARTS:
                if part in options.only and part in MEASURED:
                    found[part] = MEASURED[part](of, files, options)
        if "peers" in options.only:
            found["peers"] = _peers(files, options.peers)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


class Files:
    """The reports that are uploaded, made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def usual(self, rows: int = report.ROWS_OF_50_MB, *, clean: bool = False) -> Path:
        return self._made(f"usual-{rows}-{clean}.csv", lambda: report.usual(rows, clean=clean))

    def unlike(self, rows: int, what: str) -> Path:
        return self._made(f"unlike-{rows}-{what}.csv", lambda: report.unlike(rows, what))

    def _made(self, name: str, rows: Callable[[], Iterable[list[str]]]) -> Path:
        path = self._folder / name
        return path if path.exists() else report.write(path, rows())


def _median(figures: Iterable[float]) -> float:
    return round(statistics.median(figures), 3)


def _table(*rows: tuple[Any, ...]) -> None:
    head, *body = rows
    print(f"\n| {' | '.join(map(str, head))} |\n|{'---|' * len(head)}")
    for row in body:
        print(f"| {' | '.join(map(str, row))} |")
    sys.stdout.flush()


# -- the whole upload


def _whole(of: Fleet, files: Files, options: argparse.Namespace) -> dict[str, Any]:
    file = files.usual()
    rounds: list[dict[str, Any]] = []
    for _ in range(options.rounds):
        of.forget()
        of.forget_peaks()
        ended = of.upload(file.read_bytes())
        peaks = of.peaks()
        assert ended.status == "completed", ended
        staged = limit.prepare(of, ended.upload_id)
        bare, free = limit.measure(of, staged), limit.measure(of, staged, foreign_keys=False)
        rounds.append(
            {"upload": ended.seconds, "reached": ended.reached, "copy": bare.copy, "limit": bare.seconds,
             "limit_without_foreign_keys": free.seconds, "peaks": {name: peaks[name] for name in WORKERS}}
        )  # fmt: skip
    upload, bound = (_median(one[name] for one in rounds) for name in ("upload", "limit"))
    ratio = _median(one["upload"] / one["limit"] for one in rounds)
    free = _median(one["limit_without_foreign_keys"] for one in rounds)
    peaks = {name: max(one["peaks"][name] for one in rounds) for name in WORKERS}
    rows = report.ROWS_OF_50_MB
    _table(
        (f"{file.stat().st_size / 1e6:.1f} MB, {rows:,} rows, {options.rounds} rounds", "seconds", "rows/s"),
        ("from POST to completed", upload, f"{rows / upload:,.0f}"),
        ("limit: \\copy of the staging rows, one upsert", bound, f"{rows / bound:,.0f}"),
        ("of it \\copy", _median(one["copy"] for one in rounds), ""),
        ("the same without foreign keys", free, f"{rows / free:,.0f}"),
        ("upload / limit", ratio, ""),
        ("upload / limit without foreign keys", round(upload / free, 3), ""),
    )
    _table(("peak memory", "MiB"), *peaks.items())
    return {"rounds": rounds, "upload": upload, "limit": bound, "ratio": ratio, "peaks": peaks}


def _steps(files: Files, rounds: int) -> dict[str, float]:
    measured = [steps.measure(files.usual()) for _ in range(rounds)]
    medians = {step: _median(one[step] for one in measured) for step in measured[0]}
    _table(("step, by itself", "seconds"), *medians.items())
    return medians


def _unlike(of: Fleet, files: Files, options: argparse.Namespace) -> dict[str, Any]:
    """Files of about 50 MB in which cells do not stand twice."""
    found = {}
    for what, rows in (("numbers", 340_000), ("ads", 325_000), ("everything", 310_000)):
        file, seconds = files.unlike(rows, what), []
        of.forget_peaks()
        for _ in range(min(options.rounds, 3)):
            of.forget()
            ended = of.upload(file.read_bytes())
            assert ended.status == "completed", ended
            seconds.append(ended.seconds)
        peaks = of.peaks()
        found[what] = {
            "seconds": _median(seconds), "rows": rows, "MB": round(file.stat().st_size / 1e6, 1),
            "limit": round(limit.measure_whole(of, limit.prepare(of, ended.upload_id)).seconds, 3),
            "reached": ended.reached, "peaks": {name: peaks[name] for name in WORKERS},
        }  # fmt: skip
    _table(
        (
            "different in every row",
            "MB",
            "rows",
            "seconds",
            "limit",
            *(f"MiB of {name}" for name in WORKERS),
        ),
        *(
            (what, one["MB"], f"{one['rows']:,}", one["seconds"], one["limit"], *one["peaks"].values())
            for what, one in found.items()
        ),
    )
    return found


def _again(of: Fleet, files: Files, options: argparse.Namespace) -> dict[str, float]:
    """The same file a second time, in the same workspace."""
    content, seconds = files.usual().read_bytes(), {"first": [], "second": []}
    for _ in range(min(options.rounds, 3)):
        of.forget()
        workspace_id = of.new_workspace()
        for turn in seconds:
            seconds[turn].append(of.upload(content, workspace_id=workspace_id).seconds)
            of.settle()
    medians = {turn: _median(each) for turn, each in seconds.items()}
    _table(("the same file", "seconds"), *medians.items())
    return medians


# -- many small ones


def _small(of: Fleet, _: Files, options: argparse.Namespace) -> dict[str, float]:
    of.forget()
    alone = sorted(small.one_by_one(of, 200))
    rates = {}
    for workspaces in (20, 1):
        of.forget()
        runs = [small.at_once(of, 200, workspaces) for _ in range(options.rounds)]
        rates[workspaces] = _median(run.completed for run in runs)
        accepted = _median(run.accepted for run in runs)
    found = {
        "p50_ms": round(alone[99] * 1000), "p99_ms": round(alone[197] * 1000),
        "completed_per_second": rates[20],
        "completed_per_second_of_one_workspace": rates[1], "accepted_per_second": accepted,
    }  # fmt: skip
    _table(
        ("200 uploads of 100 rows", ""),
        ("one after the other: p50 from POST to completed", f"{found['p50_ms']} ms"),
        ("p99", f"{found['p99_ms']} ms"),
        ("at once, of 20 workspaces: completed", f"{rates[20]} uploads/s"),
        ("at once, of one workspace: completed", f"{rates[1]} uploads/s"),
        ("meanwhile accepted by the API", f"{accepted} uploads/s"),
    )
    return found


def _api(of: Fleet, _: Files, options: argparse.Namespace) -> dict[str, float]:
    """What the web process takes in while nobody else works."""
    with of.stopped("parse", "promote", "relay"):
        rates = [small.accepted(of, 400) for _ in range(options.rounds)]
    rate = _median(rates)
    _table(("API alone", "uploads/s"), ("accepted, 100 rows each", rate))
    return {"accepted_per_second": rate}


# -- growth


def _growth(of: Fleet, _: Files, options: argparse.Namespace) -> dict[str, Any]:
    """The same reports, each about days of its own, beside production of other sizes."""
    sizes, productions = (8_000, 80_000, report.ROWS_OF_50_MB), (0, 1_000_000, 10_000_000)
    micros: dict[tuple[int, int], float] = {}
    for production in productions:
        workspace_id = growth.fill(of, production)
        for rows in sizes:
            seconds = []
            for turn in range(options.rounds if rows < 100_000 else min(options.rounds, 3)):
                content = small.content(100 * turn, rows)
                seconds.append(of.upload(content, workspace_id=workspace_id).seconds)
                if not production:
                    of.forget()
            micros[production, rows] = statistics.median(seconds) / rows * 1e6
    _table(
        ("µs a row", *(f"{rows:,} rows" for rows in sizes)),
        *(
            (f"{production:,} rows in production", *(f"{micros[production, rows]:.1f}" for rows in sizes))
            for production in productions
        ),
        (
            "ratio of the last to the first",
            *(f"{micros[productions[-1], rows] / micros[0, rows]:.2f}" for rows in sizes),
        ),
    )
    of.forget()
    return {
        f"{production} in production, {rows} rows": round(each, 2)
        for (production, rows), each in micros.items()
    }


def _cleanup(of: Fleet, _: Files, options: argparse.Namespace) -> dict[str, float]:
    """Ten million staging rows whose time is over, while small reports are handed in."""
    found = growth.cleanup(of, rows=10_000_000, uploads=40)
    _table(
        ("10,000,000 expired staging rows", ""),
        ("cleaned up in", f"{found['seconds']} s"),
        ("an upload meanwhile, p50", f"{found['p50_ms']} ms"),
        ("the slowest", f"{found['max_ms']} ms"),
    )
    return found


# -- what else there is


def _peers(files: Files, folder: Path) -> dict[str, Any]:
    file = files.usual(clean=True)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, embedded.Postgres(Path(name) / "postgres") as postgres:
        for peer in PEERS:
            try:
                python = prepare(peer, folder)
                runs = [run(peer, python, file, postgres.dsn, Path(name) / peer.name)]
                while len(runs) < PEER_ROUNDS and runs[0].seconds < SLOW_SECONDS:
                    runs.append(run(peer, python, file, postgres.dsn, Path(name) / peer.name))
            except PeerError as error:
                print(f"{peer.name}: {error}", file=sys.stderr)
                continue
            found[peer.name] = {
                "seconds": _median(one.seconds for one in runs),
                "peak_mib": max(one.peak_mib for one in runs),
                "upserts": peer.upserts, "note": peer.note,
            }  # fmt: skip
    _table(
        ("peer", "how", "upserts itself", "seconds", "peak MiB"),
        *((peer, one["note"], "yes" if one["upserts"] else "no", one["seconds"], round(one["peak_mib"]))
          for peer, one in sorted(found.items(), key=lambda item: item[1]["seconds"])),
    )  # fmt: skip
    return found


MEASURED: dict[str, Callable[[Fleet, Files, argparse.Namespace], dict[str, Any]]] = {
    "whole": _whole, "unlike": _unlike, "again": _again, "small": _small, "api": _api, "growth": _growth,
    "cleanup": _cleanup,
}  # fmt: skip

if __name__ == "__main__":
    main()
