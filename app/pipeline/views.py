"""The pipeline over HTTP, for daemons: the calls of the seed to the letter, and what else daemons need."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import urlencode

import flask
import orjson

from app.access import bodies, origin, principal
from app.adapters import exposition
from app.kernel import errors
from app.pipeline import events, requests, states
from app.pipeline.services import Services
from app.pipeline.states import INGEST, QUEUES, STAGES, Stage
from app.pipeline.store import Held, Pipeline

blueprint = flask.Blueprint("pipeline", __name__, url_prefix="/api/v1/pipeline")

OF_STAGE = (
    "status", "attempt", "worker_id", "started_at", "finished_at", "lease_expires_at", "error_code",
    "error_message",
)  # fmt: skip


def _services() -> Services:
    return cast(Services, flask.current_app.extensions["pipeline"])


def _pipeline() -> Pipeline:
    return _services().pipeline


@blueprint.before_request
def _let_in() -> None:
    """A daemon shows a token; whoever sits at the machine of an instance of its own needs none."""
    scheme, _, token = flask.request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and _services().admits(token.strip()):
        return
    here = origin.is_at_this_machine(flask.request.remote_addr, flask.request.headers)
    own = origin.of_urls(flask.request.host_url)
    ours = origin.is_ours(flask.request.headers, own) is not False  # no other site's page asks
    if scheme or not (_services().open_here and here and ours):
        principal.bind(None)
        raise errors.Refused(
            "This needs a token: send one of HEADWORKS_PIPELINE_TOKENS as `Authorization: Bearer <token>`.",
            code="unauthorized",
        )


def _body(kind: type[requests.T]) -> requests.T:
    return requests.body(kind, bodies.read(requests.MOST_BYTES))


def _query(kind: type[requests.T]) -> requests.T:
    return requests.query(kind, flask.request.args.to_dict())


def _answer(found: Any) -> flask.Response:
    content = orjson.dumps(found, option=orjson.OPT_UTC_Z, default=str)
    return flask.Response(content, content_type="application/json")


def _queue_of(name: str) -> Stage:
    if name not in QUEUES:
        raise errors.NotFound(f"There is no queue of this name: {', '.join(QUEUES)}.")
    return QUEUES[name]


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _plain(row: Any) -> dict[str, Any]:
    """A row as it is told: times in UTC."""
    return {
        name: _utc(value) if isinstance(value, datetime) else value for name, value in row._asdict().items()
    }


# -- files


@blueprint.post("/files/register")
def register() -> flask.Response:
    """Every shard of the file has a task."""
    wanted = _body(requests.Register)
    created = _pipeline().register(wanted)
    return _answer({"filename": wanted.filename, "shards": wanted.shards, "created": created})


@blueprint.post("/stages/event-ingest/done")
def finish_ingest() -> flask.Response:
    """The ingest of every shard of the file is done."""
    filename = _body(requests.FinishIngest).filename
    rows = _pipeline().move_ingest("done", requests.MoveIngest(filename))
    return _answer({"filename": filename, "updated_rows": rows})


@blueprint.post("/stages/event-ingest/<any(fail, retry):transition>")
def move_ingest(transition: str) -> flask.Response:
    """The ingest of the file, or of one shard, has failed, or is to be done again."""
    wanted = _body(requests.MoveIngest)
    rows = _pipeline().move_ingest(transition, wanted)
    return _answer({
        "filename": wanted.filename, "stage": INGEST.name, "status": states.TARGETS[transition],
        "updated_rows": rows,
    })  # fmt: skip


@blueprint.get("/files")
def list_files() -> flask.Response:
    """Files, the newest name first, and how many of their shards stand where."""
    wanted = _query(requests.FilesQuery)
    rows = _pipeline().files(wanted)
    page = rows[: wanted.limit]
    files = [
        {
            "filename": row.filename, "shards": row.shards, "created_at": _utc(row.created_at),
            "updated_at": _utc(row.updated_at), "by_stage": _counts(row),
        }
        for row in page
    ]  # fmt: skip
    return _answer({"files": files, "cursor": page[-1].filename if len(rows) > len(page) else None})


def _counts(row: Any) -> dict[str, dict[str, int]]:
    return {
        stage.column: {status: getattr(row, f"{stage.column}_{status}") for status in states.MACHINE.states}
        for stage in STAGES.values()
    }


@blueprint.get("/files/<filename>")
def show_file(filename: str) -> flask.Response:
    """Where every shard of the file stands."""
    details = _query(requests.FileQuery).details
    shards = [_shard(row) | (_details(row) if details else {}) for row in _pipeline().file(filename)]
    return _answer({"filename": filename, "shards": shards})


def _shard(row: Any) -> dict[str, Any]:
    statuses = {f"{stage.column}_status": getattr(row, f"{stage.column}_status") for stage in STAGES.values()}
    return {"shard": row.shard, **statuses, "updated_at": _utc(row.updated_at)}


def _details(row: Any) -> dict[str, Any]:
    stages = {
        name: {member: getattr(row, f"{stage.column}_{member}") for member in OF_STAGE}
        for name, stage in STAGES.items()
    }
    for stage in stages.values():
        stage |= {name: _utc(value) for name, value in stage.items() if isinstance(value, datetime)}
    return {"created_at": _utc(row.created_at), "blocked_by": _blocked_by(stages), "stages": stages}


def _blocked_by(stages: dict[str, dict[str, Any]]) -> str | None:
    """The first stage that failed, where one behind it waits for it."""
    statuses = [(name, stage["status"]) for name, stage in stages.items()]
    for at, (name, status) in enumerate(statuses):
        if status == "failed" and any(later == "new" for _, later in statuses[at + 1 :]):
            return name
    return None


@blueprint.get("/files/<filename>/history")
def show_history(filename: str) -> flask.Response:
    """What happened to the tasks of the file, the oldest first."""
    wanted = _query(requests.HistoryQuery)
    rows = _pipeline().history(filename, wanted)
    page = rows[: wanted.limit]
    cursor = str(page[-1].id) if len(rows) > len(page) else None
    return _answer({"filename": filename, "history": [_plain(row) for row in page], "cursor": cursor})


# -- tasks


@blueprint.post("/stages/<stage>/<any(start, done, fail, retry):transition>")
def move(stage: str, transition: str) -> flask.Response:
    """The task stands there in its stage."""
    of = _queue_of(stage)
    if transition == "start":
        return _start(of)
    wanted = _body(requests.Transition)
    if transition == "retry":
        _pipeline().retry(of, wanted)
    else:
        _pipeline().finish(of, transition, wanted)
    return _answer(_moved(wanted, of, transition))


def _start(stage: Stage) -> flask.Response:
    wanted = _body(requests.Start)
    held = _pipeline().start(stage, wanted)
    asked = wanted.worker_id is not None or wanted.lease_seconds is not None
    return _answer(_moved(wanted, stage, "start") | (_lease(held) if asked else {}))


def _lease(held: Held) -> dict[str, Any]:
    ends = held.lease_expires_at
    return {"attempt": held.attempt, "lease_token": held.lease_token, "lease_expires_at": ends and _utc(ends)}


def _moved(wanted: Any, stage: Stage, transition: str) -> dict[str, Any]:
    return {
        "filename": wanted.filename, "shard": wanted.shard, "stage": stage.name,
        "status": states.TARGETS[transition],
    }  # fmt: skip


@blueprint.post("/stages/<stage>/retry-failed")
def retry_failed(stage: str) -> flask.Response:
    """Failed tasks that match wait for the stage again."""
    if stage not in STAGES:
        raise errors.NotFound(f"There is no stage of this name: {', '.join(STAGES)}.")
    wanted = _body(requests.RetryFailed)
    matched, rows = _pipeline().retry_failed(STAGES[stage], wanted)
    items = [{"filename": row.filename, "shard": row.shard, "error_code": row.error_code} for row in rows]
    return _answer({
        "stage": stage, "matched": matched, "retried": 0 if wanted.dry_run else len(items),
        "dry_run": wanted.dry_run, "items": items,
    })  # fmt: skip


@blueprint.get("/tasks")
def list_tasks() -> flask.Response:
    """Tasks that match, in the order of their making."""
    wanted = _query(requests.TasksQuery)
    if wanted.stage is None and (wanted.status or wanted.error_code):
        raise errors.Refused("status and error_code are those of a stage: name the stage, too.")
    rows = _pipeline().tasks(wanted)
    page = rows[: wanted.limit]
    tasks = [{"filename": row.filename, **_shard(row)} for row in page]
    return _answer({"tasks": tasks, "cursor": str(page[-1].id) if len(rows) > len(page) else None})


@blueprint.get("/stuck")
def list_stuck() -> flask.Response:
    """Tasks that are at work for longer than their stage should take."""
    found = _pipeline().stuck(_query(requests.StuckQuery))
    return _answer({"stuck": [task | {"started_at": _utc(task["started_at"])} for task in found]})


# -- queues


@blueprint.get("/queues/<stage>")
def list_queue(stage: str) -> flask.Response:
    """The tasks that wait for the stage; a further page is named by the header Link."""
    of = _queue_of(stage)
    given = flask.request.args.to_dict()
    wanted = requests.query(requests.QueueQuery, given)
    rows = _pipeline().queue(of, wanted)
    page = rows[: wanted.limit]
    items = [
        {"filename": row.filename, "shard": row.shard, "created_at": _utc(row.created_at)} for row in page
    ]
    response = _answer({"stage": stage, "items": items})
    if len(rows) > len(page):
        place = f"{_utc(page[-1].created_at).isoformat()}~{page[-1].id}"
        further = urlencode({**given, "offset": "0", "cursor": place})
        response.headers["Link"] = f'<{flask.request.path}?{further}>; rel="next"'
    return response


@blueprint.post("/queues/<stage>/claim")
def claim(stage: str) -> flask.Response:
    """The tasks that wait longest are this worker's, under a lease each."""
    rows = _pipeline().claim(_queue_of(stage), _body(requests.Claim))
    items = [
        {
            "filename": row.filename, "shard": row.shard, "created_at": _utc(row.created_at),
            "attempt": row.attempt, "lease_token": row.lease_token,
            "lease_expires_at": _utc(row.lease_expires_at),
        }
        for row in rows
    ]  # fmt: skip
    return _answer({"stage": stage, "items": items})


