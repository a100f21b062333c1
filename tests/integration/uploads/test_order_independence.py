"""However the tasks of overlapping uploads are mixed, the tables end as if one had followed the other.

Each example hands the same reports in twice: in one workspace they are worked off one by one, in another
by a schedule of Hypothesis's choice, in which tasks come early, late, twice or never, and workers are slow,
stop or die. Where uploads are put off by hand, even the order of promotion is any.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import hypothesis
import psycopg2
import pytest
from hypothesis import strategies as st

from app.uploads import leases, parse, promote, recover, work
from app.uploads.services import Services
from tests.conftest import SetClock, put_off, with_clock, work_off
from tests.integration.one_database import database_url  # noqa: F401
from tests.integration.uploads.conftest import Uploads

OwnerSql = Callable[[str], list[Any]]

SEED = int(os.environ.get("HEADWORKS_TEST_SEED") or random.SystemRandom().randrange(2**32))
EXAMPLES = int(os.environ.get("HEADWORKS_TEST_EXAMPLES") or 48)

pytestmark = pytest.mark.usefixtures("small_batches")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows are a batch, so that uploads meet in the middle of each other."""
    monkeypatch.setattr(promote, "PROMOTION_BATCH_ROWS", 3)


@pytest.fixture
def owner_sql(database_url: str) -> Iterator[OwnerSql]:  # noqa: F811
    """Run one statement past roles and policies, always on one connection."""
    connection = psycopg2.connect(database_url)
    connection.autocommit = True

    def run(statement: str) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    yield run
    connection.close()


@pytest.fixture
def services(services: Services) -> Services:
    return with_clock(services, SetClock())


# -- reports

LEVELS = ("campaign", "ad_set", "ad")


@dataclass(frozen=True)
class Row:
    """One line: which campaign, ad set and ad of the small world it is about, and its numbers."""

    day: int
    campaign: int
    ad_set: int
    ad: int
    age: str = "18-24"
    impressions: int | None = 1
    spend: int | None = 1
    reach: int | None = None


@dataclass(frozen=True)
class Report:
    """One file: how deep it goes, whether it has ids, and how it calls and describes the entities."""

    rows: tuple[Row, ...]
    grain: str = "campaign"
    ids: bool = True
    by_age: bool = False
    spelling: int = 0
    status: str = ""
    currency: str = "USD"

    def content(self) -> bytes:
        depth = LEVELS.index(self.grain) + 1
        titles = (("Campaign name", "Campaign ID"), ("Ad set name", "Ad Set ID"), ("Ad name", "Ad ID"))
        header = ["Day"]
        for name, platform_id in titles[:depth]:
            header += [name, platform_id] if self.ids else [name]
        header += ["Campaign delivery"] if self.status else []
        header += ["Age"] if self.by_age else []
        header += ["Impressions", f"Amount spent ({self.currency})", "Reach"]
        return "\n".join([",".join(header), *(self._line(row, depth) for row in self.rows), ""]).encode()

    def _line(self, row: Row, depth: int) -> str:
        cells = [f"2025-05-{row.day:02}"]
        path = (row.campaign, row.ad_set, row.ad)
        for level in range(depth):
            number = "".join(str(part) for part in path[: level + 1])
            cells.append(f"{'CSA'[level]}{number}{'x' * self.spelling}")
            if self.ids:
                cells.append(f"{level + 1}00{number}")
        cells += [self.status] if self.status else []
        cells += [row.age] if self.by_age else []
        cells += ["" if value is None else str(value) for value in (row.impressions, row.spend, row.reach)]
        return ",".join(cells)


_number = st.one_of(st.none(), st.integers(0, 9))


@st.composite
def reports(draw: st.DrawFn, *, spellings: int = 1, ids: st.SearchStrategy[bool] | None = None) -> Report:
    grain = draw(st.sampled_from(LEVELS))
    by_age = draw(st.booleans())
    depth = LEVELS.index(grain)
    two = st.integers(1, 2)
    row = st.builds(
        Row,
        day=two,
        campaign=two,
        ad_set=two if depth > 0 else st.just(1),
        ad=two if depth > 1 else st.just(1),
        age=st.sampled_from(["18-24", "25-34"]) if by_age else st.just("18-24"),
        impressions=_number,
        spend=_number,
        reach=_number,
    )
    rows = draw(
        st.lists(row, min_size=1, max_size=6, unique_by=lambda r: (r.day, r.campaign, r.ad_set, r.ad, r.age))
    )
    return Report(
        tuple(rows),
        grain=grain,
        ids=draw(ids if ids is not None else st.booleans()),
        by_age=by_age,
        spelling=draw(st.integers(0, spellings - 1)),
        status=draw(st.sampled_from(["", "active", "paused"])),
        currency=draw(st.sampled_from(["USD", "USD", "EUR"])),
    )


