"""docs/reference/codes.md: every code that a program or a person may meet, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from app.catalog import failures
from app.kernel import errors, retry
from app.refdata import states as refdata
from app.suppliers import codes as suppliers
from app.uploads import codes as uploads
from app.uploads.pages import words
from app.uploads.webhooks import codes as webhooks
from reference import operations, refusals
from reference.page import code, page, table

THREE = ("code", "meaning", "what to do")
KINDS = {
    "fail": "The list is refused as a whole, and what is published stays",
    "bad": "The row is refused, and counts in the ratio of bad rows",
    "skipped": "The row is no data, and stays outside that ratio",
    "alert": "Somebody should look, and the run goes on",
}
OF_THE_INSTANCE: dict[type[errors.HeadworksError], str] = {
    errors.FileGone: "Hand the file in again.",
    errors.FileRefused: "See the codes of a file.",
    errors.AccessDenied: (
        "`headworks doctor` names the grant or the credentials that are missing; then `headworks requeue`."
    ),
    errors.AttemptsExhausted: "Look in the log why the worker ended; then `headworks requeue`.",
    errors.ConnectionLost: (
        "Mend the server; then `headworks requeue --status failed --error-code connection_lost`."
    ),
    errors.TransactionTimeout: "Look for what holds the locks at the database; then `headworks requeue`.",
    errors.Deadlock: "Nothing; the rows that are left over can be requeued.",
    errors.RateLimited: "Nothing for a while; then `headworks requeue`.",
    errors.DiskFull: "Make room; what waits goes on by itself, what failed after `headworks requeue`.",
    errors.MemoryFull: (
        "As the sentence says; what waits goes on by itself, what failed after `headworks requeue`."
    ),
    errors.RowRefused: "See the codes of a row.",
    errors.UniqueViolated: "See the codes of a row.",
    errors.ForeignKeyMissing: "See the codes of a row.",
}
ENDS = {
    "rows_failed": (
        "Some valid rows could not be promoted: the upload is `partial`.",
        "Look at its rows, mend what they name, then `headworks requeue`: only they are tried.",
    ),
    "promotion_failed": ("Not one row could be promoted.", "As above; the file is read anew."),
    "staging_lost": ("Rows that were read are gone from staging.", "Hand the file in again."),
    "internal_error": (
        "Something unexpected went wrong.",
        "Look in the log at `upload_failed`; then `headworks requeue`.",
    ),
}
CATALOG_RUNS = {
    "no_targets": "There was nothing to do: a warning, exit code 3.",
    "too_many_failures": "More targets failed than may: `headworks catalog failed RUN` names them.",
    "internal_error": "A fault of our own; the traceback is in the log.",
}


def codes() -> str:
    """The page; Unsaid when a code of the code is not on it."""
    told = _told()
    rest = operations.all_of_them(set(re.findall(r"^\| `([^`]+)` \|", "\n".join(told), re.MULTILINE)))
    return page(
        "Codes",
        *told,
        "## In the log, and of a command or process that gave up",
        "Also of a file in the drop folder's `.refused`, and of a task that a daemon of the pipeline failed.",
        table(THREE, ((code(name), *words) for name, words in rest.items())),
    )


def _told() -> tuple[str, ...]:
    return (
        "Codes are for programs and never change their meaning; sentences are for people. `…` and names"
        " in braces are filled in.",
        "## A file is refused",
        "An upload that is `failed` has one of these as `error_code`. Mend the file and hand it in again.",
        table(THREE, _of_uploads(uploads.FILE_CODES, words.FILES)),
        "## A row is refused",
        "In `/v1/uploads/{upload_id}/errors` and in the CSV of rejected rows.",
        table(THREE, _of_uploads(uploads.ROW_CODES, words.ROWS)),
        "## Warnings about a file",
        "The upload goes on.",
        table(("code", "meaning"), ((code(name), text) for name, text in uploads.WARNINGS.items())),
        "## A failure of the instance",
        "Of the uploads that it ends, of requests (503), of log lines. It is tried again as the table"
        " says first.",
        table(("code", "meaning", "tried again after", "then", "what to do"), _of_instance()),
        "Beside these an upload may have:",
        table(THREE, ((code(name), *told) for name, told in ENDS.items())),
        "## A request is refused",
        "`code` of an `application/problem+json`, whose `detail` says it for this very request. 503 may"
        " be sent again.",
        table(("code", "status", "meaning", "what to do"), _of_requests()),
        "## Suppliers' lists",
        "`docs/etl/reason_codes.yaml` has the same for programs, and what the supplier should do in Russian.",
        *_of_suppliers(),
        "## A delivery of a webhook",
        table(("code", "meaning", "tried again"), _of_deliveries()),
        "## A target of the catalog",
        "`headworks catalog failed RUN` names each with its category.",
        table(("category", "then"), ((code(name), then.value) for name, then in failures.CATEGORIES.items())),
        "A run itself ends with the category that stopped it, or with:",
        table(("reason", "meaning"), ((code(name), text) for name, text in CATALOG_RUNS.items())),
        "## A command for reference data",
        table(
            ("code", "status", "meaning", "is kept as a dead letter"),
            (
                (code(name), one.status, one.sentence, "yes" if one.dead_letter else "no")
                for name, one in refdata.CODES.items()
            ),
        ),
    )


def _of_uploads(told: dict[str, str], advised: dict[str, words.Advice]) -> Iterator[tuple[str, str, str]]:
    for name, sentence in told.items():
        yield code(name), sentence, advised[name].todo if name in advised else ""


def _of_instance() -> Iterator[tuple[str, ...]]:
    for kind, todo in OF_THE_INSTANCE.items():
        policy = retry.policy_for(kind())
        after = ", ".join(f"{seconds:g} s" for seconds in policy.delays_seconds)
        yield code(kind.code), kind().sentence, after, policy.final.value, todo


def _of_requests() -> Iterator[tuple[Any, ...]]:
    for name, refusal in sorted(refusals.all_of_them().items()):
        yield code(name), ", ".join(map(str, refusal.statuses)), refusal.meaning, refusal.todo


def _of_suppliers() -> Iterator[str]:
    registry = suppliers.registry()
    for kind, meaning in KINDS.items():
        yield f"### {meaning}"
        rows = (
            (code(one.code), one.meaning, one.supplier_action)
            for one in registry.values()
            if one.kind == kind
        )
        yield table(("code", "meaning", "what the supplier should do"), rows)


def _of_deliveries() -> Iterator[tuple[str, str, str]]:
    for name, (policy, sentence) in webhooks.TRIED.items():
        yield code(name), sentence, f"{policy.retries} times" if policy.retries else "no"
    for name, sentence in webhooks.ENDED.items():
        yield code(name), sentence, "no"
