"""The page of the audit log: who did what to which upload or webhook, and why."""

from __future__ import annotations

from typing import Any

import flask

from app.uploads import parameters
from app.uploads.audit import store
from app.uploads.audit.actions import ACTIONS
from app.uploads.pages import site
from app.uploads.pages.site import blueprint

PAGE_ENTRIES = 50
FILTERS = ("action", "upload_id", "from", "to")


@blueprint.get("/audit")
def audit_page() -> str:
    """What happened in a workspace, newest first, a page at a time."""
    place = site.place()
    query = flask.request.args
    filters = {
        "action": parameters.one_of(query, "action", ACTIONS),
        "upload_id": parameters.uuid(query, "upload_id"),
        "from_time": parameters.day(query, "from"),
        "to_time": parameters.day(query, "to", days=1),
        "before": parameters.from_number_cursor(query.get("cursor")),
    }
    entries: list[Any] = []
    if place.workspace_id is not None:
        with site.services().db.transaction("read", place.workspace_id) as conn:
            entries = store.list_audit(conn, **filters, limit=PAGE_ENTRIES + 1)
    return site.render(
        "audit.html",
        place,
        entries=entries[:PAGE_ENTRIES],
        actions=ACTIONS,
        given=query,
        kept={name: query[name] for name in FILTERS if query.get(name)},
        cursor=entries[PAGE_ENTRIES - 1].id if len(entries) > PAGE_ENTRIES else None,
    )
