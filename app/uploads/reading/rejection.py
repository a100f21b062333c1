"""Why a row was refused, as it is kept with the row."""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.uploads.reading.cells import Problem, storable


def rejection(line: int, row: Sequence[str], problems: Sequence[Problem]) -> str:
    """JSON of `validation_errors`: the physical line, the original cells, and what is wrong."""
    found = {
        "line": line if line > 0 else None,
        "cells": [shown(cell) for cell in row],
        "errors": [
            {"code": p.code, "column": p.column or None, "value": shown(p.value)[:200]} for p in problems
        ],
    }
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def shown(cell: str) -> str:
    """The cell as it can be stored and told, with ␀ and ? for characters that cannot."""
    if storable(cell):
        return cell
    return cell.replace("\x00", "␀").encode("utf-8", "replace").decode()
