-- Intake ---------------------------------------------------------------------------------------

-- name: ensure_workspace!
-- The workspace is known to the claims.
INSERT INTO workspaces (id) VALUES (:workspace_id) ON CONFLICT DO NOTHING;

-- name: create_upload^
-- A new upload without its file; no row when it is there already, or its idempotency key was used.
INSERT INTO data_uploads
    (id, workspace_id, client_id, platform, source, filename, created_by, currency, date_order, decimal_mark,
     force_partial, idempotency_key, traceparent)
VALUES (:upload_id, :workspace_id, :client_id, :platform, :source, :filename, :created_by, :currency,
        :date_order, :decimal_mark, :force_partial, :idempotency_key, :traceparent)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: upload_of_idempotency_key$
-- The upload that this key made, once.
SELECT id FROM data_uploads
WHERE workspace_id = :workspace_id AND idempotency_key = :idempotency_key;

-- name: set_upload_file^
-- The file is stored: from here on the upload can be claimed.
UPDATE data_uploads u
SET file_url = :file_url, sha256 = :sha256, size_bytes = :size_bytes, updated_at = clock_timestamp(),
    duplicate_of = (
        SELECT o.id FROM data_uploads o
        WHERE o.workspace_id = u.workspace_id AND o.sha256 = :sha256 AND o.platform = u.platform
          AND o.client_id IS NOT DISTINCT FROM u.client_id AND o.created_at < u.created_at
        ORDER BY o.created_at LIMIT 1)
WHERE u.id = :upload_id AND (u.status = 'pending' AND u.file_url IS NULL OR u.file_url = :file_url)
RETURNING u.duplicate_of;

-- Claims ---------------------------------------------------------------------------------------

-- name: lock_next_workspace$
-- The workspace that waits longest for this stage, locked until the end of the transaction.
SELECT w.id FROM workspaces w
WHERE EXISTS (SELECT FROM waiting_uploads u WHERE u.workspace_id = w.id AND u.stage = :stage)
ORDER BY w.last_claimed_at NULLS FIRST, w.id
LIMIT 1
FOR NO KEY UPDATE OF w;

-- name: free_slot$
-- The lowest slot that no upload of the workspace has, or NULL. Under the workspace's lock, and in a
-- statement of its own: its snapshot must be younger than the lock.
SELECT min(s) FROM generate_series(0, :max_active - 1) s
WHERE NOT EXISTS (SELECT FROM data_uploads a WHERE a.workspace_id = :workspace_id AND a.slot = s);

-- name: claim_upload^
-- The oldest upload of the workspace that this stage can take, under a new lease and a new epoch.
-- One whose owner was lost comes first and keeps its slot.
WITH candidate AS (
    SELECT u.id, u.status FROM (
        SELECT w.id, w.status FROM waiting_uploads w
        WHERE w.workspace_id = :workspace_id AND w.stage = :stage
          AND (w.slot IS NOT NULL OR CAST(:slot AS smallint) IS NOT NULL)
        ORDER BY w.resumes DESC, w.created_at
        LIMIT 1) w
    JOIN data_uploads u ON u.id = w.id AND u.status = w.status AND u.owner_id IS NULL
    FOR UPDATE OF u SKIP LOCKED
), claimed AS (
    UPDATE workspaces SET last_claimed_at = clock_timestamp()
    WHERE id = :workspace_id AND EXISTS (SELECT FROM candidate)
)
UPDATE data_uploads u
SET status = :claimed_status, owner_id = :owner_id, claim_epoch = u.claim_epoch + 1,
    attempts = u.attempts + 1, slot = coalesce(u.slot, :slot),
    lease_expires_at = clock_timestamp() + make_interval(secs => :lease_seconds),
    staged_on = coalesce(u.staged_on, (clock_timestamp() AT TIME ZONE 'UTC')::date),
    updated_at = clock_timestamp()
FROM candidate c
WHERE u.id = c.id
RETURNING u.id AS upload_id, u.workspace_id, u.client_id, u.platform, u.currency, u.date_order,
    u.decimal_mark, u.force_partial, u.file_url, u.filename, u.created_at, u.owner_id, u.claim_epoch, u.attempts, u.deferrals, u.staged_on,
    u.staged_rows, u.total_rows, u.valid_rows, u.promoted_rows, u.failed_rows, u.promoting_type,
    u.promoting_row, u.only_failed, u.report, u.traceparent, c.status AS from_status;

-- name: extend_lease!
-- The owner is alive; no row when it is the owner no more.
UPDATE data_uploads SET lease_expires_at = clock_timestamp() + make_interval(secs => :lease_seconds)
WHERE id = :upload_id AND claim_epoch = :claim_epoch AND owner_id IS NOT NULL;

-- name: release_upload^
-- The upload is handed back, to be claimed again at once; the attempt does not count.
UPDATE data_uploads
SET owner_id = NULL, lease_expires_at = NULL, claim_epoch = claim_epoch + 1, attempts = attempts - 1,
    updated_at = clock_timestamp()
WHERE id = :upload_id AND claim_epoch = :claim_epoch AND owner_id IS NOT NULL
RETURNING status;

-- name: defer_upload^
-- The upload is put off: it may be claimed again after the delay, and keeps no slot until then.
UPDATE data_uploads
SET owner_id = NULL, lease_expires_at = NULL, claim_epoch = claim_epoch + 1, attempts = attempts - 1,
    deferrals = deferrals + 1, slot = NULL, updated_at = clock_timestamp(),
    next_attempt_at = clock_timestamp() + make_interval(secs => :delay_seconds)
WHERE id = :upload_id AND claim_epoch = :claim_epoch AND owner_id IS NOT NULL
RETURNING status;

-- name: take_expired_leases
-- Uploads whose owner has not been heard of: nobody owns them now, and the old owner is fenced.
WITH expired AS (
    SELECT id, owner_id FROM data_uploads
    WHERE status IN ('processing', 'promoting') AND lease_expires_at < clock_timestamp()
    ORDER BY lease_expires_at
    LIMIT 100
    FOR UPDATE SKIP LOCKED
)
UPDATE data_uploads u
SET owner_id = NULL, lease_expires_at = NULL, claim_epoch = u.claim_epoch + 1,
    updated_at = clock_timestamp()
FROM expired e
WHERE u.id = e.id
RETURNING u.id AS upload_id, u.workspace_id, u.status, u.claim_epoch, u.attempts, u.created_at, e.owner_id AS lost_owner;