# -- schedules


@dataclass(frozen=True)
class Task:
    """One hint, as a worker takes it.

    `checks` is how often the work may look whether it may go on before it ends; `dies` whether it then
    hands the upload back, or keeps it until its lease runs out. `upload` is the one that alone is not
    put off, or None: then it is the product that chooses.
    """

    stage: str
    upload: int | None = None
    checks: int | None = None
    dies: bool = False


LEASES_RUN_OUT = "leases run out"
Schedule = Sequence[Task | str]


class _Died(BaseException):
    """The process is gone; nothing else of it is run."""


class _Watched:
    """A lease that ends the work after so many checks."""

    def __init__(self, lease: Any, task: Task) -> None:
        self._lease, self._left, self._dies = lease, task.checks, task.dies

    def check(self) -> None:
        self._lease.check()
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise _Died if self._dies else leases.Interrupted(0)


OPEN = "status IN ('pending', 'processing', 'staging_complete', 'promoting')"
STEPS = {"parse": parse.parse_upload, "promote": promote.promote_upload}


def deliver(services: Services, task: Task) -> None:
    """One task is done as far as it may go."""

    def step(services: Services, claim: Any, lease: Any) -> None:
        STEPS[task.stage](services, claim, _Watched(lease, task))  # type: ignore[arg-type]

    with contextlib.suppress(leases.Interrupted, _Died):
        work.run_next(services, task.stage, step)


def run_out(services: Services, owner_sql: OwnerSql) -> None:
    """Whoever holds an upload was not heard of in time."""
    held = owner_sql(
        "UPDATE data_uploads SET lease_expires_at = now() - interval '1 s', attempts = 1"
        " WHERE owner_id IS NOT NULL RETURNING id"
    )
    assert recover.sweep(services) == len(held)


def in_order(services: Services, said: Sequence[Any]) -> tuple[UUID, list[UUID]]:
    """The workspace in which the reports were worked off one after another."""
    workspace_id = uuid.uuid4()
    uploads = Uploads(services)
    return workspace_id, [uploads.finished(r.content(), workspace_id=workspace_id) for r in said]


def mixed(
    services: Services, owner_sql: OwnerSql, said: Sequence[Any], schedule: Schedule
) -> tuple[UUID, list[UUID]]:
    """The workspace in which the same reports were worked off by this schedule, and then to their end."""
    workspace_id = uuid.uuid4()
    uploads = Uploads(services)
    ids = [uploads.pending(r.content(), workspace_id=workspace_id) for r in said]
    for entry in schedule:
        if not isinstance(entry, Task):
            run_out(services, owner_sql)
        elif entry.upload is None:
            deliver(services, entry)
        else:
            put_off(services, waiting(owner_sql))
            put_off(services, [ids[entry.upload]], until="-infinity")
            deliver(services, entry)
            run_out(services, owner_sql)
    run_out(services, owner_sql)
    put_off(services, waiting(owner_sql), until="-infinity")
    work_off(services)
    return workspace_id, ids


def waiting(owner_sql: OwnerSql) -> list[UUID]:
    return [UUID(found) for (found,) in owner_sql(f"SELECT id::text FROM data_uploads WHERE {OPEN}")]


# -- what is compared: everything in production, by natural keys

PRODUCTION = {
    "campaigns": "SELECT external_id, id_source, name, status, {upload} FROM campaigns t WHERE {mine}",
    "ad_sets": "SELECT t.external_id, t.id_source, t.name, t.status, c.external_id, {upload} FROM ad_sets t"
    " LEFT JOIN campaigns c ON c.id = t.campaign_id WHERE {mine}",
    "ads": "SELECT t.external_id, t.id_source, t.name, t.status, c.external_id, a.external_id, {upload}"
    " FROM ads t LEFT JOIN campaigns c ON c.id = t.campaign_id LEFT JOIN ad_sets a ON a.id = t.ad_set_id"
    " WHERE {mine}",
    "daily_metrics": "SELECT t.metric_date::text, c.external_id, a.external_id, x.external_id, t.currency,"
    " t.spend::float, t.impressions, t.reach, t.source_rows, {upload} FROM daily_metrics t {entities}"
    " WHERE {mine}",
    "daily_performance": "SELECT t.metric_date::text, c.external_id, a.external_id, x.external_id, t.grain,"
    " t.currency, t.spend::float, t.impressions, t.reach FROM daily_performance t {entities} WHERE {mine}",
}
ENTITIES = (
    "JOIN campaigns c ON c.id = t.campaign_id LEFT JOIN ad_sets a ON a.id = t.ad_set_id"
    " LEFT JOIN ads x ON x.id = t.ad_id"
)


