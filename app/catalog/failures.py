"""What can go wrong with one target, and what is done about it (seed §7).

The categories are data: a run's targets, the log and the metrics name them by these words.
"""

from __future__ import annotations

from enum import Enum

from app.kernel import errors


class Then(Enum):
    """What a failure of its category leads to."""

    TRY_AGAIN = "the request is made again, five times at most; then the target has failed"
    FAIL_TARGET = "the target has failed"
    NOT_FOUND = "the target is not there: counted apart, and nothing is written"
    STOP_JOB = "the job ends at the first: every other target would fail as well"


CATEGORIES: dict[str, Then] = {
    "rate_limited":     Then.TRY_AGAIN,    # 429
    "server_error":     Then.TRY_AGAIN,    # 5xx
    "timeout":          Then.TRY_AGAIN,
    "connection":       Then.TRY_AGAIN,
    "unexpected_body":  Then.TRY_AGAIN,    # a page, an error or half an answer, with whatever status
    "not_found":        Then.NOT_FOUND,    # 404, or an answer without the target
    "target_refused":   Then.FAIL_TARGET,  # 400: this id is none
    "contract":         Then.FAIL_TARGET,  # an answer about something else, or of another shape
    "unstorable":       Then.FAIL_TARGET,  # text that no database takes
    "parent_missing":   Then.FAIL_TARGET,  # a tag whose parent nobody knows yet
    "unexpected":       Then.FAIL_TARGET,  # a fault of our own that this target brought to light
    "raw_store":        Then.FAIL_TARGET,  # the object could not be put
    "database":         Then.FAIL_TARGET,  # the values of this one target are refused
    "configuration":    Then.STOP_JOB,     # 400: application id, key or version
    "access":           Then.STOP_JOB,     # 401 and 403
}  # fmt: skip

EXCERPT_CHARACTERS = 300


def _storable(text: str) -> str:
    """The text without what no database takes: it comes from outside, and says why something failed."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


class TargetFailure(errors.HeadworksError):
    """A target could not be fetched or applied: category, HTTP status, and the beginning of what was said."""

    code = "catalog_target_failed"

    def __init__(
        self, category: str, *, status: int | None = None, excerpt: str = "", attempts: int = 1,
        retry_after: float | None = None, needs: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(f"{category}: {Then(CATEGORIES[category]).value}.")
        self.category = category
        self.status = status
        self.excerpt = _storable(" ".join(excerpt.split())[:EXCERPT_CHARACTERS])
        self.attempts = attempts
        self.retry_after = retry_after  # seconds that the service asks for
        self.needs = needs  # another target, that has to be applied before this one

    @property
    def then(self) -> Then:
        return CATEGORIES[self.category]
