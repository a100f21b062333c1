"""The order of day and month and the decimal mark of a file, as its uploader says them.

Revision ID: 0005
Revises: 0004
"""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # The driver's own cursor: without parameters it leaves the text's per cent signs alone.
    with op.get_bind().connection.cursor() as cursor:
        cursor.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
