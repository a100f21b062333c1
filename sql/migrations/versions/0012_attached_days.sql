CREATE OR REPLACE FUNCTION ensure_staging_day(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    suffix text := to_char(day, 'YYYYMMDD');
    parent text;
    place text;
BEGIN
    IF to_regclass('staging_id_resolution_' || suffix) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('headworks staging days'));
    -- A query, since a look at the name may remember what it was before the lock was had.
    IF EXISTS (SELECT FROM pg_class WHERE relname = 'staging_id_resolution_' || suffix) THEN
        RETURN;
    END IF;
    -- Made by itself and then attached: a table that is made as a partition keeps everybody else from its
    -- parent, and would wait for sessions that wait for each other's turn.
    FOREACH parent IN ARRAY ARRAY['staging_rows', 'staging_id_resolution'] LOOP
        SELECT ' TABLESPACE ' || quote_ident(spcname) INTO place
        FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE c.oid = parent::regclass;
        EXECUTE format('CREATE TABLE %1$s_%2$s (LIKE %1$s INCLUDING ALL)%3$s', parent, suffix, place);
        EXECUTE format('ALTER TABLE %1$s ATTACH PARTITION %1$s_%2$s FOR VALUES FROM (%3$L) TO (%4$L)',
            parent, suffix, day, day + 1);
    END LOOP;
    -- Every resolution is written twice, first open and then resolved: with room beside it the second stays on
    -- its page, and the index is not touched.
    EXECUTE format('ALTER TABLE staging_id_resolution_%s SET (fillfactor = 50)', suffix);
    -- COPY is not possible under row-level security, so parse copies into the day itself: it may
    -- insert there and nothing else, and the trigger own_workspace keeps it to its workspace.
    EXECUTE format('GRANT INSERT ON staging_rows_%s TO headworks_parse', suffix);
END
$$;

-- An entity's workspace is that of its upload, as it is with days and staging, and the policy keeps it so: nobody
-- looks for the workspace once more for each of the entities.
ALTER TABLE campaigns DROP CONSTRAINT campaigns_workspace_id_fkey;
ALTER TABLE ad_sets DROP CONSTRAINT ad_sets_workspace_id_fkey;
ALTER TABLE ads DROP CONSTRAINT ads_workspace_id_fkey;
