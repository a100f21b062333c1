"""The document of the API: it is whole, it is valid, its examples are true, its words are the code's."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import flask
import openapi_spec_validator
import pytest

from app.access import principal
from app.adapters.settings import Settings
from app.openapi import document
from app.pipeline import requests, serve
from app.pipeline import states as pipeline_states
from app.refdata import commands as refdata_commands
from app.refdata import states as refdata_states
from app.refdata import views as refdata
from app.refdata.query import request as reading
from app.refdata.tenant_rules import TENANT_ID
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
from tests.integration.openapi.schemas import (
    DOCUMENT,
    METHODS,
    examples,
    follow,
    is_read,
    operations,
    wrongs,
)

OPERATIONS = operations()


@pytest.fixture
def app(services: Services) -> Iterator[flask.Flask]:
    with closing(create_app(replace(services.settings, rate_per_minute=0))) as found:
        yield found


@contextmanager
def closing(app: flask.Flask) -> Iterator[flask.Flask]:
    """The application, which keeps no connection afterwards."""
    yield app
    if "services" in app.extensions:
        app.extensions["services"].db.close()
    if "pipeline" in app.extensions:
        app.extensions["pipeline"].pipeline.db.close()
    if "refdata" in app.extensions:
        app.extensions["refdata"].close()


KINDS = {
    # application:              the parts of its document, how it is made, where it has its document
    "instance": (document.INSTANCE, create_app, "/openapi.json"),
    "instance with pipeline": ((*document.INSTANCE, *document.PIPELINE), create_app, "/openapi.json"),
    "instance with reference data": ((*document.INSTANCE, *document.REFDATA), create_app, "/openapi.json"),
    "pipeline alone": (document.PIPELINE_ALONE, serve.create_app, "/api/openapi.json"),
}
DOCUMENTS = {name: document.whole(*parts) for name, (parts, _, _) in KINDS.items()}


@dataclass(frozen=True)
class Application:
    app: flask.Flask
    document: dict[str, Any]
    address: str  # of the document


@pytest.fixture(params=KINDS)
def application(request: pytest.FixtureRequest, services: Services) -> Iterator[Application]:
    """Each kind of application."""
    _, create, address = KINDS[request.param]
    settings = services.settings
    if request.param in ("instance", "instance with reference data"):
        settings = replace(settings, pipeline_database_url="")
    if request.param in ("instance", "instance with pipeline"):
        settings = replace(settings, refdata_config="")
    with closing(create(settings)) as app:
        yield Application(app, DOCUMENTS[request.param], address)


# -- whole and valid

INSTANCE_ROUTES = ("/healthz", "/readyz", "/metrics")


def test_every_route_is_described_and_nothing_else_is(application: Application) -> None:
    routes = {
        (path, method)
        for rule in application.app.url_map.iter_rules()
        if rule.rule.startswith(("/v1/", "/api/v1/")) or rule.rule in INSTANCE_ROUTES
        for path in paths(rule.rule)
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    described = {
        (path, method)
        for path, method, _ in operations(application.document).values()
        if not is_read(path)  # another process answers these: test_refdata_reads
    }
    assert described == routes


def paths(rule: str) -> list[str]:
    """The paths of a rule as the document writes them: a place that takes any of some words is as many."""
    found = re.search(r"<any\(([^)]*)\):\w+>", rule)
    if found:
        return [
            path
            for word in found[1].split(", ")
            for path in paths(f"{rule[: found.start()]}{word}{rule[found.end() :]}")
        ]
    return [re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule)]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_is_valid_openapi(name: str) -> None:
    openapi_spec_validator.validate(DOCUMENTS[name], cls=openapi_spec_validator.OpenAPIV31SpecValidator)


def test_every_part_stands_in_a_document() -> None:
    files = importlib.resources.files("app.openapi").iterdir()
    named = {part for parts, _, _ in KINDS.values() for part in parts}
    assert {f"{part}.yaml" for part in named} == {f.name for f in files if f.name.endswith(".yaml")}


def test_every_operation_has_a_name_and_words_and_says_who_may() -> None:
    kinds = {kind for path in DOCUMENT["paths"].values() for kind in path}
    assert kinds <= {*METHODS, "parameters", "servers"}
    described = [op for path in DOCUMENT["paths"].values() for name, op in path.items() if name in METHODS]
    assert len(OPERATIONS) == len(described)
    for name, (path, _, operation) in OPERATIONS.items():
        assert operation["summary"] and operation["tags"], name
        if path in INSTANCE_ROUTES or path.startswith("/actuator/"):
            assert operation["security"] == [], name
        elif path.startswith("/v1/tenants/"):
            assert operation["security"] == [{"tenant": []}], name
            assert {"401", "403", "404", "422", "503"} <= set(operation["responses"]), name
            assert ("requestBody" in operation) == ({"400", "413"} <= set(operation["responses"])), name
        elif path.startswith("/v1/"):
            assert "security" not in operation, name  # a key, as is said of the whole document
            assert {"401", "403", "404", "429", "503"} <= set(operation["responses"]), name
        else:
            assert operation["security"] == [{"token": []}], name
            assert {"401", "503"} <= set(operation["responses"]), name
            assert ("requestBody" in operation) == ({"400", "413"} <= set(operation["responses"])), name


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_subject_is_described_and_has_operations(name: str) -> None:
    described = {tag["name"] for tag in DOCUMENTS[name]["tags"]}
    found = operations(DOCUMENTS[name]).values()
    assert described == {tag for _, _, operation in found for tag in operation["tags"]}


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


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_defined_that_nobody_refers_to(name: str) -> None:
    text = document.as_json(KINDS[name][0]).decode()
    for kind, defined in DOCUMENTS[name]["components"].items():
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


SPECIFIED = [
    # operation, status or None for the request, and the example of the pipeline's specification
    ("registerFile", None, {"filename": "20250101000000", "shards": [0, 1]}),
    ("registerFile", "200", {"filename": "20250101000000", "shards": [0, 1], "created": True}),
    ("finishIngest", None, {"filename": "20250101000000"}),
    ("finishIngest", "200", {"filename": "20250101000000", "updated_rows": 2}),
    ("startTask", None, {"filename": "20250101000000", "shard": 0}),
    ("finishTask", None, {"filename": "20250101000000", "shard": 0}),
    (
        "finishTask", "200",
        {"filename": "20250101000000", "shard": 0, "stage": "shard-worker", "status": "done"},
    ),
    ("failTask", None, {"filename": "20250101000000", "shard": 0}),
    ("retryTask", None, {"filename": "20250101000000", "shard": 1}),
    (
        "retryTask", "200",
        {"filename": "20250101000000", "shard": 1, "stage": "mysql-sender", "status": "new"},
    ),
    (
        "listQueue", "200",
        {
            "stage": "shard-worker",
            "items": [{"filename": "20250101000000", "shard": 0, "created_at": "2025-01-01T00:00:00Z"}],
        },
    ),
    (
        "showFile", "200",
        {
            "filename": "20250101000000",
            "shards": [
                {
                    "shard": 0, "event_ingest_status": "done", "shard_splitter_status": "done",
                    "shard_worker_status": "started", "mysql_sender_status": "new",
                    "updated_at": "2025-01-01T00:05:00Z",
                },
            ],
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "status", "value"), SPECIFIED)
def test_an_example_of_the_specification_stands_in_the_document(
    name: str, status: str | None, value: dict[str, Any]
) -> None:
    assert value in told(name, status)


def told(name: str, status: str | None) -> list[Any]:
    """The examples of the operation's request, or of its answer with this status."""
    operation = OPERATIONS[name][2]
    place = operation["requestBody"] if status is None else follow(operation["responses"][status])
    return [value for _, value in examples(place["content"]["application/json"])]


