"""Whatever the document allows or forbids is sent: no answer breaks what the document says.

HEADWORKS_FUZZ_SECONDS is how long requests are made up (20); HEADWORKS_FUZZ_SEED repeats a run.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import flask
import pytest
import schemathesis
from schemathesis import engine
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events
from werkzeug import serving

from app.uploads.services import Services
from app.web import create_app
from tests import patience
from tests.conftest import BEARER, KEY
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.refdata.chain import applying

SECONDS = int(os.environ.get("HEADWORKS_FUZZ_SECONDS", "20"))
SEED = int(os.environ.get("HEADWORKS_FUZZ_SEED", "1"))
ACCEPTED = ["2xx", "401", "403", "404", "409", "5xx"]
"""What answers a request that is as described; the rest of the refusals is for those that are not."""

NOT_ALL_IS_SAID = {
    # operation     what a schema cannot say, and how it is refused
    "createUpload": ["413", "415", "422"],  # whether bytes are a report
    "createWebhook": ["422"],  # whether a host may be public
    "requeueUpload": ["422"],  # that blanks are no reason
    "listUploads": ["422"],  # whether a cursor came from here
    "listDeliveries": ["422"],
    "followUpload": ["400"],  # that it is asked for by a WebSocket
    "listQueue": ["422"],  # whether a cursor came from here
    "listTasks": ["422"],  # that a status is one of a stage
    "updateDictionary": ["400", "422"],  # that a key is printable, a snapshot has it once, no half of a pair
    "followPipeline": ["422"],  # how large the first number of an id may be
}

NOT_ASKED = {
    # operation       a check that takes the document for something else, and what is so nevertheless
    "followPipeline": "response_schema_conformance",  # of each event; test_pipeline_answers looks at these
    "registerFile": "allow_header_conformance",  # a file may have the name `register`, and is shown there
}

PARTS = {
    # part:    the paths that are left to the others
    "instance": "^/(api|v1/tenants|v1/refdata|actuator)/",
    "pipeline": "^/(?!api/)",
    "refdata": "^/(?!v1/tenants/[^/]+/updates|v1/refdata/)",  # reads: test_refdata_reads
}


@pytest.fixture
def app(services: Services, monkeypatch: pytest.MonkeyPatch) -> Iterator[flask.Flask]:
    """An instance of which all is served: commands are applied, and the pipeline's stream ends at once."""
    monkeypatch.setattr("app.pipeline.events.MOST_SECONDS", 0.1)
    monkeypatch.setattr("app.pipeline.events.LOOK_SECONDS", 0.02)
    found = create_app(replace(services.settings, rate_per_minute=0))
    connected = found.extensions["services"]
    found.extensions["services"] = services
    with applying(found.extensions["refdata"]):
        yield found
    connected.db.close()
    found.extensions["pipeline"].pipeline.db.close()
    found.extensions["refdata"].close()


@pytest.fixture
def address(app: flask.Flask) -> Iterator[str]:
    """Where the application is served: called in this process, learnt links would not be followed."""
    server = serving.make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class Quiet(serving.WSGIRequestHandler):
    """Says nothing of each request."""

    def log_request(self, *_: object) -> None:
        pass


PHASES = ("examples", "coverage", "fuzzing", "stateful")


def configuration(phase: str) -> SchemathesisConfig:
    """Of one phase: on a machine that is busy an earlier one would leave no time to a later one."""
    return SchemathesisConfig.from_dict(
        {
            "max-time": max(1, SECONDS // len(PHASES)),
            "phases": {name: {"enabled": name == phase} for name in PHASES},
            "seed": SEED,
            "headers": BEARER,
            "request-timeout": 60.0,
            "continue-on-failure": True,
            "generation": {"database": "none"},
            "operations": [
                {
                    "include-operation-id": name,
                    "checks": {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, *more]}},
                }
                for name, more in NOT_ALL_IS_SAID.items()
            ]
            + [
                {"include-operation-id": name, "checks": {check: {"enabled": False}}}
                for name, check in NOT_ASKED.items()
            ],
        }
    )


def happenings(address: str, part: str, phases: Sequence[str] = PHASES) -> Iterator[Any]:
    """What the engine tells, phase by phase."""
    for phase in phases:
        schema = schemathesis.openapi.from_url(
            f"{address}/openapi.json", config=configuration(phase), timeout=10 * patience.PATIENCE
        )
        yield from engine.from_schema(schema.exclude(path_regex=PARTS[part])).execute()


Answers = Counter[tuple[str, str, int]]
"""How many requests were answered by phase, operation and status."""


Findings = dict[str, str]
"""What is wrong by operation and check."""


def findings(happenings: Iterator[Any]) -> tuple[Findings, Answers]:
    """What is wrong, and what was answered."""
    found: Findings = {}
    answers: Answers = Counter()
    for event in happenings:
        if isinstance(event, events.NonFatalError | events.FatalError):
            found[f"error {getattr(event, 'label', '')}"] = repr(event)
        if not isinstance(event, events.ScenarioFinished):
            continue
        for case_id, interaction in event.recorder.interactions.items():
            if interaction.response is not None:
                label = event.recorder.cases[case_id].value.operation.label
                answers[event.phase.value, label, interaction.response.status_code] += 1
        for case_id, checks in event.recorder.checks.items():
            for check in checks:
                if check.failure_info is not None:
                    case = event.recorder.cases[case_id].value
                    told = f"{check.failure_info.failure}\n{check.failure_info.code_sample}"
                    found.setdefault(f"{case.operation.label} {check.name}", told.replace(KEY, "KEY"))
    return found, answers


def lacking(answers: Answers) -> list[str]:
    """The phases in which nothing was asked yet; and the last, until one call found what another has made."""
    followed = any(
        phase == "stateful" and "{" in label and 200 <= status < 300 for phase, label, status in answers
    )
    asked = {phase for phase, _, _ in answers} - ({"stateful"} if not followed else set())
    return [phase for phase in PHASES if phase not in asked]


@pytest.mark.parametrize("part", PARTS)
def test_no_answer_breaks_the_document(part: str, address: str) -> None:
    found, answers = findings(happenings(address, part))
    for _ in range(round(patience.PATIENCE)):  # a machine that is busy asks little in the time
        if found or not lacking(answers):
            break
        found, more = findings(happenings(address, part, lacking(answers)))
        answers += more
    assert "\n\n".join(f"## {name}\n{told}" for name, told in found.items()) == ""
    assert lacking(answers) == []


def test_the_search_finds_an_answer_that_is_not_described(
    app: flask.Flask, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> Any:
        return flask.jsonify({"webhooks": [], "more": 1})

    monkeypatch.setitem(app.view_functions, "webhooks.list_webhooks", answer)
    monkeypatch.setattr(f"{__name__}.SECONDS", 8)
    found, _ = findings(happenings(address, "instance"))
    assert "GET /v1/webhooks response_schema_conformance" in found