-- name: abandoned_intakes
-- Uploads whose file was never stored, long after they were created.
SELECT id AS upload_id, workspace_id, claim_epoch, created_at FROM data_uploads
WHERE status = 'pending' AND file_url IS NULL
  AND created_at < clock_timestamp() - make_interval(secs => :after_seconds)
LIMIT 100;

-- name: owners
-- Who holds an upload now.
SELECT owner_id FROM data_uploads WHERE status IN ('processing', 'promoting') AND owner_id IS NOT NULL;

-- name: stages_with_work
-- The stages that could claim an upload now.
SELECT DISTINCT stage FROM waiting_uploads;

-- Moves ----------------------------------------------------------------------------------------

-- name: fail_upload^
-- Move the upload to failed; no row when it is in none of the sources, or another owner's.
WITH before AS (
    SELECT id, status, owner_id FROM data_uploads
    WHERE id = :upload_id AND status = ANY(:sources) AND claim_epoch = :claim_epoch
    FOR UPDATE
)
UPDATE data_uploads u
SET status = 'failed', error_code = :error_code, error_text = :error_text, owner_id = NULL,
    lease_expires_at = NULL, slot = NULL, finished_at = clock_timestamp(),
    updated_at = clock_timestamp(), report = u.report || :report
FROM before b
WHERE u.id = b.id
RETURNING b.status AS from_status, b.owner_id, u.claim_epoch;

-- name: finish_staging^
-- Move the upload to staging_complete: every row is staged and validated.
UPDATE data_uploads
SET status = 'staging_complete', owner_id = NULL, lease_expires_at = NULL, attempts = 0,
    deferrals = 0, staged_rows = :staged_rows, total_rows = :total_rows, valid_rows = :valid_rows,
    report = report || :report,
    updated_at = clock_timestamp()
WHERE id = :upload_id AND status = ANY(:sources) AND claim_epoch = :claim_epoch
  AND staged_rows = :before
RETURNING claim_epoch;

-- name: finish_promotion^
-- Move the upload to completed or partial.
UPDATE data_uploads
SET status = :status, owner_id = NULL, lease_expires_at = NULL, slot = NULL, attempts = 0,
    row_count = promoted_rows, error_code = :error_code, error_text = :error_text,
    affected_dates = :affected_dates, event_emitted = event_emitted OR :emits_event,
    only_failed = false, finished_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE id = :upload_id AND status = ANY(:sources) AND claim_epoch = :claim_epoch
RETURNING promoted_rows, failed_rows, total_rows, upserted,
    -- whether the place that is free now is wanted
    EXISTS (SELECT FROM data_uploads o WHERE o.workspace_id = data_uploads.workspace_id AND o.status = 'pending')
        AS others_wait;

-- name: requeue_failed^
-- Move a failed upload back to pending, to be read anew.
UPDATE data_uploads
SET status = 'pending', error_code = NULL, error_text = NULL, finished_at = NULL, attempts = 0,
    deferrals = 0, claim_epoch = claim_epoch + 1, next_attempt_at = '-infinity', staged_on = NULL, staged_rows = 0,
    total_rows = 0, valid_rows = 0, promoted_rows = 0, failed_rows = 0, promoting_type = NULL,
    promoting_row = -1, only_failed = false, report = '{}', upserted = '{}', affected_dates = '{}',
    row_count = NULL, updated_at = clock_timestamp()
WHERE id = :upload_id AND status = 'failed' AND file_url IS NOT NULL
RETURNING claim_epoch;

-- name: requeue_partial^
-- Move a partial upload back to staging_complete: only the rows that failed are tried.
UPDATE data_uploads
SET status = 'staging_complete', error_code = NULL, error_text = NULL, finished_at = NULL,
    attempts = 0, deferrals = 0, claim_epoch = claim_epoch + 1, next_attempt_at = '-infinity', slot = :slot,
    failed_rows = 0, promoting_type = NULL, promoting_row = -1, only_failed = true, updated_at = clock_timestamp()
WHERE id = :upload_id AND status = 'partial'
RETURNING claim_epoch;

-- name: requeue_ownerless^
-- An upload on its way that nobody owns may be claimed at once.
UPDATE data_uploads SET next_attempt_at = '-infinity', updated_at = clock_timestamp()
WHERE id = :upload_id AND status = ANY(:sources) AND owner_id IS NULL
RETURNING status, claim_epoch;

-- name: lock_workspace!
-- Nobody claims an upload of this workspace until the end of the transaction.
SELECT FROM workspaces WHERE id = :workspace_id FOR NO KEY UPDATE;

-- Staging --------------------------------------------------------------------------------------

-- name: ensure_staging_day$
-- The partitions of this day are there.
SELECT ensure_staging_day(:staged_on);

-- name: staged_rows$
-- How many source rows are committed to staging; no row when the upload is another owner's.
SELECT staged_rows FROM data_uploads
WHERE id = :upload_id AND status = 'processing' AND claim_epoch = :claim_epoch;

-- name: set_staged!
-- The chunk that ends here is committed with this row, and what was recognised in the file, the dialect above
-- all; none when the upload is another owner's, or the chunk before is not there.
UPDATE data_uploads
SET staged_rows = :staged_rows, report = report || :report, updated_at = clock_timestamp()
WHERE id = :upload_id AND status = 'processing' AND claim_epoch = :claim_epoch AND staged_rows = :before;

-- name: clear_staging!
-- Nothing of this upload is staged.
DELETE FROM staging_rows WHERE upload_id = :upload_id;

-- name: clear_resolution!
-- Nothing of this upload is resolved.
DELETE FROM staging_id_resolution WHERE upload_id = :upload_id;

-- name: copy_staging_rows!
-- Staging rows in binary, into the day of their upload: COPY does not pass through the parent's policy.
COPY {partition} (upload_id, workspace_id, staged_on, entity_type, validation_status, validation_errors,
    row_index, natural_key_hash, raw_data) FROM STDIN (FORMAT binary);

-- name: add_resolutions!
-- Each staged entity of these rows waits to be resolved.
INSERT INTO staging_id_resolution
    (staged_on, upload_id, workspace_id, entity_type, row_index, natural_key_hash)
