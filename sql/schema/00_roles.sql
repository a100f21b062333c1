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