def test_the_summary_of_the_specification_stands_in_the_document_with_the_other_stages() -> None:
    (example,) = told("showPipelineSummary", "200")
    assert example["total"] == 120
    assert example["by_stage"]["shard_worker"] == {"new": 10, "started": 5, "done": 100, "failed": 5}
    assert {sum(counts.values()) for counts in example["by_stage"].values()} == {120}
    assert example["by_shard"] == [
        {"shard": 0, "total": 60, "done": 50, "failed": 2},
        {"shard": 1, "total": 60, "done": 50, "failed": 3},
    ]


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
    "StageName": tuple(pipeline_states.STAGES),
    "QueueName": tuple(pipeline_states.QUEUES),
    "TaskStatus": pipeline_states.MACHINE.states,
    "UpdateStatus": refdata_states.MACHINE.states,
    "CommandCode": (*refdata_states.CODES, refdata_commands.TooMany.code),
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


def test_the_bounds_of_the_pipeline_are_those_of_the_code() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Shard"]["maximum"] == requests.LARGEST_SHARD
    assert schemas["NewFile"]["properties"]["shards"]["maxItems"] == requests.MOST_SHARDS
    assert schemas["LeaseSeconds"]["maximum"] == requests.LONGEST_LEASE_SECONDS
    for name in ("Claim", "Heartbeat"):
        assert schemas[name]["properties"]["lease_seconds"]["default"] == requests.LEASE_SECONDS
    path = DOCUMENT["paths"]["/api/v1/pipeline/stuck"]["get"]
    told = next(p["description"] for p in path["parameters"] if p.get("name") == "older_than_seconds")
    limits = [stage.stuck_seconds for stage in pipeline_states.STAGES.values()]
    assert [int(number) for number in re.findall(r"\b[0-9]+\b", told)] == limits