SELECT staged_on, upload_id, workspace_id, entity_type, row_index, natural_key_hash
FROM staging_rows
WHERE staged_on = :staged_on AND upload_id = :upload_id
  AND entity_type IN ('campaign', 'ad_set', 'ad')
  AND row_index BETWEEN :first_row AND :last_row;

-- name: rows_of_repeated_keys
-- The rows of every one of these natural keys that stands more than once, key by key, in file order.
SELECT natural_key_hash, row_index, raw_data::text AS raw_data
FROM (
    SELECT natural_key_hash, row_index, raw_data, count(*) OVER (PARTITION BY natural_key_hash) AS rows
    FROM staging_rows
    WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = 'daily_metric'
      AND validation_status = 'valid' AND natural_key_hash = ANY(CAST(:keys AS text[]))
) keyed
WHERE rows > 1
ORDER BY natural_key_hash, row_index;

-- name: settle_rows!
-- These rows are carried by another row of their key, or say something new of those that they carry, or are
-- invalid after all: {row_index: {into?, said?, errors?}}. Looked up row by row, and not joined: what the planner
-- thinks of how many rows of the upload there are, in a day that has just begun or is full of others', is wrong.
UPDATE staging_rows s
SET merged_into = (settled -> s.row_index::text ->> 'into')::integer,
    raw_data = s.raw_data || coalesce(settled -> s.row_index::text -> 'said', '{}'),
    validation_status = CASE WHEN settled -> s.row_index::text ? 'errors' THEN 'invalid' ELSE s.validation_status END,
    validation_errors = settled -> s.row_index::text -> 'errors'
FROM (SELECT CAST(:settled AS jsonb) AS settled) given
WHERE s.staged_on = :staged_on AND s.upload_id = :upload_id AND s.entity_type = 'daily_metric'
  AND s.row_index = ANY(CAST(:row_indexes AS integer[]));

-- name: drop_subtotals!
-- These rows are subtotals of others, and no data.
DELETE FROM staging_rows
WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = 'daily_metric'
  AND row_index = ANY(CAST(:row_indexes AS integer[]));

-- name: count_rejects
-- For each code the number of rejected rows (by their first error), and the first of them.
SELECT validation_errors -> 'errors' -> 0 ->> 'code' AS code, count(*) AS rows,
       min(row_index) AS first_row,
       (array_agg((validation_errors ->> 'line')::integer ORDER BY row_index))[1] AS first_line
FROM staging_rows
WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = 'daily_metric'
  AND validation_status = 'invalid'
GROUP BY 1
ORDER BY first_row;

-- Promotion ------------------------------------------------------------------------------------

-- name: set_promoting^
-- What was written is committed with this row; none when the upload is another owner's, or has not come as
-- far as where that begins, or farther.
UPDATE data_uploads
SET promoting_type = :entity_type, promoting_row = :last_row,
    promoted_rows = promoted_rows + :promoted, failed_rows = failed_rows + :failed,
    upserted = upserted || (
        SELECT coalesce(jsonb_object_agg(name, rows::integer + coalesce((upserted ->> name)::integer, 0)), '{}')
        FROM jsonb_each_text(:upserted) added (name, rows)),
    updated_at = clock_timestamp()
WHERE id = :upload_id AND status = 'promoting' AND claim_epoch = :claim_epoch
  AND promoting_type IS NOT DISTINCT FROM :before_type AND promoting_row = :before_row
RETURNING valid_rows, promoted_rows, failed_rows;

-- name: add_warning!
-- The report tells of it, once.
UPDATE data_uploads
SET report = report || jsonb_build_object(
    'warnings', coalesce(report -> 'warnings', '[]') || jsonb_build_array(CAST(:code AS text)))
WHERE id = :upload_id AND claim_epoch = :claim_epoch AND NOT coalesce(report -> 'warnings', '[]') ? :code;

-- name: promotion_progress^
-- What is committed to production; no row when the upload is another owner's.
SELECT promoting_type, promoting_row FROM data_uploads
WHERE id = :upload_id AND status = 'promoting' AND claim_epoch = :claim_epoch;

-- name: staged_entities
-- The next staged entities of one type, in file order, with their parents' production ids.
WITH batch AS MATERIALIZED (
    SELECT s.row_index, s.raw_data AS d
    FROM staging_rows s
    WHERE s.staged_on = :staged_on AND s.upload_id = :upload_id AND s.entity_type = :entity_type
      AND s.row_index > :after_row AND (NOT :only_failed OR (
          SELECT r.resolved_id IS NULL FROM staging_id_resolution r
          WHERE r.staged_on = :staged_on AND r.upload_id = :upload_id AND r.entity_type = :entity_type
            AND r.row_index = s.row_index))
    ORDER BY s.row_index
    LIMIT :limit
), parented AS (
    -- One by one, and not as joins: what the planner knows of a day's staging is old, or nothing.
    SELECT b.row_index, b.d,
           (SELECT r FROM staging_id_resolution r
            WHERE r.staged_on = :staged_on AND r.upload_id = :upload_id AND r.entity_type = 'campaign'
              AND r.row_index = (b.d ->> 'campaign')::integer) AS c,
           (SELECT r FROM staging_id_resolution r
            WHERE r.staged_on = :staged_on AND r.upload_id = :upload_id AND r.entity_type = 'ad_set'
              AND r.row_index = (b.d ->> 'ad_set')::integer) AS a
    FROM batch b
    OFFSET 0
)
SELECT row_index, d ->> 'external_id' AS external_id, d ->> 'id_source' AS id_source, d ->> 'name' AS name,
       d ->> 'status' AS status, d ->> 'account' AS account, (c).resolved_id AS campaign_id,
       (a).resolved_id AS ad_set_id, coalesce((c).error_code, (a).error_code) AS parent_error
FROM parented
ORDER BY row_index;

-- name: batches_of_entities^
-- The last rows of the batches of so many that the staged entities of one type make, whether one of them is known
-- by its name alone, and whether one may be named twice: numbers are compared, which is done much sooner than texts.
SELECT coalesce(array_agg(row_index ORDER BY row_index) FILTER (WHERE mod(number, :limit) = 0 OR following IS NULL), '{}')
           AS ends,
       coalesce(bool_or(by_name), false) AS by_name, count(*) > count(DISTINCT key) AS repeated
