"""The states of an upload and who moves it (D6.6 §4)."""

from __future__ import annotations

from app.kernel.states import Edge, Machine

UPLOAD = Machine(
    "pending",
    ("pending", "processing", "staging_complete", "promoting", "completed", "partial", "failed"),
    (
        # from               to                 owner      when (D6.6 §4.3)
        Edge("pending", "processing", "parse", "a worker claims the upload"),
        Edge("processing", "staging_complete", "parse", "all rows are parsed and validated"),
        Edge("processing", "failed", "parse", "the file cannot be read, or no row is valid"),
        Edge("staging_complete", "promoting", "promote", "valid rows >= 90 %, or force_partial"),
        Edge("staging_complete", "failed", "parse", "valid rows < 90 %, and no force_partial"),
        Edge("promoting", "completed", "promote", "all valid rows are promoted"),
        Edge("promoting", "partial", "promote", "some rows failed promotion"),
        Edge("promoting", "failed", "promote", "promotion cannot go on, or no row was promoted"),
        # drawn in §4.2, without a line in §4.3
        Edge("pending", "failed", "parse", "the stored file is gone, or attempts are exhausted"),
        # by a person's command, each with who and why in the audit log
        Edge("failed", "pending", "requeue", "staging is cleared, the file is read anew", manual=True),
        Edge("partial", "staging_complete", "requeue", "only the failed rows are tried", manual=True),
    ),
)

ACTIVE = ("processing", "staging_complete", "promoting")
"""States that count against the limit of concurrent uploads of a workspace (D6.6 §5.3)."""

OPEN = ("pending", *ACTIVE)
"""States of uploads on their way."""

OWNED = ("processing", "promoting")
"""States in which a worker holds the upload under a lease."""

MAX_ACTIVE_PER_WORKSPACE = 3  # D6.6 §5.3; the slot column and its index in the schema repeat it
PROMOTION_BATCH_ROWS = 1000  # D6.6 §5.3
VALID_PERCENT = 90  # D6.6 §4.4: exactly this much passes
MAX_ATTEMPTS = 5
"""How often one stage may be begun: a file that kills its worker must not loop."""
