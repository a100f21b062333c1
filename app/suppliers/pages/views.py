"""The pages of suppliers' lists, for those who run the instance: a list belongs to no workspace."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import flask

from app.access import principal
from app.kernel import errors, spreadsheets
from app.suppliers import codes, diff, history, requeue, trace
from app.suppliers.layout import RunId, check_supplier
from app.suppliers.manifest import Manifest
from app.suppliers.pages import figures
from app.suppliers.services import Services

blueprint = flask.Blueprint("suppliers", __name__, template_folder="templates")

RUNS = 50
BAD_ROWS = 100
TRACED_RUNS = 10
BAD_COLUMNS = ["row", "category", "article", "column", "value", "reason", "what to do", "что делать"]


@dataclass(frozen=True, slots=True)
class Nowhere:
    """The workspace of these pages: none."""

    workspace_id: None = None
    others: tuple[()] = ()
    query: dict[str, str] = field(default_factory=dict)


def _services(scope: str = "read") -> Services:
    """The suppliers' services, for whoever may see the whole instance; to others there is nothing here."""
    who = principal.require_scope(scope)
    if who.workspace_id is not None:
        raise errors.NotFound("There is nothing at this address.")
    return cast(Services, flask.current_app.extensions["suppliers"])


def _render(template: str, **values: Any) -> str:
    return flask.render_template(
        f"suppliers/{template}", place=Nowhere(), figures=figures, codes=codes.registry(), **values
    )


@blueprint.get("/suppliers")
def list_page() -> str:
    """Every supplier: what is published, how old it is, how the last list fared."""
    found = _services()
    overviews = [history.overview(found, supplier) for supplier in found.layout.suppliers()]
    return _render("list.html", overviews=overviews, inbox=found.layout.root / "inbox")


@blueprint.get("/suppliers/<supplier>")
def show(supplier: str) -> str:
    """One supplier: its state, its runs, its refused files, and the question for one article."""
    found = _known(supplier)
    sku = (flask.request.args.get("sku") or "").strip()
    return _render(
        "show.html",
        about=history.overview(found, supplier),
        runs=history.runs(found, supplier, limit=RUNS),
        broken=sorted(path.name for path in _files(found, supplier)),
        sku=sku,
        traces=trace.trace(found, supplier, sku, limit=TRACED_RUNS) if sku else [],
        may_requeue="ops" in principal.current().scopes,
    )


def _known(supplier: str, scope: str = "read") -> Services:
    found = _services(scope)
    if check_supplier(supplier) not in found.layout.suppliers():
        raise errors.NotFound("There is no such supplier.")
    return found


def _files(found: Services, supplier: str) -> Iterator[Any]:
    folder = found.layout.broken(supplier)
    return (path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else iter(())


@blueprint.get("/suppliers/runs/<run_id>")
def show_run(run_id: str) -> str:
    """One run: its verdict, its counts by reason, the first bad rows."""
    found = _services()
    told = history.one_run(found, run_id)
    current = found.states.current(told.supplier)
    return _render(
        "run.html",
        told=told,
        is_current=bool(current and current.run_id == told.run_id),
        stats=history.stats(found, run_id),
        bad=list(history.bad_rows(found, run_id, limit=BAD_ROWS)),
    )


@blueprint.get("/suppliers/runs/<run_id>/bad.csv")
def download_bad_rows(run_id: str) -> flask.Response:
    """The bad rows of a run as a file for the supplier: where, what, and what to do."""
    found = _services()
    told = history.one_run(found, run_id)
    response = flask.Response(_as_csv(found, told), mimetype="text/csv")
    response.headers.set("Content-Disposition", "attachment", filename=f"{told.run_id}-bad.csv")
    return response


def _as_csv(found: Services, told: Manifest) -> Iterator[str]:
    yield "\ufeff" + _line(BAD_COLUMNS)
    for bad in history.bad_rows(found, told.run_id):
        code = codes.registry()[bad["reason_code"]]
        cells = [bad[name] for name in ("row_number", "category_key", "sku", "column", "raw")]
        yield _line([*cells, code.meaning, code.supplier_action, code.supplier_action_ru])


def _line(cells: list[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow([spreadsheets.harmless(str(cell or "")) for cell in cells])
    return out.getvalue()


@blueprint.get("/suppliers/runs/<run_id>/diff")
def show_diff(run_id: str) -> str:
    """What the state of a run changed against the one before it, or another one."""
    found = _services()
    supplier = RunId.parse(run_id).supplier
    before = flask.request.args.get("before") or None
    return _render("diff.html", supplier=supplier, found=diff.diff(found, supplier, before, run_id))


@blueprint.post("/suppliers/<supplier>/requeue")
def requeue_file(supplier: str) -> flask.typing.ResponseReturnValue:
    """A refused file is in the inbox again; who asked and why stands in the log."""
    found = _known(supplier, "ops")
    reason = (flask.request.form.get("reason") or "").strip()[:500]
    if not reason:
        raise errors.Refused("Say why it is put back: the reason stands in the log.")
    name = flask.request.form.get("file") or ""
    requeue.requeue(found, supplier, name, who=principal.current().name, why=reason)
    return flask.redirect(flask.url_for("suppliers.show", supplier=supplier), 303)
