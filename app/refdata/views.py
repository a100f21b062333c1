"""Changes of reference data over HTTP (section 10), and which configuration is in use."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any, cast
from uuid import UUID

import flask
import orjson

from app.access import bodies, origin, principal, problems, statuses
from app.kernel import errors
from app.refdata import accept, commands, door, states
from app.refdata.accept import CommandNotTaken
from app.refdata.commands import Malformed
from app.refdata.services import Services

blueprint = flask.Blueprint("refdata", __name__, url_prefix="/v1")

SHORTEST_WAIT_MS = 50
LONGEST_WAIT_MS = 1000

STATUS_OF_CODE = {"COMMAND_TOO_LARGE": 413, "invalid_json": 400}


def _services() -> Services:
    return cast(Services, flask.current_app.extensions["refdata"])


def _let_in(tenant_id: str) -> None:
    principal.bind(None)
    own = origin.of_urls(flask.request.host_url)
    door.let_in(_services(), tenant_id, flask.request.headers, flask.request.remote_addr, own)


@blueprint.errorhandler(Malformed)
@blueprint.errorhandler(CommandNotTaken)
def _not_taken(error: errors.HeadworksError) -> flask.Response:
    known = states.CODES.get(error.code)
    status = STATUS_OF_CODE.get(error.code, known.status if known else 422)
    return problems.answer(status, error.code, error.sentence)


@blueprint.post("/tenants/<tenant_id>/updates")
def update(tenant_id: str) -> flask.Response:
    """The command is on its way (ASYNC), or has had its effect (WAIT_COMMIT, if that came in time)."""
    _let_in(tenant_id)
    of = _services()
    wait_ms = _wait_ms(of)
    command = commands.decode(
        bodies.read(commands.MOST_BYTES), now=of.clock.now(), event_id=of.clock.new_id(),
        given={"tenantId": tenant_id, "source": "REST"},
    )  # fmt: skip
    request = accept.accept(of, of.publisher, command, wait_seconds=wait_ms / 1000)
    if wait_ms and request.status == "FAILED":
        status = states.CODES[request.error_code].status
        return problems.answer(
            status, request.error_code, request.error_message, eventId=str(request.event_id)
        )
    done = bool(wait_ms) and request.status == "COMMITTED"
    response = _answer(_told(request), 200 if done else 202)
    response.headers["Location"] = _status_url(request)
    return response


def _wait_ms(of: Services) -> int:
    """For how long the answer waits; 0: not at all."""
    mode = flask.request.args.get("consistencyMode", "ASYNC")
    if mode not in ("ASYNC", "WAIT_COMMIT"):
        raise Malformed("consistencyMode is ASYNC or WAIT_COMMIT.")
    text = flask.request.args.get("timeoutMs", str(of.config.refdata.consistency.wait_commit_timeout_ms))
    if not re.fullmatch("[0-9]{2,4}", text, re.ASCII) or not SHORTEST_WAIT_MS <= int(text) <= LONGEST_WAIT_MS:
        raise Malformed(f"timeoutMs is a whole number from {SHORTEST_WAIT_MS} to {LONGEST_WAIT_MS}.")
    return int(text) if mode == "WAIT_COMMIT" else 0


@blueprint.get("/tenants/<tenant_id>/updates/<uuid:event_id>")
def show_update(tenant_id: str, event_id: UUID) -> flask.Response:
    """How far the command is: PENDING, COMMITTED with its version, or FAILED with a code."""
    _let_in(tenant_id)
    return _answer(_told(accept.find_request(_services(), tenant_id, event_id)))


def _told(request: Any) -> dict[str, Any]:
    return {
        "eventId": request.event_id, "tenantId": request.tenant_id, "dictCode": request.dict_code,
        "status": request.status, "committedVersion": request.committed_version,
        "errorCode": request.error_code, "errorMessage": request.error_message,
        "createdAt": request.created_at.astimezone(UTC), "updatedAt": request.updated_at.astimezone(UTC),
        "statusUrl": _status_url(request),
    }  # fmt: skip


def _status_url(request: Any) -> str:
    return flask.url_for("refdata.show_update", tenant_id=request.tenant_id, event_id=request.event_id)


def _answer(found: Any, status: int = 200) -> flask.Response:
    content = orjson.dumps(found, option=orjson.OPT_UTC_Z)
    return flask.Response(content, status, content_type="application/json")


# -- for whoever runs the instance


def _of_instance(scope: str) -> Services:
    """The parts, for whoever may see the whole instance; to others there is nothing here."""
    if principal.require_scope(scope).workspace_id is not None:
        raise errors.NotFound(statuses.NOTHING_HERE)
    return _services()


@blueprint.get("/refdata/config")
def show_config() -> flask.Response:
    """The dictionaries of the configuration in use, and why the file that is there is not, if it is not."""
    return _answer(_configured(_of_instance("read")))


@blueprint.post("/refdata/config/reload")
def reload_config() -> flask.Response:
    """The file is read now; a bad one is refused, and the configuration before stays."""
    of = _of_instance("ops")
    if not of.live.reload():
        raise errors.Refused(of.live.refused or "", code="invalid_configuration")
    return _answer(_configured(of))


def _configured(of: Services) -> dict[str, Any]:
    return {
        "refused": of.live.refused,
        "dictionaries": [
            {
                "dictCode": one.code, "enabled": one.enabled, "database": one.database,
                "reloadOnEvent": one.reload_on_event, "takesDeltas": one.takes_deltas,
                "takesSnapshots": one.takes_snapshots,
            }
            for one in of.config.dictionaries.values()
        ],
    }  # fmt: skip


OPEN_ENDPOINTS = ("refdata.update", "refdata.show_update")
"""Who may use them is asked here, and not at the door."""
