-- Advertising reports (D6.6): uploads, their staging, the production tables.

CREATE TABLE workspaces (
    id              uuid PRIMARY KEY,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_claimed_at timestamptz  -- round robin: the workspace that waited longest is served first
);

CREATE TABLE data_uploads (
    id               uuid PRIMARY KEY,
    workspace_id     uuid NOT NULL REFERENCES workspaces (id),
    client_id        uuid,
    platform         text NOT NULL CHECK (platform IN ('meta', 'google', 'tiktok')),
    source           text NOT NULL CHECK (source IN ('manual', 'api', 'webhook')),
    filename         text,
    file_url         text,  -- set after storage: an upload without it cannot be claimed
    status           text NOT NULL DEFAULT 'pending' CHECK (status IN (
        'pending',           -- created, waits for parse
        'processing',        -- parse is in progress
        'staging_complete',  -- all rows staged and validated, waits for promotion
        'promoting',         -- production is being written
        'completed',         -- all valid rows promoted
        'partial',           -- some rows failed promotion, the rest is promoted
        'failed')),          -- nothing more will happen by itself
    row_count        integer,  -- rows promoted, set at completion
    error_code       text,
    error_text       text,
    created_by       uuid,
    -- The order of a workspace's uploads: no two are equal, and a newer one wins in production.
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),

    currency         text,  -- what the uploader declares, for files that do not say it
    force_partial    boolean NOT NULL DEFAULT false,
    idempotency_key  text,
    duplicate_of     uuid REFERENCES data_uploads (id),
    sha256           text,
    size_bytes       bigint,

    -- Counts; total = valid + rejected source rows, without totals and blank lines.
    total_rows       integer NOT NULL DEFAULT 0,
    valid_rows       integer NOT NULL DEFAULT 0,
    promoted_rows    integer NOT NULL DEFAULT 0,
    failed_rows      integer NOT NULL DEFAULT 0,
    report           jsonb NOT NULL DEFAULT '{}',  -- what was recognised in the file
    upserted         jsonb NOT NULL DEFAULT '{}',  -- rows written, for each production table
    affected_dates   date[] NOT NULL DEFAULT '{}',
    event_emitted    boolean NOT NULL DEFAULT false,

    -- Ownership: a lease in database time, fenced by the epoch.
    attempts         integer NOT NULL DEFAULT 0,  -- how often the present stage was begun
    deferrals        integer NOT NULL DEFAULT 0,  -- how often it was put off since a service asked for it
    next_attempt_at  timestamptz NOT NULL DEFAULT '-infinity',
    owner_id         text,
    claim_epoch      integer NOT NULL DEFAULT 0,
    lease_expires_at timestamptz,
    slot             smallint,

    -- Progress: everything up to here is committed.
    staged_on        date,  -- the partition that holds this upload's staging
    staged_rows      integer NOT NULL DEFAULT 0,
    promoting_type   text CHECK (promoting_type IN ('campaign', 'ad_set', 'ad', 'daily_metric')),
    promoting_row    integer NOT NULL DEFAULT -1,
    only_failed      boolean NOT NULL DEFAULT false,  -- after a requeue: only failed rows are tried

    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at      timestamptz,

    -- What the uploader says about the file's dates and numbers, which then need not say it themselves.
    date_order       text CHECK (date_order IN ('dmy', 'mdy')),
    decimal_mark     text CHECK (decimal_mark IN ('.', ',')),
    traceparent      text,  -- of the request that handed it in, where that was traced

    CONSTRAINT data_uploads_finished CHECK
        ((status IN ('completed', 'partial', 'failed')) = (finished_at IS NOT NULL)),
    CONSTRAINT data_uploads_lease CHECK ((owner_id IS NULL) = (lease_expires_at IS NULL)),
    CONSTRAINT data_uploads_owner CHECK (owner_id IS NULL OR status IN ('processing', 'promoting')),
    -- An active upload has a slot, unless it is put off: then nobody holds it, and others go on.
    CONSTRAINT data_uploads_slot CHECK
        (slot IS NULL OR slot BETWEEN 0 AND 2 AND status IN ('processing', 'staging_complete', 'promoting')),
    CONSTRAINT data_uploads_no_slot CHECK (slot IS NOT NULL
        OR status NOT IN ('processing', 'staging_complete', 'promoting')
        OR owner_id IS NULL AND deferrals > 0),
    CONSTRAINT data_uploads_error CHECK ((status = 'failed') <= (error_code IS NOT NULL)),
    CONSTRAINT data_uploads_counts CHECK
        (total_rows >= 0 AND valid_rows >= 0 AND promoted_rows >= 0 AND failed_rows >= 0)
);

