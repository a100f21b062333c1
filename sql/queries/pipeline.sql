-- STAGE and BEFORE stand for the columns of one stage and of the one before it: app/pipeline/store.py reads
-- this file once for each stage.

-- name: register^
-- Every one of these shards of the file has a task; how many are new. One whose ingest is to be done again is begun.
WITH inserted AS (
    INSERT INTO pipeline_tracking (
        filename, shard, event_ingest_status, event_ingest_attempt, event_ingest_started_at
    )
    SELECT :filename, shard, 'started', 1, now() FROM unnest(:shards::integer[]) AS shard
    ORDER BY shard  -- two that register the same at once wait for each other, and not in a circle
    ON CONFLICT (filename, shard) DO NOTHING
    RETURNING shard
), waiting AS (
    SELECT id FROM pipeline_tracking
    WHERE filename = :filename AND shard = ANY (:shards::integer[]) AND event_ingest_status = 'new'
    ORDER BY id
    FOR UPDATE
), begun AS (
    UPDATE pipeline_tracking t
    SET event_ingest_status = 'started', event_ingest_attempt = event_ingest_attempt + 1,
        event_ingest_started_at = now(), updated_at = now()
    FROM waiting
    WHERE t.id = waiting.id
    RETURNING shard, event_ingest_attempt
), noted AS (
    INSERT INTO pipeline_history (filename, shard, stage, from_status, to_status, attempt)
    SELECT :filename, shard, 'event-ingest', NULL, 'started', 1 FROM inserted
    UNION ALL
    SELECT :filename, shard, 'event-ingest', 'new', 'started', event_ingest_attempt FROM begun
)
SELECT count(*) AS inserted FROM inserted;

-- name: move_ingest^
-- The ingest of the file, or of one shard, has this status; unless one of its shards cannot move there, which is told.
WITH was AS (
    SELECT id, event_ingest_status AS status FROM pipeline_tracking
    WHERE filename = :filename AND (:shard::integer IS NULL OR shard = :shard)
    ORDER BY id
    FOR UPDATE
), refused AS (
    SELECT status FROM was WHERE status <> ALL (:sources) AND status <> :target
), moved AS (
    UPDATE pipeline_tracking t
    SET event_ingest_status = :target,
        event_ingest_finished_at = CASE WHEN :target IN ('done', 'failed') THEN now() END,
        event_ingest_worker_id = COALESCE(:worker_id, event_ingest_worker_id),
        event_ingest_error_code = :error_code, event_ingest_error_message = :error_message, updated_at = now()
    FROM was
    WHERE t.id = was.id AND was.status = ANY (:sources) AND NOT EXISTS (SELECT FROM refused)
    RETURNING t.*, was.status AS from_status
), noted AS (
    INSERT INTO pipeline_history (
        filename, shard, stage, from_status, to_status, attempt, worker_id, error_code, error_message
    )
    SELECT filename, shard, 'event-ingest', from_status, :target, event_ingest_attempt, event_ingest_worker_id,
           event_ingest_error_code, event_ingest_error_message
    FROM moved
)
SELECT count(*) AS known, (SELECT min(status) FROM refused) AS refused FROM was;

-- name: claim
-- The tasks that wait longest for the stage are this worker's, under a lease.
WITH picked AS (
    SELECT id FROM pipeline_tracking
    WHERE BEFORE_status = 'done' AND STAGE_status = 'new'
    ORDER BY created_at, id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE pipeline_tracking t
    SET STAGE_status = 'started', STAGE_attempt = STAGE_attempt + 1, STAGE_worker_id = :worker_id,
        STAGE_lease_token = gen_random_uuid(),
        STAGE_lease_expires_at = now() + make_interval(secs => :lease_seconds),
        STAGE_started_at = now(), STAGE_finished_at = NULL, STAGE_error_code = NULL, STAGE_error_message = NULL,
        updated_at = now()
    FROM picked
    WHERE t.id = picked.id
    RETURNING t.id, t.filename, t.shard, t.created_at, STAGE_attempt AS attempt, STAGE_worker_id AS worker_id,
              STAGE_lease_token AS lease_token, STAGE_lease_expires_at AS lease_expires_at
), noted AS (
    INSERT INTO pipeline_history (filename, shard, stage, from_status, to_status, attempt, worker_id)
    SELECT filename, shard, :stage, 'new', 'started', attempt, worker_id FROM taken
)
SELECT * FROM taken ORDER BY created_at, id;

