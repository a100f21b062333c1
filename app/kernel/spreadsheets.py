"""Cells that people open in a spreadsheet program: none of them is a formula."""

from __future__ import annotations

import re

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_NO_FORMULA = re.compile(r"^[-+][-\d.,'’\s%]*$")  # a signed number, or a dash for none


def harmless(cell: str) -> str:
    """The cell such that no spreadsheet program takes it for a formula; numbers stay numbers."""
    return f"'{cell}" if cell.startswith(FORMULA_STARTS) and not _NO_FORMULA.match(cell) else cell
