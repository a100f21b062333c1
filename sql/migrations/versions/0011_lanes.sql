-- Of one client and platform only one upload is promoted at a time: older ones come first, and one that was
-- requeued waits for the one at work. What a batch finds among the entities stays true until it is written.
CREATE OR REPLACE VIEW waiting_uploads WITH (security_invoker = true) AS
SELECT u.id, u.workspace_id, u.status, u.created_at, u.slot,
       CASE WHEN u.status IN ('pending', 'processing') THEN 'parse' ELSE 'promote' END AS stage,
       u.status IN ('processing', 'promoting') AS resumes
FROM data_uploads u
WHERE u.status IN ('pending', 'processing', 'staging_complete', 'promoting')
  AND u.owner_id IS NULL AND u.file_url IS NOT NULL AND u.next_attempt_at <= clock_timestamp()
  AND (u.slot IS NOT NULL OR (
      SELECT count(*) FROM data_uploads a
      WHERE a.workspace_id = u.workspace_id AND a.slot IS NOT NULL) < 3)
  AND (u.status IN ('pending', 'processing') OR NOT EXISTS (
      SELECT FROM data_uploads o
      WHERE o.workspace_id = u.workspace_id AND o.slot IS NOT NULL
        AND (o.created_at < u.created_at OR o.status = 'promoting' AND o.owner_id IS NOT NULL)
        AND o.platform = u.platform AND o.client_id IS NOT DISTINCT FROM u.client_id));

CREATE OR REPLACE FUNCTION ensure_staging_day(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    suffix text := to_char(day, 'YYYYMMDD');
BEGIN
    IF to_regclass('staging_id_resolution_' || suffix) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('headworks staging days'));
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS staging_rows_%s PARTITION OF staging_rows FOR VALUES FROM (%L) TO (%L)',
        suffix, day, day + 1);
    -- Every resolution is written twice, first open and then resolved: with room beside it the second stays on
    -- its page, and the index is not touched.
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS staging_id_resolution_%s PARTITION OF staging_id_resolution'
        ' FOR VALUES FROM (%L) TO (%L) WITH (fillfactor = 50)', suffix, day, day + 1);
    -- COPY is not possible under row-level security, so parse copies into the day itself: it may
    -- insert there and nothing else, and the trigger own_workspace keeps it to its workspace.
    EXECUTE format('GRANT INSERT ON staging_rows_%s TO headworks_parse', suffix);
END
$$;
