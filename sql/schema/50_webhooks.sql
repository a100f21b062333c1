-- Webhooks: who is told that an upload has ended, what is sent, and what came back.

DO $$
BEGIN
    BEGIN
        CREATE ROLE headworks_webhooks NOLOGIN;  -- subscribes and delivers, in one workspace
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- made by another database of this server
    END;
    IF NOT pg_has_role(current_user, 'headworks_webhooks', 'SET') THEN
        EXECUTE format('GRANT headworks_webhooks TO %I', current_user);
    END IF;
END
$$;

CREATE TABLE webhook_subscriptions (
    id               uuid PRIMARY KEY,
    workspace_id     uuid NOT NULL,  -- no reference: one may subscribe before the first upload
    url              text NOT NULL CHECK (length(url) <= 2048),
    topics           text[] NOT NULL
        CHECK (cardinality(topics) > 0 AND topics <@ ARRAY['ingestion-complete']),
    sealed_secret    text NOT NULL,  -- encrypted with a key that the database does not have
    previous_secret  text,           -- sealed too; signs beside the new one for a while
    previous_until   timestamptz,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by       text NOT NULL,
    disabled_at      timestamptz,    -- the receiver said that it is gone for good
    deleted_at       timestamptz,    -- a person ended it; the row stays while its log is kept

    -- Ownership: one delivery of a subscription is in flight at a time, under this lease.
    owner_id         text,
    claim_epoch      integer NOT NULL DEFAULT 0,
    lease_expires_at timestamptz,
    last_claimed_at  timestamptz,    -- round robin: who waited longest is served first
    CONSTRAINT webhook_previous CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    CONSTRAINT webhook_lease CHECK ((owner_id IS NULL) = (lease_expires_at IS NULL))
);
-- serves list_webhooks and add_deliveries
CREATE INDEX webhooks_of_workspace ON webhook_subscriptions (workspace_id, created_at)
    WHERE deleted_at IS NULL;

CREATE TABLE webhook_deliveries (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),  -- the header webhook-id, at every try
    subscription_id uuid NOT NULL REFERENCES webhook_subscriptions (id),
    workspace_id    uuid NOT NULL,
    event_key       text NOT NULL,
    payload         jsonb NOT NULL,
    is_test         boolean NOT NULL DEFAULT false,
    status          text NOT NULL DEFAULT 'pending' CHECK (status IN (
        'pending',     -- to be sent when next_attempt_at has come
        'delivered',   -- the receiver answered 2xx
        'failed')),    -- nothing more will happen by itself
    failures        integer NOT NULL DEFAULT 0,  -- tries that failed since a person last asked for it
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    error_code      text,  -- of the last try
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at     timestamptz,
    redelivered_at  timestamptz,
    redelivered_by  text,
    UNIQUE (subscription_id, event_key),
    CONSTRAINT webhook_finished CHECK ((status = 'pending') = (finished_at IS NULL)),
    CONSTRAINT webhook_error CHECK (status <> 'failed' OR error_code IS NOT NULL)
);
-- serves claim_webhook, take_due_delivery and webhooks_due
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (subscription_id, next_attempt_at)
    WHERE status = 'pending';
-- serves list_deliveries
CREATE INDEX webhook_deliveries_newest ON webhook_deliveries (subscription_id, created_at DESC, id DESC);
-- serves delete_old_deliveries
CREATE INDEX webhook_deliveries_oldest ON webhook_deliveries (created_at);

CREATE TABLE webhook_attempts (
    delivery_id  uuid NOT NULL REFERENCES webhook_deliveries (id) ON DELETE CASCADE,
    number       integer NOT NULL,
    workspace_id uuid NOT NULL,
    owner_id     text NOT NULL,
    began_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at     timestamptz,  -- NULL: on its way, or its worker is gone
    status_code  smallint,
    error_code   text,
    duration_ms  integer,
    excerpt      text CHECK (length(excerpt) <= 500),  -- of the answer's body
    PRIMARY KEY (delivery_id, number)
);

-- serves list_audit
CREATE INDEX audit_of_workspace ON audit (workspace_id, id);

-- The end of an upload writes its deliveries; it sees no address and no secret.
GRANT SELECT (id, workspace_id, topics, disabled_at, deleted_at) ON webhook_subscriptions TO headworks_promote;
GRANT SELECT (subscription_id, event_key), INSERT (subscription_id, workspace_id, event_key, payload)
    ON webhook_deliveries TO headworks_promote;

-- Dispatch finds out whose turn it is, in every workspace; it sees no address and no secret.
GRANT SELECT (id, workspace_id, disabled_at, deleted_at, owner_id, claim_epoch, lease_expires_at, last_claimed_at),
    UPDATE (owner_id, claim_epoch, lease_expires_at, last_claimed_at)
    ON webhook_subscriptions TO headworks_dispatch;
GRANT SELECT (subscription_id, status, next_attempt_at) ON webhook_deliveries TO headworks_dispatch;

-- Subscribing and delivering.
GRANT USAGE ON SCHEMA public TO headworks_webhooks;
GRANT SELECT, INSERT, UPDATE ON webhook_subscriptions, webhook_deliveries, webhook_attempts TO headworks_webhooks;
GRANT SELECT, INSERT ON audit TO headworks_webhooks;

-- Cleanup takes away what is old, in every workspace.
GRANT SELECT (id, workspace_id, subscription_id, created_at), DELETE ON webhook_deliveries TO headworks_cleanup;
GRANT SELECT (id, workspace_id, deleted_at), DELETE ON webhook_subscriptions TO headworks_cleanup;

ALTER TABLE webhook_subscriptions ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_deliveries ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_attempts ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_workspace ON webhook_subscriptions USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON webhook_deliveries USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY own_workspace ON webhook_attempts USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY every_workspace ON webhook_subscriptions TO headworks_dispatch, headworks_cleanup USING (true);
CREATE POLICY every_workspace ON webhook_deliveries TO headworks_dispatch, headworks_cleanup USING (true);
