-- name: server^
-- What this PostgreSQL is, what its clock says, and which of these roles the user may not take on.
SELECT current_setting('server_version_num')::integer AS version_number,
       current_setting('server_version') AS version, clock_timestamp() AS at,
       ARRAY(SELECT role FROM unnest(CAST(:roles AS text[])) role
             WHERE NOT EXISTS (SELECT FROM pg_roles r
                               WHERE r.rolname = role AND pg_has_role(session_user, r.oid, 'MEMBER'))) AS missing_roles;

-- name: backlog^
-- Uploads that could be claimed, and how long the oldest of them has waited; the same of events.
SELECT (SELECT count(*) FROM waiting_uploads) AS uploads,
       (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(u.updated_at)), 0)::float
        FROM waiting_uploads w JOIN data_uploads u USING (id)) AS oldest_upload_seconds,
       (SELECT count(*) FROM data_uploads WHERE next_attempt_at > clock_timestamp()
        AND next_attempt_at < 'infinity' AND finished_at IS NULL) AS deferred;
