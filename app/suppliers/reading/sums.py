"""Lists in which a repeated key adds to the stock of its first row: their facts, once all rows are known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson

from app.suppliers.reading.cells import MAX_INTEGER
from app.suppliers.reading.payloads import Fact, fact


class Sums:
    """The first fact of each key lies in a file, in order; only the keys and their sums are in memory."""

    def __init__(self, room: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=room)  # noqa: SIM115 (it lives as long as this)
        self._sums: dict[bytes, int] = {}
        self._at_least: set[bytes] = set()
        self._repeated: set[bytes] = set()

    def add(self, keys: list[bytes], facts: list[Fact], *, number: int, category: str) -> bool:
        """The facts of a row are part of the sums; False when one would be beyond all bounds."""
        found = [orjson.loads(one.payload) for one in facts]
        if any(
            self._sums.get(key, 0) + one["qty"] > MAX_INTEGER for key, one in zip(keys, found, strict=True)
        ):
            return False
        for key, payload, one in zip(keys, found, facts, strict=True):
            if key in self._sums:
                self._repeated.add(key)
                self._sums[key] += payload["qty"]
            else:
                self._sums[key] = payload["qty"]
                self._file.write(b"%d\t%b\t%b\n" % (number, category.encode(), one.payload))
            if payload["qty_min"]:
                self._at_least.add(key)
        return True

    def facts(self) -> Iterator[tuple[int, str, Fact]]:
        """The row of each key's first fact, its category, and the fact with the sum."""
        self._file.seek(0)
        for line, (key, total) in zip(self._file, self._sums.items(), strict=True):
            number, category, payload = line.split(b"\t", 2)
            fields = orjson.loads(payload)
            if key in self._repeated:
                fields |= {"qty": total, "qty_min": key in self._at_least}
            yield int(number), category.decode(), fact(fields)
        self._file.close()