FROM (
    SELECT s.row_index, s.raw_data ->> 'id_source' = 'name' AS by_name,
           hashtextextended(s.natural_key_hash, 0) AS key,
           row_number() OVER (ORDER BY s.row_index) AS number, lead(s.row_index) OVER (ORDER BY s.row_index) AS following
    FROM staging_rows s
    WHERE s.staged_on = :staged_on AND s.upload_id = :upload_id AND s.entity_type = :entity_type
      AND s.row_index > :after_row AND (NOT :only_failed OR (
          SELECT r.resolved_id IS NULL FROM staging_id_resolution r
          WHERE r.staged_on = :staged_on AND r.upload_id = :upload_id AND r.entity_type = :entity_type
            AND r.row_index = s.row_index))
) numbered;

-- name: fail_entity_batch!
-- The staged entities of this range are no production rows, for this reason.
UPDATE staging_id_resolution SET error_code = :code
WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = :entity_type
  AND row_index > :after_row AND row_index <= :last_row AND resolved_id IS NULL;

-- name: claimed_names
-- For each of these names how many platform ids of this upload claim it, below which parents.
SELECT s.raw_data ->> 'name' AS name, c.resolved_id AS campaign_id, a.resolved_id AS ad_set_id,
       count(DISTINCT s.raw_data ->> 'external_id') AS ids
FROM staging_rows s
LEFT JOIN staging_id_resolution c ON c.staged_on = s.staged_on AND c.upload_id = s.upload_id
    AND c.entity_type = 'campaign' AND c.row_index = (s.raw_data ->> 'campaign')::integer
LEFT JOIN staging_id_resolution a ON a.staged_on = s.staged_on AND a.upload_id = s.upload_id
    AND a.entity_type = 'ad_set' AND a.row_index = (s.raw_data ->> 'ad_set')::integer
WHERE s.staged_on = :staged_on AND s.upload_id = :upload_id AND s.entity_type = :entity_type
  AND s.raw_data ->> 'id_source' = 'platform' AND s.raw_data ->> 'name' = ANY(CAST(:names AS text[]))
GROUP BY 1, 2, 3;

-- name: save_resolutions!
-- These staged entities are these production rows, or none, for the reason given. The range keeps the planner,
-- which knows nothing of a day that has just begun, from reading all of the upload's for each batch.
UPDATE staging_id_resolution r SET resolved_id = m.resolved_id, error_code = m.error_code
FROM unnest(CAST(:row_indexes AS integer[]), CAST(:resolved_ids AS bigint[]), CAST(:error_codes AS text[]))
    m (row_index, resolved_id, error_code)
WHERE r.staged_on = :staged_on AND r.upload_id = :upload_id AND r.entity_type = :entity_type
  AND r.row_index BETWEEN :first_row AND :last_row AND r.row_index = m.row_index;

-- name: forget_missing!
-- What this upload resolved and production has no more is resolved no longer.
UPDATE staging_id_resolution r SET resolved_id = NULL, error_code = 'foreign_key_missing'
WHERE r.staged_on = :staged_on AND r.upload_id = :upload_id AND r.resolved_id IS NOT NULL
  AND NOT CASE r.entity_type
      WHEN 'campaign' THEN EXISTS (SELECT FROM campaigns t WHERE t.id = r.resolved_id)
      WHEN 'ad_set' THEN EXISTS (SELECT FROM ad_sets t WHERE t.id = r.resolved_id)
      WHEN 'ad' THEN EXISTS (SELECT FROM ads t WHERE t.id = r.resolved_id) END;

-- Whom an upload means, by external ids and by names: each is looked for by itself, in the index that is made for
-- it. Whose they are comes by sub-select: a workspace that the planner is told by its name, and has not met, is an
-- empty one to it, of which it would rather read all there is, each time.

-- name: find_campaigns
-- Campaigns under one of these external ids or names.
SELECT id, external_id, id_source, name, NULL::bigint AS campaign_id, NULL::bigint AS ad_set_id,
       account_external_id AS account
FROM unnest(CAST(:external_ids AS text[])) wanted (id_there)
CROSS JOIN LATERAL (
    SELECT * FROM campaigns
    WHERE workspace_id = (SELECT CAST(:workspace_id AS uuid)) AND platform = (SELECT CAST(:platform AS text)) AND external_id = id_there
      AND (client_id = CAST(:client_id AS uuid) OR CAST(:client_id AS uuid) IS NULL AND client_id IS NULL)
    OFFSET 0) found
UNION
SELECT id, external_id, id_source, name, NULL, NULL, account_external_id
FROM unnest(CAST(:names AS text[])) wanted (name_there)
CROSS JOIN LATERAL (
    SELECT * FROM campaigns
    WHERE workspace_id = (SELECT CAST(:workspace_id AS uuid)) AND platform = (SELECT CAST(:platform AS text)) AND md5(name) = md5(name_there)
    OFFSET 0) found
WHERE client_id IS NOT DISTINCT FROM CAST(:client_id AS uuid);

-- name: find_ad_sets
-- Ad sets under one of these external ids, or under one of these names of these campaigns, pair by pair.
SELECT id, external_id, id_source, name, campaign_id, NULL::bigint AS ad_set_id, NULL AS account
FROM unnest(CAST(:external_ids AS text[])) wanted (id_there)
CROSS JOIN LATERAL (
    SELECT * FROM ad_sets
    WHERE workspace_id = (SELECT CAST(:workspace_id AS uuid)) AND platform = (SELECT CAST(:platform AS text)) AND external_id = id_there
      AND (client_id = CAST(:client_id AS uuid) OR CAST(:client_id AS uuid) IS NULL AND client_id IS NULL)
    OFFSET 0) found
UNION
SELECT id, external_id, id_source, name, campaign_id, NULL, NULL
FROM unnest(CAST(:campaign_ids AS bigint[]), CAST(:names AS text[])) wanted (of_campaign, name_there)
CROSS JOIN LATERAL (
    SELECT * FROM ad_sets WHERE campaign_id = of_campaign AND md5(name) = md5(name_there) OFFSET 0) found
WHERE platform = :platform AND client_id IS NOT DISTINCT FROM CAST(:client_id AS uuid);

-- name: find_ads
-- Ads under one of these external ids, or under one of these names of these campaigns and ad sets, one by one.
SELECT id, external_id, id_source, name, campaign_id, ad_set_id, NULL AS account
FROM unnest(CAST(:external_ids AS text[])) wanted (id_there)
CROSS JOIN LATERAL (
    SELECT * FROM ads
    WHERE workspace_id = (SELECT CAST(:workspace_id AS uuid)) AND platform = (SELECT CAST(:platform AS text)) AND external_id = id_there
      AND (client_id = CAST(:client_id AS uuid) OR CAST(:client_id AS uuid) IS NULL AND client_id IS NULL)
    OFFSET 0) found
