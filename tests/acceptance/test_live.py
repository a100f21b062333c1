"""The live state of an upload: pushed through a socket, a few at a time, or polled."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.parse
import urllib.request
import uuid
from contextlib import ExitStack, closing
from typing import Any

import pytest
import wsproto
import wsproto.events
from playwright.sync_api import Browser

from app.uploads.pages.live import MOST_SOCKETS, TRY_AGAIN_LATER
from tests.acceptance.browser import visit
from tests.acceptance.conftest import Api, Problem, RunningFleet
from tests.conftest import CORPUS, Servers

SECONDS = 20
LONG = CORPUS / "google" / "en_device_and_hour_20000_rows.csv"


@pytest.fixture
def api(fleet: RunningFleet) -> Api:
    return fleet.api


class Closed(Exception):
    """The server closed the socket, for the reason in `code`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Listener:
    """One WebSocket to an upload's events, as any client opens it."""

    def __init__(self, api: Api, upload_id: str) -> None:
        parts = urllib.parse.urlsplit(api.url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=SECONDS)
        self._protocol = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.send(
            wsproto.events.Request(
                host=parts.netloc,
                target=f"/v1/uploads/{upload_id}/events",
                extra_headers=[(b"Authorization", f"Bearer {api.key}".encode())],
            )
        )
        assert isinstance(self._event(), wsproto.events.AcceptConnection)

    def send(self, event: wsproto.events.Event) -> None:
        self._socket.sendall(self._protocol.send(event))

    def message(self) -> dict[str, Any]:
        """The next thing that the server tells; Closed when it tells nothing any more."""
        event = self._event()
        if isinstance(event, wsproto.events.CloseConnection):
            raise Closed(event.code)
        assert isinstance(event, wsproto.events.TextMessage) and event.message_finished
        return json.loads(event.data)  # type: ignore[no-any-return]

    def closing(self) -> int:
        """For which reason the server closes the socket, once it does."""
        with pytest.raises(Closed) as closed:
            while True:
                self.message()
        return closed.value.code

    def _event(self) -> wsproto.events.Event:
        while (event := next(self._protocol.events(), None)) is None:
            data = self._socket.recv(4096)
            assert data, "the connection ended without a word"
            self._protocol.receive_data(data)
        return event

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.fixture
def waiting(fleet: RunningFleet, servers: Servers) -> str:
    """An upload that stays pending: it has no file."""
    workspace, upload = uuid.uuid4(), uuid.uuid4()
    servers.sql(
        f"INSERT INTO workspaces (id) VALUES ('{workspace}');"
        " INSERT INTO data_uploads (id, workspace_id, platform, source)"
        f" VALUES ('{upload}', '{workspace}', 'meta', 'manual')",
        dsn=fleet.dsn,
    )
    return str(upload)


def listening(api: Api, upload_id: str) -> Listener:
    """A listener that has a place; an earlier test's are free a moment after they were left."""
    deadline = time.monotonic() + SECONDS
    while (found := Listener(api, upload_id)).message()["type"] != "progress":
        with found:
            assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def uploaded(api: Api) -> str:
    found = api.upload(LONG.read_bytes(), workspace_id=str(uuid.uuid4()), platform="google", currency="USD")
    return str(found["upload_id"])


def test_a_socket_tells_every_change_and_ends_with_the_upload(api: Api) -> None:
    upload_id = uploaded(api)
    told = []
    with Listener(api, upload_id) as client:
        while not told or not told[-1]["terminal"]:
            told.append(client.message())
        assert client.closing() == 1000
    assert [entry["status"] for entry in told][-1] == "completed"
    assert told[-1]["promoted_rows"] == 20_000
    assert all(entry["upload_id"] == upload_id and entry["type"] == "progress" for entry in told)
    for number in ("staged_rows", "promoted_rows"):
        counts = [entry[number] for entry in told]
        assert counts == sorted(counts)


def test_a_finished_upload_is_told_once_and_the_socket_closed(api: Api) -> None:
    upload_id = uploaded(api)
    api.finished(upload_id)
    with Listener(api, upload_id) as client:
        assert client.message()["terminal"]
        assert client.closing() == 1000


