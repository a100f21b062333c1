-- Who may use this instance: API keys, and the sessions that they open. One role reads them.

DO $$
BEGIN
    BEGIN
        CREATE ROLE headworks_access NOLOGIN;  -- finds out who makes a request
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- made by another database of this server
    END;
    IF NOT pg_has_role(current_user, 'headworks_access', 'SET') THEN
        EXECUTE format('GRANT headworks_access TO %I', current_user);
    END IF;
END
$$;

CREATE TABLE api_keys (
    id           text PRIMARY KEY CHECK (id ~ '^[a-z0-9]{8}$'),  -- the public part of the key
    secret_hash  bytea NOT NULL CHECK (octet_length(secret_hash) = 32),  -- SHA-256 of the secret part
    -- NULL: every workspace. No reference: a workspace's key may be made before its first upload.
    workspace_id uuid,
    scopes       text[] NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['upload', 'read', 'ops']),
    name         text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by   text NOT NULL,
    expires_at   timestamptz,  -- NULL: never
    revoked_at   timestamptz,  -- a revoked key stays, so that the audit log's names can be looked up
    last_used_at timestamptz   -- to the minute
);

CREATE TABLE sessions (
    id_hash        bytea PRIMARY KEY CHECK (octet_length(id_hash) = 32),  -- SHA-256 of the cookie's value
    key_id         text REFERENCES api_keys (id),
    local_key_hash bytea CHECK (octet_length(local_key_hash) = 32),  -- of the instance's own key
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at     timestamptz NOT NULL,  -- moves on with every use
    CHECK ((key_id IS NULL) <> (local_key_hash IS NULL)),
    CHECK (expires_at <= created_at + interval '168 hours')
);
-- serves end_sessions_of_key
CREATE INDEX sessions_of_key ON sessions (key_id);
-- serves drop_expired_sessions
CREATE INDEX sessions_expiry ON sessions (expires_at);

-- No other role may know who holds which key, and this one knows nothing else.
GRANT USAGE ON SCHEMA public TO headworks_access;
GRANT SELECT, INSERT, UPDATE (revoked_at, last_used_at) ON api_keys TO headworks_access;
GRANT SELECT, INSERT, DELETE, UPDATE (expires_at) ON sessions TO headworks_access;

ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
-- The key is what tells the workspace: until it is found, there is none to look in.
CREATE POLICY every_workspace ON api_keys TO headworks_access USING (true);
CREATE POLICY every_workspace ON sessions TO headworks_access USING (true);
