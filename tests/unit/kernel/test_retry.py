"""The failure table, line by line as in D6.6 §6.1 and §6.2."""

from __future__ import annotations

import pytest

from app.kernel import errors, retry
from app.kernel.retry import Final, Wait

# failure                    delays in seconds     in the end           D6.6
TABLE: list[tuple[type[errors.HeadworksError], tuple[float, ...], Final]] = [
    (errors.FileGone, (), Final.FAIL_UPLOAD),  # §6.1 FATAL
    (errors.FileRefused, (), Final.FAIL_UPLOAD),  # §6.1 FATAL
    (errors.AccessDenied, (), Final.FAIL_UPLOAD),  # §6.1 FATAL
    (errors.ConnectionLost, (1, 2, 4), Final.FAIL_UPLOAD),  # §6.2 exponential
    (errors.TransactionTimeout, (1, 2, 4), Final.FAIL_UPLOAD),  # §6.1 retry 3x
    (errors.Deadlock, (0.1, 0.2, 0.4), Final.FAIL_BATCH),  # §6.2 exponential
    (errors.RateLimited, (60, 60, 60, 60, 60), Final.FAIL_UPLOAD),  # §6.2 fixed
    (errors.ForeignKeyMissing, (), Final.SET_NULL),  # §6.1 ROW
    (errors.UniqueViolated, (), Final.SKIP_ROW),  # §6.1 ROW
]


@pytest.mark.parametrize(("failure", "delays", "final"), TABLE)
def test_a_failure_is_met_as_specified(
    failure: type[errors.HeadworksError], delays: tuple[float, ...], final: Final
) -> None:
    policy = retry.policy_for(failure("it happened"))
    assert policy.delays_seconds == delays
    assert policy.final is final
    assert [retry.delay(policy, n) for n in range(1, len(delays) + 2)] == [*delays, None]


def test_only_a_long_wait_gives_the_upload_back_meanwhile() -> None:
    released = {kind for kind, policy in retry.POLICIES.items() if policy.wait is Wait.RELEASED}
    assert released == {
        kind for kind, policy in retry.POLICIES.items() if max(policy.delays_seconds, default=0) > 10
    }


@pytest.mark.parametrize("error", [ValueError("a mistake of ours"), errors.Conflict(), errors.NotFound()])
def test_what_is_not_listed_is_not_tried_again(error: Exception) -> None:
    assert retry.policy_for(error).retries == 0


def test_a_narrower_error_falls_under_the_line_of_its_kind() -> None:
    class Narrower(errors.Deadlock):
        """A deadlock of one sort."""

    assert retry.policy_for(Narrower()) is retry.POLICIES[errors.Deadlock]
