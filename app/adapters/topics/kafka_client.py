"""librdkafka: how its clients are made, what they log, and their errors in the product's words."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from app.adapters import logs
from app.adapters.topics import TooLarge
from app.kernel import errors

log = logs.get(__name__)

UNREACHABLE = "The Kafka brokers cannot be reached."
REFUSED = "The Kafka brokers refuse these credentials."

_KINDS: dict[int, type[errors.HeadworksError]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: TooLarge,
    KafkaError.RECORD_LIST_TOO_LARGE: TooLarge,
    KafkaError.UNKNOWN_TOPIC_OR_PART: errors.NotFound,
    KafkaError._UNKNOWN_TOPIC: errors.NotFound,
    KafkaError._UNKNOWN_PARTITION: errors.NotFound,
    KafkaError._AUTHENTICATION: errors.AccessDenied,
    KafkaError.SASL_AUTHENTICATION_FAILED: errors.AccessDenied,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: errors.AccessDenied,
    KafkaError.GROUP_AUTHORIZATION_FAILED: errors.AccessDenied,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: errors.AccessDenied,
}
"""Of what a broker or the client answers; all else is a connection that does not serve."""


def error_of(error: Any) -> errors.HeadworksError:
    """What the client says, as one of the product's own errors."""
    kind = _KINDS.get(error.code(), errors.ConnectionLost)
    if kind is errors.AccessDenied:
        return kind(REFUSED)
    if kind is errors.ConnectionLost:
        return kind(f"{UNREACHABLE} ({error.name()})")
    return kind()


def is_denial(error: Any) -> bool:
    """Whether the brokers refuse who this is, or what it asks for."""
    return _KINDS.get(error.code()) is errors.AccessDenied


@contextmanager
def errors_of() -> Iterator[None]:
    """What the client raises is one of the product's own errors."""
    try:
        yield
    except KafkaException as error:
        raise error_of(error.args[0]) from error


class _ClientLog:
    """What librdkafka logs, as lines of ours. It calls `log` as one of the standard library's loggers."""

    def log(self, level: int, text: str, *values: Any) -> None:
        write = log.warning if level >= logging.WARNING else log.info
        write("kafka_client", text=text % values)


def made(kind: Any, options: Mapping[str, Any]) -> Any:
    """The client; what its options say is not repeated in an error, there are secrets among them."""
    try:
        return kind(dict(options), logger=_ClientLog())
    except (KafkaException, TypeError, ValueError) as error:
        named = error.args[0].str() if isinstance(error, KafkaException) else type(error).__name__
        known = [name for name in options if f'"{name}"' in named]
        raise errors.Fatal(
            f"Kafka's client does not take the option {known[0]}."
            if known
            else "Kafka's client does not take the options that are set for it.",
            code="settings",
        ) from None
