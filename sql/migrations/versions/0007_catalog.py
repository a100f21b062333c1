"""The catalog of a marketplace: its ledger, its tables, and the runs of its jobs.

Revision ID: 0007
Revises: 0006
"""

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    # The driver's own cursor: without parameters it leaves the text's per cent signs alone.
    with op.get_bind().connection.cursor() as cursor:
        cursor.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