UNION
SELECT id, external_id, id_source, name, campaign_id, ad_set_id, NULL
FROM unnest(CAST(:campaign_ids AS bigint[]), CAST(:ad_set_ids AS bigint[]), CAST(:names AS text[]))
    wanted (of_campaign, of_ad_set, name_there)
CROSS JOIN LATERAL (
    SELECT * FROM ads
    WHERE campaign_id = of_campaign AND ad_set_id = of_ad_set AND md5(name) = md5(name_there)
    UNION ALL
    SELECT * FROM ads
    WHERE campaign_id = of_campaign AND ad_set_id IS NULL AND of_ad_set IS NULL AND md5(name) = md5(name_there)
    OFFSET 0) found
WHERE platform = :platform AND client_id IS NOT DISTINCT FROM CAST(:client_id AS uuid);

-- name: create_campaigns
-- New campaigns, with what this upload says of them.
INSERT INTO campaigns (workspace_id, client_id, platform, external_id, id_source, name, name_as_of, status,
                       status_as_of, account_external_id, account_as_of, upload_id, as_of)
SELECT :workspace_id, :client_id, :platform, n.external_id, n.id_source,
       n.name, CASE WHEN n.name IS NOT NULL THEN :as_of END,
       n.status, CASE WHEN n.status IS NOT NULL THEN :as_of END,
       n.account, CASE WHEN n.account IS NOT NULL THEN :as_of END, :upload_id, :as_of
FROM unnest(CAST(:external_ids AS text[]), CAST(:id_sources AS text[]), CAST(:names AS text[]),
            CAST(:statuses AS text[]), CAST(:accounts AS text[]))
    n (external_id, id_source, name, status, account)
RETURNING id, external_id;

-- name: create_ad_sets
-- New ad sets, with what this upload says of them.
INSERT INTO ad_sets (workspace_id, client_id, platform, external_id, id_source, name, name_as_of, status,
                     status_as_of, campaign_id, parent_as_of, upload_id, as_of)
SELECT :workspace_id, :client_id, :platform, n.external_id, n.id_source,
       n.name, CASE WHEN n.name IS NOT NULL THEN :as_of END,
       n.status, CASE WHEN n.status IS NOT NULL THEN :as_of END,
       n.campaign_id, CASE WHEN n.campaign_id IS NOT NULL THEN :as_of END, :upload_id, :as_of
FROM unnest(CAST(:external_ids AS text[]), CAST(:id_sources AS text[]), CAST(:names AS text[]),
            CAST(:statuses AS text[]), CAST(:campaign_ids AS bigint[]))
    n (external_id, id_source, name, status, campaign_id)
RETURNING id, external_id;

-- name: create_ads
-- New ads, with what this upload says of them.
INSERT INTO ads (workspace_id, client_id, platform, external_id, id_source, name, name_as_of, status,
                 status_as_of, campaign_id, parent_as_of, ad_set_id, ad_set_as_of, upload_id, as_of)
SELECT :workspace_id, :client_id, :platform, n.external_id, n.id_source,
       n.name, CASE WHEN n.name IS NOT NULL THEN :as_of END,
       n.status, CASE WHEN n.status IS NOT NULL THEN :as_of END,
       n.campaign_id, CASE WHEN n.campaign_id IS NOT NULL THEN :as_of END,
       n.ad_set_id, CASE WHEN n.ad_set_id IS NOT NULL THEN :as_of END, :upload_id, :as_of
FROM unnest(CAST(:external_ids AS text[]), CAST(:id_sources AS text[]), CAST(:names AS text[]),
            CAST(:statuses AS text[]), CAST(:campaign_ids AS bigint[]), CAST(:ad_set_ids AS bigint[]))
    n (external_id, id_source, name, status, campaign_id, ad_set_id)
RETURNING id, external_id;

-- name: adopt_campaigns!
-- Campaigns that were known by name get their platform's id.
UPDATE campaigns t SET external_id = n.external_id, id_source = 'platform', updated_at = now()
FROM unnest(CAST(:ids AS bigint[]), CAST(:external_ids AS text[])) n (id, external_id)
WHERE t.id = n.id AND t.id_source = 'name';

-- name: adopt_ad_sets!
-- Ad sets that were known by name get their platform's id.
UPDATE ad_sets t SET external_id = n.external_id, id_source = 'platform', updated_at = now()
FROM unnest(CAST(:ids AS bigint[]), CAST(:external_ids AS text[])) n (id, external_id)
WHERE t.id = n.id AND t.id_source = 'name';

-- name: adopt_ads!
-- Ads that were known by name get their platform's id.
UPDATE ads t SET external_id = n.external_id, id_source = 'platform', updated_at = now()
FROM unnest(CAST(:ids AS bigint[]), CAST(:external_ids AS text[])) n (id, external_id)
WHERE t.id = n.id AND t.id_source = 'name';

-- name: describe_campaigns!
-- What the newest upload says of each campaign stands; an attribute it does not name stays.
UPDATE campaigns t
SET name = CASE WHEN n.name IS NOT NULL AND (t.name_as_of IS NULL OR t.name_as_of <= :as_of)
                THEN n.name ELSE t.name END,
    name_as_of = CASE WHEN n.name IS NOT NULL THEN greatest(t.name_as_of, :as_of) ELSE t.name_as_of END,
    status = CASE WHEN n.status IS NOT NULL AND (t.status_as_of IS NULL OR t.status_as_of <= :as_of)
                  THEN n.status ELSE t.status END,
    status_as_of = CASE WHEN n.status IS NOT NULL THEN greatest(t.status_as_of, :as_of)
                        ELSE t.status_as_of END,
    account_external_id = CASE
        WHEN n.account IS NOT NULL AND (t.account_as_of IS NULL OR t.account_as_of <= :as_of)
        THEN n.account ELSE t.account_external_id END,
    account_as_of = CASE WHEN n.account IS NOT NULL THEN greatest(t.account_as_of, :as_of)
                         ELSE t.account_as_of END,
    upload_id = CASE WHEN t.as_of <= :as_of THEN :upload_id ELSE t.upload_id END,
    as_of = greatest(t.as_of, :as_of), updated_at = now()
