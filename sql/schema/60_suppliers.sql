-- Suppliers' lists live in files and buckets; the database only says whose turn it is, where several
-- hosts share a bucket.

DO $$
BEGIN
    BEGIN
        CREATE ROLE headworks_suppliers NOLOGIN;  -- holds the suppliers' locks, and nothing else
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- made by another database of this server
    END;
    IF NOT pg_has_role(current_user, 'headworks_suppliers', 'SET') THEN
        EXECUTE format('GRANT headworks_suppliers TO %I', current_user);
    END IF;
END
$$;

-- A lease in database time. The token grows with every holder: a holder that was away too long has an
-- older one than the row, and is told so before it publishes.
CREATE TABLE supplier_locks (
    supplier   text PRIMARY KEY,
    token      bigint NOT NULL,
    owner_id   text,
    expires_at timestamptz,
    CONSTRAINT supplier_locks_owner CHECK ((owner_id IS NULL) = (expires_at IS NULL))
);
GRANT USAGE ON SCHEMA public TO headworks_suppliers;
GRANT SELECT, INSERT, UPDATE ON supplier_locks TO headworks_suppliers;
