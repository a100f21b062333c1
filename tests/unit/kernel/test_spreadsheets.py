"""What a spreadsheet program would run is text, and what is a number stays one."""

from __future__ import annotations

import pytest

from app.kernel import spreadsheets


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3=", "@SUM(A1)", "\t=1", "\r=1", "-a"])
def test_a_formula_is_made_text(cell: str) -> None:
    assert spreadsheets.harmless(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["", "-", "--", "-1,234.50", "+5 %", "−1", "a=1", "1-2", "Müller & Söhne"])
def test_everything_else_stays_as_it_is(cell: str) -> None:
    assert spreadsheets.harmless(cell) == cell