def production(owner_sql: OwnerSql, workspace_id: UUID, ids: Sequence[UUID]) -> dict[str, list[Any]]:
    """Every row of a workspace; uploads are told by their number."""
    upload = f"array_position(ARRAY{[str(i) for i in ids]}, t.upload_id::text)"
    parts = {"upload": upload, "mine": f"t.workspace_id = '{workspace_id}'", "entities": ENTITIES}
    return {
        table: sorted(owner_sql(statement.format(**parts)), key=str)
        for table, statement in PRODUCTION.items()
    }


def outcome(owner_sql: OwnerSql, ids: Sequence[UUID]) -> list[Any]:
    """How each upload ended, and how often that was told."""
    return [
        owner_sql(
            "SELECT status, error_code, promoted_rows, failed_rows,"
            f" (SELECT count(*) FROM outbox WHERE key = '{upload_id}') FROM data_uploads"
            f" WHERE id = '{upload_id}'"
        )[0]
        for upload_id in ids
    ]


def assert_same(services: Services, owner_sql: OwnerSql, said: Sequence[Any], schedule: Schedule) -> None:
    serial, serial_ids = in_order(services, said)
    found, found_ids = mixed(services, owner_sql, said, schedule)
    expected = production(owner_sql, serial, serial_ids)
    actual = production(owner_sql, found, found_ids)
    for table, rows in expected.items():
        surplus = [row for row in actual[table] if row not in rows]
        missing = [row for row in rows if row not in actual[table]]
        assert (table, missing, surplus) == (table, [], [])
        assert len(rows) == len(actual[table])
    assert outcome(owner_sql, serial_ids) == outcome(owner_sql, found_ids)


def bounded(test: Callable[..., None]) -> Callable[..., None]:
    """As many examples as are asked for, from a seed that is printed."""
    health = [hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow]
    limits = hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=health,
        print_blob=True,
        # A failing example is small as it is; to make it smaller would take minutes.
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    return limits(hypothesis.seed(SEED)(test))


@pytest.fixture(autouse=True)
def seed_is_told() -> None:
    """The seed of this run is shown with whatever fails."""
    print(f"HEADWORKS_TEST_SEED={SEED}")


@st.composite
def orders_of_any_kind(draw: st.DrawFn, count: int) -> list[Task]:
    """Each upload is parsed once and promoted in up to three parts, in any order with the others'."""
    parts = [draw(st.integers(2, 4)) for _ in range(count)]
    turns = draw(st.permutations([upload for upload in range(count) for _ in range(parts[upload])]))
    begun: set[int] = set()
    schedule = []
    for upload in turns:
        stage = "promote" if upload in begun else "parse"
        begun.add(upload)
        checks = draw(st.one_of(st.none(), st.integers(0, 6))) if stage == "promote" else None
        schedule.append(Task(stage, upload, checks, dies=draw(st.booleans())))
    return schedule


HINTS = st.builds(
    Task,
    stage=st.sampled_from(["parse", "promote"]),
    checks=st.one_of(st.none(), st.integers(0, 6)),
    dies=st.booleans(),
)


@st.composite
def cases(draw: st.DrawFn, *, put_off: bool, **how: Any) -> tuple[list[Report], Schedule]:
    said = draw(st.lists(reports(**how), min_size=2, max_size=4))
    if put_off:
        return said, draw(orders_of_any_kind(len(said)))
    return said, draw(st.lists(st.one_of(HINTS, HINTS, HINTS, st.just(LEASES_RUN_OUT)), max_size=16))


@bounded
@hypothesis.given(case=cases(put_off=False, spellings=3))
def test_overlapping_uploads_end_as_in_order_however_their_tasks_are_mixed(
    services: Services, owner_sql: OwnerSql, case: tuple[list[Report], Schedule]
) -> None:
    assert_same(services, owner_sql, *case)


# What a name stands for depends on who has borne it so far, so there not every order will do.
KNOWN_TO_HOLD = st.one_of(
    cases(put_off=True, spellings=3, ids=st.just(True)),  # entities are renamed
    cases(put_off=True, spellings=2, ids=st.just(False)),  # another name is another entity
    cases(put_off=True),  # with and without ids, and nothing is renamed
)


