"""What never leaves by a log: secrets, wherever in a line they stand, and what people wrote into cells.

A field with the name of a secret is masked by `logs`. Here is what comes in under other names: a secret
within a text, an address with its password, an error of a library that repeats the value it stumbled over.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg2

from app.adapters.settings import ENVIRON
from app.kernel import errors

MASK = "***"
LEAST_CHARACTERS = 8
"""Of a setting that is looked for in other texts: a shorter one stands in too many of them by chance."""

MESSAGE_CHARACTERS = 300

_NAMED = re.compile(r"(PASSWORD|SECRET|TOKENS?|API_KEY|ACCESS_KEY|_KEY|APPLICATION_ID|BASIC_AUTH)$")
_PLACES = re.compile(r"(_URL|_DSN|_REDIS|^REDIS_|BROKER|BOOTSTRAP)")

_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=://)[^\s/@:'\"]*:[^\s/@]*@"), f"{MASK}@"),  # user and password of an address
    (re.compile(r"\bhw_([a-z0-9]{8})_[A-Za-z0-9_-]{32,}"), rf"hw_\1_{MASK}"),  # an API key
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=]{16,}"), f"whsec_{MASK}"),  # what signs webhooks
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), f"{MASK} (a token)"),
    (re.compile(r"(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {MASK}"),
)
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Every secret that these settings hold, the longest first, so that none is masked in part."""
    found: set[str] = set()
    for name, value in environ.items():
        if _NAMED.search(name):
            # Several tokens may stand in one setting, and a password behind its user.
            found |= {value, *value.split(","), value.partition(":")[2]}
        elif _PLACES.search(name):
            found.update(_passwords(value))
    return sorted((one for one in found if len(one) >= LEAST_CHARACTERS), key=len, reverse=True)


def _passwords(url: str) -> Iterator[str]:
    try:
        password = urlsplit(url).password
    except ValueError:
        return
    if password:
        yield from (password, unquote(password))


class Redactor:
    """Masks the secrets of one environment."""

    def __init__(self, environ: Mapping[str, str] = ENVIRON) -> None:
        self._secrets = secrets_of(environ)

    def text(self, text: str) -> str:
        """The text without any secret that can be known as one."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        for shape, shown in _SHAPES:
            text = shape.sub(shown, text)
        return text

    def value(self, value: Any) -> Any:
        """The same value, its texts without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.text(str(value))

    def event(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """A structlog processor: no field holds a secret, no exception says what it was fed with."""
        found = event.pop("exc_info", None)
        if found is True:
            found = sys.exc_info()
        error = found[1] if isinstance(found, tuple) else found
        if isinstance(error, BaseException):
            event["exception"] = told(error)
        return {name: self.value(one) for name, one in event.items()}


def told(error: BaseException) -> str:
    """The traceback of an exception and of those that led to it: where, and of what kind, without values."""
    whole = traceback.TracebackException.from_exception(error)
    chain: list[tuple[BaseException, traceback.TracebackException]] = []
    seen: set[int] = set()
    one: BaseException | None = error
    part: traceback.TracebackException | None = whole
    while one is not None and part is not None and id(one) not in seen:
        seen.add(id(one))
        chain.append((one, part))
        hidden = one.__suppress_context__
        one, part = (
            (one.__cause__, part.__cause__)
            if one.__cause__ is not None
            else (None if hidden else one.__context__, None if hidden else part.__context__)
        )
    parts = []
    for found, formatted in reversed(chain):
        frames = "".join(formatted.stack.format())
        parts.append(f"Traceback (most recent call last):\n{frames}{type(found).__name__}: {message(found)}")
    return "\n\nThat led to:\n\n".join(parts)


def message(error: BaseException) -> str:
    """What an exception says, without the values that it repeats.

    Our own errors are written for people to see. A driver says a whole row; any other library, in
    quotation marks, what it could not take.
    """
    if isinstance(error, errors.HeadworksError):
        return error.sentence[:MESSAGE_CHARACTERS]
    if isinstance(error, psycopg2.Error):
        names = (error.diag.schema_name, error.diag.table_name, error.diag.constraint_name)
        return " ".join(["SQLSTATE", error.pgcode or "none", *filter(None, names)])
    return _QUOTED.sub("'…'", str(error))[:MESSAGE_CHARACTERS]


class Formatter(logging.Formatter):
    """Around the formatter of a library's own log: the same lines, without secrets and values."""

    def __init__(self, inner: logging.Formatter, redactor: Redactor | None = None) -> None:
        super().__init__()
        self._inner = inner
        self._redactor = redactor or Redactor()

    def format(self, record: logging.LogRecord) -> str:
        copy = logging.makeLogRecord(record.__dict__)
        if isinstance(copy.args, Mapping) and "exc" in copy.args:  # as Celery tells of a task that broke
            copy.args = {**copy.args, "exc": "an error", "traceback": ""}
        found = copy.exc_info[1] if isinstance(copy.exc_info, tuple) else None
        copy.exc_info = copy.exc_text = None
        line = self._inner.format(copy)
        return self._redactor.text(f"{line}\n{told(found)}" if found is not None else line)


def guard(*loggers: logging.Logger) -> None:
    """Every handler of these loggers writes its lines without secrets from now on."""
    for logger in loggers:
        for handler in logger.handlers:
            if not isinstance(handler.formatter, Formatter):
                handler.setFormatter(Formatter(handler.formatter or logging.Formatter()))
