"""OpenTelemetry: one trace follows a piece of work from process to process.

Without a configured exporter a span costs about a microsecond and goes nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import propagate, trace

HEADER = "traceparent"
"""Where a trace stands beside a message, as W3C Trace Context spells it."""

_tracer = trace.get_tracer("headworks")


@contextmanager
def span(name: str, *, parent: str | None = None, **attributes: Any) -> Iterator[None]:
    """The block is a span of the current trace, or of the one that `parent` names."""
    context = propagate.extract({HEADER: parent}) if parent else None
    known = {key: value for key, value in attributes.items() if value is not None}
    with _tracer.start_as_current_span(name, context=context, attributes=known):
        yield


def record(name: str, *, parent: str | None, began: int, **attributes: Any) -> None:
    """A span that is over is told of the trace that `parent` names; nothing where it names none.

    `began` is in nanoseconds since 1970.
    """
    if parent is None:
        return
    known = {key: value for key, value in attributes.items() if value is not None}
    context = propagate.extract({HEADER: parent})
    _tracer.start_span(name, context=context, start_time=began, attributes=known).end()


def traceparent() -> str | None:
    """The current trace, to travel beside a message; None: nobody traces."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get(HEADER)