@bounded
@hypothesis.given(case=KNOWN_TO_HOLD)
def test_uploads_that_are_put_off_end_as_in_order_in_whatever_order_they_go_on(
    services: Services, owner_sql: OwnerSql, case: tuple[list[Report], Schedule]
) -> None:
    assert_same(services, owner_sql, *case)


# -- pairs and triples of files whose entities are not easy to tell, in every order

BY_ID = "Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)"
BY_NAME = "Day,Campaign name,Impressions,Amount spent (USD)"
NO_NAME = "Day,Campaign ID,Impressions,Amount spent (USD)"
ACCOUNT_AND_ID = "Day,Account ID,Campaign name,Campaign ID,Impressions,Amount spent (USD)"
ACCOUNT_AND_NAME = "Day,Account ID,Campaign name,Impressions,Amount spent (USD)"
AD = "Day,Campaign name,Campaign ID,Ad set name,Ad Set ID,Ad name,Ad ID,Impressions,Amount spent (USD)"
AD_WITHOUT_SET = "Day,Campaign name,Campaign ID,Ad name,Ad ID,Impressions,Amount spent (USD)"
AD_BY_NAME = "Day,Campaign name,Ad set name,Ad name,Impressions,Amount spent (USD)"

FILES: dict[str, list[tuple[str, ...]]] = {
    # in the order in which they were handed in
    "a name, and the id that it belongs to": [
        (BY_NAME, "2025-05-01,Spring,1,1"),
        (BY_ID, "2025-05-01,Spring,101,2,2"),
    ],
    "a name of an account, and its id": [
        (ACCOUNT_AND_NAME, "2025-05-01,7,Spring,1,1"),
        (ACCOUNT_AND_ID, "2025-05-02,7,Spring,101,2,2"),
    ],
    "one name in two accounts": [
        (ACCOUNT_AND_NAME, "2025-05-01,7,Spring,1,1"),
        (ACCOUNT_AND_ID, "2025-05-02,8,Spring,101,2,2"),
    ],
    "a name in two spellings of Unicode": [
        (BY_NAME, "2025-05-01,Cafe\u0301,1,1"),
        (BY_ID, "2025-05-01,Caf\u00e9,101,2,2"),
    ],
    "an ad that moves to another ad set": [
        (AD, "2025-05-01,C,101,S,201,A,301,1,1"),
        (AD, "2025-05-01,C,101,T,202,A,301,2,2"),
    ],
    "an ad set that moves to another campaign": [
        (AD, "2025-05-01,C,101,S,201,A,301,1,1"),
        (AD, "2025-05-01,D,102,S,201,A,301,2,2"),
    ],
    "three currencies": [
        (BY_ID, "2025-05-01,Spring,101,1,1"),
        (BY_ID.replace("USD", "EUR"), "2025-05-01,Spring,101,1,"),
        (BY_ID.replace("USD", "GBP"), "2025-05-01,Spring,101,1,3"),
    ],
    "a name between two names of an id": [
        (BY_ID, "2025-05-01,Old,101,1,1"),
        (BY_NAME, "2025-05-02,Old,1,1"),
        (BY_ID, "2025-05-03,New,101,1,1"),
    ],
    "a name, and an id that is renamed to it": [
        (BY_NAME, "2025-05-02,New,1,1"),
        (BY_ID, "2025-05-01,Old,101,1,1", "2025-05-03,New,101,1,1"),
    ],
    "a name after two ids that bear it": [
        (BY_ID, "2025-05-01,Spring,101,1,1"),
        (BY_ID, "2025-05-01,Spring,102,1,1"),
        (BY_NAME, "2025-05-02,Spring,1,1"),
    ],
    "a name before two ids that bear it": [
        (BY_NAME, "2025-05-02,Spring,1,1"),
        (BY_ID, "2025-05-01,Spring,101,1,1"),
        (BY_ID, "2025-05-01,Spring,102,1,1"),
    ],
    "a name before two ids of one file": [
        (BY_NAME, "2025-05-02,Spring,1,1"),
        (BY_ID, "2025-05-01,Spring,101,2,2", "2025-05-01,Spring,102,3,2"),
    ],
    "a name, and an id whose name comes later": [
        (BY_NAME, "2025-05-03,Spring,1,1"),
        (NO_NAME, "2025-05-01,101,1,1"),
        (BY_ID, "2025-05-02,Spring,101,1,1"),
    ],
    "a name with and without its account": [
        (BY_NAME, "2025-05-01,Spring,1,1"),
        (ACCOUNT_AND_NAME, "2025-05-01,7,Spring,1,1"),
    ],
    "a name of an account that the id has left": [
        (ACCOUNT_AND_ID, "2025-05-01,7,Spring,101,1,1"),
        (ACCOUNT_AND_NAME, "2025-05-02,7,Spring,1,1"),
        (ACCOUNT_AND_ID, "2025-05-01,8,Spring,101,1,1"),
    ],
    "names below a campaign that the ad set has left": [
        (AD, "2025-05-01,C,101,S,201,A,301,1,1"),
        (AD_BY_NAME, "2025-05-02,C,S,A,2,2"),
        (AD, "2025-05-01,D,102,S,201,A,301,2,2"),
    ],
    "an ad with and without its ad set": [
        (AD, "2025-05-01,C,101,S,201,A,301,1,1"),
        (AD_WITHOUT_SET, "2025-05-02,C,101,A,301,1,1"),
    ],
}


