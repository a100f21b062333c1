-- name: add_audit!
-- Who did what to the upload, and why.
INSERT INTO audit
    (workspace_id, upload_id, action, from_status, to_status, owner_id, claim_epoch, why, detail)
VALUES (:workspace_id, :upload_id, :action, :from_status, :to_status, :owner_id, :claim_epoch, :why,
        :detail)
ON CONFLICT DO NOTHING;

-- name: list_audit
-- Entries of the audit log of the transaction's workspace, newest first; every filter that is NULL is off.
SELECT id, at, upload_id, action, from_status, to_status, owner_id, claim_epoch, why, detail FROM audit
WHERE (CAST(:upload_id AS uuid) IS NULL OR upload_id = :upload_id)
  AND (CAST(:action AS text) IS NULL OR action = :action)
  AND (CAST(:from_time AS timestamptz) IS NULL OR at >= :from_time)
  AND (CAST(:to_time AS timestamptz) IS NULL OR at < :to_time)
  AND (CAST(:before AS bigint) IS NULL OR id < :before)
ORDER BY id DESC
LIMIT :limit;
