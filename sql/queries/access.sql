-- Keys -----------------------------------------------------------------------------------------

-- name: find_key^
-- One key with its hash, whether it has ended, and whether its last use was noted long ago.
SELECT id, secret_hash, workspace_id, scopes, name,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked'
            WHEN expires_at <= clock_timestamp() THEN 'expired' END AS ended,
       coalesce(last_used_at, '-infinity') < clock_timestamp() - interval '1 minute' AS use_is_news
FROM api_keys WHERE id = :key_id;

-- name: note_key_use!
-- The key was used; written at most once a minute, however many ask for it at once.
UPDATE api_keys SET last_used_at = clock_timestamp()
WHERE id = :key_id AND coalesce(last_used_at, '-infinity') < clock_timestamp() - interval '1 minute';

-- name: create_key!
-- A key of one workspace, or of every one; no row when its public id is taken.
INSERT INTO api_keys (id, secret_hash, workspace_id, scopes, name, created_by, expires_at)
VALUES (:key_id, :secret_hash, :workspace_id, :scopes, :name, :created_by,
        clock_timestamp() + make_interval(days => CAST(:expires_days AS integer)))
ON CONFLICT DO NOTHING;

-- name: list_keys
-- Keys of one workspace, or all there are.
SELECT id, workspace_id, scopes, name, created_at, created_by, expires_at, revoked_at, last_used_at
FROM api_keys
WHERE CAST(:workspace_id AS uuid) IS NULL OR workspace_id = :workspace_id
ORDER BY created_at, id;

-- name: revoke_key!
-- The key opens nothing from here on; the time of the first revocation stays.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = :key_id;

-- Sessions -------------------------------------------------------------------------------------

-- name: create_session!
-- A person has logged in with this key.
INSERT INTO sessions (id_hash, key_id, local_key_hash, expires_at)
VALUES (:id_hash, :key_id, :local_key_hash, clock_timestamp() + make_interval(secs => :idle_seconds));

-- name: find_session^
-- A session that goes on, with its key: one that is revoked or has expired opens nothing.
SELECT s.key_id, s.local_key_hash, k.id, k.workspace_id, k.scopes, k.name,
       s.expires_at + interval '1 minute'
           < least(clock_timestamp() + make_interval(secs => :idle_seconds),
                   s.created_at + make_interval(secs => :max_seconds)) AS use_is_news
FROM sessions s LEFT JOIN api_keys k ON k.id = s.key_id
WHERE s.id_hash = :id_hash AND s.expires_at > clock_timestamp()
  AND (s.key_id IS NULL
       OR k.revoked_at IS NULL AND coalesce(k.expires_at, 'infinity') > clock_timestamp());

-- name: extend_session!
-- The session goes on, though not past its longest.
UPDATE sessions
SET expires_at = least(clock_timestamp() + make_interval(secs => :idle_seconds),
                       created_at + make_interval(secs => :max_seconds))
WHERE id_hash = :id_hash AND expires_at > clock_timestamp();

-- name: end_session!
-- The session is over.
DELETE FROM sessions WHERE id_hash = :id_hash;

-- name: end_sessions_of_key!
-- Every session of the key is over.
DELETE FROM sessions WHERE key_id = :key_id;

-- name: drop_expired_sessions!
-- Only sessions that go on are kept.
DELETE FROM sessions WHERE expires_at <= clock_timestamp();