@blueprint.post("/queues/<stage>/heartbeat")
def extend_task_lease(stage: str) -> flask.Response:
    """The lease of the task ends so much later."""
    of = _queue_of(stage)
    wanted = _body(requests.Heartbeat)
    ends = _pipeline().extend_task_lease(of, wanted)
    return _answer({
        "filename": wanted.filename, "shard": wanted.shard, "stage": stage, "lease_expires_at": _utc(ends),
    })  # fmt: skip


# -- all of it


@blueprint.get("/metrics/summary")
def show_summary() -> flask.Response:
    """How many tasks stand where, by stage and by shard."""
    whole, shards = _pipeline().summary()
    return _answer({
        "total": whole.total, "by_stage": _counts(whole), "by_shard": [row._asdict() for row in shards]
    })  # fmt: skip


@blueprint.get("/metrics")
def show_metrics() -> flask.Response:
    """The pipeline for Prometheus: the counters of all processes, and where the tasks stand now."""
    text, content_type = exposition.text(events.gauges(_pipeline()))
    return flask.Response(text, content_type=content_type)


@blueprint.get("/events")
def follow() -> flask.Response:
    """Every change from now on, or from the place that was followed up to, as server-sent events."""
    wanted = _query(requests.FollowQuery)
    stream = events.follow(_services(), wanted, flask.request.headers.get("Last-Event-ID", ""))
    response = flask.Response(stream, content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response


ENDPOINTS = tuple(
    f"pipeline.{name}"
    for name in (
        "register", "finish_ingest", "move_ingest", "list_files", "show_file", "show_history", "move",
        "retry_failed", "list_tasks", "list_stuck", "list_queue", "claim", "extend_task_lease",
        "show_summary", "show_metrics", "follow",
    )
)  # fmt: skip
"""Who may use them is asked here, and not at the door."""
