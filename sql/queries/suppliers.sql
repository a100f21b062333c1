-- name: take_supplier_lock$
-- The lock of a supplier is this owner's; its token, or none when somebody else holds it.
INSERT INTO supplier_locks AS l (supplier, token, owner_id, expires_at)
VALUES (:supplier, 1, :owner_id, clock_timestamp() + make_interval(secs => :lease_seconds))
ON CONFLICT (supplier) DO UPDATE
SET token = l.token + 1, owner_id = excluded.owner_id, expires_at = excluded.expires_at
WHERE coalesce(l.expires_at, '-infinity') <= clock_timestamp()
RETURNING l.token;

-- name: extend_supplier_lock!
-- The holder is alive; no row when somebody else has held the lock since.
UPDATE supplier_locks SET expires_at = clock_timestamp() + make_interval(secs => :lease_seconds)
WHERE supplier = :supplier AND token = :token AND owner_id IS NOT NULL;

-- name: release_supplier_lock!
-- Nobody holds the lock, if it was still this one's.
UPDATE supplier_locks SET owner_id = NULL, expires_at = NULL
WHERE supplier = :supplier AND token = :token;
