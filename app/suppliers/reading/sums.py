"""Lists in which a repeated key adds to the stock of its first row: their facts, once all rows are known."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import orjson

from app.suppliers.reading.cells import MAX_INTEGER
from app.suppliers.reading.payloads import Fact, Facts, fact

AT_A_TIME = 1000


class Sums:
    """The first fact of each key lies in a file, in order; only the keys and their sums are in memory."""

    def __init__(self, room: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=room)  # noqa: SIM115 (it lives as long as this)
        self._sums: dict[bytes, int] = {}
        self._at_least: set[bytes] = set()
        self._repeated: set[bytes] = set()

    def add(self, category: str, keys: list[bytes], row: Facts) -> bool:
        """The facts of a row are part of the sums; False when one would be beyond all bounds."""
        found = [orjson.loads(payload) for payload in row.payloads]
        if any(
            self._sums.get(key, 0) + one["qty"] > MAX_INTEGER for key, one in zip(keys, found, strict=True)
        ):
            return False
        for key, fields, number, payload in zip(keys, found, row.numbers, row.payloads, strict=True):
            if key in self._sums:
                self._repeated.add(key)
                self._sums[key] += fields["qty"]
            else:
                self._sums[key] = fields["qty"]
                self._file.write(b"%d\t%b\t%b\n" % (number, category.encode(), payload))
            if fields["qty_min"]:
                self._at_least.add(key)
        return True

    def facts(self) -> Iterator[tuple[str, Facts]]:
        """The first fact of each key with its sum, some at a time with their category, in order."""
        for category, some in itertools.groupby(self._summed(), key=itemgetter(0)):
            while held := list(itertools.islice(some, AT_A_TIME)):
                facts = Facts()
                for _, number, one in held:
                    facts.append(number, *one)
                yield category, facts

    def close(self) -> None:
        """The file is gone."""
        self._file.close()

    def _summed(self) -> Iterator[tuple[str, int, Fact]]:
        self._file.seek(0)
        for line, (key, total) in zip(self._file, self._sums.items(), strict=True):
            number, category, payload = line.split(b"\t", 2)
            fields = orjson.loads(payload)
            if key in self._repeated:
                fields |= {"qty": total, "qty_min": key in self._at_least}
            yield category.decode(), int(number), fact(fields)
