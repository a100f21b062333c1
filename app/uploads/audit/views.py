"""The audit log over HTTP."""

from __future__ import annotations

from typing import Any, cast

import flask

from app.access import principal
from app.uploads import parameters
from app.uploads.audit import store
from app.uploads.audit.actions import ACTIONS
from app.uploads.services import Services

blueprint = flask.Blueprint("audit", __name__)

PAGE_ENTRIES = 100


def _services() -> Services:
    return cast(Services, flask.current_app.extensions["services"])


@blueprint.get("/v1/audit")
def list_audit() -> flask.Response:
    """What happened in one workspace, newest first: whose doing it was, and why."""
    principal.require_scope("read")
    query = flask.request.args
    workspace_id = parameters.required_uuid(query, "workspace_id")
    principal.require("read", workspace_id)
    with _services().db.transaction("read", workspace_id) as conn:
        found = store.list_audit(
            conn,
            upload_id=parameters.uuid(query, "upload_id"),
            action=parameters.one_of(query, "action", ACTIONS),
            from_time=parameters.instant(query, "from"),
            to_time=parameters.instant(query, "to"),
            before=parameters.from_number_cursor(query.get("cursor")),
            limit=PAGE_ENTRIES + 1,
        )
    page = found[:PAGE_ENTRIES]
    return flask.jsonify(
        {
            "entries": [_entry(row) for row in page],
            "cursor": str(page[-1].id) if len(found) > PAGE_ENTRIES else None,
        }
    )


def _entry(row: Any) -> dict[str, Any]:
    return {
        "at": row.at,
        "action": row.action,
        "upload_id": row.upload_id,
        "from": row.from_status,
        "to": row.to_status,
        "who": row.owner_id,
        "why": row.why,
        "detail": row.detail,
    }
