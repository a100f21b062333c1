"""From the raw store alone, without the API: records are applied again, and what is stored is checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from app.catalog import jobs
from app.catalog.context import SOURCE
from app.catalog.entities import RULES
from app.catalog.jobs import JOBS, Outcome
from app.catalog.normalize import compute_content_hash
from app.catalog.raw_store import RawGone, RawStore
from app.catalog.repos.staging_repo import Latest, StagingRepo
from app.catalog.services import Services
from app.kernel import errors


def reapply(
    services: Services, job_id: str, *, job_start_at: datetime, everything: bool = False,
    limit: int | None = None,
) -> Outcome:  # fmt: skip
    """What another version of the job's code applied, or nobody yet, is applied by this one.

    `everything` applies the rest of the ledger again as well. Busy while the job is at work.
    """
    entity = JOBS[job_id].entity
    if entity is None:
        raise errors.Refused(f"{job_id} fetches nothing, so that there is nothing to apply again.")
    ledger = {
        source_id: latest
        for page in _pages(services, entity, outdated=not everything) for source_id, latest in page
    }  # fmt: skip
    return jobs.run_job(services, job_id, job_start_at=job_start_at, limit=limit, from_raw=ledger)


@dataclass(frozen=True, slots=True)
class Flaw:
    """A line of the ledger that its raw object does not bear out: gone, damaged or of another content."""

    entity: str
    source_id: str
    s3_key: str
    what: str


def verify(services: Services, *, entity: str | None = None) -> Iterator[Flaw | None]:
    """For each line of the ledger, what is wrong with its raw object; None where nothing is."""
    for one in (entity,) if entity else RULES:
        for page in _pages(services, one, outdated=False):
            for source_id, latest in page:
                what = _flaw(services.raw, latest)
                yield Flaw(one, source_id, latest.s3_key, what) if what else None


def _flaw(store: RawStore, latest: Latest) -> str | None:
    try:
        body = store.get_json(s3_key=latest.s3_key)
    except RawGone:
        return "gone"
    except errors.Fatal:
        return "damaged"
    hashed = compute_content_hash(body)
    if hashed != latest.content_hash or f"hash={hashed}.json" not in latest.s3_key:
        return "of another content"
    return None


def _pages(services: Services, entity: str, *, outdated: bool) -> Iterator[list[tuple[str, Latest]]]:
    """The ledger of an entity, page by page, each read in a transaction of its own."""
    behind = ""
    while True:
        with services.db.transaction("catalog") as conn:
            page = StagingRepo(conn).page(
                source=SOURCE, entity=entity, behind=behind, outdated=outdated,
                apply_version=RULES[entity].apply_version,
            )  # fmt: skip
        if not page:
            return
        yield page
        behind = page[-1][0]
