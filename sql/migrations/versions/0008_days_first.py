"""A day's rows stand together in the key of daily_metrics, which serves the questions about days, too.

Revision ID: 0008
Revises: 0007
"""

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"

BUILD_SECONDS = 6 * 3600
KEY = """
CREATE UNIQUE INDEX CONCURRENTLY daily_metrics_days_first ON daily_metrics
    (workspace_id, metric_date, campaign_id, ad_id, (CASE WHEN ad_id IS NULL THEN ad_set_id END), platform,
     client_id) NULLS NOT DISTINCT
"""


def upgrade() -> None:
    # Uploads go on while the index is built, however large the table is.
    driver = op.get_bind().connection.dbapi_connection
    with op.get_context().autocommit_block():
        answer_seconds, driver.answer_seconds = driver.answer_seconds, BUILD_SECONDS
        op.execute(f"SET statement_timeout = '{BUILD_SECONDS}s'")
        op.execute("DROP INDEX IF EXISTS daily_metrics_days_first")  # what a build that broke off left
        op.execute(KEY)
        op.execute("SET statement_timeout = '60s'")
        driver.answer_seconds = answer_seconds
    with op.get_bind().connection.cursor() as cursor:
        cursor.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