@dataclass(frozen=True)
class Lines:
    """One file as it is written."""

    lines: tuple[str, ...]

    def content(self) -> bytes:
        return "\n".join([*self.lines, ""]).encode()


BY_TURNS_ALONE = {
    # who bears the name when its file is promoted decides what it means
    "a name between two names of an id",
    "a name, and an id that is renamed to it",
    "a name after two ids that bear it",
    "a name before two ids that bear it",
    "a name before two ids of one file",
    "a name, and an id whose name comes later",
    "a name with and without its account",
    "a name of an account that the id has left",
    "names below a campaign that the ad set has left",
}
"""What is not promised of uploads that were put off for a minute or requeued by hand."""


def differences(
    services: Services, owner_sql: OwnerSql, said: Sequence[Any], schedules: Sequence[Schedule]
) -> list[Any]:
    """Where a schedule leads to other tables than the order of creation."""
    workspace_id, ids = in_order(services, said)
    expected = {**production(owner_sql, workspace_id, ids), "uploads": outcome(owner_sql, ids)}
    differs = []
    for schedule in schedules:
        workspace_id, ids = mixed(services, owner_sql, said, schedule)
        found = {**production(owner_sql, workspace_id, ids), "uploads": outcome(owner_sql, ids)}
        differs += [
            (schedule, table, expected[table], found[table])
            for table in expected
            if found[table] != expected[table]
        ]
    return differs


@pytest.mark.parametrize("name", FILES)
def test_files_about_the_same_entities_end_as_in_order_while_one_worker_is_slow(
    name: str, services: Services, owner_sql: OwnerSql
) -> None:
    said = [Lines(lines) for lines in FILES[name]]
    everything = [Task(stage) for _ in said for stage in STEPS]
    schedules = [
        # the n-th upload is held at this stage while the others go as far as they may
        [*[Task("parse")] * n, *[Task("promote")] * (n if stage == "promote" else 0),
         *([Task("parse")] if stage == "promote" else []), Task(stage, checks=checks, dies=True),
         *everything, LEASES_RUN_OUT]
        for n in range(len(said))
        for stage, checks in (("parse", 0), ("promote", 0), ("promote", 1), ("promote", 3))
    ]  # fmt: skip
    assert differences(services, owner_sql, said, schedules) == []


@pytest.mark.parametrize("name", [name for name in FILES if name not in BY_TURNS_ALONE])
def test_files_about_the_same_entities_end_as_in_order_in_every_order(
    name: str, services: Services, owner_sql: OwnerSql
) -> None:
    said = [Lines(lines) for lines in FILES[name]]
    schedules = [
        [Task(stage, upload) for stage in STEPS for upload in order]
        for order in itertools.permutations(range(len(said)))
    ]
    assert differences(services, owner_sql, said, schedules) == []


def test_an_ad_that_is_reported_with_and_without_its_ad_set_is_not_counted_twice(
    services: Services, owner_sql: OwnerSql
) -> None:
    said = [
        Lines((AD, "2025-05-01,C,101,S,201,A,301,10,1.50")),
        Lines((AD_WITHOUT_SET, "2025-05-01,C,101,A,301,10,1.50")),
    ]
    workspace_id, _ = in_order(services, said)
    assert owner_sql(
        "SELECT sum(impressions)::int, sum(spend)::float FROM daily_performance"
        f" WHERE workspace_id = '{workspace_id}'"
    ) == [(10, 1.5)]
