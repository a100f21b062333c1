"""A browser that goes at the very moment in which it is spoken to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import flask
import pytest
import simple_websocket
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection

from app.uploads.pages import live


class NoThread:
    """The thread that reads for a socket; here the test does its work, step by step."""

    name = ""

    def __init__(self, **_: Any) -> None: ...

    def start(self) -> None: ...


@pytest.fixture
def ws() -> Iterator[simple_websocket.Server]:
    near, far = socket.socketpair()
    environ = {
        "gunicorn.socket": near,
        "HTTP_HOST": "headworks.example",
        "HTTP_CONNECTION": "Upgrade",
        "HTTP_UPGRADE": "websocket",
        "HTTP_SEC_WEBSOCKET_VERSION": "13",
        "HTTP_SEC_WEBSOCKET_KEY": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    with near, far:
        yield simple_websocket.Server(environ, thread_class=NoThread)


def answered(ws: simple_websocket.Server) -> None:
    """The browser's farewell was read and answered, and nothing else was noted yet."""
    browser = Connection(ConnectionType.CLIENT)
    ws.ws.receive_data(browser.send(CloseConnection(code=1001)))
    for event in ws.ws.events():
        ws.ws.send(event.response())


def closed(ws: simple_websocket.Server) -> None:
    ws.sock.close()


@pytest.mark.parametrize("goes", [answered, closed])
def test_a_browser_that_goes_between_look_and_word_is_gone_and_no_error(
    goes: Callable[[simple_websocket.Server], None], ws: simple_websocket.Server
) -> None:
    list(ws.ws.events())
    goes(ws)
    assert ws.connected
    app = flask.Flask("pages")
    app.register_blueprint(live.blueprint)
    with app.test_request_context(), pytest.raises(simple_websocket.ConnectionClosed):
        live._send_to_poll(ws, UUID(int=1))
