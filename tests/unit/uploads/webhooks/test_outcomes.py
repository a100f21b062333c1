"""What an answer means and what is done next, line by line (D6.6 §6.2)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.uploads.webhooks import codes, outcomes, states
from app.uploads.webhooks.outcomes import Tried, Verdict

LONG = (300, 1800, 7200, 21_600, 43_200)
TABLE = {
    # code                 waits before the next tries
    **dict.fromkeys(
        (
            "host_not_found", "connect_failed", "tls_failed", "connection_lost", "timeout", "bad_answer",
            "server_error", "worker_lost", "secret_unreadable",
        ),
        (1, 2, 4, *LONG),
    ),
    "rate_limited": (60, 60, 60, 60, 60, *LONG),
    **dict.fromkeys(("redirected", "refused", "gone", "address_refused"), ()),
}  # fmt: skip


def test_every_code_is_judged_here() -> None:
    assert set(codes.TRIED) == set(TABLE)


@pytest.mark.parametrize("code", TABLE)
def test_a_code_has_its_waits_and_then_fails(code: str) -> None:
    for failures, wait in enumerate(TABLE[code]):
        assert outcomes.judge(Tried(code), failures=failures) == Verdict("pending", failures + 1, wait)
    end = len(TABLE[code])
    assert outcomes.judge(Tried(code), failures=end) == Verdict("failed", end + 1)


def test_what_arrived_is_delivered_however_often_it_failed() -> None:
    assert outcomes.judge(Tried(None, 200), failures=7) == Verdict("delivered", 7)


def test_a_pause_that_was_asked_for_makes_a_wait_longer_and_never_shorter() -> None:
    asked = Tried("rate_limited", 429, pause_seconds=600)
    assert outcomes.judge(asked, failures=0).delay_seconds == 600
    assert outcomes.judge(asked, failures=6).delay_seconds == 1800


@pytest.mark.parametrize("code", [*codes.TRIED, *codes.ENDED])
def test_every_code_has_a_sentence(code: str) -> None:
    assert codes.sentence(code).endswith((".", ")."))


NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
PAUSES = [
    # Retry-After                          seconds
    (None, 0),
    ("", 0),
    ("0", 0),
    (" 120 ", 120),
    ("3600", 3600),
    ("3601", 3600),
    ("9" * 400, 3600),
    ("-5", 0),
    ("1.5", 0),
    ("1e3", 0),
    ("٣", 0),
    ("Thu, 15 Jan 2026 12:02:00 GMT", 120),
    ("Thu, 15 Jan 2026 13:02:00 +0100", 120),
    ("Thu, 15 Jan 2026 11:00:00 GMT", 0),
    ("Fri, 15 Jan 2027 12:00:00 GMT", 3600),
    ("Thu, 15 Jan 2026 12:02:00", 0),  # in whose zone?
    ("Thu, 99 Jan 2026 12:02:00 GMT", 0),
    ("soon", 0),
]


@pytest.mark.parametrize(("retry_after", "seconds"), PAUSES)
def test_a_pause_is_read_in_each_of_its_spellings(retry_after: str | None, seconds: float) -> None:
    assert outcomes.pause_seconds(retry_after, NOW) == seconds


EDGES = {("pending", "delivered"), ("pending", "failed")}
MANUAL = {("delivered", "pending"), ("failed", "pending")}


def test_a_delivery_moves_along_these_edges_alone() -> None:
    pairs = [(source, target) for source in states.DELIVERY.states for target in states.DELIVERY.states]
    assert {pair for pair in pairs if states.DELIVERY.allows(*pair)} == EDGES
    assert {pair for pair in pairs if states.DELIVERY.allows(*pair, manual=True)} == MANUAL
