"""Two workers of each kind and ten workspaces: three at a time, in turns, and everybody works."""

from __future__ import annotations

import io
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from app.adapters import embedded
from app.adapters.settings import Settings
from app.uploads import intake, services
from tests import patience
from tests.acceptance.conftest import ROOT, environment
from tests.conftest import Servers

WORKSPACES = 10
UPLOADS_EACH = 20
ACTIVE = ("processing", "staging_complete", "promoting")


def procfile_of_two() -> str:
    """The project's workers, those of parse and promote twice."""
    lines = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines() if line)
    wanted = []
    for name in ("parse", "promote"):
        for number in (1, 2):
            wanted.append(f"{name}{number}: {lines[name].replace(f'{name}@', f'{name}{number}@')}")
    wanted += [f"{name}: {lines[name]}" for name in ("relay", "beat")]
    return "\n".join(wanted) + "\n"


@dataclass(frozen=True)
class Trail:
    """What the audit log says of every move, in order."""

    moves: list[Any]

    def into(self, status: str) -> list[Any]:
        return [move for move in self.moves if move.to_status == status and move.from_status != status]


@dataclass(frozen=True)
class Move:
    """One line of the audit log."""

    workspace_id: UUID
    upload_id: UUID
    from_status: str | None
    to_status: str
    owner_id: str | None


@pytest.fixture(scope="module")
def trail(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trail]:
    """All uploads wait when the workers start; the trail of their way to the end."""
    name = f"fairness_{uuid.uuid4().hex[:8]}"
    servers.sql(f"CREATE DATABASE {name} TEMPLATE template_migrated")
    data = tmp_path_factory.mktemp("fairness")
    (data / "Procfile").write_text(procfile_of_two())
    with embedded.Valkey(data / "valkey") as valkey:
        env = environment(servers.dsn_of(name), valkey.url, data)
        _hand_in(env)
        processes = embedded.Fleet(data / "Procfile", env=env, logs=data / "logs")
        processes.start()
        try:
            _wait_for_the_end(servers, servers.dsn_of(name), processes)
        finally:
            processes.stop()
    rows = servers.sql(
        "SELECT workspace_id, upload_id, from_status, to_status, owner_id FROM audit"
        " WHERE to_status IS NOT NULL AND action <> 'event_received' ORDER BY id",
        dsn=servers.dsn_of(name),
    )
    yield Trail([Move(*row) for row in rows])
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def _hand_in(env: dict[str, str]) -> None:
    """Workspace after workspace: whoever served them in that order would starve the last."""
    ours = services.connect(Settings.from_env(env), name="tests")
    for number in range(WORKSPACES):
        workspace_id = UUID(int=number + 1, version=4)
        for day in range(UPLOADS_EACH):
            content = (
                "Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)\n"
                f"2025-05-{day + 1:02},Spring,101,{number},1.50\n"
            )
            intake.take_in(ours, intake.Request(workspace_id, "meta", "manual"), _file(content))
    ours.db.close()


def _file(content: str) -> Any:
    return io.BytesIO(content.encode())


def _wait_for_the_end(servers: Servers, dsn: str, processes: embedded.Fleet) -> None:
    deadline = patience.deadline(90)
    open_uploads = "SELECT status, count(*) FROM data_uploads WHERE finished_at IS NULL GROUP BY 1"
    while left := servers.sql(open_uploads, dsn=dsn):
        assert processes.first_ended() is None, processes.first_ended()
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_all_uploads_are_completed(trail: Trail) -> None:
    completed = Counter(move.workspace_id for move in trail.into("completed"))
    assert {UUID(int=n + 1, version=4): UPLOADS_EACH for n in range(WORKSPACES)} == dict(completed)
    assert trail.into("failed") + trail.into("partial") == []


def test_never_more_than_three_of_a_workspace_are_active(trail: Trail) -> None:
    active: dict[UUID, set[UUID]] = {}
    most: Counter[UUID] = Counter()
    for move in trail.moves:
        now = active.setdefault(move.workspace_id, set())
        if move.to_status in ACTIVE:
            now.add(move.upload_id)
        else:
            now.discard(move.upload_id)
        most[move.workspace_id] = max(most[move.workspace_id], len(now))
    assert all(count <= 3 for count in most.values()), most
    assert set() == set().union(*active.values())


def test_every_upload_is_in_one_workers_hands_at_a_time(trail: Trail) -> None:
    for status in ("processing", "promoting"):
        assert {1} == set(Counter(move.upload_id for move in trail.into(status)).values()), status


# Of two workers each; those of promote have two processes.
@pytest.mark.parametrize(("status", "processes"), [("processing", 2), ("promoting", 4)])
def test_every_process_takes_part(status: str, processes: int, trail: Trail) -> None:
    shares = Counter(move.owner_id for move in trail.into(status))
    assert len(shares) == processes
    assert min(shares.values()) >= WORKSPACES * UPLOADS_EACH // (5 * processes), shares


def test_no_workspace_waits_for_another_ones_backlog(trail: Trail) -> None:
    claims = [move.workspace_id for move in trail.into("processing")]
    # A worker that waited for another one's claim may take the same workspace once more.
    assert len(set(claims[: 2 * WORKSPACES])) == WORKSPACES
    at_half_time = Counter(claims[: len(claims) // 2])
    assert len(at_half_time) == WORKSPACES
    assert max(at_half_time.values()) - min(at_half_time.values()) <= 6, at_half_time


def test_a_workspaces_uploads_are_taken_in_the_order_of_their_creation(trail: Trail) -> None:
    created: dict[UUID, list[UUID]] = {}
    taken: dict[UUID, list[UUID]] = {}
    for move in trail.moves:
        if move.to_status == "pending":
            created.setdefault(move.workspace_id, []).append(move.upload_id)
        elif move.to_status == "processing":
            taken.setdefault(move.workspace_id, []).append(move.upload_id)
    assert created == taken
