"""A model behind an endpoint is asked as OpenAI's is, waited for, and not believed blindly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.adapters.settings import Settings, SettingsError
from app.catalog import embedding_endpoint
from app.catalog.embedding import update_embeddings
from app.catalog.embedding_endpoint import EndpointAway, HttpModel
from app.catalog.embedding_models import ModelUnusable, TextRefused, Usem3
from app.catalog.services import Services
from tests.integration.catalog.shelves import Shelf
from tests.integration.catalog.world import Clock

KEY = "sk-a-key-that-nobody-else-sees"

Answer = tuple[int, dict[str, str], bytes]


def vectors(*found: tuple[int, list[float]]) -> Answer:
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in found]
    return 200, {}, json.dumps({"object": "list", "data": data}).encode()


def for_each(asked: dict[str, Any]) -> Answer:
    """A vector for each text, by its length; the last one first."""
    numbered = [(n, [float(len(text)), 1.0]) for n, text in enumerate(asked["input"])]
    return vectors(*reversed(numbered))


@dataclass
class Endpoint:
    """What is answered next, then `for_each`; and what was asked."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answer: Callable[[dict[str, Any]], Answer] = for_each


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.asked.append(asked)
            found.headers.append(dict(self.headers))
            status, headers, body = found.answers.pop(0) if found.answers else found.answer(asked)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Endpoint(f"http://127.0.0.1:{server.server_port}/v1/embeddings")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def model_at(endpoint: Endpoint, clock: Clock | None = None) -> HttpModel:
    return HttpModel(endpoint.url, "some-model", clock or Clock(), dimensions=2, key=KEY)


def test_the_vectors_come_in_the_order_of_the_texts(endpoint: Endpoint) -> None:
    model = model_at(endpoint)
    assert model.embed(["花", "花束", "母の日"]) == [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]
    assert endpoint.asked == [
        {
            "model": "some-model",
            "input": ["花", "花束", "母の日"],
            "dimensions": 2,
            "encoding_format": "float",
        }
    ]
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert model.embed([]) == [] and len(endpoint.asked) == 1


def test_models_of_two_widths_have_two_names(endpoint: Endpoint) -> None:
    wide = HttpModel(endpoint.url, "some-model", Clock(), dimensions=3)
    assert {model_at(endpoint).name, wide.name} == {"some-model/2", "some-model/3"}


@pytest.mark.parametrize(
    ("answer", "waits"),
    [
        ((503, {}, b""), [1.0]),
        ((429, {"Retry-After": "7"}, b""), [7.0]),
        ((429, {"Retry-After": "86400"}, b""), [60.0]),
        ((429, {"Retry-After": "soon"}, b""), [1.0]),
        ((200, {"Content-Length": "99"}, b"{}"), [1.0]),  # cut off
    ],
)
def test_an_endpoint_that_is_busy_is_asked_again(
    endpoint: Endpoint, answer: Answer, waits: list[float]
) -> None:
    clock = Clock()
    endpoint.answers = [answer]
    assert model_at(endpoint, clock).embed(["花"]) == [[1.0, 1.0]]
    assert clock.slept == waits


def test_an_endpoint_that_stays_away_is_given_up(endpoint: Endpoint) -> None:
    clock = Clock()
    endpoint.answer = lambda asked: (500, {}, b"")
    with pytest.raises(EndpointAway, match="answers 500"):
        model_at(endpoint, clock).embed(["花"])
    assert (len(endpoint.asked), clock.slept) == (5, [1.0, 2.0, 4.0, 8.0])


def test_where_nobody_listens_it_is_tried_as_often() -> None:
    clock = Clock()
    with pytest.raises(EndpointAway, match="NewConnectionError"):
        HttpModel("http://127.0.0.1:9/v1", "m", clock, dimensions=2).embed(["花"])
    assert len(clock.slept) == 4


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, TextRefused), (413, TextRefused), (422, TextRefused), (401, ModelUnusable), (403, ModelUnusable),
     (404, ModelUnusable), (301, ModelUnusable)],
)  # fmt: skip
def test_a_refusal_is_not_tried_again_and_tells_no_key(
    endpoint: Endpoint, status: int, error: type[Exception], capfd: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"error": f"no: {KEY} {KEY[:14]}"}) if status in (401, 403) else f"no {KEY}"
    endpoint.answers = [(status, {"Location": endpoint.url}, body.encode())]
    with pytest.raises(error) as refused:
        model_at(endpoint).embed(["花"])
    assert len(endpoint.asked) == 1
    assert KEY[:14] not in f"{refused.value!r} {refused.value.__cause__!r} {capfd.readouterr()}"


@pytest.mark.parametrize("url", ["", "embeddings", "ftp://127.0.0.1/v1", "http://", "http://[/v1"])
def test_an_address_that_is_none_is_said_to_be_none(url: str) -> None:
    with pytest.raises(ModelUnusable, match="HEADWORKS_CATALOG_EMBEDDING_URL"):
        HttpModel(url, "m", Clock(), dimensions=2)