-- name: start^
-- This task is at work, under a lease if one is asked for; no row when it is not ready.
WITH taken AS (
    UPDATE pipeline_tracking
    SET STAGE_status = 'started', STAGE_attempt = STAGE_attempt + 1, STAGE_worker_id = :worker_id,
        STAGE_lease_token = CASE WHEN :lease_seconds::integer IS NOT NULL THEN gen_random_uuid() END,
        STAGE_lease_expires_at = now() + make_interval(secs => :lease_seconds),
        STAGE_started_at = now(), STAGE_finished_at = NULL, STAGE_error_code = NULL, STAGE_error_message = NULL,
        updated_at = now()
    WHERE filename = :filename AND shard = :shard AND BEFORE_status = 'done' AND STAGE_status = 'new'
    RETURNING filename, shard, STAGE_attempt AS attempt, STAGE_worker_id AS worker_id,
              STAGE_lease_token AS lease_token, STAGE_lease_expires_at AS lease_expires_at
), noted AS (
    INSERT INTO pipeline_history (filename, shard, stage, from_status, to_status, attempt, worker_id)
    SELECT filename, shard, :stage, 'new', 'started', attempt, worker_id FROM taken
)
SELECT * FROM taken;

-- name: finish^
-- This task's stage is done or has failed; no row when it cannot be, or is not this lease's any more.
WITH was AS (
    SELECT id, STAGE_status AS status FROM pipeline_tracking
    WHERE filename = :filename AND shard = :shard AND STAGE_status = ANY (:sources)
      AND (:lease_token::uuid IS NULL OR STAGE_lease_token = :lease_token)
    FOR UPDATE
), ended AS (
    UPDATE pipeline_tracking t
    SET STAGE_status = :target, STAGE_lease_expires_at = NULL, STAGE_finished_at = now(),
        STAGE_worker_id = COALESCE(:worker_id, STAGE_worker_id), STAGE_error_code = :error_code,
        STAGE_error_message = :error_message, updated_at = now()
    FROM was
    WHERE t.id = was.id
    RETURNING t.filename, t.shard, was.status AS from_status, STAGE_attempt AS attempt,
              STAGE_worker_id AS worker_id,
              extract(epoch FROM STAGE_finished_at - STAGE_started_at)::float8 AS seconds
), noted AS (
    INSERT INTO pipeline_history (
        filename, shard, stage, from_status, to_status, attempt, worker_id, error_code, error_message
    )
    SELECT filename, shard, :stage, from_status, :target, attempt, worker_id, :error_code, :error_message
    FROM ended
)
SELECT * FROM ended;

-- name: retry
-- Failed tasks of the stage wait for it again: one, or all that match.
WITH picked AS (
    SELECT id, STAGE_error_code AS error_code FROM pipeline_tracking
    WHERE STAGE_status = 'failed'
      AND (:filename::text IS NULL OR filename = :filename)
      AND (:shard::integer IS NULL OR shard = :shard)
      AND (:error_code::text IS NULL OR STAGE_error_code = :error_code)
    ORDER BY id
    LIMIT :limit
    FOR UPDATE
), waiting AS (
    UPDATE pipeline_tracking t
    SET STAGE_status = 'new', STAGE_worker_id = NULL, STAGE_lease_token = NULL, STAGE_started_at = NULL,
        STAGE_finished_at = NULL, STAGE_error_code = NULL, STAGE_error_message = NULL, updated_at = now()
    FROM picked
    WHERE t.id = picked.id
    RETURNING t.id, t.filename, t.shard, STAGE_attempt AS attempt, picked.error_code
), noted AS (
    INSERT INTO pipeline_history (filename, shard, stage, from_status, to_status, attempt)
    SELECT filename, shard, :stage, 'failed', 'new', attempt FROM waiting
)
SELECT filename, shard, error_code FROM waiting ORDER BY id;

-- name: failed
-- Failed tasks of the stage that match, and how many there are in all.
SELECT filename, shard, STAGE_error_code AS error_code, count(*) OVER () AS matched
FROM pipeline_tracking
WHERE STAGE_status = 'failed'
  AND (:filename::text IS NULL OR filename = :filename)
  AND (:shard::integer IS NULL OR shard = :shard)
  AND (:error_code::text IS NULL OR STAGE_error_code = :error_code)
ORDER BY id
LIMIT :limit;

-- name: extend_task_lease^
-- The lease of this task ends so much later; no row when it is another's.
UPDATE pipeline_tracking SET STAGE_lease_expires_at = now() + make_interval(secs => :lease_seconds)
WHERE filename = :filename AND shard = :shard AND STAGE_status = 'started' AND STAGE_lease_token = :lease_token
RETURNING STAGE_lease_expires_at AS lease_expires_at;

