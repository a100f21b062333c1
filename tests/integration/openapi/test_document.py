"""The document of the API: it is whole, it is valid, its examples are true, its words are the code's."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import flask
import openapi_spec_validator
import pytest

from app.access import principal
from app.openapi import document
from app.uploads import codes, intake, states, views
from app.uploads.audit import actions
from app.uploads.audit import views as audit
from app.uploads.reading import aliases
from app.uploads.services import Services
from app.uploads.webhooks import codes as webhook_codes
from app.uploads.webhooks import messages, subscriptions
from app.uploads.webhooks import states as webhook_states
from app.uploads.webhooks import views as webhooks
from app.web import create_app
from tests.conftest import BEARER
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.openapi.schemas import DOCUMENT, examples, follow, operations, wrongs

OPERATIONS = operations()


@pytest.fixture
def app(services: Services) -> Iterator[flask.Flask]:
    found = create_app(replace(services.settings, rate_per_minute=0))
    yield found
    found.extensions["services"].db.close()


# -- whole and valid


def test_every_route_is_described_and_nothing_else_is(app: flask.Flask) -> None:
    routes = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method)
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith("/v1/") or rule.rule in ("/healthz", "/readyz", "/metrics")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert {(path, method) for path, method, _ in OPERATIONS.values()} == routes


def test_the_document_is_valid_openapi() -> None:
    openapi_spec_validator.validate(DOCUMENT, cls=openapi_spec_validator.OpenAPIV31SpecValidator)


def test_every_operation_has_a_name_and_words_and_says_who_may() -> None:
    described = [
        op for path in DOCUMENT["paths"].values() for name, op in path.items() if name != "parameters"
    ]
    assert len(OPERATIONS) == len(described)
    for name, (path, _, operation) in OPERATIONS.items():
        assert operation["summary"] and operation["tags"], name
        is_open = operation.get("security") == []
        assert is_open != path.startswith("/v1/"), name
        if not is_open:
            assert {"401", "403", "404", "429", "503"} <= set(operation["responses"]), name
    known = {tag["name"] for tag in DOCUMENT["tags"]}
    assert known == {tag for _, _, operation in OPERATIONS.values() for tag in operation["tags"]}


def test_two_parts_cannot_say_the_same_thing_twice() -> None:
    whole: dict[str, Any] = {"components": {"schemas": {"A": {}}}, "tags": [1]}
    document.merge(whole, {"components": {"schemas": {"B": {}}, "headers": {}}, "tags": [2]})
    assert whole == {"components": {"schemas": {"A": {}, "B": {}}, "headers": {}}, "tags": [1, 2]}
    for part in (
        {"components": {"schemas": {"A": {}}}},
        {"components": {"schemas": {"A": {"type": "null"}}}},
    ):
        with pytest.raises(document.ToldTwice, match="#/components/schemas/A"):
            document.merge(whole, part)


def test_nothing_is_defined_that_nobody_refers_to() -> None:
    text = document.as_json().decode()
    for kind, defined in DOCUMENT["components"].items():
        if kind != "securitySchemes":
            assert [name for name in defined if f'"#/components/{kind}/{name}"' not in text] == []


# -- examples


def places() -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Everything that may have examples, and whether it must."""
    for name, (path, _, operation) in OPERATIONS.items():
        for parameter in [*DOCUMENT["paths"][path].get("parameters", ()), *operation.get("parameters", ())]:
            yield f"{name} parameter", follow(parameter), False
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            yield f"{name} {kind}", content, True
        for status, response in operation["responses"].items():
            found = follow(response)
            for kind, content in found.get("content", {}).items():
                yield f"{name} {status} {kind}", content, True
            for header, described in found.get("headers", {}).items():
                yield f"{name} {status} {header}", follow(described), True


@pytest.mark.parametrize(("place", "content", "must"), [pytest.param(*p, id=p[0]) for p in places()])
def test_every_example_is_one_of_its_schema(place: str, content: dict[str, Any], must: bool) -> None:
    found = list(examples(content))
    assert found or not must, place
    for schema, value in found:
        assert wrongs(schema, value) == []


def test_the_search_for_wrong_examples_finds_one() -> None:
    schema = {"$ref": "#/components/schemas/Receipt"}
    assert wrongs(schema, {"upload_id": "7", "status": "lost", "duplicate_of": None}) == [
        "$.upload_id: '7' is not a 'uuid'",
        f"$.status: 'lost' is not one of {list(states.UPLOAD.states)}",
    ]
    assert wrongs({"$ref": "#/components/schemas/Time"}, "yesterday") != []


