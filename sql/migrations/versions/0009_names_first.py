"""The index of campaigns' names begins with the name: it serves no other question even by mistake.

Revision ID: 0009
Revises: 0008
"""

from pathlib import Path

from alembic import op

revision = "0009"
down_revision = "0008"

BUILD_SECONDS = 6 * 3600
INDEX = "CREATE INDEX CONCURRENTLY campaigns_name_first ON campaigns (md5(name), workspace_id, platform)"


def upgrade() -> None:
    # Uploads go on while the index is built, however large the table is.
    driver = op.get_bind().connection.dbapi_connection
    with op.get_context().autocommit_block():
        answer_seconds, driver.answer_seconds = driver.answer_seconds, BUILD_SECONDS
        op.execute(f"SET statement_timeout = '{BUILD_SECONDS}s'")
        op.execute("DROP INDEX IF EXISTS campaigns_name_first")  # what a build that broke off left
        op.execute(INDEX)
        op.execute("SET statement_timeout = '60s'")
        driver.answer_seconds = answer_seconds
    with op.get_bind().connection.cursor() as cursor:
        cursor.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