-- a newer upload wins; also serves list_uploads
CREATE UNIQUE INDEX data_uploads_order ON data_uploads (workspace_id, created_at);
-- a workspace's fourth active upload is impossible, whatever code path tries it
CREATE UNIQUE INDEX data_uploads_slots ON data_uploads (workspace_id, slot) WHERE slot IS NOT NULL;
-- serves create_upload: a client's retry finds its first upload
CREATE UNIQUE INDEX data_uploads_idempotency ON data_uploads (workspace_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- serves find_same_content
CREATE INDEX data_uploads_content ON data_uploads (workspace_id, sha256);
-- serves the claims and the sweep: only uploads on their way are in it
CREATE INDEX data_uploads_open ON data_uploads (status, workspace_id, created_at)
    WHERE status IN ('pending', 'processing', 'staging_complete', 'promoting');
-- serves cleanup: which days' staging may go
CREATE INDEX data_uploads_staged_on ON data_uploads (staged_on) WHERE staged_on IS NOT NULL;

-- Uploads that a worker may take now, and for which stage. One client's reports of a platform are
-- promoted in the order in which they were created: names mean what they meant then. One that was requeued waits
-- for the one at work: while an upload is promoted nobody else changes what it finds among the entities.
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
      WHERE o.workspace_id = u.workspace_id AND o.slot IS NOT NULL
        AND (o.created_at < u.created_at OR o.status = 'promoting' AND o.owner_id IS NOT NULL)
        AND o.platform = u.platform AND o.client_id IS NOT DISTINCT FROM u.client_id));

-- One source row gives one daily_metric row, and one row for each campaign, ad set or ad that it
-- names for the first time or with changed attributes. Cleanup drops whole days.
CREATE TABLE staging_rows (
    upload_id         uuid NOT NULL,
    workspace_id      uuid NOT NULL,
    row_index         integer NOT NULL CHECK (row_index >= 0),
    entity_type       text NOT NULL CHECK (entity_type IN ('campaign', 'ad_set', 'ad', 'daily_metric')),
    natural_key_hash  text NOT NULL,
    raw_data          jsonb NOT NULL,
    validation_status text NOT NULL CHECK (validation_status IN ('pending', 'valid', 'invalid')),
    validation_errors jsonb,  -- {line, cells, errors: [{code, column, value}]}
    created_at        timestamptz NOT NULL DEFAULT now(),
    staged_on         date NOT NULL,
    merged_into       integer,  -- the row of the same key that carries this one's numbers
    promotion_error   text,     -- why a valid row is not in production
    PRIMARY KEY (staged_on, upload_id, entity_type, row_index),
    CHECK ((validation_status = 'invalid') = (validation_errors IS NOT NULL))
) PARTITION BY RANGE (staged_on);

-- Which production row each staged campaign, ad set and ad became.
CREATE TABLE staging_id_resolution (
    upload_id        uuid NOT NULL,
    workspace_id     uuid NOT NULL,
    entity_type      text NOT NULL CHECK (entity_type IN ('campaign', 'ad_set', 'ad')),
    row_index        integer NOT NULL,
    natural_key_hash text NOT NULL,
    resolved_id      bigint,
    error_code       text,  -- why there is none
    staged_on        date NOT NULL,
    PRIMARY KEY (staged_on, upload_id, entity_type, row_index)
) PARTITION BY RANGE (staged_on);

