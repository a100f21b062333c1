-- The marketplace's catalog: the ledger of what was fetched last, the tables that it was applied to, and
-- the runs of its jobs. A catalog belongs to the instance, not to a workspace.

DO $$
BEGIN
    BEGIN
        CREATE ROLE headworks_catalog NOLOGIN;  -- everything of the catalog, and nothing else
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- made by another database of this server
    END;
    IF NOT pg_has_role(current_user, 'headworks_catalog', 'SET') THEN
        EXECUTE format('GRANT headworks_catalog TO %I', current_user);
    END IF;
END
$$;

CREATE SCHEMA apl;

-- The newest raw object of everything that was fetched; what came before is history, and in the raw store.
-- applied_version is that of the code that applied it; NULL: not applied yet.
CREATE TABLE apl.staging (
    source          text NOT NULL,
    entity          text NOT NULL,
    source_id       text NOT NULL,
    content_hash    text NOT NULL,
    field_hashes    jsonb NOT NULL DEFAULT '{}',  -- of each field: which ones change is told without the raw object
    s3_key          text NOT NULL,
    etag            text,
    saved_at        timestamptz NOT NULL,
    applied_at      timestamptz,
    applied_version integer,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, entity, source_id),
    CONSTRAINT staging_hash CHECK (content_hash ~ '^[0-9a-f]{64}$'),
    CONSTRAINT staging_applied CHECK ((applied_at IS NULL) = (applied_version IS NULL))
);
CREATE INDEX staging_saved_at ON apl.staging (source, entity, saved_at);

CREATE TABLE apl.shop (
    rakuten_shop_code text PRIMARY KEY,
    shop_name         text,
    shop_url          text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now()
);

