"""docs/reference/http.md: every route with its scope and statuses, from the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from app.openapi import document
from reference.page import code, page, table

METHODS = ("get", "post", "put", "patch", "delete")
ABOUT = """
What an instance serves that has a pipeline and reference data. Fields, examples and each refusal are on its
page `/docs`,
and for programs in `/openapi.json`. The pages for people are in [pages](../pages.md).

*Needs*: a scope is that of a key (`headworks keys create --scope …`); *token* one of
`HEADWORKS_PIPELINE_TOKENS`;
*tenant* a token that speaks for the tenant, as the configuration says; *instance* a key of all workspaces.
The instance's
own key has all of them. Refusals are `application/problem+json` with a `code`: see [codes](codes.md).
"""
SCOPE = re.compile(r"scope\s+`(\w+)`")


class Route(NamedTuple):
    """One operation of the API."""

    tag: str
    method: str
    path: str
    operation: dict[str, Any]


@cache
def whole() -> dict[str, Any]:
    """The document of everything that an instance may serve; nobody changes it."""
    return document.whole(*document.INSTANCE, *document.PIPELINE, *document.REFDATA)


def routes(found: dict[str, Any]) -> Iterator[Route]:
    """Every operation of the document, in its order."""
    for path, item in found["paths"].items():
        for method in METHODS:
            if method in item:
                yield Route(item[method]["tags"][0], method.upper(), path, item[method])


def http() -> str:
    """The page."""
    found = whole()
    parts = [ABOUT]
    for tag in found["tags"]:
        rows = [
            (code(f"{one.method} {one.path}"), one.operation["summary"], needs(found, one), _statuses(one))
            for one in routes(found)
            if one.tag == tag["name"]
        ]
        parts += [
            f"## {tag['name']}",
            tag.get("description", ""),
            table(("route", "does", "needs", "answers"), rows),
        ]
    return page("HTTP", *filter(None, parts))


def needs(found: dict[str, Any], route: Route) -> str:
    """What a caller has to show for this route."""
    security = route.operation.get("security", found["security"])
    if not security:
        return "nothing"
    (scheme,) = security[0]
    if scheme != "key":
        return str(scheme)
    told = {tag["name"]: tag.get("description", "") for tag in found["tags"]}[route.tag]
    said = SCOPE.search(route.operation.get("description", "")) or SCOPE.search(told)
    of_instance = "/refdata/" in route.path
    return " ".join(filter(None, ("instance" if of_instance else "", code(said[1]) if said else "")))


def _statuses(route: Route) -> str:
    return ", ".join(sorted(map(str, route.operation["responses"])))
