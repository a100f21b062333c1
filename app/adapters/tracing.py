"""OpenTelemetry: one trace follows a piece of work from process to process, and to the database.

Spans go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names (OTLP over HTTP); the specification's other
variables, such as OTEL_TRACES_SAMPLER, hold as well. Without a collector a span costs about a microsecond
and goes nowhere. No span holds a parameter, a path or the words of an error: they may be somebody's data.

The libraries that instrument Flask, Celery and psycopg2 by themselves are betas, each bound to one beta of
the conventions, and know nothing of work that lies in a table between two processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

from app.adapters.settings import ENVIRON, switch
from app.kernel import errors

HEADER = "traceparent"
"""Where a trace stands beside a message, as W3C Trace Context spells it."""

COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_tracer = trace.get_tracer("headworks")


def configure(process: str) -> None:
    """The spans of this process go to the collector, if one is named."""
    is_named = any(ENVIRON.get(name) for name in COLLECTORS)
    if not is_named or switch(ENVIRON.get("OTEL_SDK_DISABLED") or "off") or _provider() is not None:
        return
    names = {"service.namespace": "headworks"}
    if not ENVIRON.get("OTEL_SERVICE_NAME"):
        names["service.name"] = f"headworks-{process}"
    provider = TracerProvider(resource=Resource.create(names))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # large

    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def flush(seconds: float) -> None:
    """What was traced so far is with the collector, if it takes it within this time."""
    if (provider := _provider()) is not None:
        provider.force_flush(int(seconds * 1000))


def _provider() -> TracerProvider | None:
    found = trace.get_tracer_provider()
    return found if isinstance(found, TracerProvider) else None


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    parent: str | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
) -> Iterator[trace.Span]:
    """The block is a span of the current trace, or of the one that `parent` names.

    What the block raises goes on, and its code is the span's `error.type`.
    """
    of = propagate.extract({HEADER: parent}, context.Context()) if parent else None
    with _tracer.start_as_current_span(
        name, context=of, kind=kind, attributes=_known(attributes or {}),
        record_exception=False, set_status_on_exception=False,
    ) as found:  # fmt: skip
        try:
            yield found
        except Exception as error:
            fail(found, error.code if isinstance(error, errors.HeadworksError) else type(error).__name__)
            raise


def fail(of: trace.Span, code: object) -> None:
    """The span's work failed, for the reason with this code."""
    of.set_attribute("error.type", str(code))
    of.set_status(trace.StatusCode.ERROR)


def record(name: str, attributes: Mapping[str, Any], *, parent: str | None, began: int) -> None:
    """A span that is over is told of the trace that `parent` names; nothing where it names none.

    `began` is in nanoseconds since 1970.
    """
    if parent is None:
        return
    of = propagate.extract({HEADER: parent}, context.Context())
    _tracer.start_span(name, context=of, start_time=began, attributes=_known(attributes)).end()


def is_recording() -> bool:
    """Whether what happens now is part of a trace that somebody will see."""
    return trace.get_current_span().is_recording()


@contextmanager
def query(name: str) -> Iterator[None]:
    """The block asks this of PostgreSQL: a span of the trace in which it is asked, and no trace alone."""
    if not is_recording():
        yield
        return
    about = {"db.system.name": "postgresql", "db.operation.name": name}
    with span(name, about, kind=SpanKind.CLIENT):
        yield


def traceparent() -> str | None:
    """The current trace, to travel beside a message; None: nobody traces."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get(HEADER)


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if value is not None}
