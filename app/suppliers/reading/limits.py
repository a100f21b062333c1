"""How much of a list is read at most: beyond, it is refused, whatever is in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one list. Real ones unpack to seven to nine times their size."""

    unpacked_bytes: int = 300 * 1024 * 1024
    ratio: int = 100  # of unpacked to packed, from `ratio_from_bytes` on
    ratio_from_bytes: int = 32 * 1024 * 1024
    entries: int = 2_000  # of an archive
    cells: int = 60_000_000  # of a sheet, from its first to its last cell
    memory_bytes: int = 1536 * 1024 * 1024  # of the process that reads
    seconds: float = 600.0  # that reading takes