FROM unnest(CAST(:ids AS bigint[]), CAST(:names AS text[]), CAST(:statuses AS text[]),
            CAST(:accounts AS text[])) n (id, name, status, account)
WHERE t.id = n.id;

-- name: describe_ad_sets!
-- What the newest upload says of each ad set stands; an attribute it does not name stays.
UPDATE ad_sets t
SET name = CASE WHEN n.name IS NOT NULL AND (t.name_as_of IS NULL OR t.name_as_of <= :as_of)
                THEN n.name ELSE t.name END,
    name_as_of = CASE WHEN n.name IS NOT NULL THEN greatest(t.name_as_of, :as_of) ELSE t.name_as_of END,
    status = CASE WHEN n.status IS NOT NULL AND (t.status_as_of IS NULL OR t.status_as_of <= :as_of)
                  THEN n.status ELSE t.status END,
    status_as_of = CASE WHEN n.status IS NOT NULL THEN greatest(t.status_as_of, :as_of)
                        ELSE t.status_as_of END,
    campaign_id = CASE WHEN n.campaign_id IS NOT NULL AND (t.parent_as_of IS NULL OR t.parent_as_of <= :as_of)
                       THEN n.campaign_id ELSE t.campaign_id END,
    parent_as_of = CASE WHEN n.campaign_id IS NOT NULL THEN greatest(t.parent_as_of, :as_of)
                        ELSE t.parent_as_of END,
    upload_id = CASE WHEN t.as_of <= :as_of THEN :upload_id ELSE t.upload_id END,
    as_of = greatest(t.as_of, :as_of), updated_at = now()
FROM unnest(CAST(:ids AS bigint[]), CAST(:names AS text[]), CAST(:statuses AS text[]),
            CAST(:campaign_ids AS bigint[])) n (id, name, status, campaign_id)
WHERE t.id = n.id;

-- name: describe_ads!
-- What the newest upload says of each ad stands; an attribute it does not name stays.
UPDATE ads t
SET name = CASE WHEN n.name IS NOT NULL AND (t.name_as_of IS NULL OR t.name_as_of <= :as_of)
                THEN n.name ELSE t.name END,
    name_as_of = CASE WHEN n.name IS NOT NULL THEN greatest(t.name_as_of, :as_of) ELSE t.name_as_of END,
    status = CASE WHEN n.status IS NOT NULL AND (t.status_as_of IS NULL OR t.status_as_of <= :as_of)
                  THEN n.status ELSE t.status END,
    status_as_of = CASE WHEN n.status IS NOT NULL THEN greatest(t.status_as_of, :as_of)
                        ELSE t.status_as_of END,
    campaign_id = CASE WHEN n.campaign_id IS NOT NULL AND (t.parent_as_of IS NULL OR t.parent_as_of <= :as_of)
                       THEN n.campaign_id ELSE t.campaign_id END,
    parent_as_of = CASE WHEN n.campaign_id IS NOT NULL THEN greatest(t.parent_as_of, :as_of)
                        ELSE t.parent_as_of END,
    ad_set_id = CASE WHEN n.ad_set_id IS NOT NULL AND (t.ad_set_as_of IS NULL OR t.ad_set_as_of <= :as_of)
                     THEN n.ad_set_id ELSE t.ad_set_id END,
    ad_set_as_of = CASE WHEN n.ad_set_id IS NOT NULL THEN greatest(t.ad_set_as_of, :as_of)
                        ELSE t.ad_set_as_of END,
    upload_id = CASE WHEN t.as_of <= :as_of THEN :upload_id ELSE t.upload_id END,
    as_of = greatest(t.as_of, :as_of), updated_at = now()
FROM unnest(CAST(:ids AS bigint[]), CAST(:names AS text[]), CAST(:statuses AS text[]),
            CAST(:campaign_ids AS bigint[]), CAST(:ad_set_ids AS bigint[]))
    n (id, name, status, campaign_id, ad_set_id)
WHERE t.id = n.id;

