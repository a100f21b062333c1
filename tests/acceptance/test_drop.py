"""Files dropped into the watched folder of a running fleet (D6.6 §2.1, uploads.md 6)."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import RunningFleet
from tests.integration.threads import wait_until

GOOD = (
    b"Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD)\n"
    b"2025-05-01,Spring,101,100,10,1.50\n2025-05-02,Summer,102,200,20,2.50\n"
)
XLSX = b"PK\x03\x04\x14\x00\x06\x00\x08\x00[Content_Types].xml" + b"\x00" * 40 + b"xl/workbook.xml"
UNFINISHED = ("a.csv.part", "b.csv.crdownload", "c.tmp", "d.PARTIAL", ".hidden.csv", "e.csv.filepart")


class Drop:
    """The watched folder, and one workspace's part of it."""

    def __init__(self, fleet: RunningFleet) -> None:
        self.fleet, self.root = fleet, fleet.data / "drop"
        self.workspace = str(uuid.uuid4())

    def put(self, path: str, content: bytes = GOOD) -> Path:
        """A file below the watched folder, whole at once."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = self.fleet.data / f"beside-{uuid.uuid4().hex}"
        beside.write_bytes(content)
        os.utime(beside, (time.time() - 60, time.time() - 60))
        beside.rename(target)
        return target

    def ours(self, name: str, *, platform: str = "meta") -> str:
        return f"{self.workspace}/{platform}/{name}"

    def uploads(self) -> list[dict[str, Any]]:
        """Oldest first."""
        found: list[dict[str, Any]] = self.fleet.api.get("/v1/uploads", workspace_id=self.workspace)[
            "uploads"
        ]
        return found[::-1]

    def taken(self, count: int = 1) -> list[dict[str, Any]]:
        """The uploads, once there are so many and they have come to their end."""
        wait_until(lambda: len(self.uploads()) >= count, seconds=15)
        return [self.fleet.api.finished(upload["upload_id"]) for upload in self.uploads()]

    def refused(self, path: str) -> dict[str, Any]:
        """The reason beside the refused file, once it is there."""
        target = self.root / ".refused" / path
        reason = target.with_name(f"{target.name}.reason.json")
        wait_until(lambda: reason.exists() and target.exists(), seconds=15)
        return json.loads(reason.read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    def scanned(self) -> None:
        """A whole scan began and ended after this was called: it took a file that was not there before."""
        witness = Drop(self.fleet)
        witness.put(witness.ours("zz-witness.csv"))
        witness.taken()


@pytest.fixture
def drop(fleet: RunningFleet) -> Drop:
    return Drop(fleet)


def test_a_whole_file_is_taken_and_moved_aside(drop: Drop) -> None:
    path = drop.put(drop.ours("may.csv"))
    (upload,) = drop.taken()
    assert tuple(
        upload[name] for name in ("status", "platform", "source", "filename", "client_id", "row_count")
    ) == ("completed", "meta", "manual", "may.csv", None, 2)
    kept = drop.root / ".taken" / drop.ours("may.csv")
    wait_until(kept.exists)
    assert kept.read_bytes() == GOOD
    assert not path.exists()


def test_the_folder_of_a_client_names_the_client(drop: Drop) -> None:
    client_id = str(uuid.uuid4())
    drop.put(drop.ours(f"{client_id}/may.csv"))
    (upload,) = drop.taken()
    assert ("completed", client_id) == (upload["status"], upload["client_id"])


def test_a_file_that_is_still_written_to_is_left_alone(drop: Drop) -> None:
    path = drop.root / drop.ours("slow.csv")
    path.parent.mkdir(parents=True)
    rows = [f"2025-05-01,Campaign {n},{n + 100},1,1,1.50\n".encode() for n in range(40)]
    with path.open("wb") as file:
        file.write(GOOD.splitlines(keepends=True)[0])
        began = time.monotonic()
        for row in rows:
            file.write(row)
            file.flush()
            time.sleep(0.08)  # slower than a scan, faster than the file would count as whole
    assert time.monotonic() - began > 2.5  # at least one scan came by
    assert path.exists() and drop.uploads() == []
    (upload,) = drop.taken()
    assert (upload["status"], upload["row_count"]) == ("completed", 40)


def test_a_file_renamed_into_place_is_taken_whole(drop: Drop) -> None:
    hidden = drop.put(drop.ours(".may.csv.incoming"))
    drop.scanned()
    assert hidden.exists() and drop.uploads() == []
    hidden.rename(hidden.with_name("may.csv"))
    (upload,) = drop.taken()
    assert (upload["status"], upload["filename"]) == ("completed", "may.csv")


def test_what_is_not_finished_is_left_alone_until_it_has_its_name(drop: Drop) -> None:
    paths = [drop.put(drop.ours(name)) for name in UNFINISHED]
    drop.scanned()
    assert [True] * len(paths) == [path.exists() for path in paths]
    assert drop.uploads() == []
    paths[0].rename(paths[0].with_suffix(""))
    (upload,) = drop.taken()
    assert upload["filename"] == "a.csv"


def test_the_same_name_twice_is_two_uploads_and_both_are_kept(drop: Drop) -> None:
    drop.put(drop.ours("daily.csv"))
    drop.taken()
    second = GOOD.replace(b"1.50", b"9.75")
    drop.put(drop.ours("daily.csv"), second)
    first, again = drop.taken(2)
    assert [first["status"], again["status"]] == ["completed", "completed"]
    folder = (drop.root / ".taken" / drop.ours("daily.csv")).parent
    wait_until(lambda: len(list(folder.iterdir())) == 2)
    assert {GOOD, second} == {path.read_bytes() for path in folder.iterdir()}


WRONG_PLACES: dict[str, Callable[[Drop], str]] = {
    "beside the workspaces": lambda drop: f"loose-{drop.workspace}.csv",
    "without a platform": lambda drop: f"{drop.workspace}/may.csv",
    "of an unknown platform": lambda drop: f"{drop.workspace}/bing/may.csv",
    "of a workspace that is no UUID": lambda drop: f"acme-{drop.workspace}/meta/may.csv",
    "of a client that is no UUID": lambda drop: f"{drop.workspace}/meta/acme/may.csv",
    "too deep": lambda drop: f"{drop.workspace}/meta/{uuid.uuid4()}/2025/may.csv",
}


def test_a_file_in_a_wrong_place_is_refused_with_a_reason(drop: Drop) -> None:
    paths = {where: place(drop) for where, place in WRONG_PLACES.items()}
    for path in paths.values():
        drop.put(path)
    for where, path in paths.items():
        reason = drop.refused(path)
        assert reason["code"] == "invalid_drop_path", where
        assert len(reason["reason"].split()) > 5, where
        assert not (drop.root / path).exists(), where
    assert drop.uploads() == []


def test_a_spreadsheet_is_refused_with_the_way_out(drop: Drop) -> None:
    drop.put(drop.ours("may.xlsx"), XLSX)
    reason = drop.refused(drop.ours("may.xlsx"))
    assert reason["code"] == "unsupported_format"
    assert "CSV" in reason["reason"]
    assert (drop.root / ".refused" / drop.ours("may.xlsx")).read_bytes() == XLSX
    assert drop.uploads() == []


def test_an_empty_file_is_refused(drop: Drop) -> None:
    drop.put(drop.ours("empty.csv"), b"")
    assert drop.refused(drop.ours("empty.csv"))["code"] == "empty_file"


def test_one_refused_file_does_not_stand_in_the_way_of_others(drop: Drop) -> None:
    drop.put(drop.ours("a.xlsx"), XLSX)
    drop.put(drop.ours("b.csv"))
    (upload,) = drop.taken()
    assert upload["status"] == "completed"
    drop.refused(drop.ours("a.xlsx"))


def test_a_link_is_not_followed(drop: Drop) -> None:
    outside = drop.fleet.data / f"secret-{drop.workspace}.csv"
    outside.write_bytes(GOOD)
    os.utime(outside, (time.time() - 60, time.time() - 60))
    link = drop.root / drop.ours("link.csv")
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    drop.scanned()
    assert outside.exists() and drop.uploads() == []


def test_a_report_with_a_long_name_in_any_script_is_taken(drop: Drop) -> None:
    name = "рекламный отчёт 日本 " + "x" * 60 + ".csv"
    drop.put(drop.ours(name))
    (upload,) = drop.taken()
    assert ("completed", name) == (upload["status"], upload["filename"])


def test_a_file_whose_name_is_no_text_does_not_stand_in_the_way(drop: Drop) -> None:
    folder = drop.root / drop.ours("x")
    folder.parent.mkdir(parents=True)
    strange = os.fsencode(folder.parent) + b"/caf\xe9.csv"  # Latin-1, as old programs write
    Path(os.fsdecode(strange)).write_bytes(GOOD)
    os.utime(strange, (time.time() - 60, time.time() - 60))
    try:
        drop.put(drop.ours("z.csv"))
        wait_until(lambda: "z.csv" in {upload["filename"] for upload in drop.uploads()}, seconds=10)
    finally:
        Path(os.fsdecode(strange)).unlink(missing_ok=True)
