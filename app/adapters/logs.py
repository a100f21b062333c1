"""Structured logs: a constant event and fields, one JSON object a line on stderr."""

from __future__ import annotations

import logging
import sys
from functools import lru_cache
from typing import Any

import structlog

from app.adapters import redaction

# Whatever a field of such a name holds is never written.
SECRET_FIELDS = ("password", "secret", "token", "api_key", "authorization", "dsn", "url")


def configure(process: str, level: str = "INFO") -> None:
    """Every later log line of this process is one JSON object with its process's name."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            redact,
            redaction.Redactor().event,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        # The stream of this moment: whoever redirects it later means the lines, too.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(process=process)


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
