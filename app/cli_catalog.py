"""`headworks catalog …`: the jobs of a marketplace's catalog, by hand."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any
from uuid import UUID

from app.adapters import database
from app.adapters.settings import Settings
from app.catalog import jobs, net, reapply, runs, services
from app.catalog.entities import RULES
from app.catalog.jobs import JOBS, Outcome
from app.catalog.repos.target_repo import TargetRepo
from app.catalog.services import Services
from app.kernel import errors

Configure = Callable[[argparse.Namespace], Settings]


def add_commands(parser: argparse.ArgumentParser, configure: Configure) -> list[argparse.ArgumentParser]:
    """The parser knows these commands; returns those that need to find an instance."""
    of_catalog = parser.add_subparsers(required=True, metavar="COMMAND")
    made: list[argparse.ArgumentParser] = []

    def add(name: str, work: Callable[[argparse.Namespace, Services], int], help: str) -> Any:
        command = of_catalog.add_parser(name, help=help)
        command.set_defaults(run=lambda options: _with_services(configure(options), options, work))
        made.append(command)
        return command

    run = add("run", _run, "do one job now")
    run.add_argument("job", choices=JOBS, metavar="JOB", help=", ".join(JOBS))
    run.add_argument("--day", type=_day, help="the day that is meant, in UTC (default: today)")
    run.add_argument("--limit", type=int, help="so many targets at most")
    run.add_argument(
        "--only", action="append", default=[], metavar="ID", help="this target alone; may be repeated"
    )
    run.add_argument("--dry-run", action="store_true", help="fetch and say what would change; write nothing")
    run.add_argument("--resume", type=UUID, metavar="RUN", help="go on with a run that broke or failed")
    whole = add("net", _net, "do every job of a day in its order")
    whole.add_argument("--day", type=_day, help="the day that is meant, in UTC (default: today)")
    whole.add_argument("--resume", action="store_true", help="go on with the newest net that failed")
    again = add("reapply", _reapply, "apply what is in the raw store again, without the API")
    again.add_argument(
        "job",
        choices=[name for name, job in JOBS.items() if job.entity],
        metavar="JOB",
        help="one that fetches",
    )
    again.add_argument("--all", action="store_true", help="also what this version has applied")
    again.add_argument("--limit", type=int, help="so many targets at most")
    check = add("verify", _verify, "whether every raw object is what the ledger says")
    check.add_argument("--entity", choices=RULES, help="only these objects")
    genres = add("genres", _genres, "the genres whose rankings are wanted")
    genres.add_argument(
        "--enable", type=int, action="append", default=[], metavar="GENRE", help="wanted from now on"
    )
    genres.add_argument(
        "--disable", type=int, action="append", default=[], metavar="GENRE", help="not any more"
    )
    past = add("runs", _runs, "the newest runs")
    past.add_argument("--job", choices=JOBS, metavar="JOB", help="only those of this job")
    past.add_argument("--limit", type=int, default=20, help="so many at most")
    add("show", _show, "one run and how its targets ended").add_argument(
        "run_id", type=UUID, help="as `catalog runs` prints it"
    )
    failed = add("failed", _failed, "the targets of a run that failed, and why")
    failed.add_argument("run_id", type=UUID, help="as `catalog runs` prints it")
    failed.add_argument("--limit", type=int, default=1000, help="so many at most")
    demo = of_catalog.add_parser(
        "demo", help="serve recorded answers of the marketplace, to try the jobs with"
    )
    demo.add_argument("--port", type=int, default=8099, help="of 127.0.0.1")
    demo.add_argument(
        "--items", type=int, default=300, help="so many invented items beside the recorded ones"
    )
    demo.set_defaults(run=_demo)
    return made


def _demo(options: argparse.Namespace) -> int:
    from app.catalog.replay import demo  # unpacks the recordings: only this command needs them

    demo.serve(options.port, items=options.items)
    return 0


def _day(text: str) -> datetime:
    return datetime.combine(date.fromisoformat(text), time(), UTC)


def _with_services(
    settings: Settings, options: argparse.Namespace, work: Callable[[argparse.Namespace, Services], int]
) -> int:
    db = database.Database(
        settings.database_url, name="headworks cli", pool_size=settings.catalog_threads + 2
    )
    try:
        return work(options, services.connect(settings, db))
    finally:
        db.close()


def _print(found: Any) -> None:
    print(json.dumps(found, indent=1, ensure_ascii=False, default=str))


def _told(outcome: Outcome) -> int:
    _print(dataclasses.asdict(outcome))
    return outcome.exit_code


def _run(options: argparse.Namespace, found: Services) -> int:
    if options.resume and (options.only or options.limit or options.day):
        raise errors.Refused("A run goes on as it was begun: --resume takes no --only, --limit or --day.")

    def tell(target: str, difference: Any) -> None:
        print(json.dumps({target: difference}, ensure_ascii=False, default=str), file=sys.stderr)

    return _told(
        jobs.run_job(
            found, options.job, job_start_at=_start(options, found), limit=options.limit, only=options.only,
            dry_run=options.dry_run, resume=options.resume, tell=tell if options.dry_run else None,
        )
    )  # fmt: skip


def _start(options: argparse.Namespace, found: Services) -> datetime:
    """The start of a job is of the day that is meant, to the second."""
    now = found.clock.now().replace(microsecond=0)
    return datetime.combine(options.day.date(), now.time(), UTC) if getattr(options, "day", None) else now


def _net(options: argparse.Namespace, found: Services) -> int:
    if options.resume:
        net.resume(found)
    else:
        net.begin(found, job_start_at=_start(options, found))
    outcomes = net.run(found)
    _print([dataclasses.asdict(outcome) for outcome in outcomes])
    return max((outcome.exit_code for outcome in outcomes if outcome.status == "failed"), default=0)


def _reapply(options: argparse.Namespace, found: Services) -> int:
    return _told(
        reapply.reapply(
            found, options.job, job_start_at=_start(options, found), everything=options.all,
            limit=options.limit,
        )
    )  # fmt: skip


def _verify(options: argparse.Namespace, found: Services) -> int:
    looked_at = flaws = 0
    for flaw in reapply.verify(found, entity=options.entity):
        looked_at += 1
        if flaw is not None:
            flaws += 1
            print(flaw.entity, flaw.source_id, flaw.what, flaw.s3_key, sep="\t")
    print(f"{looked_at} raw objects looked at, {flaws} are not what the ledger says", file=sys.stderr)
    return 1 if flaws else 0


def _genres(options: argparse.Namespace, found: Services) -> int:
    with found.db.transaction("catalog") as conn:
        repo = TargetRepo(conn)
        for genre_id in options.enable:
            repo.want_genre(genre_id, wanted=True)
        for genre_id in options.disable:
            repo.want_genre(genre_id, wanted=False)
        for genre in repo.genres():
            wanted = "wanted" if genre.is_enabled else "not wanted"
            print(genre.rakuten_genre_id, wanted, genre.genre_name or "-", sep="\t")
    return 0


def _runs(options: argparse.Namespace, found: Services) -> int:
    for run in runs.newest(found.db, job_id=options.job, limit=options.limit):
        counts = (run.summary or {}).get("outcomes", {})
        told = " ".join(f"{name}={count}" for name, count in counts.items()) or "-"
        print(
            run.run_id,
            run.job_id,
            run.started_at.isoformat(),
            run.status,
            run.reason_code or "-",
            told,
            sep="\t",
        )
    return 0


def _show(options: argparse.Namespace, found: Services) -> int:
    _print(runs.one(found.db, options.run_id)._asdict())
    return 0


def _failed(options: argparse.Namespace, found: Services) -> int:
    runs.one(found.db, options.run_id)
    for target in runs.targets(found.db, options.run_id, outcome="failed", limit=options.limit):
        print(
            target.target, target.category, target.http_status or "-", target.attempts, target.excerpt or "-",
            sep="\t",
        )  # fmt: skip
    return 0
