"""Structured logs: a constant event and fields, one object a line on stderr.

A line of a subsystem has the fields that its readers look for (`FIELDS`), null where they mean nothing; a
line of a task has `task` and `task_id`; a line within a recorded span has `trace_id` and `span_id`.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import structlog
from opentelemetry import trace

from app.adapters import redaction
from app.adapters.settings import ENVIRON

FIELDS = {
    # modules        every line of theirs has these
    "app.uploads": ("upload_id", "workspace_id"),
    "app.suppliers": ("supplier", "run_id"),
    "app.catalog": ("job_id", "run_id"),
    "app.pipeline": ("filename", "shard", "stage"),
    "app.refdata": ("eventId", "dictCode", "version", "source"),
}

# Whatever a field of such a name holds is never written.
SECRET_FIELDS = ("password", "secret", "token", "api_key", "authorization", "dsn", "url")


def configure(process: str, level: str | None = None) -> None:
    """Every later log line of this process is one object with its process's name.

    `level`: the lowest that is written, else that of HEADWORKS_LOG_LEVEL (INFO). HEADWORKS_LOG_FORMAT=text
    makes lines for people instead of JSON.
    """
    level = level or ENVIRON.get("HEADWORKS_LOG_LEVEL", "INFO")
    as_text = ENVIRON.get("HEADWORKS_LOG_FORMAT") == "text"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            add_trace,
            complete,
            redact,
            redaction.Redactor().event,
            structlog.dev.ConsoleRenderer(colors=False)
            if as_text
            else structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping().get(level, logging.INFO)
        ),
        # The stream of this moment: whoever redirects it later means the lines, too.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(process=process)


def add_trace(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A structlog processor: a line within a span that is recorded names it, and its trace."""
    span = trace.get_current_span()
    if span.is_recording():
        of = span.get_span_context()
        event["trace_id"] = trace.format_trace_id(of.trace_id)
        event["span_id"] = trace.format_span_id(of.span_id)
    return event


def complete(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A structlog processor: the fields of the line's subsystem are there, null if nothing has set them."""
    for field in _fields_of(event.get("module", "")):
        event.setdefault(field, None)
    return event


@lru_cache(1000)
def _fields_of(module: str) -> tuple[str, ...]:
    return next((fields for name, fields in FIELDS.items() if f"{module}.".startswith(f"{name}.")), ())


def redact(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A structlog processor: fields with the name of a secret are replaced by asterisks."""
    for field in event:
        if _is_secret(field):
            event[field] = "***"
    return event


@lru_cache(1000)
def _is_secret(field: str) -> bool:
    return any(field == name or field.endswith(f"_{name}") for name in SECRET_FIELDS)


def get(module: str) -> Any:
    """A logger that names its module."""
    return structlog.get_logger(module=module)


def bind(**fields: Any) -> None:
    """Every later line of this thread has these fields, until they are unbound or bound anew."""
    structlog.contextvars.bind_contextvars(**fields)


def unbind(*fields: str) -> None:
    """No later line of this thread has these by binding."""
    structlog.contextvars.unbind_contextvars(*fields)


def bound(**fields: Any) -> AbstractContextManager[None]:
    """Every line of the block has these fields."""
    return structlog.contextvars.bound_contextvars(**fields)
