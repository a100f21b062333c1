"""The source of a list, whatever its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.suppliers.reading import html_table, spreadsheetml
from app.suppliers.reading.catalog_xml import Yml
from app.suppliers.reading.excel import Calamine, Xls
from app.suppliers.reading.formats import Content
from app.suppliers.reading.limits import Limits
from app.suppliers.reading.sheets import Source
from app.suppliers.reading.text import Csv, Json

if TYPE_CHECKING:
    from app.suppliers.config import Config


def opened(content: Content, config: Config, *, limits: Limits) -> Source:
    """The list, ready to be read; SupplierFailure when it is damaged."""
    if content.format in ("xlsx", "xlsb"):
        return Calamine(content.path, content.format, limits)
    if content.format == "xls":
        return Xls(content.path, config.input)
    if content.format == "yml":
        return Yml(content.path)
    if content.format == "html":
        return html_table.opened(content.path, config.input, limits)
    if content.format == "spreadsheetml":
        return spreadsheetml.opened(content.path, limits)
    if content.format == "json":
        return Json(content.path, config.input)
    return Csv(content.path, config.input)
