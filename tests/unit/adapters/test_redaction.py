"""No secret and no cell of a file stands in a log line, under whatever name it came in."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from typing import Any

import psycopg2
import pytest
import structlog

from app.adapters import logs, redaction
from app.kernel import errors

ENVIRON = {
    "HEADWORKS_SECRET": "the-secret-of-this-instance",
    "HEADWORKS_API_KEY": "the-key-of-this-instance",
    "HEADWORKS_DATABASE_URL": "postgresql://someone:p%40ss-of-the-database@db.example:5432/x",
    "HEADWORKS_BROKER_URL": "redis://:pass-of-the-broker@broker.example/0",
    "HEADWORKS_PIPELINE_TOKENS": "token-of-daemon-one,token-of-daemon-two",
    "HEADWORKS_CATALOG_APPLICATION_ID": "1234567890123456789",
    "HEADWORKS_CATALOG_ACCESS_KEY": "access-key-of-catalog",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEX",
    "FLOWER_BASIC_AUTH": "headworks:word-of-flower",
    "HEADWORKS_URL": "https://headworks.example",
    "PATH": "/usr/bin:/bin",
}
SECRETS = [
    "the-secret-of-this-instance", "the-key-of-this-instance", "p%40ss-of-the-database",
    "p@ss-of-the-database", "pass-of-the-broker", "token-of-daemon-two",
    "1234567890123456789", "access-key-of-catalog",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEX", "word-of-flower",
]  # fmt: skip
UNKNOWN = [
    # a secret of which no setting knows, in the shape by which it can be told
    "hw_abcd2345_" + "s" * 43, "whsec_" + "QUJD" * 8, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlMTIz",
    "Bearer abcdefghijklmnop", "s3://AKIAEXAMPLE:the-word@minio.example/bucket",
]  # fmt: skip


@pytest.fixture
def redactor() -> redaction.Redactor:
    return redaction.Redactor(ENVIRON)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("place", ["a text with {} in it", "{}", "GET /x?key={}&y=1", '{{"a": "{}"}}'])
def test_a_secret_of_a_setting_stands_in_no_text(
    secret: str, place: str, redactor: redaction.Redactor
) -> None:
    shown = redactor.text(place.format(secret))
    assert secret.rpartition(":")[2] not in shown
    assert redaction.MASK in shown


@pytest.mark.parametrize("secret", UNKNOWN)
def test_a_secret_is_known_by_its_shape(secret: str, redactor: redaction.Redactor) -> None:
    shown = redactor.text(f"it was {secret} again")
    assert shown.startswith("it was ") and shown.endswith(" again")
    for part in ("s" * 20, "QUJDQUJD", "c2lnbmF0dXJl", "abcdefghijklmnop", "the-word"):
        assert part not in shown


@pytest.mark.parametrize(
    "text",
    [
        "upload_created", "2025-01-01T00:00:00+00:00", "https://headworks.example/uploads?x=1@2",
        "uploads/8e9f0f2e-6c80-4a0f-9a5e-4a5ab3ed2b10", "hw_abcd2345", "/usr/bin:/bin", "the bearer of news",
    ],
)  # fmt: skip
def test_what_is_no_secret_is_shown(text: str, redactor: redaction.Redactor) -> None:
    assert redactor.text(text) == text


def test_values_within_values_are_looked_at(redactor: redaction.Redactor) -> None:
    found = redactor.value({"a": ["x", ("the-key-of-this-instance", 5, None, 1.5, True)]})
    assert found == {"a": ["x", [redaction.MASK, 5, None, 1.5, True]]}


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as found:
        return found


def test_a_traceback_tells_where_and_not_what() -> None:
    secret = "Ivan Petrov, 4276 1600 0000 0000"
    row = raised(ValueError(f"invalid literal for int() with base 10: {secret!r}"))
    shown = redaction.told(raised(errors.RowRefused("The database refuses the values of one row."), row))
    assert secret not in shown and "4276" not in shown
    assert "ValueError: invalid literal for int() with base 10: '…'" in shown
    assert "RowRefused: The database refuses the values of one row." in shown
    assert shown.count("test_redaction.py") == 2


class _Driver(psycopg2.Error):
    """As the driver raises it, for a row that breaks a rule."""

    pgcode = "23514"
    diag = type("Diag", (), {"schema_name": "public", "table_name": "ads", "constraint_name": "ads_check"})

    def __str__(self) -> str:
        return "new row violates check\nDETAIL:  Failing row contains (1, Ivan Petrov)."


def test_a_driver_says_names_of_the_schema_alone() -> None:
    assert redaction.message(_Driver()) == "SQLSTATE 23514 public ads ads_check"


def test_a_circle_of_causes_comes_to_an_end() -> None:
    one, other = ValueError("a"), KeyError("b")
    one.__context__, other.__context__ = other, one
    assert redaction.told(one).count("ValueError") == 1


def test_the_log_of_the_product_is_written_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "ENVIRON", ENVIRON)
    monkeypatch.setattr(redaction.Redactor.__init__, "__defaults__", (ENVIRON,))
    said = io.StringIO()
    before = structlog.get_config()
    try:
        with contextlib.redirect_stderr(said):
            logs.configure("test")
            try:
                {}["a cell"]
            except KeyError:
                logs.get("x").exception("broke", why="the-secret-of-this-instance", api_key="k", n=1)
    finally:
        structlog.configure(**before)
        structlog.contextvars.clear_contextvars()
    line = json.loads(said.getvalue())
    assert (line["why"], line["api_key"], line["n"]) == ("***", "***", 1)
    assert line["exception"].endswith("KeyError: '…'")


def record(message: str, args: Any = (), error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("celery", logging.ERROR, "x.py", 1, message, args, info)


def test_the_log_of_a_library_is_written_so_as_well(redactor: redaction.Redactor) -> None:
    formatter = redaction.Formatter(logging.Formatter("%(levelname)s %(message)s"), redactor)
    line = formatter.format(record("Connected to redis://:pass-of-the-broker@broker.example/0"))
    assert line == "ERROR Connected to redis://***@broker.example/0"
    error = raised(ValueError("'Ivan Petrov' is no number"))
    told = formatter.format(record("Task %(name)s: %(exc)s", ({"name": "parse", "exc": repr(error)},), error))
    assert told.startswith("ERROR Task parse: an error\nTraceback") and "Ivan" not in told


def test_handlers_are_guarded_once() -> None:
    logger, stream = logging.getLogger("of this test"), io.StringIO()
    logger.addHandler(logging.StreamHandler(stream))
    redaction.guard(logger)
    first = logger.handlers[0].formatter
    redaction.guard(logger)
    assert logger.handlers[0].formatter is first
    logger.error("Bearer abcdefghijklmnop")
    assert stream.getvalue() == "Bearer ***\n"
