"""Why requests are refused: the codes that document and code know, with statuses, and their words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.access import statuses
from app.kernel import errors, retry
from app.refdata.states import CODES as COMMAND_CODES
from app.uploads.codes import FILE_CODES
from reference import routes

APP = Path(__file__).parent.parent / "app"
OF_NO_REQUEST = {"uploads/drop.py"}
"""Modules whose refusals stand in the log alone."""

TOLD_ELSEWHERE = {*FILE_CODES, *COMMAND_CODES, *(kind.code for kind in retry.POLICIES)}
"""Codes that have their own tables."""

AGAIN = "Send the same request again after `Retry-After`."
MEND = "Mend the request: `detail` says which part."
LOOK = "Look at what it is about: somebody else has moved it on, or it has ended."

WORDS: dict[str, tuple[str, str]] = {
    "COMMAND_TOO_LARGE": (
        "The command has too many items or bytes.",
        "Send several commands, or a snapshot in chunks.",
    ),
    "EPOCH_CHANGED": (
        "Versions count in another history, since the database was restored.",
        "Read anew, and keep the new `X-Dict-Epoch`.",
    ),
    "LOADING": ("The pod has not loaded the dictionary yet.", AGAIN),
    "PRIMARY_UNAVAILABLE": ("The version is not in memory, and the database cannot be asked.", AGAIN),
    "RELOADING": ("The version is committed and is being loaded.", AGAIN),
    "UNKNOWN_KEY": ("The dictionary has no such key.", "Nothing: it is not there in this version."),
    "VERSION_GONE": (
        "That version is not kept any more.",
        "Begin again without `version`, or with the first page.",
    ),
    "VERSION_NOT_COMMITTED": (
        "Nobody has committed that version.",
        "Ask for the `committedVersion` that a writer was told.",
    ),
    "already_started": ("Somebody else is at work on the task.", "Take another task."),
    "bad_request": ("The request cannot be read.", MEND),
    "conflict": ("The thing is in a state in which this cannot be done.", LOOK),
    "csrf": (
        "A page's request lacks the token of its session, or comes from another site.",
        "Load the page again. Programs send a key instead.",
    ),
    "file_missing": ("The request brings no file.", "Send the file as the field `file`."),
    "forbidden": (
        "The key lacks the scope, or may not do this.",
        "Make a key with that scope: `headworks keys create`.",
    ),
    "header_too_large": ("The header has more than 64 KiB.", MEND),
    "http_version_not_supported": ("Whoever watches needs HTTP/1.1.", "Ask for the version now and then."),
    "internal_error": ("Something unexpected went wrong.", "Look in the log at `request_failed`."),
    "invalid_configuration": (
        "The configuration of the dictionaries cannot be used; the one before stays.",
        "Mend the line; `headworks refdata check FILE` tells beforehand.",
    ),
    "invalid_currency": ("The currency is no code such as USD.", MEND),
    "invalid_cursor": ("The cursor is none of this list.", "Begin with the first page."),
    "invalid_date_order": ("The order of dates is neither `dmy` nor `mdy`.", MEND),
    "invalid_decimal_mark": ("The decimal mark is neither a point nor a comma.", MEND),
    "invalid_epoch": ("`X-Dict-Epoch` is no UUID.", MEND),
    "invalid_json": ("The body is no JSON object in UTF-8.", MEND),
    "invalid_key": ("No keys are named, or not in UTF-8.", MEND),
    "invalid_limit": ("The limit is out of its bounds.", MEND),
    "invalid_platform": ("The platform is none of those that are known.", MEND),
    "invalid_range": ("More than two years are asked for.", "Ask for less."),
    "invalid_request": ("A member or parameter cannot be taken.", MEND),
    "invalid_source": ("The source is none of those that are known.", MEND),
    "invalid_status": ("The status is no state of an upload.", MEND),
    "invalid_supplier": ("The name can be no supplier's.", MEND),
    "invalid_topics": ("The topics are no list of known names.", MEND),
    "invalid_transition": (
        "The task does not stand where this can be done; `current_status` says where.",
        LOOK,
    ),
    "invalid_url": (
        "The URL of the webhook cannot be used.",
        "Give a public `https` URL without user and password.",
    ),
    "invalid_version": ("The version is no whole number of its bounds.", MEND),
    "invalid_workspace_id": ("The workspace is no UUID.", MEND),
    "invalid_{name}": ("The field or parameter of this name is missing, or cannot be taken.", MEND),
    "keys_unavailable": (
        "No key has been read yet that a token could be checked with.",
        "See that `jwksUrl` or `jwksFile` can be read.",
    ),
    "lease_lost": ("The lease has run out, or is another's.", "Drop the work: it does not count."),
    "malformed_request": ("This is no request of HTTP/1.1.", MEND),
    "method_not_allowed": ("The address has no such method.", "See `Allow`."),
    "no_host": ("A request of HTTP/1.1 has one Host header.", MEND),
    "not_found": (
        "There is nothing at the address, or it belongs to somebody else.",
        "Look at the id, and at the workspace of the key.",
    ),
    "platform_unknown": (
        "Nobody said which platform the report is of, and its columns do not tell.",
        "Choose the platform.",
    ),
    "request_entity_too_large": ("The body is larger than it may be.", "Send less at once."),
    "request_timeout": ("The head of the request did not come in time.", "Send it again."),
    "task_not_found": ("No task of this file and shard is registered.", "Register the file first."),
    "tenant_mismatch": ("The caller may not act for this tenant.", "Use a token of this tenant."),
    "too_large_to_check": ("The file is too large for a dry run.", "Hand it in without `dry_run`."),
    "too_many_followers": ("Too many follow the pipeline already.", "Ask for the history now and then."),
    "too_many_keys": ("More keys are named than may be at once.", "Ask in several requests."),
    "too_many_requests": ("The key, or the address, asks too often.", AGAIN),
    "too_many_watchers": ("Too many watch already.", "Ask for the version now and then."),
    "unauthorized": (
        "No key or token is given, or one that is not known here.",
        "Send `Authorization: Bearer …`; `headworks keys create` makes a key.",
    ),
    "unknown_file": ("No file of this name is registered.", "Register the file first."),
    "upstream_not_done": ("The stage before is not done yet.", "Take another task, and come back."),
    "uri_too_long": ("The address is too long.", "Ask for fewer keys at once."),
}


class Unsaid(LookupError):
    """A code has no words, or words are about none: reference/refusals.py has to be mended."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused, in words."""

    statuses: tuple[int, ...]
    meaning: str
    todo: str