CREATE TABLE campaigns (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id        uuid NOT NULL,
    client_id           uuid,
    platform            text NOT NULL CHECK (platform IN ('meta', 'google', 'tiktok')),
    external_id         text NOT NULL,
    id_source           text NOT NULL CHECK (id_source IN ('platform', 'name')),
    account_external_id text,
    account_as_of       timestamptz,  -- created_at of the upload that said so
    name                text,
    name_as_of          timestamptz,
    status              text,
    status_as_of        timestamptz,
    upload_id           uuid NOT NULL,  -- the newest upload that named it
    as_of               timestamptz NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT campaigns_key UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id),
    CHECK ((id_source = 'name') = (external_id LIKE 'name:%'))
);
-- serves find_campaigns; a digest, since a name may be longer than an index entry. It comes first, so that
-- nobody's ids are looked for here, below a workspace of which the planner thinks that it is small
CREATE INDEX campaigns_by_name ON campaigns (md5(name), workspace_id, platform);

CREATE TABLE ad_sets (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id        uuid NOT NULL,
    client_id           uuid,
    platform            text NOT NULL CHECK (platform IN ('meta', 'google', 'tiktok')),
    external_id         text NOT NULL,
    id_source           text NOT NULL CHECK (id_source IN ('platform', 'name')),
    campaign_id         bigint REFERENCES campaigns (id),
    parent_as_of        timestamptz,
    name                text,
    name_as_of          timestamptz,
    status              text,
    status_as_of        timestamptz,
    upload_id           uuid NOT NULL,
    as_of               timestamptz NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ad_sets_key UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id),
    CHECK ((id_source = 'name') = (external_id LIKE 'name:%'))
);
-- serves find_ad_sets
CREATE INDEX ad_sets_by_name ON ad_sets (campaign_id, md5(name));

CREATE TABLE ads (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id        uuid NOT NULL,
    client_id           uuid,
    platform            text NOT NULL CHECK (platform IN ('meta', 'google', 'tiktok')),
    external_id         text NOT NULL,
    id_source           text NOT NULL CHECK (id_source IN ('platform', 'name')),
    campaign_id         bigint REFERENCES campaigns (id),
    ad_set_id           bigint REFERENCES ad_sets (id),
    parent_as_of        timestamptz,
    name                text,
    name_as_of          timestamptz,
    status              text,
    status_as_of        timestamptz,
    upload_id           uuid NOT NULL,
    as_of               timestamptz NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    ad_set_as_of        timestamptz,  -- parent_as_of is that of the campaign
    CONSTRAINT ads_key UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id),
    CHECK ((id_source = 'name') = (external_id LIKE 'name:%'))
);
-- serves find_ads
CREATE INDEX ads_by_name ON ads (campaign_id, ad_set_id, md5(name));

-- One row for each entity and day. A NULL metric was never reported, 0 is a reported zero.
-- Ratios (CTR, CPC, CPM, ROAS) are derived by the view and never stored.
CREATE TABLE daily_metrics (
    workspace_id     uuid NOT NULL,
    client_id        uuid,
    platform         text NOT NULL CHECK (platform IN ('meta', 'google', 'tiktok')),
    metric_date      date NOT NULL,
    campaign_id      bigint NOT NULL REFERENCES campaigns (id),
    ad_set_id        bigint REFERENCES ad_sets (id),
    ad_id            bigint REFERENCES ads (id),
    grain            text NOT NULL GENERATED ALWAYS AS (
        CASE WHEN ad_id IS NOT NULL THEN 'ad' WHEN ad_set_id IS NOT NULL THEN 'ad_set' ELSE 'campaign' END
    ) STORED CHECK (grain IN ('campaign', 'ad_set', 'ad')),
    currency         text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),  -- of spend and conversion_value
    spend            numeric(18, 6),  -- major units; may be negative (credits)
    impressions      bigint CHECK (impressions >= 0),
    clicks           bigint CHECK (clicks >= 0),
    link_clicks      bigint CHECK (link_clicks >= 0),
    reach            bigint CHECK (reach >= 0),
    conversions      numeric(18, 6) CHECK (conversions >= 0),  -- fractional: platforms attribute shares
    conversion_value numeric(18, 6),
    source_rows      integer NOT NULL DEFAULT 1,  -- above 1: breakdown rows were added up
    upload_id        uuid NOT NULL,               -- the newest upload that wrote here
    as_of            timestamptz NOT NULL,        -- its created_at
    -- created_at of the upload behind each metric, in the order of the columns above, and behind the
    -- ad set, when one of them is older than as_of; NULL when all are of as_of
    metric_as_of     timestamptz[] CHECK (array_length(metric_as_of, 1) = 8),
    updated_at       timestamptz NOT NULL DEFAULT now()
);
-- One row for each entity and day. An ad's day is one, whether its ad set was reported or not. A day's rows
-- stand together: a report writes few places of it, and performance finds a workspace's days.
CREATE UNIQUE INDEX daily_metrics_key ON daily_metrics
    (workspace_id, metric_date, campaign_id, ad_id, (CASE WHEN ad_id IS NULL THEN ad_set_id END), platform,
     client_id) NULLS NOT DISTINCT;

