-- Roles: one for each kind of work, so that who may write what is a grant (D6.6 §2.2).
-- They cannot log in; the login role of an instance becomes one of them for one transaction.
-- Roles belong to the whole server: several databases of one server share them.

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY[
        'headworks_intake',    -- creates uploads
        'headworks_parse',     -- writes staging
        'headworks_promote',   -- writes production
        'headworks_cleanup',   -- drops expired staging
        'headworks_requeue',   -- sends an upload on its way again, for a person
        'headworks_dispatch',  -- claims, leases and recovery, in every workspace
        'headworks_relay',     -- publishes the outbox, in every workspace
        'headworks_read'       -- answers questions
    ] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- made by another database of this server
        END;
        IF NOT pg_has_role(current_user, role, 'SET') THEN
            EXECUTE format('GRANT %I TO %I', role, current_user);
        END IF;
    END LOOP;
END
$$;

-- The workspace that this transaction works for; NULL sees no workspace's rows.
CREATE FUNCTION current_workspace() RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(current_setting('headworks.workspace_id', true), '')::uuid;
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

    CHECK ((status IN ('completed', 'partial', 'failed')) = (finished_at IS NOT NULL)),
    CHECK ((owner_id IS NULL) = (lease_expires_at IS NULL)),
    CHECK (owner_id IS NULL OR status IN ('processing', 'promoting')),
    CHECK ((status IN ('processing', 'staging_complete', 'promoting')) = (slot IS NOT NULL)),
    CHECK (slot BETWEEN 0 AND 2),
    CHECK ((status = 'failed') <= (error_code IS NOT NULL)),
    CHECK (total_rows >= 0 AND valid_rows >= 0 AND promoted_rows >= 0 AND failed_rows >= 0)
);

-- a newer upload wins; also serves list_uploads
CREATE UNIQUE INDEX data_uploads_order ON data_uploads (workspace_id, created_at);
-- a workspace's fourth active upload is impossible, whatever code path tries it
CREATE UNIQUE INDEX data_uploads_slots ON data_uploads (workspace_id, slot)
    WHERE status IN ('processing', 'staging_complete', 'promoting');
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
    workspace_id        uuid NOT NULL REFERENCES workspaces (id),
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
-- serves find_campaigns; a digest, since a name may be longer than an index entry
CREATE INDEX campaigns_by_name ON campaigns (workspace_id, platform, md5(name));

CREATE TABLE ad_sets (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id        uuid NOT NULL REFERENCES workspaces (id),
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
    workspace_id        uuid NOT NULL REFERENCES workspaces (id),
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
    -- created_at of the upload behind each metric, in the order of the columns above, when one of
    -- them is older than as_of; NULL when all are of as_of
    metric_as_of     timestamptz[] CHECK (array_length(metric_as_of, 1) = 7),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    -- The entities come before the day's neighbours, so that one row's key is found in one descent.
    CONSTRAINT daily_metrics_key UNIQUE NULLS NOT DISTINCT
        (workspace_id, campaign_id, metric_date, ad_id, ad_set_id, platform, client_id)
);
-- serves performance: a workspace's days
CREATE INDEX daily_metrics_days ON daily_metrics (workspace_id, metric_date);

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
-- Days of staging: made when an upload is claimed, dropped when they have expired.
-- Both run as the owner of the tables, since neither parse nor cleanup may change the schema.

CREATE FUNCTION ensure_staging_day(day date) RETURNS void
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
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS staging_id_resolution_%s PARTITION OF staging_id_resolution FOR VALUES FROM (%L) TO (%L)',
        suffix, day, day + 1);
    -- COPY is not possible under row-level security, so parse copies into the day itself: it may
    -- insert there and nothing else, and the trigger own_workspace keeps it to its workspace.
    EXECUTE format('GRANT INSERT ON staging_rows_%s TO headworks_parse', suffix);
END
$$;

-- What the policy says to every other writer, for COPY into a day: an AFTER trigger with a WHEN, so
-- that rows still go in by the thousand and nothing is called for a row of the own workspace.
CREATE FUNCTION refuse_foreign_row() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE insufficient_privilege USING MESSAGE = 'a row of another workspace', TABLE = TG_TABLE_NAME;
END
$$;

CREATE TRIGGER own_workspace AFTER INSERT ON staging_rows
FOR EACH ROW WHEN (NEW.workspace_id IS DISTINCT FROM current_workspace())
EXECUTE FUNCTION refuse_foreign_row();

-- The days that are older than so many days and hold no upload still on its way.
CREATE FUNCTION expired_staging_days(keep_days integer) RETURNS SETOF date
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'staging_rows'::regclass
      AND to_date(right(c.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - keep_days
      AND NOT EXISTS (
          SELECT FROM data_uploads u
          WHERE u.staged_on = to_date(right(c.relname, 8), 'YYYYMMDD')
            AND u.status IN ('pending', 'processing', 'staging_complete', 'promoting'))
    ORDER BY day
$$;

-- The drop waits for statements on the table, and others queue behind it: not for long.
CREATE FUNCTION drop_staging_day(day date, keep_days integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '500ms' AS $$
BEGIN
    -- The drop needs this lock anyway. Under it the check holds: a requeue that wants the day's rows
    -- has read them and committed, or reads afterwards and finds none.
    LOCK TABLE staging_rows, staging_id_resolution IN ACCESS EXCLUSIVE MODE;
    IF day NOT IN (SELECT expired_staging_days(keep_days)) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS staging_rows_%s', to_char(day, 'YYYYMMDD'));
    EXECUTE format('DROP TABLE IF EXISTS staging_id_resolution_%s', to_char(day, 'YYYYMMDD'));
    RETURN true;
END
$$;
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
