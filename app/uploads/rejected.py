"""The rows of an upload that are not in production, with their original cells.

Staging keeps the cells of what was rejected. A row that was read well and failed promotion has its line alone
there: its cells are read once more from the stored file, when they are asked for.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any
from uuid import UUID

from app.kernel import errors, spreadsheets
from app.uploads import answers, store
from app.uploads.reading import formats
from app.uploads.reading.originals import Originals
from app.uploads.reading.plan import Plan
from app.uploads.reading.rejection import shown
from app.uploads.services import Services

CSV_ROWS = 1000
"""Rows that are read from the database at a time."""

WITHOUT_CELLS = "Its cells are not shown, since the stored file cannot be read any more."


def explained(services: Services, upload: Any, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Each of these rows with its line, its cells and why it is not in production; they come in file order.

    Transient when the file's store is away.
    """
    with _File(services, upload) as file:
        for row in rows:
            yield _explained(row, file)


def explained_without_file(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """The same, and no cells of rows that failed promotion."""
    return [_explained(row, None) for row in rows]


def as_csv(services: Services, workspace_id: UUID, upload: Any, *, delimiter: str = ",") -> Iterator[str]:
    """All of them as a CSV file, piece by piece; Transient before the first one. Memory stays bounded."""
    names = [column["header"] for column in answers.columns(upload.report)]

    def content() -> Iterator[str]:
        header = "\ufeff" + _csv_line([*names, "line", "code", "reason"], delimiter)
        after_row = -1
        with _File(services, upload) as file:
            while True:
                with services.db.transaction("read", workspace_id) as conn:
                    rows = list(store.rejected_rows(conn, upload, after_row=after_row, limit=CSV_ROWS))
                yield header + "".join(_csv_row(_explained(row, file), len(names), delimiter) for row in rows)
                if len(rows) < CSV_ROWS:
                    return
                header, after_row = "", rows[-1].row_index

    return answers.begun(content())


def _csv_row(found: dict[str, Any], columns_of_file: int, delimiter: str) -> str:
    cells = [*found["cells"], *[""] * (columns_of_file - len(found["cells"]))]
    reason = " ".join(error["message"] for error in found["errors"])
    return _csv_line([*cells, found["line"] or "", found["code"], reason], delimiter)


def _csv_line(cells: list[Any], delimiter: str) -> str:
    """A CSV record in which no cell is a formula to a spreadsheet."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerow([spreadsheets.harmless(str(cell)) for cell in cells])
    return out.getvalue()


def _explained(row: Any, file: _File | None) -> dict[str, Any]:
    if row.validation_errors:
        return answers.rejected(row.row_index, row.validation_errors)
    line = row.raw_data["line"]
    cells = file.cells(line) if file else None
    error = {"code": row.promotion_error, "column": None, "value": ""}
    found = {"line": line if line > 0 else None, "cells": cells or [], "errors": [error]}
    told = answers.rejected(row.row_index, found)
    if cells is None:
        told["errors"][0]["message"] += f" {WITHOUT_CELLS}"
    return told


class _File:
    """The stored file of an upload, opened when the first cells are asked for."""

    def __init__(self, services: Services, upload: Any) -> None:
        self._services, self._upload = services, upload
        self._stack = ExitStack()
        self._originals: Originals | None = None
        self._lost = False

    def __enter__(self) -> _File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def cells(self, line: int) -> list[str] | None:
        """The cells of the row that begins there; None when the file is gone, or damaged by now.

        Rows are asked for in file order.
        """
        if self._lost:
            return None
        try:
            with formats.gzip_errors():
                self._originals = self._originals or self._open()
                cells = self._originals.cells(line)
        except (errors.FileGone, errors.FileRefused):
            self._lost = True
            return None
        return None if cells is None else [shown(cell) for cell in cells]

    def _open(self) -> Originals:
        stored = self._stack.enter_context(self._services.blobs.open(self._upload.file_url))
        content = self._stack.enter_context(formats.unpacking(stored))
        return Originals(Plan.from_json(self._upload.report["plan"]), content)
