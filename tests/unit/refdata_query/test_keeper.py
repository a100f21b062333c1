"""What readers are told of tables, whatever happens at the same time."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.kernel import errors
from app.kernel.clock import SystemClock
from app.refdata.query import image, keeper
from app.refdata.query.frames import Changed, FromLoader
from app.refdata.query.image import Standing, token_of
from app.refdata.query.keeper import Keeper
from app.refdata.query.table import Table

PLACE = ("tenant-a", "COUNTRY")
EPOCH = uuid.UUID(int=1)


class Builders:
    """Make images when they are told to, or never."""

    def __init__(self) -> None:
        self.asked: list[tuple[Table, Path, Future[None]]] = []
        self.is_broken = False

    def save(self, table: Table, path: Path) -> Future[None]:
        if self.is_broken:
            raise errors.Transient("A builder has died.", code="builder_died")
        self.asked.append((table, path, Future()))
        return self.asked[-1][2]

    def finish(self) -> None:
        table, path, saving = self.asked.pop(0)
        table.save(path)
        saving.set_result(None)


class Reader:
    """Knows what it is told, one after the other; what it is told can be held up."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.meanwhile: Any = None

    def tell(self, frame: FromLoader) -> None:
        if self.meanwhile is not None and not isinstance(frame, Changed):
            act, self.meanwhile = self.meanwhile, None
            act()
        self.versions.append(frame.version)  # type: ignore[union-attr]


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def builders() -> Builders:
    return Builders()


@pytest.fixture
def kept(reader: Reader, builders: Builders, tmp_path: Path) -> Keeper:
    of: Any = SimpleNamespace(clock=SystemClock())
    found = Keeper(of, tmp_path, builders, reader.tell)  # type: ignore[arg-type]
    base = image.write(tmp_path / "first.image", [(token_of(b"a"), b"0")], Standing(EPOCH, 1))
    found._put(None, Table.of(PLACE, base))
    return found


def change(kept: Keeper, version: int) -> None:
    known = kept.get(PLACE)
    assert known is not None
    kept._change(known, Standing(EPOCH, version), {token_of(b"a"): b"%d" % version})


@pytest.mark.parametrize("way", ["told again", "given a new image"])
def test_nobody_is_told_of_an_older_table_behind_a_newer_one(
    way: str, kept: Keeper, reader: Reader, builders: Builders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "LEAST_CHANGES", 0 if way == "given a new image" else 1000)
    change(kept, 2)
    monkeypatch.setattr(keeper, "LEAST_CHANGES", 1000)
    changing = threading.Thread(target=change, args=(kept, 3))
    # While somebody is told of version 2 as a whole, the next one comes.
    reader.meanwhile = lambda: (changing.start(), changing.join(0.3))
    if way == "told again":
        kept.tell_again(PLACE)
    else:
        builders.finish()
    changing.join()
    assert reader.versions == [1, 2, 2, 3]
    table = kept.get(PLACE)
    assert table is not None and (table.standing.version, table.find(token_of(b"a"))) == (3, b"3")


def test_a_builder_that_died_does_not_keep_a_dictionary_from_its_next_image(
    kept: Keeper, builders: Builders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "LEAST_CHANGES", 0)
    builders.is_broken = True
    change(kept, 2)
    assert kept._later == {}
    builders.is_broken = False
    change(kept, 3)
    builders.finish()
    table = kept.get(PLACE)
    assert table is not None and (table.base.standing.version, table.changes) == (3, {})
