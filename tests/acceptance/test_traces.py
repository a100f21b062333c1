"""One trace follows a report from its request to the database, through every process that works on it."""

from __future__ import annotations

import uuid

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.acceptance.collector import Collector, Seen
from tests.acceptance.conftest import Problem, RunningFleet
from tests.conftest import KEY, SECRET
from tests.integration.threads import wait_until

REPORT = (
    b"Day,Campaign name,Campaign ID,Ad set name,Ad Set ID,Ad name,Ad ID,Impressions,Amount spent (USD)\n"
    b"2025-01-01,Word of the customer,100,Set,200,Ad,300,7,1.50\n"
)
STEPS = {"POST /v1/uploads", "run uploads.parse", "uploads.parse", "uploads.promote"}


def begin() -> tuple[str, str]:
    """The id of a trace that a caller has begun, and what it sends to say so."""
    trace_id = uuid.uuid4().hex
    return trace_id, f"00-{trace_id}-{uuid.uuid4().hex[:16]}-01"


def named(spans: list[Seen], name: str) -> Seen:
    return next(span for span in spans if span.name == name)


def test_a_report_is_one_trace_from_its_request_to_production(
    fleet: RunningFleet, collector: Collector
) -> None:
    trace_id, traceparent = begin()
    answer = fleet.api.upload(
        REPORT, workspace_id=str(uuid.uuid4()), platform="meta", headers={"traceparent": traceparent}
    )
    assert fleet.api.finished(answer["upload_id"])["status"] == "completed"
    wait_until(lambda: {span.name for span in collector.trace(trace_id)} >= STEPS, seconds=15)
    spans = collector.trace(trace_id)

    request = named(spans, "POST /v1/uploads")
    assert request.parent_id == traceparent.split("-")[2]
    assert request.kind == Span.SPAN_KIND_SERVER
    assert request.process == "headworks-web"
    assert request.attributes["http.response.status_code"] == "201"
    for step in ("uploads.parse", "uploads.promote"):
        work = named(spans, step)
        assert work.parent_id == request.span_id
        assert work.attributes == {"upload_id": answer["upload_id"]}
        assert work.process == step.replace("uploads.", "headworks-")
    parents = {span.name: span.parent_id for span in spans if span.kind == Span.SPAN_KIND_CLIENT}
    assert parents["create_upload"] == request.span_id
    assert parents["copy_staging_rows"] == named(spans, "uploads.parse").span_id
    assert parents["finish_promotion"] == named(spans, "uploads.promote").span_id


def test_a_request_that_nobody_serves_and_one_that_is_refused_are_told_by_their_status(
    fleet: RunningFleet, collector: Collector
) -> None:
    for path, status, name in (
        ("/nothing/here", 404, "_OTHER"),
        (f"/v1/uploads/{uuid.uuid4()}", 404, "GET /v1/uploads/<uuid:upload_id>"),
    ):
        trace_id, traceparent = begin()
        try:
            fleet.api.send(path, headers={"traceparent": traceparent})
        except Problem as problem:
            assert problem.status == status
        wait_until(lambda trace_id=trace_id: collector.trace(trace_id), seconds=15)
        request = named(collector.trace(trace_id), name)
        assert request.attributes["http.response.status_code"] == str(status)
        assert not request.failed  # it is the caller's mistake


def test_what_is_no_trace_of_anybody_begins_a_new_one(fleet: RunningFleet, collector: Collector) -> None:
    mark = uuid.uuid4().hex
    fleet.api.send(
        "/v1/uploads?workspace_id=" + str(uuid.uuid4()), headers={"traceparent": f"00-{mark}-x-ff"}
    )
    assert collector.trace(mark) == []


def test_no_trace_holds_a_key_or_what_stands_in_a_file(fleet: RunningFleet, collector: Collector) -> None:
    test_a_report_is_one_trace_from_its_request_to_production(fleet, collector)
    told = collector.everything()
    for word in (KEY, SECRET, "Word of the customer", fleet.dsn, fleet.dsn.split("@")[0]):
        assert word not in told


def test_probes_make_no_traces(fleet: RunningFleet, collector: Collector) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        trace_id, traceparent = begin()
        fleet.api.send(path, headers={"traceparent": traceparent})
        test_a_report_is_one_trace_from_its_request_to_production(
            fleet, collector
        )  # told later, and is there
        assert collector.trace(trace_id) == []
