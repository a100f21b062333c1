"""Webhooks: subscriptions, deliveries and their attempts; the audit log by workspace.

Revision ID: 0004
Revises: 0003
"""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # The driver's own cursor: without parameters it leaves the text's per cent signs alone.
    with op.get_bind().connection.cursor() as cursor:
        cursor.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
