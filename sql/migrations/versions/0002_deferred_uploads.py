"""Uploads that are put off give their slot back, and are promoted in order; an ad's day is one.

Revision ID: 0002
Revises: 0001
"""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # The driver's own cursor: without parameters it leaves the text's per cent signs alone.
    with op.get_bind().connection.cursor() as cursor:
        cursor.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
