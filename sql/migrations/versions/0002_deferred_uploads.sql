-- An upload that is put off gives its slot back; one client's reports of a platform are promoted in
-- order; a day of an ad has one row, with its ad set or without.

ALTER TABLE data_uploads RENAME CONSTRAINT data_uploads_check TO data_uploads_finished;
ALTER TABLE data_uploads RENAME CONSTRAINT data_uploads_check1 TO data_uploads_lease;
ALTER TABLE data_uploads RENAME CONSTRAINT data_uploads_check2 TO data_uploads_owner;
ALTER TABLE data_uploads RENAME CONSTRAINT data_uploads_check4 TO data_uploads_error;
ALTER TABLE data_uploads RENAME CONSTRAINT data_uploads_check5 TO data_uploads_counts;
ALTER TABLE data_uploads DROP CONSTRAINT data_uploads_check3, DROP CONSTRAINT data_uploads_slot_check;
ALTER TABLE data_uploads
    ADD CONSTRAINT data_uploads_slot CHECK
        (slot IS NULL OR slot BETWEEN 0 AND 2 AND status IN ('processing', 'staging_complete', 'promoting')),
    ADD CONSTRAINT data_uploads_no_slot CHECK (slot IS NOT NULL
        OR status NOT IN ('processing', 'staging_complete', 'promoting')
        OR owner_id IS NULL AND deferrals > 0);
DROP INDEX data_uploads_slots;
CREATE UNIQUE INDEX data_uploads_slots ON data_uploads (workspace_id, slot) WHERE slot IS NOT NULL;

CREATE VIEW waiting_uploads WITH (security_invoker = true) AS
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
      WHERE o.workspace_id = u.workspace_id AND o.slot IS NOT NULL AND o.created_at < u.created_at
        AND o.platform = u.platform AND o.client_id IS NOT DISTINCT FROM u.client_id));
GRANT SELECT ON waiting_uploads TO headworks_dispatch, headworks_read;

ALTER TABLE ads ADD COLUMN ad_set_as_of timestamptz;
UPDATE ads SET ad_set_as_of = parent_as_of WHERE ad_set_id IS NOT NULL;

-- Of an ad's rows of one day the newest stays; the unique index follows from that.
DELETE FROM daily_metrics d USING daily_metrics newer
WHERE newer.ad_id = d.ad_id AND newer.workspace_id = d.workspace_id AND newer.campaign_id = d.campaign_id
  AND newer.metric_date = d.metric_date AND newer.platform = d.platform
  AND newer.client_id IS NOT DISTINCT FROM d.client_id
  AND (newer.as_of, newer.ctid) > (d.as_of, d.ctid);
ALTER TABLE daily_metrics DROP CONSTRAINT daily_metrics_key;
CREATE UNIQUE INDEX daily_metrics_key ON daily_metrics
    (workspace_id, campaign_id, metric_date, ad_id, (CASE WHEN ad_id IS NULL THEN ad_set_id END), platform,
     client_id) NULLS NOT DISTINCT;
ALTER TABLE daily_metrics DROP CONSTRAINT daily_metrics_metric_as_of_check;
UPDATE daily_metrics SET metric_as_of = metric_as_of || as_of WHERE metric_as_of IS NOT NULL;
ALTER TABLE daily_metrics ADD CONSTRAINT daily_metrics_metric_as_of_check
    CHECK (array_length(metric_as_of, 1) = 8);

CREATE OR REPLACE FUNCTION newest_at(
    stored numeric, stored_at timestamptz, incoming numeric, incoming_at timestamptz
) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN stored IS NULL AND incoming IS NULL THEN greatest(stored_at, incoming_at)
    WHEN incoming IS NULL OR (stored IS NOT NULL AND stored_at >= incoming_at) THEN stored_at
    ELSE incoming_at
END;