-- Which of two values of one metric counts: the newer number; an absent one never replaces a number.
CREATE FUNCTION newest(stored numeric, stored_at timestamptz, incoming numeric, incoming_at timestamptz)
RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN incoming IS NULL OR (stored IS NOT NULL AND stored_at >= incoming_at) THEN stored
    ELSE incoming
END;

CREATE FUNCTION newest_at(stored numeric, stored_at timestamptz, incoming numeric, incoming_at timestamptz)
RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN stored IS NULL AND incoming IS NULL THEN greatest(stored_at, incoming_at)
    WHEN incoming IS NULL OR (stored IS NOT NULL AND stored_at >= incoming_at) THEN stored_at
    ELSE incoming_at
END;

-- For each (workspace, client, platform, day, campaign) only the deepest grain that is there, so
-- that a campaign-level report beside an ad-level one does not count twice.
CREATE VIEW daily_performance WITH (security_invoker = true) AS
SELECT d.workspace_id, d.client_id, d.platform, d.metric_date, d.campaign_id, d.ad_set_id, d.ad_id,
       d.grain, d.currency, d.spend, d.impressions, d.clicks, d.link_clicks, d.reach, d.conversions,
       d.conversion_value,
       d.clicks / nullif(d.impressions, 0)::numeric AS ctr,
       d.spend / nullif(d.clicks, 0) AS cpc,
       d.spend * 1000 / nullif(d.impressions, 0) AS cpm,
       d.conversion_value / nullif(d.spend, 0) AS roas
FROM (
    SELECT m.*,
           array_position(ARRAY['campaign', 'ad_set', 'ad'], m.grain) AS depth,
           max(array_position(ARRAY['campaign', 'ad_set', 'ad'], m.grain)) OVER (
               PARTITION BY m.workspace_id, m.client_id, m.platform, m.metric_date, m.campaign_id
           ) AS deepest
    FROM daily_metrics m
) d
WHERE d.depth = d.deepest;

-- Events that leave after commit, once at least; the key makes one fact one event.
CREATE TABLE outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL,
    topic        text NOT NULL,
    key          text NOT NULL,
    payload      jsonb NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    UNIQUE (topic, key)
);
-- serves take_outbox_batch
CREATE INDEX outbox_unpublished ON outbox (id) WHERE published_at IS NULL;

-- Who did what to which upload, and why. Rows are only ever added.
CREATE TABLE audit (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL,
    upload_id    uuid,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    action       text NOT NULL,
    from_status  text,
    to_status    text,
    owner_id     text,
    claim_epoch  integer,
    why          text,
    detail       jsonb NOT NULL DEFAULT '{}'
);
-- serves upload_history
CREATE INDEX audit_of_upload ON audit (upload_id, id);
-- one completion is recorded once, however often its event arrives
CREATE UNIQUE INDEX audit_event_once ON audit (upload_id, (detail ->> 'event_key'))
    WHERE action = 'event_received';
