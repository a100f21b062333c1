"""Running work again as the failure table says (tenacity)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

from app.adapters import logs
from app.kernel import errors, retry
from app.kernel.clock import Clock

log = logs.get(__name__)
T = TypeVar("T")


def call(work: Callable[[], T], clock: Clock) -> T:
    """What `work` returns, tried again in this process as its failure's line of the table says.

    `work` begins a fresh transaction each time. An error whose wait is not spent in the process,
    or whose retries are used up, goes on to the caller.
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(_waits_here),
        stop=_retries_used_up,
        wait=lambda state: _delay(state) or 0.0,
        sleep=clock.sleep,
        before_sleep=_log_retry,
        reraise=True,
    )(work)


def _waits_here(error: BaseException) -> bool:
    policy = retry.policy_for(error)
    return isinstance(error, errors.Transient) and policy.wait is retry.Wait.IN_PROCESS and policy.retries > 0


def _failure(state: tenacity.RetryCallState) -> BaseException:
    assert state.outcome is not None
    error = state.outcome.exception()
    assert error is not None
    return error


def _delay(state: tenacity.RetryCallState) -> float | None:
    return retry.delay(retry.policy_for(_failure(state)), state.attempt_number)


def _retries_used_up(state: tenacity.RetryCallState) -> bool:
    return _delay(state) is None


def _log_retry(state: tenacity.RetryCallState) -> None:
    error = _failure(state)
    log.warning(
        "work_retried",
        code=getattr(error, "code", "internal_error"),
        failures=state.attempt_number,
        wait_seconds=_delay(state),
    )
