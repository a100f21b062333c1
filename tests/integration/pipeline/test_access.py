"""Who may use a pipeline that is served alone, and where it refuses to be served."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import flask
import pytest
from werkzeug.test import TestResponse

from app.access.exposure import NotSafeToStart
from app.adapters.settings import Settings, SettingsError
from app.pipeline.serve import create_app
from tests.conftest import Servers
from tests.integration.pipeline import tasks

BASE = "/api/v1/pipeline"
TOKEN = "a-token-of-twenty-ch"
OTHER = "another token of more than twenty characters"
KEY = "a-key-of-the-whole-instance"
LOOPBACK = "127.0.0.1:8001"
EVERYWHERE = "0.0.0.0:8001"
REGISTER = {"filename": "20250101000000", "shards": [0]}

assert len(TOKEN) == 20

Serve = Callable[..., flask.Flask]


@pytest.fixture(scope="module")
def database_url(servers: Servers) -> Iterator[str]:
    """An empty database for the applications of this file."""
    name = f"pipeline_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    yield servers.dsn_of(name)
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def settings(database_url: str, **given: Any) -> Settings:
    values = {"bind": LOOPBACK} | given
    return Settings(
        database_url="", broker_url="", data_dir=Path(), pipeline_database_url=database_url, **values
    )


@contextmanager
def served(database_url: str, **given: Any) -> Iterator[flask.Flask]:
    app = create_app(settings(database_url, **given))
    try:
        yield app
    finally:
        app.extensions["pipeline"].pipeline.db.close()


@pytest.fixture
def serve(database_url: str) -> Iterator[Serve]:
    """Make an application with these settings."""
    with ExitStack() as stack:
        yield lambda **given: stack.enter_context(served(database_url, **given))


def ask(app: flask.Flask, **headers: str) -> list[TestResponse]:
    """The answers to a call that reads and to one that writes."""
    client = app.test_client()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return [
        client.get(f"{BASE}/metrics/summary", headers=sent),
        client.post(f"{BASE}/files/register", json=REGISTER, headers=sent),
    ]


def refused(answer: TestResponse, status: int, code: str) -> None:
    assert (answer.status_code, answer.content_type) == (status, "application/problem+json"), answer.text
    assert answer.get_json()["code"] == code


# Tokens


@pytest.mark.parametrize("bind", [LOOPBACK, EVERYWHERE])
@pytest.mark.parametrize("token", [TOKEN, OTHER])
def test_any_of_the_tokens_opens_the_pipeline(serve: Serve, bind: str, token: str) -> None:
    app = serve(bind=bind, pipeline_tokens=f" {TOKEN} ,,{OTHER}")

    assert [answer.status_code for answer in ask(app, Authorization=f"Bearer {token}")] == [200, 200]


def test_the_key_of_the_instance_opens_it_too(serve: Serve) -> None:
    app = serve(bind=EVERYWHERE, api_key=KEY, pipeline_tokens=TOKEN)

    for token in (KEY, TOKEN):
        assert [answer.status_code for answer in ask(app, Authorization=f"Bearer {token}")] == [200, 200]


NOT_OURS = {
    "none": {},
    "an empty one": {"Authorization": ""},
    "no token": {"Authorization": "Bearer "},
    "another": {"Authorization": f"Bearer {TOKEN[:-1]}x"},
    "a part": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "more": {"Authorization": f"Bearer {TOKEN}x"},
    "both at once": {"Authorization": f"Bearer {TOKEN},{OTHER}"},
    "another case": {"Authorization": f"Bearer {TOKEN.upper()}"},
    "not ASCII": {
        "Authorization": "Bearer \xe9\xe8\xea\xeb\xe9\xe8\xea\xeb\xe9\xe8\xea\xeb\xe9\xe8\xea\xeb\xe9\xe8\xea"
    },
    "a name and a password": {"Authorization": f"Basic {TOKEN}"},
    "the token alone": {"Authorization": TOKEN},
    "a cookie": {"Cookie": f"token={TOKEN}"},
}


@pytest.mark.parametrize("headers", NOT_OURS.values(), ids=NOT_OURS)
@pytest.mark.parametrize("bind", [LOOPBACK, EVERYWHERE])
def test_without_a_token_nothing_is_shown_and_nothing_done(
    serve: Serve, bind: str, headers: dict[str, str]
) -> None:
    app = serve(bind=bind, pipeline_tokens=f"{TOKEN},{OTHER}")

    for answer in ask(app, **headers):
        refused(answer, 401, "unauthorized")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "path", ["/files", "/tasks", "/stuck", "/metrics", "/events", "/queues/shard-worker", "/files/a/history"]
)
def test_everything_that_is_read_needs_the_token(serve: Serve, path: str) -> None:
    refused(serve(pipeline_tokens=TOKEN).test_client().get(BASE + path), 401, "unauthorized")


@pytest.mark.parametrize("path", [f"?token={TOKEN}", f"?access_token={TOKEN}", f"?key={TOKEN}"])
def test_a_token_in_the_address_opens_nothing(serve: Serve, path: str) -> None:
    refused(serve(pipeline_tokens=TOKEN).test_client().get(f"{BASE}/files{path}"), 401, "unauthorized")


def test_health_is_told_to_everybody(serve: Serve) -> None:
    client = serve(pipeline_tokens=TOKEN).test_client()

    assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]


# Where it does not start


@pytest.mark.parametrize("tokens", ["short", TOKEN[:-1], f"{TOKEN},x", f"{TOKEN[:10]},{TOKEN[10:]}"])
@pytest.mark.parametrize("bind", [LOOPBACK, EVERYWHERE])
def test_a_short_token_is_not_served(database_url: str, bind: str, tokens: str) -> None:
    with pytest.raises(NotSafeToStart, match=r"HEADWORKS_PIPELINE_TOKENS.*20") as raised:
        create_app(settings(database_url, bind=bind, pipeline_tokens=tokens))

    for token in tokens.split(","):
        assert token == "x" or token not in str(raised.value), "what is secret is not printed"


@pytest.mark.parametrize(
    "bind",
    [
        EVERYWHERE,
        "[::]:8001",
        "192.168.1.5:8001",
        "10.0.0.1:8001",
        "example.com:8001",
        ":8001",
        "",
        "localhost.evil.example:8001",
    ],
)
def test_what_others_can_reach_is_not_served_without_a_token(database_url: str, bind: str) -> None:
    with pytest.raises(NotSafeToStart, match="HEADWORKS_PIPELINE_TOKENS"):
        create_app(settings(database_url, bind=bind))


@pytest.mark.parametrize("tokens", [",", " , ,"])
def test_tokens_that_are_blank_are_none(database_url: str, serve: Serve, tokens: str) -> None:
    with pytest.raises(NotSafeToStart, match="HEADWORKS_PIPELINE_TOKENS"):
        create_app(settings(database_url, bind=EVERYWHERE, pipeline_tokens=tokens))

    assert [answer.status_code for answer in ask(serve(pipeline_tokens=tokens))] == [200, 200]


@pytest.mark.parametrize("bind", [LOOPBACK, "localhost:8001", "[::1]:8001", "127.1.2.3:8001"])
def test_at_this_machine_no_token_is_needed(serve: Serve, bind: str) -> None:
    assert [answer.status_code for answer in ask(serve(bind=bind))] == [200, 200]


def test_a_pipeline_without_a_database_address_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="HEADWORKS_PIPELINE_DATABASE_URL"):
        create_app(settings(""))

    monkeypatch.delenv("HEADWORKS_PIPELINE_DATABASE_URL", raising=False)
    with pytest.raises(SettingsError, match="HEADWORKS_PIPELINE_DATABASE_URL"):
        create_app()


# Other people's pages


ELSEWHERE: dict[str, dict[str, str]] = {
    "an origin": {"Origin": "https://evil.example"},
    "no origin that can be named": {"Origin": "null"},
    "another port": {"Origin": "http://localhost:9999"},
    "another scheme": {"Origin": "https://localhost"},
    "what the browser says": {"Sec_Fetch_Site": "cross-site"},
    "a site beside it": {"Sec_Fetch_Site": "same-site"},
    "a name that leads here": {"Origin": "http://evil.example", "Host": "evil.example"},
}


@pytest.mark.parametrize("headers", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_page_from_elsewhere_changes_nothing_where_no_token_is_needed(
    serve: Serve, headers: dict[str, str]
) -> None:
    """A person at this machine reads a page of somebody else, and that page calls the pipeline."""
    client = serve().test_client()
    before = client.get(f"{BASE}/metrics/summary").get_json()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    task = {"filename": uuid.uuid4().hex, "shards": [0]}

    answer = client.post(f"{BASE}/files/register", json=task, headers=sent)

    assert answer.status_code in (401, 403), answer.text
    assert answer.content_type == "application/problem+json"
    assert client.get(f"{BASE}/metrics/summary").get_json() == before


@pytest.mark.parametrize("headers", [{"Origin": "http://localhost"}, {"Sec_Fetch_Site": "same-origin"}, {}])
def test_its_own_pages_and_programs_are_let_in(serve: Serve, headers: dict[str, str]) -> None:
    assert [answer.status_code for answer in ask(serve(), **headers)] == [200, 200]


def test_no_page_from_elsewhere_may_read_an_answer(serve: Serve) -> None:
    for answer in ask(serve(), Origin="https://evil.example"):
        assert "Access-Control-Allow-Origin" not in answer.headers


# Its database


def test_servers_that_start_at_once_on_an_empty_database_all_start(servers: Servers) -> None:
    name = f"pipeline_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    try:
        apps = tasks.at_once(*[lambda: create_app(settings(servers.dsn_of(name)))] * 6)
        try:
            assert [ask(app)[1].get_json()["created"] for app in apps] == [True] + [False] * 5
        finally:
            for app in apps:
                app.extensions["pipeline"].pipeline.db.close()
    finally:
        servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_server_that_starts_again_finds_everything_as_it_was(serve: Serve, database_url: str) -> None:
    filename = "before"
    first = serve().test_client()
    first.post(f"{BASE}/files/register", json={"filename": filename, "shards": [0]})
    shown = first.get(f"{BASE}/files/{filename}").get_json()

    assert serve().test_client().get(f"{BASE}/files/{filename}").get_json() == shown


def test_a_server_whose_database_has_gone_is_alive_and_not_ready(servers: Servers) -> None:
    name = f"pipeline_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    with served(servers.dsn_of(name)) as app:
        client = app.test_client()
        assert client.get("/readyz").status_code == 200
        servers.sql(f"DROP DATABASE {name} WITH (FORCE)")

        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        answer = client.post(f"{BASE}/files/register", json=REGISTER)

    assert (answer.status_code, answer.content_type) == (503, "application/problem+json")
    assert name not in answer.text


@pytest.mark.parametrize("bind", [LOOPBACK, EVERYWHERE])
def test_a_key_of_the_instance_that_is_too_short_or_somebody_s_refuses_to_start(
    database_url: str, bind: str
) -> None:
    for key in ("short", "hw_abcdefgh_0123456789"):
        with pytest.raises(NotSafeToStart, match="HEADWORKS_API_KEY"):
            create_app(settings(database_url, bind=bind, api_key=key, pipeline_tokens=TOKEN))
