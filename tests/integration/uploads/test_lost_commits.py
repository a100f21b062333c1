"""A commit whose answer is lost, and an intake that breaks: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, Any
from uuid import UUID

import pytest

from app.adapters import database
from app.adapters.blobs import Blobs, Stored
from app.kernel import errors
from app.kernel.clock import SystemClock
from app.uploads import drop, intake
from app.uploads.services import Services
from tests.conftest import SetClock, work_off
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.uploads.conftest import GOOD, WORKSPACE, Uploads

OwnerSql = Callable[[str], list[Any]]


class LosesAnswer:
    """A database whose nth transaction of a role is committed, and the connection lost right then."""

    def __init__(self, db: database.Database, role: str, nth: int) -> None:
        self._db, self._role, self.left = db, role, nth

    @contextmanager
    def transaction(self, role: str, workspace_id: UUID | None = None, **how: Any) -> Iterator[Any]:
        with self._db.transaction(role, workspace_id, **how) as conn:
            yield conn
        if role == self._role:
            self.left -= 1
            if self.left == 0:
                raise errors.ConnectionLost


def losing(services: Services, role: str, nth: int) -> tuple[Services, LosesAnswer]:
    db = LosesAnswer(services.db, role, nth)
    return replace(services, db=db, clock=SetClock()), db  # type: ignore[arg-type]


REPORT = GOOD + b"2025-05-03,Summer,102,x,30,3.50\n" + b"2025-05-04,Summer,102,1,30,3.50\n" * 8


def left_behind(services: Services, owner_sql: OwnerSql, workspace_id: UUID) -> dict[str, Any]:
    """Everything that an upload led to, without ids and times."""
    where = f"WHERE workspace_id = '{workspace_id}'"
    return {
        "uploads": owner_sql(
            "SELECT status, error_code, row_count, total_rows, valid_rows, promoted_rows, failed_rows,"
            f" upserted, affected_dates::text, event_emitted, report::text FROM data_uploads {where}"
        ),
        "staging": owner_sql(
            "SELECT row_index, entity_type, raw_data::text, validation_status, merged_into,"
            f" promotion_error FROM staging_rows {where} ORDER BY 1, 2"
        ),
        "days": owner_sql(
            f"SELECT metric_date, spend, impressions, clicks FROM daily_metrics {where} ORDER BY 1, 2"
        ),
        "events": owner_sql(f"SELECT payload -> 'metrics', payload -> 'status' FROM outbox {where}"),
        "moves": owner_sql(
            f"SELECT from_status, to_status FROM audit {where} AND action IN ('created', 'moved') ORDER BY id"
        ),
    }


@pytest.mark.parametrize("size", ["whole", "in parts"])
@pytest.mark.parametrize("role", ["intake", "parse", "promote"])
def test_a_commit_whose_answer_is_lost_changes_nothing(
    role: str, size: str, services: Services, owner_sql: OwnerSql, request: pytest.FixtureRequest
) -> None:
    if size == "in parts":
        services = request.getfixturevalue("in_parts")
    undisturbed = uuid.uuid4()
    Uploads(services).finished(REPORT, workspace_id=undisturbed)
    expected = left_behind(services, owner_sql, undisturbed)
    wrong: dict[int, Any] = {}
    for nth in range(1, 30):
        workspace_id = uuid.uuid4()
        unlucky, db = losing(services, role, nth)
        try:
            Uploads(unlucky).finished(REPORT, workspace_id=workspace_id)
        except errors.HeadworksError as error:
            wrong[nth] = repr(error)
            continue
        work_off(services)
        if db.left > 0:
            break
        found = left_behind(services, owner_sql, workspace_id)
        if differs := {name: found[name] for name in found if found[name] != expected[name]}:
            wrong[nth] = differs
    assert nth > (2 if role == "intake" else 3 if size == "in parts" else 1)
    assert wrong == {}


# -- a client that tries again


@dataclass
class FailsFirst:
    """A store that cannot be reached at first, for longer than one request waits."""

    store: Blobs
    failures: int
    error: type[BaseException] = errors.ConnectionLost

    def put(self, key: str, source: IO[bytes], *, max_bytes: int | None = None) -> Stored:
        if self.failures:
            self.failures -= 1
            raise self.error
        return self.store.put(key, source, max_bytes=max_bytes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


REQUEST = intake.Request(WORKSPACE, "meta", "manual", idempotency_key="one and only")


def test_a_request_made_twice_is_one_upload(uploads: Uploads, services: Services) -> None:
    first = intake.take_in(services, REQUEST, io.BytesIO(GOOD))
    again = intake.take_in(services, REQUEST, io.BytesIO(GOOD))
    assert (first.upload_id, False, True) == (again.upload_id, first.repeated, again.repeated)
    work_off(services)
    assert uploads.show(first.upload_id).status == "completed"


@pytest.mark.parametrize("how", ["the answer to its record is lost", "the store is away", "the process dies"])
def test_a_request_that_broke_and_is_made_again_is_not_lost(
    how: str, uploads: Uploads, services: Services
) -> None:
    if how == "the answer to its record is lost":
        broken, _ = losing(services, "intake", 1)
    else:
        kind = errors.ConnectionLost if how == "the store is away" else KeyboardInterrupt
        broken = replace(services, blobs=FailsFirst(services.blobs, 4, kind), clock=SetClock())  # type: ignore[arg-type]
    # The client gets no good answer, and makes the request again.
    with suppress(errors.HeadworksError, KeyboardInterrupt):
        intake.take_in(broken, REQUEST, io.BytesIO(GOOD))
    receipt = intake.take_in(services, REQUEST, io.BytesIO(GOOD))
    work_off(services)
    assert uploads.show(receipt.upload_id).status == "completed"


@pytest.mark.parametrize("kind", [errors.ConnectionLost, KeyboardInterrupt], ids=["store away", "killed"])
def test_a_dropped_file_whose_intake_broke_is_not_lost(
    kind: type[BaseException], uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    settings = replace(services.settings, drop_stable_seconds=0.0)
    services = replace(services, settings=settings)
    folder = settings.drop / str(WORKSPACE) / "meta"
    folder.mkdir(parents=True)
    (folder / "report.csv").write_bytes(GOOD)
    broken = replace(services, blobs=FailsFirst(services.blobs, 4, kind))  # type: ignore[arg-type]
    with pytest.raises(kind):
        drop.scan(replace(broken, clock=_HastyClock()))
    drop.scan(services)
    work_off(services)
    assert [
        status for (status,) in owner_sql("SELECT status FROM data_uploads WHERE file_url IS NOT NULL")
    ] == ["completed"]
    assert [path.is_file() for path in (settings.drop / ".taken").rglob("*.csv")] == [True]


class _HastyClock(SetClock):
    """The real time, without waiting."""

    def now(self) -> Any:
        return SystemClock().now()
