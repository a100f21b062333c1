"""What each distinct cell of a column means, worked out once: reports say the same things over and over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.uploads.reading.cells import Problem

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 8_000
"""Distinct cells that a column keeps in mind."""


class Memo(dict[K, V]):
    """`memo[cell]` is what `read` makes of it. `clean` until that was a Problem for the first time.

    Bounded: at so many cells all of them are forgotten, and `forgotten` is called.
    """

    def __init__(
        self,
        read: Callable[[K], V],
        *,
        remembered: int = REMEMBERED,
        forgotten: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.clean = True
        self._read, self._remembered, self._forgotten = read, remembered, forgotten

    def __missing__(self, cell: K) -> V:
        if len(self) >= self._remembered:
            self.clear()
            self._forgotten()
        value = self[cell] = self._read(cell)
        self.clean = self.clean and not isinstance(value, Problem)
        return value
