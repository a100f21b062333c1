"""Lists that are YML: an XML catalog of offers, as marketplaces take it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError

import defusedxml
import defusedxml.ElementTree

from app.suppliers.reading.sheets import KeyedRow, Sheet, Source, refused

MAX_DEPTH = 100


class Yml(Source):
    """The offers of a catalog: elements by name, attributes as `@name`, parameters as `param:name`."""

    format = "yml"

    def __init__(self, path: Path) -> None:
        self._path = path

    def sheets(self) -> list[Sheet]:
        return [Sheet("", keyed=True)]

    def keyed_rows(self, sheet: Sheet) -> Iterator[KeyedRow]:
        try:
            yield from self._offers()
        except defusedxml.DefusedXmlException:
            raise refused("XML_ENTITY") from None
        except (ParseError, ValueError, LookupError) as error:
            # Only a declared entity of its own is unknown to the parser without being broken.
            code = "XML_ENTITY" if "undefined entity" in str(error) else "FILE_CORRUPT"
            raise refused(code, format="yml") from None

    def _offers(self) -> Iterator[KeyedRow]:
        number, depth, seen = 0, 0, False
        events = defusedxml.ElementTree.iterparse(
            self._path, events=("start", "end"), forbid_dtd=False, forbid_entities=True, forbid_external=True
        )
        path: list[Element] = []
        for event, element in events:
            if event == "start":
                path.append(element)
                depth += 1
                if depth > MAX_DEPTH:
                    raise refused("FILE_CORRUPT", format="yml", depth=depth)
                seen = seen or element.tag == "offers"
                continue
            path.pop()
            depth -= 1
            if element.tag == "offer":
                number += 1
                yield number, _values(element)
            if path and element.tag in ("offer", "category"):
                path[-1].remove(element)  # memory does not grow with the catalog
        if not seen:
            raise refused("HEADER_NOT_FOUND")


def _values(offer: Element) -> dict[str, Any]:
    found: dict[str, Any] = {f"@{name}": value for name, value in offer.attrib.items()}
    for child in offer:
        name = child.tag if child.tag != "param" else f"param:{child.get('name', '')}"
        found.setdefault(name, "".join(child.itertext()))
    return found