def test_an_error_has_the_status_under_which_it_stands() -> None:
    for name, (_, _, operation) in OPERATIONS.items():
        for status, response in operation["responses"].items():
            for content in follow(response).get("content", {}).values():
                for _, value in examples(content):
                    if isinstance(value, dict) and "title" in value:
                        assert str(value["status"]) == status, name


# -- the code's own words

WORDS = {
    # schema: the table of the code
    "Status": states.UPLOAD.states,
    "PlatformName": tuple(aliases.table()),
    "Source": intake.SOURCES,
    "FileCode": tuple(codes.FILE_CODES),
    "RowCode": tuple(codes.ROW_CODES),
    "Warning": tuple(codes.WARNINGS),
    "AuditAction": tuple(actions.ACTIONS),
    "Topic": messages.TOPICS,
    "DeliveryStatus": webhook_states.DELIVERY.states,
    "DeliveryCode": (*webhook_codes.TRIED, *webhook_codes.ENDED),
}


@pytest.mark.parametrize("name", WORDS)
def test_the_words_of_the_document_are_those_of_the_code(name: str) -> None:
    assert DOCUMENT["components"]["schemas"][name]["enum"] == list(WORDS[name])


def test_the_scopes_of_the_document_are_those_of_the_code() -> None:
    text = DOCUMENT["components"]["securitySchemes"]["key"]["description"]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE)) == principal.SCOPES


LISTS = {
    # schema, list:                 how many at most, as the code has it
    ("UploadsPage", "uploads"): views.PAGE_ROWS,
    ("ErrorsPage", "errors"): views.PAGE_ROWS,
    ("Performance", "rows"): views.MOST_SUMS,
    ("AuditPage", "entries"): audit.PAGE_ENTRIES,
    ("WebhooksList", "webhooks"): subscriptions.MAX_PER_WORKSPACE,
    ("DeliveriesPage", "deliveries"): webhooks.PAGE_DELIVERIES,
}


@pytest.mark.parametrize(("schema", "name"), LISTS)
def test_a_list_is_at_most_as_long_as_the_code_makes_it(schema: str, name: str) -> None:
    found = DOCUMENT["components"]["schemas"][schema]["properties"][name]
    assert found["maxItems"] == LISTS[schema, name]


def test_the_version_of_the_document_is_that_of_the_package() -> None:
    assert DOCUMENT["info"]["version"] == importlib.metadata.version("headworks")


# -- as it is served


def test_the_document_is_for_everybody_and_is_sent_once(app: flask.Flask) -> None:
    client = app.test_client()
    first = client.get("/openapi.json")
    assert (first.status_code, first.mimetype, first.get_json()) == (200, "application/json", DOCUMENT)
    assert first.headers["Cache-Control"] == "public, no-cache"
    again = client.get("/openapi.json", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    assert client.get("/openapi.json", headers={"If-None-Match": '"other"'}).status_code == 200


def test_the_page_and_its_files_come_from_here(app: flask.Flask) -> None:
    client = app.test_client()
    page = client.get("/docs", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["Cache-Control"]) == (200, "no-store")
    files = re.findall(r'(?:src|href)="(/(?:docs|assets)/[^"]+)"', page.text)
    assert len(files) == 5 and "https:" not in page.text
    for file in files:
        with client.get(file) as answer:
            assert (answer.status_code, answer.headers["X-Content-Type-Options"]) == (200, "nosniff"), file
    style = client.get(next(file for file in files if "swagger-ui.css" in file))
    assert "max-age=31536000" in style.headers["Cache-Control"] and "data:" not in style.text
    images = set(re.findall(r"url\(([^)]+)\)", style.text))
    assert len(images) >= 10
    for image in images:
        assert client.get(f"/docs/viewer/{image}").mimetype.startswith("image/"), image


def test_no_other_file_is_served_as_one_of_the_viewer(app: flask.Flask) -> None:
    for name in ("..%2fviews.py", "oauth2-redirect.html", "swagger-ui.js", "%00"):
        answer = app.test_client().get(f"/docs/viewer/{name}", headers=BEARER)
        assert (answer.status_code, answer.mimetype) == (404, "application/problem+json"), name


def test_only_who_is_let_in_gets_a_token(app: flask.Flask) -> None:
    answer = app.test_client().get("/docs/token")
    assert (answer.status_code, answer.mimetype) == (401, "application/problem+json")
