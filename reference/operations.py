"""Codes of log lines, commands and processes: all of the code that no other table of the page tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("app", "workers")
NAMES = ("code", "error_code", "reason_code")
"""What a code is called where it is given: as a field, a keyword, a default, an attribute of an error."""

AGAIN = "Run it again when the other one has ended."
GOES_ON = "Nothing: it goes on by itself."

WORDS: dict[str, tuple[str, str]] = {
    "BAD_ENTRIES": (
        "What the `loadSql` of a dictionary has loaded is no map of keys.",
        "Mend its SQL or its table; until then the pod answers what it had.",
    ),
    "FAILED": (
        "A daemon has failed a task and said no code.",
        "See the task's message, and the daemon's log.",
    ),
    "WORK_FAILED": (
        "A daemon could not do a task, and gives no code of its own.",
        "See the task's message; then retry it on `/pipeline`.",
    ),
    "bad_image": (
        "A pod's file of a dictionary is none, or not whole.",
        "Nothing: the dictionary is loaded anew from its database.",
    ),
    "bad_jwks": (
        "The document of keys cannot be used; those before stay.",
        "See what `jwksUrl` or `jwksFile` holds now.",
    ),
    "builder_died": (
        "A process that makes images of large dictionaries has died.",
        "Nothing; if it comes again, give the pod more memory.",
    ),
    "catalog_target_failed": (
        "A target could not be fetched or applied.",
        "`headworks catalog failed RUN` has its category.",
    ),
    "database_unreachable": ("The database does not answer.", "Start it, or correct its address."),
    "embedding_endpoint_away": (
        "The endpoint of the model does not answer, or asks to be asked later.",
        "Mend the endpoint; the next run embeds what is missing.",
    ),
    "embedding_model": (
        "The model cannot be used as it is set up.",
        "The sentence names the setting of `HEADWORKS_CATALOG_EMBEDDING_…`, or the answer.",
    ),
    "embedding_refused": (
        "The model does not take a text.",
        "Nothing: that item has no vector; the others have.",
    ),
    "invalid_config": (
        "The rules of tenants cannot be used as they are written.",
        "Mend the line that the sentence names; `headworks refdata check FILE` tells beforehand.",
    ),
    "invalid_drop_path": (
        "A dropped file is not where reports are dropped; it is in `.refused`, with the reason beside it.",
        "Move it to `<workspace>/<platform>/`.",
    ),
    "job_busy": ("Another run of this job of the catalog is at work.", AGAIN),
    "member_lost": ("Kafka has given this member's partitions to another one.", GOES_ON),
    "message_too_large": (
        "A message is larger than its topic takes.",
        "Send smaller commands, or a snapshot in chunks.",
    ),
    "not_migrated": (
        "The schema of the database is not that of this release.",
        "`headworks migrate`; a release that is older than the database has to be brought up to it.",
    ),
    "not_safe_to_start": (
        "Others can reach the instance, and it has no secret, or one that is too short.",
        "Set `HEADWORKS_SECRET`: the sentence says how.",
    ),
    "pipeline_unavailable": (
        "A daemon cannot reach the pipeline, or is not answered as it should be.",
        "See whether the server answers at `/readyz`; the daemon asks again.",
    ),
    "pooler_before_database": (
        "Migrations cannot run through a pooler.",
        "Give `HEADWORKS_DATABASE_URL` the address of PostgreSQL itself for this command.",
    ),
    "raw_object_damaged": (
        "A raw object of the catalog is no JSON object.",
        "`headworks catalog verify` names all of these; bring them back from a backup.",
    ),
    "raw_object_gone": (
        "A raw object of the catalog is not there.",
        "As `raw_object_damaged`.",
    ),
    "run_lost": (
        "The run of the catalog's job is not this process's any more.",
        "See the run that took over.",
    ),
    "settings": (
        "A setting is missing or cannot be used.",
        "The sentence names it; [settings](settings.md) has what it may be.",
    ),
    "supplier_busy": ("Another run of this supplier is at work; this one has changed nothing.", AGAIN),
    "supplier_lock_lost": (
        "The run was away for so long that another one has taken its turn.",
        "Nothing: the other one has done the work.",
    ),
    "unsafe_broker": (
        "The broker would lose messages, so nothing is begun.",
        "The sentence says what to change at it: `maxmemory-policy`, or the kind of the server.",
    ),
}


class Unsaid(LookupError):
    """A code has no words, or words are about none: reference/operations.py has to be mended."""


def all_of_them(told: set[str]) -> dict[str, tuple[str, str]]:
    """Every code that is not `told` elsewhere, with its words; Unsaid names those that differ."""
    if differ := (in_code() - told) ^ WORDS.keys():
        raise Unsaid(f"words and codes differ in {sorted(differ)}")
    return dict(sorted(WORDS.items()))


def in_code() -> set[str]:
    """Every code that stands in the code; what is filled in is as it is written there."""
    return {
        code
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for given in _given(node)
        for code in _texts(given)
    }


def _given(node: ast.AST) -> Iterator[ast.expr | None]:
    """The expressions that say what a code is."""
    match node:
        case ast.keyword(arg=name, value=value) if name in NAMES:
            yield value
        case ast.Assign(targets=targets, value=value) if any(
            ast.unparse(to).endswith(NAMES) for to in targets
        ):
            yield value
        case ast.arguments(kwonlyargs=arguments, kw_defaults=defaults):
            named = zip(arguments, defaults, strict=True)
            yield from (default for argument, default in named if argument.arg in NAMES)
        case ast.Dict(keys=keys, values=values):
            fields = zip(keys, values, strict=True)
            yield from (
                value for key, value in fields if isinstance(key, ast.Constant) and key.value in NAMES
            )


def _texts(given: ast.expr | None) -> Iterator[str]:
    match given:
        case ast.Constant(value=str(text)) if text:
            yield text
        case ast.JoinedStr():
            yield ast.unparse(given)[2:-1]
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))
        case ast.BoolOp(values=values):
            for value in values:
                yield from _texts(value)