-- name: promote_daily_metrics^
-- One batch of staged days stands in production, each metric with the newest number there is.
-- Rows whose entities could not be resolved are left out, and counted. A row counts for those that
-- it carries, too.
WITH resolved AS (
    -- One by one, and not as joins: what the planner knows of a day's staging is old, or nothing.
    SELECT s.row_index, s.raw_data AS d,
           (SELECT r.resolved_id FROM staging_id_resolution r
            WHERE r.staged_on = :staged_on AND r.upload_id = :upload_id AND r.entity_type = 'campaign'
              AND r.row_index = (s.raw_data ->> 'campaign')::integer) AS campaign_id,
           (SELECT r.resolved_id FROM staging_id_resolution r
            WHERE r.staged_on = :staged_on AND r.upload_id = :upload_id AND r.entity_type = 'ad_set'
              AND r.row_index = (s.raw_data ->> 'ad_set')::integer) AS ad_set_id,
           (SELECT r.resolved_id FROM staging_id_resolution r
            WHERE r.staged_on = :staged_on AND r.upload_id = :upload_id AND r.entity_type = 'ad'
              AND r.row_index = (s.raw_data ->> 'ad')::integer) AS ad_id
    FROM staging_rows s
    WHERE s.staged_on = :staged_on AND s.upload_id = :upload_id AND s.entity_type = 'daily_metric'
      AND s.row_index > :after_row AND s.row_index <= :last_row AND s.validation_status = 'valid'
      AND s.merged_into IS NULL
      AND (s.promotion_error IS NOT NULL) = :only_failed
    OFFSET 0
), batch AS MATERIALIZED (
    SELECT *, 1 + coalesce((d ->> 'carries')::integer, 0) AS rows,
           -- An ad's day can do without its ad set; without what it is a day of, it is another's.
           campaign_id IS NULL OR ad_id IS NULL AND d ->> 'ad' IS NOT NULL
               OR ad_set_id IS NULL AND ad_id IS NULL AND d ->> 'ad_set' IS NOT NULL AS unresolved
    FROM resolved
), written AS (
    INSERT INTO daily_metrics AS t
        (workspace_id, client_id, platform, metric_date, campaign_id, ad_set_id, ad_id, currency,
         spend, impressions, clicks, link_clicks, reach, conversions, conversion_value, source_rows,
         upload_id, as_of)
    SELECT :workspace_id, :client_id, :platform, (d ->> 'date')::date, campaign_id, ad_set_id, ad_id,
           d ->> 'currency', (d ->> 'spend')::numeric, (d ->> 'impressions')::bigint,
           (d ->> 'clicks')::bigint, (d ->> 'link_clicks')::bigint, (d ->> 'reach')::bigint,
           (d ->> 'conversions')::numeric, (d ->> 'conversion_value')::numeric,
           coalesce((d ->> 'source_rows')::integer, 1), :upload_id, :as_of
    FROM batch
    WHERE NOT unresolved
    -- One order for everybody: two promotions never wait for each other in a circle.
    ORDER BY (d ->> 'date')::date, campaign_id, ad_id, ad_set_id
    ON CONFLICT (workspace_id, campaign_id, metric_date, ad_id, (CASE WHEN ad_id IS NULL THEN ad_set_id END),
                 platform, client_id)
    DO UPDATE SET
        ad_set_id = newest(t.ad_set_id, coalesce(t.metric_as_of[8], t.as_of), excluded.ad_set_id, excluded.as_of)::bigint,
        spend = newest(t.spend, coalesce(t.metric_as_of[1], t.as_of), excluded.spend, excluded.as_of),
        impressions = newest(t.impressions, coalesce(t.metric_as_of[2], t.as_of), excluded.impressions, excluded.as_of),
        clicks = newest(t.clicks, coalesce(t.metric_as_of[3], t.as_of), excluded.clicks, excluded.as_of),
        link_clicks = newest(t.link_clicks, coalesce(t.metric_as_of[4], t.as_of), excluded.link_clicks, excluded.as_of),
        reach = newest(t.reach, coalesce(t.metric_as_of[5], t.as_of), excluded.reach, excluded.as_of),
        conversions = newest(t.conversions, coalesce(t.metric_as_of[6], t.as_of), excluded.conversions, excluded.as_of),
        conversion_value = newest(t.conversion_value, coalesce(t.metric_as_of[7], t.as_of), excluded.conversion_value, excluded.as_of),
        -- The currency is that of the spend; where neither has one, that of the newer row.
        currency = CASE
            WHEN t.spend IS NULL AND excluded.spend IS NULL THEN
                CASE WHEN excluded.as_of > t.as_of THEN excluded.currency ELSE t.currency END
            WHEN excluded.spend IS NULL
                 OR t.spend IS NOT NULL AND coalesce(t.metric_as_of[1], t.as_of) >= excluded.as_of
            THEN t.currency ELSE excluded.currency END,
        metric_as_of = nullif(ARRAY[
            newest_at(t.spend, coalesce(t.metric_as_of[1], t.as_of), excluded.spend, excluded.as_of),
            newest_at(t.impressions, coalesce(t.metric_as_of[2], t.as_of), excluded.impressions, excluded.as_of),
            newest_at(t.clicks, coalesce(t.metric_as_of[3], t.as_of), excluded.clicks, excluded.as_of),
            newest_at(t.link_clicks, coalesce(t.metric_as_of[4], t.as_of), excluded.link_clicks, excluded.as_of),
            newest_at(t.reach, coalesce(t.metric_as_of[5], t.as_of), excluded.reach, excluded.as_of),
            newest_at(t.conversions, coalesce(t.metric_as_of[6], t.as_of), excluded.conversions, excluded.as_of),
            newest_at(t.conversion_value, coalesce(t.metric_as_of[7], t.as_of), excluded.conversion_value, excluded.as_of),
            newest_at(t.ad_set_id, coalesce(t.metric_as_of[8], t.as_of), excluded.ad_set_id, excluded.as_of)],
            array_fill(greatest(t.as_of, excluded.as_of), ARRAY[8])),
        source_rows = CASE WHEN excluded.as_of > t.as_of THEN excluded.source_rows ELSE t.source_rows END,
        upload_id = CASE WHEN excluded.as_of > t.as_of THEN excluded.upload_id ELSE t.upload_id END,
        as_of = greatest(t.as_of, excluded.as_of),
        updated_at = now()
    RETURNING 1
)
SELECT (SELECT count(*) FROM written) AS upserted,
       (SELECT coalesce(sum(rows), 0) FROM batch WHERE NOT unresolved)::integer AS promoted,
       (SELECT coalesce(sum(rows), 0) FROM batch WHERE unresolved)::integer AS failed,
       (SELECT array_agg(row_index) FROM batch WHERE unresolved) AS unresolved_rows;

-- name: explain_unresolved!
-- These rows, and those that they carry, are marked with the reason why they are not in production.
UPDATE staging_rows s
SET promotion_error = coalesce(
    (SELECT r.error_code FROM staging_id_resolution r
     WHERE r.staged_on = s.staged_on AND r.upload_id = s.upload_id AND r.error_code IS NOT NULL
       AND (r.entity_type, r.row_index) IN (
           ('campaign', (s.raw_data ->> 'campaign')::integer),
           ('ad_set', (s.raw_data ->> 'ad_set')::integer), ('ad', (s.raw_data ->> 'ad')::integer))
     LIMIT 1), 'foreign_key_missing')
WHERE s.staged_on = :staged_on AND s.upload_id = :upload_id AND s.entity_type = 'daily_metric'
  AND coalesce(s.merged_into, s.row_index) = ANY(CAST(:row_indexes AS integer[]));

-- name: fail_daily_row!
-- This row, and those that it carries, are not in production, for this reason.
UPDATE staging_rows SET promotion_error = :code
WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = 'daily_metric'
  AND validation_status = 'valid' AND coalesce(merged_into, row_index) = :row_index;

-- name: fail_daily_batch!
-- The rows of this range, and those that they carry, are not in production, for this reason.
UPDATE staging_rows SET promotion_error = :code
WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = 'daily_metric'
  AND validation_status = 'valid'
  AND coalesce(merged_into, row_index) > :after_row AND coalesce(merged_into, row_index) <= :last_row;

-- name: clear_promotion_errors!
-- The failed rows of this range, and those that they carry, are in production after all.
UPDATE staging_rows SET promotion_error = NULL
WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = 'daily_metric'
  AND coalesce(merged_into, row_index) > :after_row AND coalesce(merged_into, row_index) <= :last_row
  AND promotion_error IS NOT NULL;