def test_the_bounds_of_reference_data_are_those_of_the_code() -> None:
    command = DOCUMENT["components"]["schemas"]["DictionaryCommand"]["properties"]
    assert command["dictCode"]["pattern"] == f"^{refdata_commands.DICTIONARY.pattern}$"
    assert DOCUMENT["components"]["parameters"]["TenantId"]["schema"]["pattern"] == f"^{TENANT_ID.pattern}$"
    assert command["items"]["maxItems"] == refdata_commands.MOST_ITEMS
    assert command["sourceRevision"]["maximum"] == refdata_commands.LARGEST
    for name in ("chunkIndex", "chunksTotal"):
        assert command[name]["maximum"] == refdata_commands.MOST_CHUNKS
    key = DOCUMENT["components"]["schemas"]["DictionaryItem"]["properties"]["key"]
    assert key["maxLength"] == refdata_commands.LONGEST_KEY
    _, _, update = OPERATIONS["updateDictionary"]
    (wait,) = (p["schema"] for p in update["parameters"] if p["name"] == "timeoutMs")
    assert (wait["minimum"], wait["maximum"]) == (refdata.SHORTEST_WAIT_MS, refdata.LONGEST_WAIT_MS)


def test_the_bounds_of_reads_are_those_of_the_code() -> None:
    parameters = DOCUMENT["components"]["parameters"]
    name = parameters["DictCode"]["schema"]["pattern"]
    assert name == f"^{refdata_commands.DICTIONARY.pattern}$"
    for of in ("MinVersion", "ExactVersion"):
        assert parameters[of]["schema"]["maximum"] == refdata_commands.LARGEST
    (keys,) = (p["schema"] for p in OPERATIONS["readItems"][2]["parameters"] if p.get("name") == "keys")
    assert (keys["maxItems"], keys["items"]["maxLength"]) == (reading.MOST_KEYS, reading.LONGEST_KEY)
    (limit,) = (
        p["schema"] for p in OPERATIONS["readDictionary"][2]["parameters"] if p.get("name") == "limit"
    )
    assert limit["maximum"] == reading.LARGEST_PAGE


def test_the_reads_are_where_a_pod_listens_that_is_told_nothing_else() -> None:
    places = [path["servers"] for path in DOCUMENT["paths"].values() if "servers" in path]
    assert places and all(place == places[0] for place in places)
    (server,) = places[0]
    (bind,) = (field.default for field in fields(Settings) if field.name == "refdata_bind")
    assert (server["url"], server["variables"]["bind"]["default"]) == ("http://{bind}", bind)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_version_of_the_document_is_that_of_the_package(name: str) -> None:
    assert DOCUMENTS[name]["info"]["version"] == importlib.metadata.version("headworks")


# -- as it is served


def test_the_document_is_for_everybody_and_is_sent_once(application: Application) -> None:
    client, address = application.app.test_client(), application.address
    first = client.get(address)
    assert (first.status_code, first.mimetype) == (200, "application/json")
    assert first.get_json() == application.document
    assert first.headers["Cache-Control"] == "public, no-cache"
    again = client.get(address, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    assert client.get(address, headers={"If-None-Match": '"other"'}).status_code == 200


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
