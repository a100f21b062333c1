-- name: uploads_by_status
-- Of each status of uploads on their way how many there are, and how long one has been in it at most.
-- What is pending was changed last when it became so; of the others, few at a time, the log of moves knows.
SELECT u.status, count(*) AS uploads,
       coalesce(extract(epoch FROM clock_timestamp() - min(CASE WHEN u.status = 'pending' THEN u.updated_at ELSE (
           SELECT coalesce(max(a.at), u.created_at) FROM audit a
           WHERE a.upload_id = u.id AND a.to_status = u.status AND a.from_status IS DISTINCT FROM a.to_status
       ) END)), 0)::float8 AS oldest_seconds
FROM data_uploads u
WHERE u.status IN ('pending', 'processing', 'staging_complete', 'promoting')
GROUP BY u.status;

-- name: uploads_waiting
-- Of each stage how many uploads a worker could take now, and how long the oldest has waited for one.
SELECT w.stage, count(*) AS uploads,
       extract(epoch FROM clock_timestamp() - min(greatest(u.updated_at, u.next_attempt_at)))::float8 AS oldest_seconds
FROM waiting_uploads w JOIN data_uploads u USING (id)
GROUP BY w.stage;

-- name: uploads_put_off$
-- How many uploads are tried again later: a service or a disk asked for it.
SELECT count(*) FROM data_uploads
WHERE status IN ('pending', 'processing', 'staging_complete', 'promoting')
  AND next_attempt_at > clock_timestamp() AND next_attempt_at < 'infinity';

-- name: webhooks_waiting^
-- How many deliveries are due, and how long the oldest has been.
SELECT count(*) AS deliveries,
       coalesce(extract(epoch FROM clock_timestamp() - min(d.next_attempt_at)), 0)::float8 AS oldest_seconds
FROM webhook_deliveries d JOIN webhook_subscriptions s ON s.id = d.subscription_id
WHERE d.status = 'pending' AND d.next_attempt_at <= clock_timestamp()
  AND s.disabled_at IS NULL AND s.deleted_at IS NULL;

-- name: events_waiting^
-- How many events are on no stream yet, and how long the oldest has waited.
SELECT count(*) AS events,
       coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest_seconds
FROM outbox WHERE published_at IS NULL;

-- name: connections^
-- How many connections the server has, in all of its databases, and how many it takes of who is no superuser.
SELECT (SELECT sum(numbackends) FROM pg_stat_database)::integer AS used,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true), '0')::integer AS most;

-- name: nets^
-- Since when no net has been a success, or the first one began; NULL: there never was one. And for how long one
-- has been at work; 0: none is.
SELECT extract(epoch FROM now() - coalesce(
           max(ended_at) FILTER (WHERE status = 'success'), min(started_at)))::float8 AS age_seconds,
       coalesce(extract(epoch FROM now() - min(started_at) FILTER (WHERE status = 'running')), 0)::float8
           AS running_seconds
FROM apl.etl_net WHERE env = :env;
