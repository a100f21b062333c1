"""docs/reference/events.md: whatever the product tells of itself, message by message, with its fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from app.adapters import signals
from app.pipeline import events as pipeline_events
from app.refdata.config import Kafka, Redis
from app.uploads import events
from app.uploads.audit.actions import ACTIONS
from app.uploads.webhooks import messages
from reference import routes
from reference.page import code, page, table

SCHEMAS = Path(__file__).parent.parent / "docs" / "schemas"
HEAD = ("field", "type", "meaning")

OF_COMPLETION = {
    "upload_id": "which upload has ended; the key of the event: once for each upload",
    "workspace_id": "whose it is",
    "client_id": "of which client, where one was given",
    "platform": "of which platform the report is",
    "status": "`completed` or `partial`; another end is not told, nor one without a promoted row",
    "metrics.total_rows": "rows of the file, without totals and blank lines",
    "metrics.promoted_rows": "rows that are in production",
    "metrics.failed_rows": "valid rows that could not be promoted",
    "metrics.campaigns_upserted": "campaigns written",
    "metrics.ad_sets_upserted": "ad sets or ad groups written",
    "metrics.ads_upserted": "ads written",
    "metrics.daily_metrics_upserted": "days of an entity written",
    "affected_dates": "the days whose numbers may have changed",
    "timestamp": "when it ended",
}
OF_DEAD_LETTER = {
    "error-code": "why it has no effect: see [codes](codes.md)",
    "error-sentence": "the same for people, 1,000 characters at most",
    "origin": "`topic/partition/offset` where it stood",
}


def told() -> str:
    """The page."""
    found = routes.whole()
    schemas = found["components"]["schemas"]
    redis, kafka = Redis.model_fields, Kafka.model_fields
    history = schemas["HistoryPage"]["properties"]["history"]["items"]
    return page(
        "Events",
        "Everything here is told after the commit of what it is about, once or more, never before: see"
        " [the order of publication](../explanation/outbox.md). Take a message that you have had already"
        " for told, and pass"
        " over fields that you do not know.",
        f"## {events.TOPIC}",
        f"An upload has ended. On the Redis stream `headworks:{events.TOPIC}` (about"
        f" {signals.STREAM_LENGTH:,} entries are kept)"
        " as the fields `key` and `payload`, and to every webhook that subscribed to it.",
        table(HEAD, _completion()),
        "## The message of a webhook",
        "Signed and sent to a subscribed URL ([webhooks](../webhooks.md)). Types:"
        f" {', '.join(map(code, messages.TOPICS))}.",
        table(
            HEAD,
            [
                ("`type`", "string", "the type of the event"),
                ("`timestamp`", "string", "that of the event"),
                ("`data`", "object", f"the event: the fields of `{events.TOPIC}`"),
                (
                    "`test`",
                    "boolean",
                    "`true` in a sample that `POST /v1/webhooks/{subscription_id}/test` sends; else left out",
                ),
            ],
        ),
        "## progress",
        "How far an upload is: each message of the WebSocket `/v1/uploads/{upload_id}/events`, and the"
        " answer of"
        ' `…/progress`. Where no more sockets can be held the one message is `{"type": "poll", "url": …}`.',
        table(HEAD, _fields(schemas["Progress"], schemas)),
        "## transition",
        f"A task of a pipeline has moved: server-sent events of `/api/v1/pipeline/events`. A connection"
        f" is followed for"
        f" {pipeline_events.MOST_SECONDS:.0f} s at most, by {pipeline_events.MOST_FOLLOWERS} at a time in"
        f" one process.",
        table(HEAD, [("`filename`", "string", "of which file"), *_fields(history, schemas)]),
        "## version",
        "A dictionary has another version in this pod: server-sent events of"
        " `…/dictionaries/{dict_code}/watch`.",
        table(
            HEAD,
            [
                ("`version`", "integer", "the version; some may be passed over"),
                ("`epoch`", "string (uuid)", "the history that it counts in"),
            ],
        ),
        "## An announcement",
        f"A dictionary has a new version: on the channel `{redis['pub_channel'].default}`, and as the"
        f" field `payload` on the"
        f" stream `{redis['stream_key'].default}`, under the names that the configuration gives"
        " (`docs/schemas/refdata-invalidation.schema.json`).",
        table(HEAD, _of_file("refdata-invalidation")),
        "## A command",
        f"A change of a dictionary, in the topic `{kafka['commands_topic'].default}` under the key"
        f" `{kafka['key_template'].default}` (`docs/schemas/refdata-command.schema.json`).",
        table(HEAD, _of_file("refdata-command")),
        "## A dead letter",
        f"A message that cannot have its effect, as it was, in the topic"
        f" `{kafka['dead_letter_topic'].default}`; these headers"
        " are added:",
        table(("header", "meaning"), ((code(name), meaning) for name, meaning in OF_DEAD_LETTER.items())),
        "## The audit log",
        "What `GET /v1/audit` and the page of an upload tell; entries are kept with the upload and never"
        " changed.",
        table(("action", "meaning"), ((code(name), meaning) for name, meaning in ACTIONS.items())),
    )


def completion_fields() -> dict[str, Any]:
    """The fields of an event of completion with an example, parts of an object as `object.part`."""
    sample = messages.sample(UUID(int=0), datetime(2026, 1, 1, tzinfo=UTC))
    return dict(_flat(sample["data"]))


def _completion() -> Iterator[tuple[str, str, str]]:
    for name, example in completion_fields().items():
        yield code(name), _kind(example), OF_COMPLETION[name]


def _flat(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _kind(example: Any) -> str:
    kinds = {UUID: "string (uuid)", str: "string", int: "integer", list: "array of dates"}
    return kinds.get(type(example), "string (uuid) or null")


def _of_file(name: str) -> Iterator[tuple[str, str, str]]:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return _fields(schema, schema.get("$defs", {}))


def _fields(schema: dict[str, Any], known: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    needed = schema.get("required", ())
    for name, of in schema["properties"].items():
        meaning = _meaning(of, known)
        yield (
            code(name),
            _type(of, known),
            meaning if name in needed else f"{meaning} May be left out.".strip(),
        )


def _meaning(of: dict[str, Any], known: dict[str, Any]) -> str:
    there = of.get("description") or _there(of, known).get("description", "")
    return " ".join(str(there).split())


def _there(of: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The schema that it refers to; itself where it refers to none."""
    found = known.get(str(of.get("$ref", "")).rpartition("/")[2], of)
    return found if isinstance(found, dict) else of


def _type(of: dict[str, Any], known: dict[str, Any]) -> str:
    of = _there(of, known)
    if "const" in of:
        return code(json.dumps(of["const"]))
    if "enum" in of:
        return " or ".join(code(value) for value in of["enum"])
    if "anyOf" in of:
        return " or ".join(dict.fromkeys(_type(one, known) for one in of["anyOf"]))
    kinds = of.get("type", "any")
    told = kinds if isinstance(kinds, str) else " or ".join(kinds)
    if told == "array":
        return f"array of {_type(of.get('items', {}), known)}"
    return f"{told} ({of['format']})" if "format" in of else str(told)
