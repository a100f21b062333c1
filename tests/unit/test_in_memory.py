"""The servers' folder in memory: one for each run, gone with it, and none where there is no room."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.adapters import embedded
from tests import in_memory


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(in_memory, "MEMORY", tmp_path)
    monkeypatch.setattr(in_memory, "FREE_BYTES", 0)
    return tmp_path


def test_a_run_has_a_folder_of_its_own_that_goes_with_it(memory: Path) -> None:
    with in_memory.folder(Path("elsewhere")) as first, in_memory.folder(Path("elsewhere")) as second:
        (first / "data").mkdir()
        (first / "data" / "1").write_text("a page")
        assert {first, second} == set(memory.iterdir())
    assert list(memory.iterdir()) == []


@pytest.mark.parametrize("room", ["too little", "none"])
def test_without_room_it_is_another_folder(memory: Path, monkeypatch: pytest.MonkeyPatch, room: str) -> None:
    if room == "none":
        monkeypatch.setattr(in_memory, "MEMORY", memory / "nowhere")
    else:
        monkeypatch.setattr(in_memory, "FREE_BYTES", 1 << 80)
    with in_memory.folder(Path("elsewhere")) as found:
        assert found == Path("elsewhere")
    assert list(memory.iterdir()) == []


def test_what_a_killed_run_has_left_is_removed_and_nothing_else(memory: Path) -> None:
    left, used, just_made, strange = (
        memory / name for name in ("headworks-tests-1", "headworks-tests-2", "headworks-tests-3", "other")
    )
    for path in (left, used, just_made, strange):
        path.mkdir()
    for path in (left, strange):
        (path / "lock").write_text("4711\n")
    lock = embedded.FolderLock(used)
    lock.acquire()
    with in_memory.folder(Path("elsewhere")) as found:
        assert {used, just_made, strange, found} == set(memory.iterdir())
    lock.release()
