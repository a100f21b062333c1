-- Who may write what (D6.6 §2.2), and who may see which workspace's rows.

REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO headworks_intake, headworks_parse, headworks_promote,
    headworks_cleanup, headworks_requeue, headworks_dispatch, headworks_relay, headworks_read;
GRANT EXECUTE ON FUNCTION current_workspace() TO PUBLIC;

-- Intake creates uploads, and nothing in staging or production.
GRANT SELECT, INSERT ON workspaces TO headworks_intake;
GRANT SELECT, INSERT, UPDATE ON data_uploads TO headworks_intake;
GRANT INSERT ON audit TO headworks_intake;

-- Parse writes staging, and of data_uploads what it has found out. Never production.
GRANT SELECT, UPDATE ON data_uploads TO headworks_parse;
GRANT SELECT, INSERT, UPDATE, DELETE ON staging_rows TO headworks_parse;
GRANT SELECT, INSERT ON staging_id_resolution TO headworks_parse;
GRANT SELECT, INSERT ON audit TO headworks_parse;
GRANT EXECUTE ON FUNCTION ensure_staging_day(date) TO headworks_parse;

-- Promotion reads staging (it only notes there what failed) and writes production.
GRANT SELECT, UPDATE ON data_uploads TO headworks_promote;
GRANT SELECT ON staging_rows, staging_id_resolution TO headworks_promote;
GRANT UPDATE (promotion_error) ON staging_rows TO headworks_promote;
GRANT UPDATE (resolved_id, error_code) ON staging_id_resolution TO headworks_promote;
GRANT SELECT, INSERT, UPDATE ON campaigns, ad_sets, ads, daily_metrics TO headworks_promote;
GRANT EXECUTE ON FUNCTION newest, newest_at TO headworks_promote;
GRANT SELECT, INSERT ON outbox, audit TO headworks_promote;

-- Cleanup drops expired staging, and reads which uploads are still on their way.
GRANT SELECT ON data_uploads TO headworks_cleanup;
GRANT EXECUTE ON FUNCTION expired_staging_days, drop_staging_day TO headworks_cleanup;

-- A requeue clears the staging of a failed upload, under the lock of its workspace.
GRANT SELECT, UPDATE ON data_uploads TO headworks_requeue;
GRANT SELECT, UPDATE (last_claimed_at) ON workspaces TO headworks_requeue;
GRANT SELECT, DELETE ON staging_rows, staging_id_resolution TO headworks_requeue;
GRANT SELECT, INSERT ON audit TO headworks_requeue;

-- Dispatch moves ownership: no file content, no staging, no production.
GRANT SELECT, UPDATE ON data_uploads, workspaces TO headworks_dispatch;
GRANT SELECT ON waiting_uploads TO headworks_dispatch;
GRANT SELECT, INSERT ON audit TO headworks_dispatch;

-- The relay publishes and marks.
GRANT SELECT, UPDATE ON outbox TO headworks_relay;
GRANT SELECT, INSERT ON audit TO headworks_relay;

GRANT SELECT ON ALL TABLES IN SCHEMA public TO headworks_read;

-- Row-level security: a transaction sees and writes the rows of its own workspace only.
ALTER TABLE workspaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE data_uploads ENABLE ROW LEVEL SECURITY;
ALTER TABLE staging_rows ENABLE ROW LEVEL SECURITY;
ALTER TABLE staging_id_resolution ENABLE ROW LEVEL SECURITY;
ALTER TABLE campaigns ENABLE ROW LEVEL SECURITY;
ALTER TABLE ad_sets ENABLE ROW LEVEL SECURITY;
ALTER TABLE ads ENABLE ROW LEVEL SECURITY;
ALTER TABLE daily_metrics ENABLE ROW LEVEL SECURITY;
ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit ENABLE ROW LEVEL SECURITY;

-- As a subquery the setting is read once for a statement, not once for a row.
CREATE POLICY own_workspace ON workspaces USING (id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON data_uploads USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON staging_rows USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON staging_id_resolution USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON campaigns USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON ad_sets USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON ads USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON daily_metrics USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON outbox USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON audit USING (workspace_id = (SELECT current_workspace()));

-- Claims, recovery and the relay serve every workspace.
CREATE POLICY every_workspace ON workspaces TO headworks_dispatch USING (true);
CREATE POLICY every_workspace ON data_uploads TO headworks_dispatch USING (true);
CREATE POLICY every_workspace ON audit TO headworks_dispatch, headworks_relay USING (true);
CREATE POLICY every_workspace ON outbox TO headworks_relay USING (true);