def test_polling_tells_the_same_and_says_when_to_stop(api: Api) -> None:
    upload_id = uploaded(api)
    while "poll_after_seconds" in (found := api.get(f"/v1/uploads/{upload_id}/progress")):
        assert not found["terminal"]
        if found["status"] == "processing" and found["staged_rows"]:
            assert found["estimated"] and 15_000 < found["total_rows"] < 25_000
        time.sleep(0.05)
    assert (found["terminal"], found["status"], found["seconds_left"]) == (True, "completed", None)
    with Listener(api, upload_id) as client:
        assert client.message() == found


def test_sockets_are_few_and_whoever_comes_beyond_is_told_to_poll(api: Api, waiting: str) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_SOCKETS):
            stack.enter_context(listening(api, waiting))
        with Listener(api, waiting) as beyond:
            told = beyond.message()
            assert told["type"] == "poll" and told["poll_after_seconds"] > 0
            assert beyond.closing() == TRY_AGAIN_LATER
        # The web has threads left for everybody else.
        for _ in range(30):
            assert api.get(told["url"])["status"] == "pending"
    with listening(api, waiting):
        pass  # their places are given back


def test_a_browser_without_a_place_polls_to_the_end(api: Api, waiting: str, chromium: Browser) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_SOCKETS):
            stack.enter_context(listening(api, waiting))
        with visit(chromium, api.url) as visited:
            polls: list[str] = []
            visited.page.on("request", lambda r: polls.append(r.url) if r.url.endswith("/progress") else None)
            visited.upload(LONG)
            assert visited.ended() == "Completed"
            assert polls


def test_who_speaks_on_the_socket_is_cut_off(api: Api, waiting: str) -> None:
    with listening(api, waiting) as client:
        client.send(wsproto.events.TextMessage("x" * 100))
        assert client.message()["type"] == "poll"
        assert client.closing() == TRY_AGAIN_LATER


def test_an_unknown_upload_has_no_progress(api: Api) -> None:
    with pytest.raises(Problem) as refused:
        api.get(f"/v1/uploads/{uuid.UUID(int=3)}/progress")
    assert (refused.value.status, refused.value.body["code"]) == (404, "not_found")


def handshake(api: Api, upload_id: str, **more: str) -> tuple[int, Any]:
    """Status and code of the answer to a browser that asks for a socket and is refused."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(api.url).netloc, timeout=SECONDS)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with closing(connection):
        connection.request("POST", "/login", urllib.parse.urlencode({"key": api.key}), form)
        login = connection.getresponse()
        login.read()
        cookie = login.headers["Set-Cookie"].partition(";")[0]
        answer = ask_for_socket(connection, upload_id, {"Cookie": cookie, **more})
        assert answer.headers["Content-Type"] == "application/problem+json"
        return answer.status, json.loads(answer.read())["code"]


def ask_for_socket(
    connection: http.client.HTTPConnection, upload_id: str, more: dict[str, str]
) -> http.client.HTTPResponse:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        **more,
    }
    connection.request("GET", f"/v1/uploads/{upload_id}/events", headers=headers)
    return connection.getresponse()


def test_an_unknown_upload_has_no_socket(api: Api) -> None:
    assert handshake(api, str(uuid.UUID(int=3)), Origin=api.url) == (404, "not_found")


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", "http://127.0.0.1:1"])
def test_another_sites_page_opens_no_socket(origin: str, api: Api, waiting: str) -> None:
    assert handshake(api, waiting, Origin=origin) == (403, "forbidden")


def test_a_request_that_is_no_socket_is_refused_in_words(api: Api, waiting: str) -> None:
    with pytest.raises(Problem) as refused:
        api.send(f"/v1/uploads/{waiting}/events")
    assert refused.value.status == 400


def test_a_socket_leaves_no_error_in_the_log(api: Api, fleet: RunningFleet) -> None:
    upload_id = uploaded(api)
    with Listener(api, upload_id) as client:
        while not client.message()["terminal"]:
            pass
        client.closing()
    urllib.request.urlopen(f"{api.url}/healthz").close()
    log = (fleet.data / "logs" / "web.log").read_text()
    assert "Traceback" not in log and "Error handling request" not in log