def all_of_them() -> dict[str, Refusal]:
    """Every code of a refusal. Unsaid when code and words do not name the same ones."""
    found: dict[str, set[int]] = {}
    for name, status in (*_of_document(routes.whole()), *_of_enumerations(), *_of_code()):
        if name not in TOLD_ELSEWHERE:
            found.setdefault(name, set()).update((status,) if status else ())
    if found.keys() != WORDS.keys():
        raise Unsaid(f"words and refusals differ in {sorted(found.keys() ^ WORDS.keys())}")
    return {name: Refusal(tuple(sorted(found[name])), *WORDS[name]) for name in found}


def _of_document(found: Any) -> Iterator[tuple[str, int]]:
    """Every problem that stands somewhere in the document as an example."""
    if isinstance(found, dict):
        if {"code", "status", "detail"} <= found.keys() and isinstance(found["code"], str):
            yield found["code"], found["status"]
        for value in found.values():
            yield from _of_document(value)
    elif isinstance(found, list):
        for value in found:
            yield from _of_document(value)


def _of_enumerations() -> Iterator[tuple[str, int]]:
    """The codes that schemas enumerate; their statuses stand elsewhere."""
    schemas = routes.whole()["components"]["schemas"]
    for enum in (schemas["ReadCode"], schemas["CommandCode"], schemas["TaskProblem"]["properties"]["code"]):
        yield from ((name, 0) for name in enum["enum"])


def _of_code() -> Iterator[tuple[str, int]]:
    for path in sorted(APP.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if REFUSES.search(text) and path.relative_to(APP).as_posix() not in OF_NO_REQUEST:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call):
                    yield from _of_call(node)


ANSWERS = ("answer", "problem", "_problem", "Refusal")
"""What is called with a status and a code to refuse a request."""

REFUSES = re.compile(rf"\b(?:Refused|{'|'.join(ANSWERS)})\(")


def _of_call(node: ast.Call) -> Iterator[tuple[str, int]]:
    name = ast.unparse(node.func).rpartition(".")[2]
    if name == "Refused":
        given: Mapping[str | None, ast.expr] = {keyword.arg: keyword.value for keyword in node.keywords}
        if (said := given.get("code")) is None:
            yield errors.Refused.code, 422
        elif (code := _text(said)) is not None:
            yield code, statuses.status_of(errors.Refused(code=code))
    elif name in ANSWERS and len(node.args) >= 2:
        status, said = node.args[0], node.args[1]
        if (
            isinstance(status, ast.Constant)
            and isinstance(said, ast.Constant)
            and isinstance(said.value, str)
        ):
            yield said.value, int(str(status.value))


def _text(node: ast.expr) -> str | None:
    """The string that stands there, what is filled in as it is written; None: another expression."""
    if isinstance(node, ast.JoinedStr):
        return ast.unparse(node)[2:-1]
    return str(node.value) if isinstance(node, ast.Constant) else None