-- name: return_expired
-- Tasks whose lease has run out wait for the stage again; their attempt is counted.
WITH picked AS (
    SELECT id FROM pipeline_tracking
    WHERE STAGE_status = 'started' AND STAGE_lease_expires_at < now()
    ORDER BY STAGE_lease_expires_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
), waiting AS (
    UPDATE pipeline_tracking t
    SET STAGE_status = 'new', STAGE_worker_id = NULL, STAGE_lease_token = NULL, STAGE_lease_expires_at = NULL,
        STAGE_started_at = NULL, updated_at = now()
    FROM picked, pipeline_tracking old
    WHERE t.id = picked.id AND old.id = picked.id
    RETURNING t.filename, t.shard, t.STAGE_attempt AS attempt, old.STAGE_worker_id AS worker_id
), noted AS (
    INSERT INTO pipeline_history (
        filename, shard, stage, from_status, to_status, attempt, worker_id, error_code
    )
    SELECT filename, shard, :stage, 'started', 'new', attempt, worker_id, :error_code FROM waiting
)
SELECT filename, shard, attempt, worker_id FROM waiting;

-- name: one_task^
-- This task, as it stands.
SELECT * FROM pipeline_tracking WHERE filename = :filename AND shard = :shard;

-- name: queue
-- The tasks that wait for the stage, behind a place in the queue, in the order in which they are handed out.
SELECT id, filename, shard, created_at FROM pipeline_tracking
WHERE BEFORE_status = 'done' AND STAGE_status = 'new'
  AND (:updated_from::timestamptz IS NULL OR updated_at >= :updated_from)
  AND (:updated_to::timestamptz IS NULL OR updated_at <= :updated_to)
  AND (:behind_at::timestamptz IS NULL OR (created_at, id) > (:behind_at, :behind_id))
ORDER BY created_at, id
LIMIT :limit OFFSET :offset;

-- name: shards_of_file
-- Every shard of the file.
SELECT * FROM pipeline_tracking WHERE filename = :filename ORDER BY shard;

-- name: files
-- Files by name, the newest first, behind a name, with how many of their shards stand where.
SELECT filename, count(*) AS shards, min(created_at) AS created_at, max(updated_at) AS updated_at,
       count(*) FILTER (WHERE event_ingest_status = 'new') AS event_ingest_new,
       count(*) FILTER (WHERE event_ingest_status = 'started') AS event_ingest_started,
       count(*) FILTER (WHERE event_ingest_status = 'done') AS event_ingest_done,
       count(*) FILTER (WHERE event_ingest_status = 'failed') AS event_ingest_failed,
       count(*) FILTER (WHERE shard_splitter_status = 'new') AS shard_splitter_new,
       count(*) FILTER (WHERE shard_splitter_status = 'started') AS shard_splitter_started,
       count(*) FILTER (WHERE shard_splitter_status = 'done') AS shard_splitter_done,
       count(*) FILTER (WHERE shard_splitter_status = 'failed') AS shard_splitter_failed,
       count(*) FILTER (WHERE shard_worker_status = 'new') AS shard_worker_new,
       count(*) FILTER (WHERE shard_worker_status = 'started') AS shard_worker_started,
       count(*) FILTER (WHERE shard_worker_status = 'done') AS shard_worker_done,
       count(*) FILTER (WHERE shard_worker_status = 'failed') AS shard_worker_failed,
       count(*) FILTER (WHERE mysql_sender_status = 'new') AS mysql_sender_new,
       count(*) FILTER (WHERE mysql_sender_status = 'started') AS mysql_sender_started,
       count(*) FILTER (WHERE mysql_sender_status = 'done') AS mysql_sender_done,
       count(*) FILTER (WHERE mysql_sender_status = 'failed') AS mysql_sender_failed
FROM pipeline_tracking
WHERE :cursor::text IS NULL OR filename < :cursor
GROUP BY filename
HAVING :status::text IS NULL
    OR bool_or(:status IN (event_ingest_status, shard_splitter_status, shard_worker_status, mysql_sender_status))
ORDER BY filename DESC
LIMIT :limit;

-- name: tasks
-- Tasks that match, in the order of their making, behind an id.
SELECT id, filename, shard, event_ingest_status, shard_splitter_status, shard_worker_status, mysql_sender_status,
       updated_at
