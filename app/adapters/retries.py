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


def call(work: Callable[[], T], clock: Clock, *, failed: BaseException | None = None) -> T:
    """What `work` returns, tried again in this process as its failure's line of the table says.

    `work` begins a fresh transaction each time. An error whose wait is not spent in the process,
    or whose retries are used up, goes on to the caller. `failed`: what came of a first try, if there was
    one already.
    """
    before = int(failed is not None and _waits_here(failed))
    if failed is not None and before:
        clock.sleep(retry.delay(retry.policy_for(failed), 1) or 0.0)
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(_waits_here),
        stop=lambda state: _delay(state, before) is None,
        wait=lambda state: _delay(state, before) or 0.0,
        sleep=clock.sleep,
        before_sleep=lambda state: _log_retry(state, before),
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


def _delay(state: tenacity.RetryCallState, before: int) -> float | None:
    return retry.delay(retry.policy_for(_failure(state)), state.attempt_number + before)


def _log_retry(state: tenacity.RetryCallState, before: int) -> None:
    error = _failure(state)
    log.warning(
        "work_retried",
        code=getattr(error, "code", "internal_error"),
        failures=state.attempt_number + before,
        wait_seconds=_delay(state, before),
    )