-- name: affected_dates$
-- The days that this upload wrote, in order.
SELECT coalesce(array_agg(day::date ORDER BY day), '{}') FROM (
    SELECT DISTINCT raw_data ->> 'date' AS day
    FROM staging_rows
    WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = 'daily_metric'
      AND validation_status = 'valid' AND merged_into IS NULL AND promotion_error IS NULL) days;

-- Cleanup --------------------------------------------------------------------------------------

-- name: expired_staging_days
-- Days whose staging may go.
SELECT day FROM expired_staging_days(:keep_days) AS day;

-- name: drop_staging_day$
-- The day's staging is gone; false when an upload has taken it into use.
SELECT drop_staging_day(:day, :keep_days);

-- Questions ------------------------------------------------------------------------------------

-- name: get_upload^
-- One upload of the transaction's workspace.
SELECT * FROM data_uploads WHERE id = :upload_id;

-- name: upload_workspace$
-- The workspace that an upload belongs to.
SELECT workspace_id FROM data_uploads WHERE id = :upload_id;

-- name: list_uploads
-- Uploads of the transaction's workspace, newest first; every filter that is NULL is off.
SELECT * FROM data_uploads
WHERE (CAST(:client_id AS uuid) IS NULL OR client_id = :client_id)
  AND (CAST(:platform AS text) IS NULL OR platform = :platform)
  AND (CAST(:status AS text) IS NULL OR status = :status)
  AND (CAST(:from_time AS timestamptz) IS NULL OR created_at >= :from_time)
  AND (CAST(:to_time AS timestamptz) IS NULL OR created_at < :to_time)
  AND (CAST(:before AS timestamptz) IS NULL OR created_at < :before)
ORDER BY created_at DESC
LIMIT :limit;

-- name: upload_history
-- What happened to the upload, in order.
SELECT action, from_status, to_status, at, owner_id, claim_epoch, why FROM audit
WHERE upload_id = :upload_id
ORDER BY id;

-- name: rejected_rows
-- Rejected rows and rows that failed promotion, in file order.
SELECT row_index, validation_errors, promotion_error, raw_data FROM staging_rows
WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = 'daily_metric'
  AND row_index > :after_row
  AND (validation_status = 'invalid' OR promotion_error IS NOT NULL)
ORDER BY row_index
LIMIT :limit;

-- name: performance
-- Sums of the deepest grain, grouped as asked, for each currency.
SELECT CASE WHEN 'day' = ANY(:by) THEN p.metric_date END AS day,
       CASE WHEN 'platform' = ANY(:by) THEN p.platform END AS platform,
       CASE WHEN 'campaign' = ANY(:by) THEN c.external_id END AS campaign_id,
       CASE WHEN 'campaign' = ANY(:by) THEN c.name END AS campaign,
       p.currency, sum(p.spend) AS spend, sum(p.impressions)::bigint AS impressions,
       sum(p.clicks)::bigint AS clicks, sum(p.link_clicks)::bigint AS link_clicks,
       sum(p.conversions) AS conversions, sum(p.conversion_value) AS conversion_value,
       count(*) AS rows
FROM daily_performance p JOIN campaigns c ON c.id = p.campaign_id
WHERE (CAST(:client_id AS uuid) IS NULL OR p.client_id = :client_id)
  AND (CAST(:platform AS text) IS NULL OR p.platform = :platform)
  AND (CAST(:from_date AS date) IS NULL OR p.metric_date >= :from_date)
  AND (CAST(:to_date AS date) IS NULL OR p.metric_date <= :to_date)
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 5
LIMIT :limit;

-- Pages ----------------------------------------------------------------------------------------

-- name: workspaces
-- Every workspace, the one that was used last first (for a role that sees them all).
SELECT w.id, (SELECT max(u.created_at) FROM data_uploads u WHERE u.workspace_id = w.id) AS last_upload_at
FROM workspaces w
ORDER BY last_upload_at DESC NULLS LAST, w.created_at DESC
LIMIT :limit;

-- name: clients
-- The clients of the transaction's workspace, the one used last first.
SELECT client_id AS id, count(*) AS uploads, max(created_at) AS last_upload_at
FROM data_uploads
WHERE client_id IS NOT NULL
GROUP BY client_id
ORDER BY last_upload_at DESC
LIMIT :limit;

-- name: readings
-- Uploads of the same content for the same client, whatever was said about them, oldest first.
SELECT o.id, o.status, o.created_at, o.platform, o.currency, o.date_order, o.decimal_mark, o.error_code
FROM data_uploads u
JOIN data_uploads o ON o.workspace_id = u.workspace_id AND o.sha256 = u.sha256
    AND o.client_id IS NOT DISTINCT FROM u.client_id
WHERE u.id = :upload_id
ORDER BY o.created_at
LIMIT :limit;

-- name: promotion_errors
-- For each reason the number of valid rows of an upload that are not in production for it.
SELECT promotion_error AS code, count(*) AS rows
FROM staging_rows
WHERE staged_on = :staged_on AND upload_id = :upload_id AND entity_type = 'daily_metric'
  AND validation_status = 'valid' AND promotion_error IS NOT NULL
GROUP BY promotion_error
ORDER BY rows DESC, code;

-- name: upload_progress^
-- How far an upload has come: its counts, for how long it has been in its state, and how many of its
-- workspace wait before it.
SELECT u.id, u.status, u.file_url, u.size_bytes, u.staged_rows, u.total_rows, u.valid_rows,
       u.promoted_rows, u.failed_rows, u.attempts, u.only_failed, u.owner_id IS NOT NULL AS owned,
       u.report -> 'plan' ->> 'kind' AS kind, u.updated_at,
       extract(epoch FROM clock_timestamp() - coalesce(
           (SELECT max(a.at) FROM audit a WHERE a.upload_id = u.id AND a.to_status = u.status
              AND a.action IN ('moved', 'created', 'requeued')), u.created_at))::float AS seconds,
       CASE WHEN u.status = 'pending' THEN
           (SELECT count(*) FROM data_uploads o WHERE o.status = 'pending' AND o.created_at < u.created_at)
       ELSE 0 END AS ahead
FROM data_uploads u
WHERE u.id = :upload_id;

-- name: performance_span^
-- The first and the last day that there is data about.
SELECT min(metric_date) AS first_day, max(metric_date) AS last_day
FROM daily_metrics
WHERE (CAST(:client_id AS uuid) IS NULL OR client_id = :client_id)
  AND (CAST(:platform AS text) IS NULL OR platform = :platform);