FROM pipeline_tracking
WHERE id > :cursor
  AND (:filename::text IS NULL OR filename = :filename)
  AND (:shard::integer IS NULL OR shard = :shard)
  AND (:status::text IS NULL OR STAGE_status = :status)
  AND (:error_code::text IS NULL OR STAGE_error_code = :error_code)
  AND (:updated_from::timestamptz IS NULL OR updated_at >= :updated_from)
  AND (:updated_to::timestamptz IS NULL OR updated_at <= :updated_to)
ORDER BY id
LIMIT :limit;

-- name: stuck
-- Tasks of the stage that are at work for longer than so many seconds, under no lease that still runs.
SELECT filename, shard, STAGE_worker_id AS worker_id, STAGE_started_at AS started_at, STAGE_attempt AS attempt,
       extract(epoch FROM now() - STAGE_started_at)::float8 AS seconds
FROM pipeline_tracking
WHERE STAGE_status = 'started' AND STAGE_started_at < now() - make_interval(secs => :seconds)
  AND (STAGE_lease_expires_at IS NULL OR STAGE_lease_expires_at < now())
ORDER BY STAGE_started_at
LIMIT :limit;

-- name: history
-- What happened to the tasks of the file, the oldest first, behind an id.
SELECT id, shard, stage, from_status, to_status, attempt, worker_id, error_code, error_message, at
FROM pipeline_history
WHERE filename = :filename AND id > :cursor AND (:shard::integer IS NULL OR shard = :shard)
ORDER BY id
LIMIT :limit;

-- name: followed
-- What happened behind a place, as far as nothing can come before it any more.
SELECT xid::text AS xid, id, filename, shard, stage, from_status, to_status, attempt, worker_id, error_code,
       error_message, at
FROM pipeline_history
WHERE (xid, id) > (:behind_xid::xid8, :behind_id) AND xid < pg_snapshot_xmin(pg_current_snapshot())
  AND (:filename::text IS NULL OR filename = :filename)
  AND (:stage::text IS NULL OR stage = :stage)
ORDER BY pipeline_history.xid, id  -- by the number: as text 1000 comes before 999
LIMIT :limit;

-- name: newest_place^
-- The place behind which whoever begins to follow now reads on.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xid;

-- name: summary^
-- How many tasks there are, and how many of them stand where in each stage.
SELECT count(*) AS total,
       count(*) FILTER (WHERE event_ingest_status = 'new') AS event_ingest_new,
       count(*) FILTER (WHERE event_ingest_status = 'started') AS event_ingest_started,
       count(*) FILTER (WHERE event_ingest_status = 'done') AS event_ingest_done,
       count(*) FILTER (WHERE event_ingest_status = 'failed') AS event_ingest_failed,
       count(*) FILTER (WHERE shard_splitter_status = 'new') AS shard_splitter_new,
       count(*) FILTER (WHERE shard_splitter_status = 'started') AS shard_splitter_started,
       count(*) FILTER (WHERE shard_splitter_status = 'done') AS shard_splitter_done,
       count(*) FILTER (WHERE shard_splitter_status = 'failed') AS shard_splitter_failed,
       count(*) FILTER (WHERE shard_worker_status = 'new') AS shard_worker_new,
       count(*) FILTER (WHERE shard_worker_status = 'started') AS shard_worker_started,
       count(*) FILTER (WHERE shard_worker_status = 'done') AS shard_worker_done,
       count(*) FILTER (WHERE shard_worker_status = 'failed') AS shard_worker_failed,
       count(*) FILTER (WHERE mysql_sender_status = 'new') AS mysql_sender_new,
       count(*) FILTER (WHERE mysql_sender_status = 'started') AS mysql_sender_started,
       count(*) FILTER (WHERE mysql_sender_status = 'done') AS mysql_sender_done,
       count(*) FILTER (WHERE mysql_sender_status = 'failed') AS mysql_sender_failed
FROM pipeline_tracking;

-- name: by_shard
-- How many tasks each shard has, and how many of them have been sent or could not be.
SELECT shard, count(*) AS total, count(*) FILTER (WHERE mysql_sender_status = 'done') AS done,
       count(*) FILTER (WHERE mysql_sender_status = 'failed') AS failed
FROM pipeline_tracking
GROUP BY shard
ORDER BY shard;

-- name: oldest_ready$
-- For how many seconds the task that waits longest for the stage has waited; NULL: none waits.
SELECT extract(epoch FROM now() - min(created_at))::float8 FROM pipeline_tracking
WHERE BEFORE_status = 'done' AND STAGE_status = 'new';
