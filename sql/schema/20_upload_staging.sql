-- Days of staging: made when an upload is claimed, dropped when they have expired.
-- Both run as the owner of the tables, since neither parse nor cleanup may change the schema.

CREATE FUNCTION ensure_staging_day(day date) RETURNS void
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
