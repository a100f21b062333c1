"""Images and tables are the maps that they were made of, whatever changed since."""

from __future__ import annotations

import json
import uuid
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.refdata.query import image, saved
from app.refdata.query.image import BadEntries, BadImage, Image, Standing, token_of
from app.refdata.query.table import Table

PLACE = ("tenant-a", "COUNTRY")
EPOCH = uuid.UUID(int=7)
KEYS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6
) | st.sampled_from(["a", "b", "ключ", 'q"uote', "back\\slash", "new\nline", "c,omma", "🙂", "a b", "~", "{"])
PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
)
MAPS = st.dictionaries(KEYS, PAYLOADS, max_size=30)
NUMBERS = count()


def table_of(entries: dict[str, object], folder: Path, *, plain: bool = False) -> Table:
    found = image.write(
        folder / f"{next(NUMBERS)}.image",
        ((token_of(key.encode()), json.dumps(value).encode()) for key, value in entries.items()),
        Standing(EPOCH, 1),
    )
    return Table.of(PLACE, found, plain=plain)


def changes_of(changes: dict[str, object]) -> dict[bytes, bytes | None]:
    return {
        token_of(key.encode()): None if value is GONE else json.dumps(value).encode()
        for key, value in changes.items()
    }


GONE = object()


def read(table: Table) -> dict[str, object]:
    """All of it, by the way of `all`."""
    text = b"".join(text for text, _, _ in table.texts())
    assert len(text) == table.size
    found: dict[str, object] = json.loads(b"{" + text[1:] + b"}")
    return found


@given(MAPS, st.lists(st.dictionaries(KEYS, PAYLOADS | st.just(GONE), max_size=8), max_size=4), st.booleans())
def test_a_table_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, object],
    steps: list[dict[str, object]], plain: bool,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("images")
    table, wanted = table_of(entries, folder, plain=plain), dict(entries)
    for version, step in enumerate(steps, start=2):
        table = table.after(Standing(EPOCH, version), changes_of(step))
        wanted = {key: value for key, value in (wanted | step).items() if value is not GONE}
    assert read(table) == wanted
    assert table.count == len(wanted)
    for key in {*entries, *(key for step in steps for key in step), "nowhere"}:
        payload = table.find(token_of(key.encode()))
        assert (payload is None, payload and json.loads(payload)) == (key not in wanted, wanted.get(key))
    # The same entries have the same checksum, however they came there; so has a new image of them.
    assert table.checksum == table_of(wanted, folder).checksum
    again = table.save(folder / "again.image")
    assert (read(again), again.checksum, again.standing) == (wanted, table.checksum, table.standing)


@given(MAPS, st.dictionaries(KEYS, PAYLOADS | st.just(GONE), max_size=8), st.integers(1, 7))
def test_pages_together_are_the_whole_in_one_order(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, object], step: dict[str, object], limit: int
) -> None:
    table = table_of(entries, tmp_path_factory.mktemp("images"))
    table = table.after(Standing(EPOCH, 2), changes_of(step))
    pages, after = [], b""
    while True:
        page = list(table.texts(after, limit))
        assert sum(number for _, number, _ in page) <= limit
        if not page:
            break
        pages.append(b"".join(text for text, _, _ in page))
        after = page[-1][2]
    assert b"".join(pages) == b"".join(text for text, _, _ in table.texts())


def test_a_step_of_a_large_table_is_bounded(tmp_path: Path) -> None:
    table = table_of({f"k{n}": n for n in range(2500)}, tmp_path)
    assert [number for _, number, _ in table.texts()] == [1000, 1000, 500]


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    entries = [(token_of(b"a"), b"1"), (token_of(b"b"), b"2"), (token_of(b"a"), b"3")]
    with pytest.raises(BadEntries, match='"a" twice'):
        image.write(tmp_path / "x.image", entries, Standing(EPOCH, 1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"", lambda b: b"X" + b[1:]]
)
def test_a_damaged_image_is_none(damage: object, tmp_path: Path) -> None:
    table_of({"a": 1}, tmp_path)
    [path] = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(BadImage):
        Image(path)


def test_an_entry_that_is_not_as_it_was_written_is_noticed(tmp_path: Path) -> None:
    table = table_of({"a": "payload", "b": 2}, tmp_path)
    path = table.base.path
    saved.save(tmp_path, [table])
    path.write_bytes(path.read_bytes().replace(b"payload", b"pbyload"))
    assert saved.restore(tmp_path) == ({}, False)


def test_keys_whose_hashes_begin_alike_are_told_apart(tmp_path: Path) -> None:
    table = table_of({f"k{n}": n for n in range(5000)}, tmp_path)
    assert all(table.find(token_of(b"k%d" % n)) == b"%d" % n for n in range(5000))
    assert all(table.find(token_of(b"k%d" % n)) is None for n in range(5000, 10_000))


def test_what_a_folder_has_is_there_again(tmp_path: Path) -> None:
    table = table_of({"a": 1, "b": 2}, tmp_path).after(Standing(EPOCH, 5), changes_of({"b": GONE, "c": 3}))
    (tmp_path / "left-over.image").write_bytes(b"of somebody who died")
    saved.save(tmp_path, [table])
    found, is_whole = saved.restore(tmp_path)
    assert is_whole
    assert read(found[PLACE]) == {"a": 1, "c": 3}
    assert found[PLACE].standing == table.standing
    assert {path.name for path in tmp_path.iterdir()} == {"tables", table.base.path.name}


def test_a_folder_whose_list_or_image_is_damaged_is_served_as_far_as_it_is_whole(tmp_path: Path) -> None:
    good, bad = table_of({"a": 1}, tmp_path), table_of({"b": 2}, tmp_path)
    saved.save(tmp_path, [good, Table.of(("tenant-b", "COUNTRY"), bad.base)])
    bad.base.path.write_bytes(b"HWIMAGE1 and then nothing")
    found, is_whole = saved.restore(tmp_path)
    assert (list(found), is_whole) == ([PLACE], False)
    (tmp_path / "tables").write_bytes(b"\xc1")
    assert saved.restore(tmp_path) == ({}, False)