@pytest.mark.parametrize("key", [f"{KEY}\n{KEY}", f"{KEY}花"])
def test_a_key_that_no_header_can_hold_is_not_repeated(endpoint: Endpoint, key: str) -> None:
    with pytest.raises(ModelUnusable, match="HEADWORKS_CATALOG_EMBEDDING_KEY") as refused:
        HttpModel(endpoint.url, "m", Clock(), dimensions=2, key=key)
    assert KEY not in str(refused.value)


def test_the_line_end_of_a_key_that_came_from_a_file_is_none_of_it(endpoint: Endpoint) -> None:
    HttpModel(endpoint.url, "m", Clock(), dimensions=2, key=f"{KEY}\n").embed(["花"])
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b"{}", b'{"data": 5}', b'{"data": [{"index": 1, "embedding": [1, 2]}]}',
     b'{"data": [{"index": 0, "embedding": "AACAPw=="}]}', b'{"data": [{"index": 0, "embedding": [[1]]}]}',
     b'{"data": [{"index": 0, "embedding": [1, 2]}, {"index": 0, "embedding": [1, 2]}]}',
     b"[" * 100_000, b'{"data": [{"index": 0, "embedding": [1' + b"0" * 400 + b", 2]}]}", b"\xff"],
)  # fmt: skip
def test_an_answer_that_is_none_is_said_to_be_none(endpoint: Endpoint, body: bytes) -> None:
    endpoint.answers = [(200, {}, body)]
    with pytest.raises(ModelUnusable, match="as OpenAI's does"):
        model_at(endpoint).embed(["花"])


def test_an_answer_without_end_is_not_read_to_its_end(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_endpoint, "MOST_BYTES", 1000)
    endpoint.answers = [(200, {}, b" " * 2000)]
    with pytest.raises(ModelUnusable, match="without end"):
        model_at(endpoint).embed(["花"])


def test_one_text_that_the_endpoint_refuses_costs_no_other_its_vector(
    endpoint: Endpoint, array_shelf: Shelf
) -> None:
    array_shelf.texts("一", "bad", "三")
    endpoint.answer = lambda asked: (400, {}, b"") if "bad" in "".join(asked["input"]) else for_each(asked)
    found = update_embeddings(array_shelf.db, array_shelf.clock, model_at(endpoint))
    assert found == {"total": 3, "embedded": 2, "failed": 1, "model": "some-model/2"}


def test_what_was_embedded_before_the_endpoint_went_away_stays(
    endpoint: Endpoint, array_shelf: Shelf
) -> None:
    array_shelf.texts("一", "二", "三")
    endpoint.answer = lambda asked: (502, {}, b"") if "三" in "".join(asked["input"]) else for_each(asked)
    with pytest.raises(EndpointAway):
        update_embeddings(array_shelf.db, array_shelf.clock, model_at(endpoint), batch_texts=1)
    assert len(array_shelf.vectors("some-model/2")) == 2


# -- the settings


def settings(**values: Any) -> Settings:
    return Settings(database_url="", broker_url="", data_dir=Path(), **values)


def services(given: Settings, shelf: Shelf) -> Services:
    return Services(given, shelf.db, shelf.clock)


def test_the_settings_say_which_model_it_is(array_shelf: Shelf) -> None:
    assert isinstance(services(settings(), array_shelf).model, Usem3)
    at = settings(
        catalog_embedding_model="http", catalog_embedding_url="http://127.0.0.1/v1",
        catalog_embedding_name="m", catalog_embedding_key=KEY,
    )  # fmt: skip
    assert services(at, array_shelf).model.name == "m/512"
    assert KEY not in repr(at)
    for wrong in (
        replace(at, catalog_embedding_url=""), replace(at, catalog_embedding_name=""),
        settings(catalog_embedding_model="bert"),
    ):  # fmt: skip
        with pytest.raises(SettingsError, match="HEADWORKS_CATALOG_EMBEDDING_"):
            services(wrong, array_shelf).model  # noqa: B018


def test_numbers_and_switches_of_the_catalog_are_read_as_such() -> None:
    given = {"DATABASE_URL": "x", "BROKER_URL": "redis://x", "DATA_DIR": "x", "CATALOG_EMBEDDING_PRICE": "on",
             "CATALOG_EMBEDDING_DIMENSIONS": "384", "CATALOG_THREADS": "2",
             "CATALOG_INTERVAL_SECONDS": "1.5"}  # fmt: skip
    found = Settings.from_env({f"HEADWORKS_{name}": value for name, value in given.items()})
    assert (found.catalog_embedding_price, found.catalog_embedding_dimensions) == (True, 384)
    assert (found.catalog_threads, found.catalog_interval_seconds) == (2, 1.5)
