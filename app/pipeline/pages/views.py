"""The page of the pipeline, for those who run the instance: where files stand, what is stuck, what failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import flask

from app.access import principal
from app.adapters import logs
from app.kernel import errors
from app.pipeline import requests, states
from app.pipeline.services import Services
from app.pipeline.states import INGEST, STAGES
from app.pipeline.store import Pipeline

log = logs.get(__name__)

blueprint = flask.Blueprint("pipeline_pages", __name__, template_folder="templates")

FILES = 50
STUCK = 50
FAILED = 50


@dataclass(frozen=True, slots=True)
class Nowhere:
    """The workspace of this page: none."""

    workspace_id: None = None
    others: tuple[()] = ()
    query: dict[str, str] = field(default_factory=dict)


def _pipeline(scope: str = "read") -> Pipeline:
    """The pipeline, for whoever may see the whole instance; to others there is nothing here."""
    who = principal.require_scope(scope)
    if who.workspace_id is not None:
        raise errors.NotFound("There is nothing at this address.")
    return cast(Services, flask.current_app.extensions["pipeline"]).pipeline


@blueprint.get("/pipeline")
def show_pipeline() -> str:
    """Stages with their counts, what is stuck, what failed, and files by stages."""
    pipeline = _pipeline()
    wanted = requests.query(
        requests.FilesQuery, {
            "limit": str(FILES), "status": flask.request.args.get("status", ""),
            "cursor": flask.request.args.get("cursor", ""),
        },
    )  # fmt: skip
    files = pipeline.files(wanted)
    whole, _ = pipeline.summary()
    failed = {
        name: pipeline.retry_failed(stage, requests.RetryFailed(limit=FAILED, dry_run=True))
        for name, stage in STAGES.items() if getattr(whole, f"{stage.column}_failed")
    }  # fmt: skip
    return flask.render_template(
        "pipeline/pipeline.html", place=Nowhere(), stages=STAGES.values(), statuses=states.MACHINE.states,
        whole=whole, files=files[:FILES], further=files[FILES - 1].filename if len(files) > FILES else None,
        stuck=pipeline.stuck(requests.StuckQuery(limit=STUCK)), failed=failed, status=wanted.status,
        oldest=pipeline.oldest_ready(), may_retry="ops" in principal.current().scopes, count=_count,
    )  # fmt: skip


def _count(row: Any, stage: states.Stage, status: str) -> int:
    return int(getattr(row, f"{stage.column}_{status}"))


@blueprint.get("/pipeline/files/<filename>")
def show_file(filename: str) -> str:
    """One file: where each shard stands, and what happened."""
    pipeline = _pipeline()
    rows = pipeline.file(filename)
    history = pipeline.history(filename, requests.HistoryQuery(limit=500))
    return flask.render_template(
        "pipeline/file.html", place=Nowhere(), filename=filename, stages=STAGES.values(), rows=rows,
        history=history[::-1], may_retry="ops" in principal.current().scopes, at=getattr,
    )  # fmt: skip


@blueprint.post("/pipeline/stages/<stage>/retry")
def retry(stage: str) -> flask.typing.ResponseReturnValue:
    """Failed tasks of the stage wait for it again: all, or one; who asked stands in the log."""
    pipeline = _pipeline("ops")
    if stage not in STAGES:
        raise errors.NotFound("There is no such stage.")
    form = {name: flask.request.form.get(name) or None for name in ("filename", "shard")}
    wanted = requests.query(requests.AskedRetry, {name: value for name, value in form.items() if value})
    of = STAGES[stage]
    if of is INGEST and wanted.filename is None:
        raise errors.Refused("The ingest of one file is done again, not of all.")
    _, rows = pipeline.retry_failed(of, requests.RetryFailed(wanted.filename, wanted.shard))
    log.info(
        "pipeline_retried", who=principal.current().name, stage=stage, filename=wanted.filename,
        shard=wanted.shard, tasks=len(rows),
    )  # fmt: skip
    if wanted.filename:
        return flask.redirect(flask.url_for("pipeline_pages.show_file", filename=wanted.filename), 303)
    return flask.redirect(flask.url_for("pipeline_pages.show_pipeline"), 303)
