"""Webhooks over HTTP: requests in, JSON out. All of it needs the scope `ops`."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import flask

from app.access import bodies, principal
from app.kernel import errors
from app.uploads import parameters
from app.uploads.services import Services
from app.uploads.webhooks import codes, store, subscriptions
from app.uploads.webhooks.subscriptions import NewSecret

blueprint = flask.Blueprint("webhooks", __name__)

PAGE_DELIVERIES = 50
BODY_BYTES = 16 * 1024


def _services() -> Services:
    return cast(Services, flask.current_app.extensions["services"])


# -- subscriptions


@blueprint.post("/v1/webhooks")
def create_webhook() -> flask.Response:
    """Subscribe a URL to topics; the answer is the only one that shows the secret."""
    principal.require_scope("ops")
    bodies.read(BODY_BYTES)
    body = flask.request.get_json(silent=True)
    if not isinstance(body, dict):
        raise errors.Refused("The body is no JSON object.", code="malformed_json")
    workspace_id = parameters.required_uuid(body, "workspace_id")
    url, topics = body.get("url"), body.get("topics")
    if not isinstance(url, str):
        raise errors.Refused("The field `url` is missing.", code="invalid_url")
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise errors.Refused("`topics` is a list of names.", code="invalid_topics")
    who = principal.require("ops", workspace_id).name
    made = subscriptions.subscribe(_services(), workspace_id, url=url, topics=topics, who=who)
    response = flask.jsonify(
        {**_summary(_webhook(workspace_id, made.subscription_id)), "secret": made.secret}
    )
    response.status_code = 201
    response.headers["Location"] = flask.url_for(".list_webhooks", workspace_id=workspace_id)
    return response


@blueprint.get("/v1/webhooks")
def list_webhooks() -> flask.Response:
    """The webhooks of one workspace."""
    principal.require_scope("ops")
    workspace_id = parameters.required_uuid(flask.request.args, "workspace_id")
    principal.require("ops", workspace_id)
    with _services().db.transaction("webhooks", workspace_id) as conn:
        webhooks = store.list_webhooks(conn)
    return flask.jsonify({"webhooks": [_summary(webhook) for webhook in webhooks]})


@blueprint.delete("/v1/webhooks/<uuid:subscription_id>")
def delete_webhook(subscription_id: UUID) -> tuple[str, int]:
    """Nothing more is sent there."""
    workspace_id, who = _entitled(subscription_id)
    subscriptions.end(_services(), workspace_id, subscription_id, who=who)
    return "", 204


@blueprint.post("/v1/webhooks/<uuid:subscription_id>/rotate-secret")
def rotate_secret(subscription_id: UUID) -> flask.Response:
    """A new secret; for a day the old one signs beside it."""
    workspace_id, who = _entitled(subscription_id)
    made: NewSecret = subscriptions.rotate_secret(_services(), workspace_id, subscription_id, who=who)
    return flask.jsonify(
        {
            "subscription_id": subscription_id,
            "secret": made.secret,
            "previous_secret_until": made.previous_until,
        }
    )


@blueprint.post("/v1/webhooks/<uuid:subscription_id>/test")
def send_test(subscription_id: UUID) -> tuple[flask.Response, int]:
    """A sample event is on its way."""
    workspace_id, who = _entitled(subscription_id)
    delivery_id = subscriptions.send_test(_services(), workspace_id, subscription_id, who=who)
    return flask.jsonify({"delivery_id": delivery_id, "status": "pending"}), 202


# -- the log


@blueprint.get("/v1/webhooks/<uuid:subscription_id>/deliveries")
def list_deliveries(subscription_id: UUID) -> flask.Response:
    """What was sent, newest first, with every try."""
    workspace_id, _ = _entitled(subscription_id)
    before = parameters.from_place_cursor(flask.request.args.get("cursor"))
    with _services().db.transaction("webhooks", workspace_id) as conn:
        store.get_webhook(conn, subscription_id)
        found = store.list_deliveries(conn, subscription_id, before=before, limit=PAGE_DELIVERIES + 1)
        page = found[:PAGE_DELIVERIES]
        attempts = store.attempts_of_deliveries(conn, [row.id for row in page])
    more = len(found) > PAGE_DELIVERIES
    return flask.jsonify(
        {
            "deliveries": [
                _delivery(row, [attempt for attempt in attempts if attempt.delivery_id == row.id])
                for row in page
            ],
            "cursor": parameters.to_place_cursor(page[-1].created_at, page[-1].id) if more else None,
        }
    )


@blueprint.post("/v1/webhooks/<uuid:subscription_id>/deliveries/<uuid:delivery_id>/redeliver")
def redeliver(subscription_id: UUID, delivery_id: UUID) -> tuple[flask.Response, int]:
    """The delivery is on its way again, under the id that it had."""
    workspace_id, who = _entitled(subscription_id)
    subscriptions.redeliver(_services(), workspace_id, subscription_id, delivery_id=delivery_id, who=who)
    return flask.jsonify({"delivery_id": delivery_id, "status": "pending"}), 202


# -- who asks, and the shapes of the answers


def _entitled(subscription_id: UUID) -> tuple[UUID, str]:
    """The workspace in which the webhook is looked for, and who asks.

    That of the key, whatever webhook is asked for: another workspace's is thereby what an unknown one
    is. Only a key of every workspace looks up whose it is.
    """
    who = principal.require_scope("ops")
    if who.workspace_id is not None:
        return who.workspace_id, who.name
    with _services().db.transaction("dispatch") as conn:
        return store.webhook_workspace(conn, subscription_id), who.name


def _webhook(workspace_id: UUID, subscription_id: UUID) -> Any:
    with _services().db.transaction("webhooks", workspace_id) as conn:
        return store.get_webhook(conn, subscription_id)


def _summary(webhook: Any) -> dict[str, Any]:
    return {
        "subscription_id": webhook.id,
        "workspace_id": webhook.workspace_id,
        "url": webhook.url,
        "topics": webhook.topics,
        "created_at": webhook.created_at,
        "created_by": webhook.created_by,
        "disabled_at": webhook.disabled_at,
        "previous_secret_until": webhook.previous_until,
    }


def _delivery(row: Any, attempts: list[Any]) -> dict[str, Any]:
    return {
        "delivery_id": row.id,
        "event_key": row.event_key,
        "test": row.is_test,
        "status": row.status,
        **_reason(row.error_code),
        "created_at": row.created_at,
        "next_attempt_at": row.next_attempt_at if row.status == "pending" else None,
        "finished_at": row.finished_at,
        "redelivered_at": row.redelivered_at,
        "redelivered_by": row.redelivered_by,
        "attempts": [
            {
                "number": attempt.number,
                "at": attempt.began_at,
                "status_code": attempt.status_code,
                **_reason(attempt.error_code),
                "duration_ms": attempt.duration_ms,
                "excerpt": attempt.excerpt,
            }
            for attempt in attempts
        ],
    }


def _reason(code: str | None) -> dict[str, str | None]:
    return {"error_code": code, "error_text": codes.sentence(code) if code else None}
