"""What Redis answers, in the product's words."""

from __future__ import annotations

import pytest
import redis.exceptions

from app.adapters.topics.streams_redis import errors_of
from app.kernel import errors

ANSWERS = [
    # what redis-py raises                                            error                    says
    (redis.exceptions.OutOfMemoryError("command not allowed"),        errors.MemoryFull,       "maxmemory"),
    (redis.exceptions.ReadOnlyError("You can't write"),               errors.ConnectionLost,   "replica"),
    (redis.exceptions.ResponseError("MISCONF Redis is configured"),   errors.ConnectionLost,   "save"),
    (redis.exceptions.ResponseError("NOREPLICAS Not enough good"),    errors.ConnectionLost,   "replicas"),
    (redis.exceptions.ConnectionError("refused"),                     errors.ConnectionLost,   "reached"),
    (redis.exceptions.NoPermissionError("no"),                        errors.AccessDenied,     "credentials"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "kind", "says"), ANSWERS)
def test_an_answer_is_one_of_our_errors(answer: Exception, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as told, errors_of():
        raise answer
    assert says in str(told.value)


def test_a_mistake_of_ours_stays_one() -> None:
    with pytest.raises(redis.exceptions.ResponseError), errors_of():
        raise redis.exceptions.ResponseError("WRONGTYPE Operation against a key")


def test_a_full_redis_is_not_a_full_disk_to_whoever_reads_its_code() -> None:
    assert errors.MemoryFull().code == "memory_full"
    assert isinstance(errors.MemoryFull(), errors.DiskFull), "it is waited for in the same way"
