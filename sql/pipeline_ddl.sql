-- The status of every shard of every file of events on its way through the pipeline. It lives in a
-- database of its own and is applied whenever a server of the pipeline starts: each statement leaves
-- what is there already as it is.

-- Of several servers that start at once one makes the tables, and the others wait.
SELECT pg_advisory_xact_lock(4051);

CREATE TABLE IF NOT EXISTS pipeline_tracking (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    filename   text COLLATE "C" NOT NULL,
    shard      integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),

    event_ingest_status           text NOT NULL DEFAULT 'new',
    event_ingest_attempt          integer NOT NULL DEFAULT 0,  -- how often it was started
    event_ingest_worker_id        text,
    event_ingest_lease_token      uuid,         -- of whoever holds the stage, or held it last
    event_ingest_lease_expires_at timestamptz,  -- NULL: held without a lease, or by nobody
    event_ingest_started_at       timestamptz,
    event_ingest_finished_at      timestamptz,
    event_ingest_error_code       text,
    event_ingest_error_message    text,

    shard_splitter_status           text NOT NULL DEFAULT 'new',
    shard_splitter_attempt          integer NOT NULL DEFAULT 0,  -- how often it was started
    shard_splitter_worker_id        text,
    shard_splitter_lease_token      uuid,         -- of whoever holds the stage, or held it last
    shard_splitter_lease_expires_at timestamptz,  -- NULL: held without a lease, or by nobody
    shard_splitter_started_at       timestamptz,
    shard_splitter_finished_at      timestamptz,
    shard_splitter_error_code       text,
    shard_splitter_error_message    text,

    shard_worker_status           text NOT NULL DEFAULT 'new',
    shard_worker_attempt          integer NOT NULL DEFAULT 0,  -- how often it was started
    shard_worker_worker_id        text,
    shard_worker_lease_token      uuid,         -- of whoever holds the stage, or held it last
    shard_worker_lease_expires_at timestamptz,  -- NULL: held without a lease, or by nobody
    shard_worker_started_at       timestamptz,
    shard_worker_finished_at      timestamptz,
    shard_worker_error_code       text,
    shard_worker_error_message    text,

    mysql_sender_status           text NOT NULL DEFAULT 'new',
    mysql_sender_attempt          integer NOT NULL DEFAULT 0,  -- how often it was started
    mysql_sender_worker_id        text,
    mysql_sender_lease_token      uuid,         -- of whoever holds the stage, or held it last
    mysql_sender_lease_expires_at timestamptz,  -- NULL: held without a lease, or by nobody
    mysql_sender_started_at       timestamptz,
    mysql_sender_finished_at      timestamptz,
    mysql_sender_error_code       text,
    mysql_sender_error_message    text,

    CONSTRAINT pipeline_tracking_task UNIQUE (filename, shard),
    CONSTRAINT pipeline_tracking_shard CHECK (shard BETWEEN 0 AND 32767),
    CONSTRAINT pipeline_tracking_event_ingest CHECK (event_ingest_status IN ('new', 'started', 'done', 'failed')),
    CONSTRAINT pipeline_tracking_shard_splitter CHECK (shard_splitter_status IN ('new', 'started', 'done', 'failed')),
    CONSTRAINT pipeline_tracking_shard_worker CHECK (shard_worker_status IN ('new', 'started', 'done', 'failed')),
    CONSTRAINT pipeline_tracking_mysql_sender CHECK (mysql_sender_status IN ('new', 'started', 'done', 'failed'))
);

-- What is ready for a stage, in the order in which it is handed out: the cost of a claim does not grow with the table.
CREATE INDEX IF NOT EXISTS shard_splitter_ready ON pipeline_tracking (created_at, id)
    WHERE event_ingest_status = 'done' AND shard_splitter_status = 'new';
CREATE INDEX IF NOT EXISTS shard_worker_ready ON pipeline_tracking (created_at, id)
    WHERE shard_splitter_status = 'done' AND shard_worker_status = 'new';
CREATE INDEX IF NOT EXISTS mysql_sender_ready ON pipeline_tracking (created_at, id)
    WHERE shard_worker_status = 'done' AND mysql_sender_status = 'new';

-- What is at work, by its lease, and by how long it has been at work.
CREATE INDEX IF NOT EXISTS event_ingest_leased ON pipeline_tracking (event_ingest_lease_expires_at)
    WHERE event_ingest_status = 'started' AND event_ingest_lease_expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS event_ingest_started ON pipeline_tracking (event_ingest_started_at) WHERE event_ingest_status = 'started';
CREATE INDEX IF NOT EXISTS event_ingest_failed ON pipeline_tracking (id) WHERE event_ingest_status = 'failed';
CREATE INDEX IF NOT EXISTS shard_splitter_leased ON pipeline_tracking (shard_splitter_lease_expires_at)
    WHERE shard_splitter_status = 'started' AND shard_splitter_lease_expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS shard_splitter_started ON pipeline_tracking (shard_splitter_started_at) WHERE shard_splitter_status = 'started';
CREATE INDEX IF NOT EXISTS shard_splitter_failed ON pipeline_tracking (id) WHERE shard_splitter_status = 'failed';
CREATE INDEX IF NOT EXISTS shard_worker_leased ON pipeline_tracking (shard_worker_lease_expires_at)
    WHERE shard_worker_status = 'started' AND shard_worker_lease_expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS shard_worker_started ON pipeline_tracking (shard_worker_started_at) WHERE shard_worker_status = 'started';
CREATE INDEX IF NOT EXISTS shard_worker_failed ON pipeline_tracking (id) WHERE shard_worker_status = 'failed';
CREATE INDEX IF NOT EXISTS mysql_sender_leased ON pipeline_tracking (mysql_sender_lease_expires_at)
    WHERE mysql_sender_status = 'started' AND mysql_sender_lease_expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS mysql_sender_started ON pipeline_tracking (mysql_sender_started_at) WHERE mysql_sender_status = 'started';
CREATE INDEX IF NOT EXISTS mysql_sender_failed ON pipeline_tracking (id) WHERE mysql_sender_status = 'failed';

-- Every change of a status, written by the transaction that made it. Whoever follows reads by (xid, id), and
-- only what no transaction that is still open can come before.
CREATE TABLE IF NOT EXISTS pipeline_history (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id(),
    filename      text COLLATE "C" NOT NULL,
    shard         integer NOT NULL,
    stage         text NOT NULL,
    from_status   text,  -- NULL: the task was registered
    to_status     text NOT NULL,
    attempt       integer NOT NULL,
    worker_id     text,
    error_code    text,
    error_message text,
    at            timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS pipeline_history_task ON pipeline_history (filename, id);
CREATE INDEX IF NOT EXISTS pipeline_history_followed ON pipeline_history (xid, id);