-- An item may name a genre that is not fetched yet, and a shop's row comes with its first item: whether
-- both are there is what is_active says, not what a foreign key would refuse.
CREATE TABLE apl.item (
    id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    rakuten_item_code text NOT NULL UNIQUE,
    rakuten_shop_code text,
    rakuten_genre_id  bigint,
    item_name         text NOT NULL,
    catchcopy         text,
    item_caption      text,
    item_url          text,
    item_price        bigint,
    tax_flag          smallint,
    postage_flag      smallint,
    credit_card_flag  smallint,
    gift_flag         smallint,
    availability      smallint,
    sale_starts_at    timestamptz,
    sale_ends_at      timestamptz,
    is_active         boolean NOT NULL DEFAULT false,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX item_genre ON apl.item (rakuten_genre_id);

CREATE TABLE apl.item_image (
    item_id    uuid NOT NULL REFERENCES apl.item ON DELETE CASCADE,
    size       text NOT NULL,
    sort_order smallint NOT NULL,  -- from 0; the first one is the shop's main image
    image_url  text NOT NULL,
    base_url   text NOT NULL,  -- of all sizes
    PRIMARY KEY (item_id, size, sort_order),
    CONSTRAINT item_image_size CHECK (size IN ('small', 'medium'))
);

CREATE TABLE apl.item_tag (
    item_id        uuid NOT NULL REFERENCES apl.item ON DELETE CASCADE,
    rakuten_tag_id bigint NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (item_id, rakuten_tag_id)
);
CREATE INDEX item_tag_tag ON apl.item_tag (rakuten_tag_id);

CREATE TABLE apl.item_market_snapshot (
    item_id             uuid NOT NULL REFERENCES apl.item ON DELETE CASCADE,
    collected_at        timestamptz NOT NULL,
    item_price          bigint,
    availability        smallint,
    postage_flag        smallint,
    affiliate_rate      numeric,
    point_rate          smallint,
    point_rate_starts_at timestamptz,
    point_rate_ends_at  timestamptz,
    PRIMARY KEY (item_id, collected_at)
);

CREATE TABLE apl.item_review_snapshot (
    item_id        uuid NOT NULL REFERENCES apl.item ON DELETE CASCADE,
    collected_at   timestamptz NOT NULL,
    review_count   bigint,
    review_average numeric,
    PRIMARY KEY (item_id, collected_at)
);

-- What a ranking says is kept although its item may never be found.
CREATE TABLE apl.item_rank_snapshot (
    rakuten_genre_id  bigint NOT NULL,
    rakuten_item_code text NOT NULL,
    collected_at      timestamptz NOT NULL,  -- when the ranking was built; where it does not say, fetched_at
    rank              integer NOT NULL,
    last_build_date   timestamptz,
    fetched_at        timestamptz NOT NULL,
    run_id            uuid NOT NULL,
    PRIMARY KEY (rakuten_genre_id, collected_at, rakuten_item_code),
    CONSTRAINT item_rank_snapshot_rank CHECK (rank >= 1)
);
CREATE INDEX item_rank_snapshot_fetched_at ON apl.item_rank_snapshot (fetched_at);

CREATE TABLE apl.target_genre_config (
    rakuten_genre_id bigint PRIMARY KEY,
    is_enabled       boolean NOT NULL DEFAULT true
);

CREATE TABLE apl.genre (
    rakuten_genre_id bigint PRIMARY KEY,
    genre_name       text NOT NULL,  -- the root's is empty
    genre_level      smallint,
    parent_id        bigint REFERENCES apl.genre,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE apl.tag_group (
    rakuten_tag_group_id bigint PRIMARY KEY,
    tag_group_name       text NOT NULL,
    created_at           timestamptz NOT NULL DEFAULT now(),
    updated_at           timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE apl.tag (
    rakuten_tag_id       bigint PRIMARY KEY,
    tag_name             text NOT NULL,
    parent_tag_id        bigint REFERENCES apl.tag,
    rakuten_tag_group_id bigint NOT NULL REFERENCES apl.tag_group,
    created_at           timestamptz NOT NULL DEFAULT now(),
    updated_at           timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE apl.item_embedding_source (
    item_id        uuid PRIMARY KEY REFERENCES apl.item ON DELETE CASCADE,
    source_text    text NOT NULL,
    source_hash    text NOT NULL,
    source_version integer NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now()
);

-- Where the server has pgvector, vectors of the default model's width with an index; elsewhere arrays,
-- among which the nearest are found by looking at all of them.
DO $$
DECLARE
    column_type text := 'real[]';
BEGIN
    IF EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') THEN
        CREATE EXTENSION IF NOT EXISTS vector;
    END IF;
    -- It may have been there before, in a schema that is not looked into, or before its functions were
    -- taken from PUBLIC with all others.
    IF (SELECT extnamespace FROM pg_extension WHERE extname = 'vector')
        = (SELECT typnamespace FROM pg_type WHERE oid = to_regtype('vector'))
    THEN
        column_type := 'vector(512)';
        EXECUTE (
            SELECT format('GRANT USAGE ON SCHEMA %s TO headworks_catalog', extnamespace::regnamespace)
            FROM pg_extension WHERE extname = 'vector'
        );
        EXECUTE (
            SELECT format(
                'GRANT EXECUTE ON ROUTINE %s TO headworks_catalog', string_agg(objid::regprocedure::text, ', ')
            )
            FROM pg_depend
            WHERE classid = 'pg_proc'::regclass AND deptype = 'e'
              AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'vector')
        );
    END IF;
    EXECUTE format('CREATE TABLE apl.item_embedding (
        item_id     uuid NOT NULL REFERENCES apl.item ON DELETE CASCADE,
        model       text NOT NULL,
        embedding   %s NOT NULL,
        source_hash text NOT NULL,
        created_at  timestamptz NOT NULL DEFAULT now(),
        updated_at  timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (item_id, model)
    )', column_type);
    IF column_type <> 'real[]' THEN
        CREATE INDEX item_embedding_nearest ON apl.item_embedding USING hnsw (embedding vector_cosine_ops);
    END IF;
END
$$;

-- One net is one day's jobs in their order, all with the same start.
CREATE TABLE apl.etl_net (
    net_id       uuid PRIMARY KEY,
    env          text NOT NULL,
    job_start_at timestamptz NOT NULL,
    status       text NOT NULL DEFAULT 'running',
    started_at   timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    CONSTRAINT etl_net_status CHECK (status IN ('running', 'success', 'failed')),
    CONSTRAINT etl_net_ended CHECK ((status = 'running') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX etl_net_at_work ON apl.etl_net (env) WHERE status = 'running';

-- A run holds its job by a lease in database time: two runs of one job are never at work at once, and a
-- run whose process died is broken when its lease is over, and goes on where it stopped.
CREATE TABLE apl.etl_run (
    run_id        uuid PRIMARY KEY,
    net_id        uuid REFERENCES apl.etl_net,
    env           text NOT NULL,
    job_id        text NOT NULL,
    job_start_at  timestamptz NOT NULL,
    apply_version integer,
    only_targets  text[],  -- NULL: those of the job's policy
    target_limit  integer,
    from_raw      boolean NOT NULL DEFAULT false,
    status        text NOT NULL DEFAULT 'running',
    reason_code   text,
    owner_id      text,
    expires_at    timestamptz,
    summary       jsonb,
    exit_code     smallint,
    started_at    timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    CONSTRAINT etl_run_status CHECK (status IN ('running', 'success', 'failed', 'broken')),
    CONSTRAINT etl_run_lease CHECK ((status = 'running') = (expires_at IS NOT NULL)),
    CONSTRAINT etl_run_ended CHECK ((status = 'running') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX etl_run_at_work ON apl.etl_run (env, job_id) WHERE status = 'running';
CREATE INDEX etl_run_started_at ON apl.etl_run (started_at);
CREATE INDEX etl_run_net ON apl.etl_run (net_id);

CREATE TABLE apl.etl_run_target (
    run_id      uuid NOT NULL REFERENCES apl.etl_run ON DELETE CASCADE,
    target      text NOT NULL,
    outcome     text NOT NULL,
    attempts    smallint NOT NULL,
    category    text,
    http_status smallint,
    excerpt     text,
    ended_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, target),
    CONSTRAINT etl_run_target_outcome CHECK (
        outcome IN ('applied', 'reapplied', 'unchanged', 'not_found', 'failed')
    )
);

GRANT USAGE ON SCHEMA apl TO headworks_catalog;
GRANT SELECT, INSERT, UPDATE ON
    apl.staging, apl.shop, apl.item, apl.genre, apl.tag_group, apl.tag, apl.item_embedding_source,
    apl.item_embedding, apl.target_genre_config, apl.etl_net, apl.etl_run, apl.etl_run_target
TO headworks_catalog;
GRANT SELECT, INSERT ON
    apl.item_market_snapshot, apl.item_review_snapshot, apl.item_rank_snapshot
TO headworks_catalog;
GRANT SELECT, INSERT, DELETE ON apl.item_image, apl.item_tag TO headworks_catalog;
GRANT UPDATE ON apl.item_image TO headworks_catalog;
GRANT DELETE ON apl.item_embedding TO headworks_catalog;
