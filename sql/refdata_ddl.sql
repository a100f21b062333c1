-- What the platform of reference data keeps beside the dictionaries, in the database where a dictionary's
-- own tables are: so one transaction covers the data, its version, the request and the announcement. Applied
-- when a process starts; each statement leaves what is there already as it is.

-- Of several processes that start at once one makes the tables, and the others wait.
SELECT pg_advisory_xact_lock(4052);

CREATE SCHEMA IF NOT EXISTS refdata;

-- One row: which history of versions this is. After a restore it is renewed, since versions have gone back.
CREATE TABLE IF NOT EXISTS refdata.installation (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch      uuid NOT NULL DEFAULT gen_random_uuid(),
    tables     integer NOT NULL  -- of which release the tables are
);

-- The version of each dictionary: the only one that a barrier asks for (section 7).
CREATE TABLE IF NOT EXISTS refdata.dictionary_meta (
    tenant_id            text COLLATE "C" NOT NULL,
    dict_code            text COLLATE "C" NOT NULL,
    version              bigint NOT NULL,
    last_source_revision bigint,
    updated_at           timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, dict_code)
);

-- A dictionary that somebody has pinned takes no changes, but for the snapshot that it waits for.
ALTER TABLE refdata.dictionary_meta
    ADD COLUMN IF NOT EXISTS pinned_at  timestamptz,
    ADD COLUMN IF NOT EXISTS pin_reason text,
    ADD COLUMN IF NOT EXISTS pin_allows uuid;  -- a snapshot_id

-- What a dictionary was before a snapshot replaced it: a person can go back to it.
CREATE TABLE IF NOT EXISTS refdata.archived_chunk (
    tenant_id   text COLLATE "C" NOT NULL,
    dict_code   text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    chunk_index integer NOT NULL,
    entries     integer NOT NULL,
    items       jsonb NOT NULL,  -- as in snapshot_chunk
    archived_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, dict_code, version, chunk_index)
);

-- Dictionaries that have no tables of their own.
CREATE TABLE IF NOT EXISTS refdata.dictionary_item (
    tenant_id  text COLLATE "C" NOT NULL,
    dict_code  text COLLATE "C" NOT NULL,
    item_key   text COLLATE "C" NOT NULL,
    payload    jsonb,
    deleted    boolean NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, dict_code, item_key)
);

-- Every event that has had its effect, or its refusal: a second delivery finds it here.
CREATE TABLE IF NOT EXISTS refdata.processed_event (
    tenant_id    text COLLATE "C" NOT NULL,
    event_id     uuid NOT NULL,
    source       text NOT NULL,
    dict_code    text COLLATE "C" NOT NULL,
    digest       bytea NOT NULL,  -- SHA-256 of what the command says: the same id with another body is refused
    snapshot_id  uuid,            -- of a chunk
    version      bigint,          -- NULL: refused, or a chunk of a snapshot that is not whole yet
    error_code   text,
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, event_id)
);
CREATE INDEX IF NOT EXISTS processed_event_old ON refdata.processed_event (processed_at);
CREATE INDEX IF NOT EXISTS processed_event_chunk ON refdata.processed_event (tenant_id, dict_code, snapshot_id)
    WHERE snapshot_id IS NOT NULL AND version IS NULL AND error_code IS NULL;

CREATE TABLE IF NOT EXISTS refdata.update_request (
    tenant_id         text COLLATE "C" NOT NULL,
    event_id          uuid NOT NULL,
    dict_code         text COLLATE "C" NOT NULL,
    status            text NOT NULL CHECK (status IN ('PENDING', 'COMMITTED', 'FAILED')),
    committed_version bigint,
    error_code        text,
    error_message     text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    digest            bytea NOT NULL,
    command           bytea,       -- as it goes to the topic, until it has had its effect
    published_at      timestamptz, -- NULL: the topic has not acknowledged it yet
    awaited           boolean NOT NULL DEFAULT false,  -- whether somebody waits for its end
    traceparent       text,
    PRIMARY KEY (tenant_id, event_id)
);
CREATE INDEX IF NOT EXISTS update_request_unpublished ON refdata.update_request (created_at)
    WHERE status = 'PENDING' AND published_at IS NULL;
CREATE INDEX IF NOT EXISTS update_request_old ON refdata.update_request (updated_at);

-- Snapshots on their way in, and those that are in: a chunk that comes again later finds its version.
CREATE TABLE IF NOT EXISTS refdata.snapshot (
    tenant_id       text COLLATE "C" NOT NULL,
    dict_code       text COLLATE "C" NOT NULL,
    snapshot_id     uuid NOT NULL,
    chunks_total    integer NOT NULL,
    source_revision bigint,
    version         bigint,  -- NULL: not whole yet
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, dict_code, snapshot_id)
);
CREATE INDEX IF NOT EXISTS snapshot_old ON refdata.snapshot (updated_at);

CREATE TABLE IF NOT EXISTS refdata.snapshot_chunk (
    tenant_id   text COLLATE "C" NOT NULL,
    dict_code   text COLLATE "C" NOT NULL,
    snapshot_id uuid NOT NULL,
    chunk_index integer NOT NULL,
    digest      bytea NOT NULL,  -- SHA-256 of the items
    items       jsonb,           -- [{"key": …, "payload": …}, …]; NULL once the snapshot is in
    PRIMARY KEY (tenant_id, dict_code, snapshot_id, chunk_index),
    FOREIGN KEY (tenant_id, dict_code, snapshot_id) REFERENCES refdata.snapshot ON DELETE CASCADE
);

-- What has to be announced. Of one dictionary the ids are in the order of the versions: both are given under
-- the lock of its row in dictionary_meta.
CREATE TABLE IF NOT EXISTS refdata.outbox_event (
    id          bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    tenant_id   text COLLATE "C" NOT NULL,
    event_id    uuid NOT NULL,
    dict_code   text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    payload     jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    published   boolean NOT NULL DEFAULT false,
    traceparent text
);
CREATE INDEX IF NOT EXISTS outbox_event_unpublished ON refdata.outbox_event (id) WHERE NOT published;
CREATE INDEX IF NOT EXISTS outbox_event_old ON refdata.outbox_event (created_at) WHERE published;
CREATE INDEX IF NOT EXISTS outbox_event_version ON refdata.outbox_event (tenant_id, dict_code, version);

-- The topic keeps a dead letter where it stands, before and behind others: what a person has discarded is known
-- here, with who did it and why, and is shown and sent to nobody any more.
CREATE TABLE IF NOT EXISTS refdata.discarded_letter (
    letter       text COLLATE "C" PRIMARY KEY,  -- SHA-256 of its place and content, in hex
    message_key  text NOT NULL,
    error_code   text NOT NULL,
    origin       text NOT NULL,  -- topic/partition/offset of the message that was refused
    discarded_by text NOT NULL,
    reason       text NOT NULL,
    discarded_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO refdata.installation (tables) VALUES (3) ON CONFLICT (only_row) DO UPDATE SET tables = excluded.tables;
