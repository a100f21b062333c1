"""The live state of one upload: pushed through a WebSocket, or asked for again and again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import flask
import flask_sock
import simple_websocket
from wsproto.utilities import LocalProtocolError

from app.access import principal
from app.kernel import errors
from app.uploads import events, progress
from app.uploads.pages import site
from app.uploads.services import Services

blueprint = flask.Blueprint("live", __name__)
_sock = flask_sock.Sock()

MOST_SOCKETS = 6
"""Each holds one of the web process's 16 threads; whoever comes beyond is told to poll."""

MOST_SECONDS = 300.0
"""How long one socket lasts: an upload that waits for hours must not hold a thread for hours."""

LOOK_SECONDS = 0.5
POLL_SECONDS = 1.0
TRY_AGAIN_LATER = 1013
NORMAL = 1000

_places = threading.BoundedSemaphore(MOST_SOCKETS)

SOCKET_OPTIONS = {"ping_interval": 20, "max_message_size": 256}
"""Nothing is expected from the other side; one that is gone is noticed."""


@blueprint.record_once
def _set_options(state: Any) -> None:
    state.app.config["SOCK_SERVER_OPTIONS"] = SOCKET_OPTIONS


@blueprint.before_request
def _may_look() -> None:
    """Whoever may not see the upload is refused before there is a socket."""
    upload_id: UUID = (flask.request.view_args or {})["upload_id"]
    # A browser opens a socket to anywhere and sends its cookies along: only this site's pages may.
    if flask.request.endpoint == "live.follow_upload" and not principal.same_origin():
        raise errors.Refused("Another site's page may not look at uploads.", code="forbidden")
    flask.g.workspace_id = site.workspace_of(upload_id)
    progress.look(site.services(), flask.g.workspace_id, upload_id)  # it is there


@blueprint.get("/v1/uploads/<uuid:upload_id>/progress")
def show_progress(upload_id: UUID) -> flask.Response:
    """How far the upload is; `poll_after_seconds` is there until nothing changes any more."""
    found = progress.look(site.services(), flask.g.workspace_id, upload_id)
    response = flask.jsonify(_told(found))
    response.headers["Cache-Control"] = "no-store"
    return response


@_sock.route("/v1/uploads/<uuid:upload_id>/events", bp=blueprint)
def follow_upload(ws: simple_websocket.Server, upload_id: UUID) -> None:
    """Every change of the upload is sent, and the socket is closed with the last one."""
    if not _places.acquire(blocking=False):
        _send_to_poll(ws, upload_id)
        return
    try:
        _follow(site.services(), ws, flask.g.workspace_id, upload_id)
    finally:
        _places.release()


def _follow(services: Services, ws: simple_websocket.Server, workspace_id: UUID, upload_id: UUID) -> None:
    end = services.clock.monotonic() + MOST_SECONDS
    event, told = "$", ""
    while ws.connected and not ws.input_buffer and services.clock.monotonic() < end:
        # Before the look: an event that comes after it ends the wait.
        event = _begin(services) if event == "$" else event
        found = progress.look(services, workspace_id, upload_id)
        text = _text(_told(found))
        if text != told:
            with _closed_if_gone():
                ws.send(text)
            told = text
        if found.terminal:
            with _closed_if_gone():
                ws.close(NORMAL, "the upload is finished")
            return
        event = _wait(services, upload_id, event)
    if ws.connected:
        _send_to_poll(ws, upload_id)


def _begin(services: Services) -> str:
    try:
        return services.streams.follow(events.TOPIC, wait_seconds=0)[0]
    except errors.ConnectionLost:
        return "$"


def _wait(services: Services, upload_id: UUID, event: str) -> str:
    """Returns after a moment, or as soon as the completion of this upload is told."""
    end = services.clock.monotonic() + LOOK_SECONDS
    while (left := end - services.clock.monotonic()) > 0:
        try:
            event, keys = services.streams.follow(events.TOPIC, after=event, wait_seconds=left)
        except errors.ConnectionLost:  # the row in the database tells the same, a moment later
            services.clock.sleep(left)
            return "$"
        if str(upload_id) in keys:
            break
    return event


def _told(found: progress.Progress) -> dict[str, Any]:
    answer = {"type": "progress", **found.as_json()}
    return answer if found.terminal else {**answer, "poll_after_seconds": POLL_SECONDS}


def _send_to_poll(ws: simple_websocket.Server, upload_id: UUID) -> None:
    url = flask.url_for("live.show_progress", upload_id=upload_id)
    with _closed_if_gone():
        ws.send(_text({"type": "poll", "url": url, "poll_after_seconds": POLL_SECONDS}))
        ws.close(TRY_AGAIN_LATER, "poll instead")


@contextmanager
def _closed_if_gone() -> Iterator[None]:
    """The other side may go between the look and the word: a thread of the library's ends the socket then."""
    try:
        yield
    except (LocalProtocolError, OSError) as exc:
        raise simple_websocket.ConnectionClosed() from exc


def _text(answer: dict[str, Any]) -> str:
    return json.dumps(answer, default=str)
