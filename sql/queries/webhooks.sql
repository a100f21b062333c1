-- Subscriptions ---------------------------------------------------------------------------------

-- name: lock_webhooks$
-- Nobody else adds a subscription to the workspace before this transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('webhooks ' || :workspace_id, 0));

-- name: create_webhook!
-- A new subscription.
INSERT INTO webhook_subscriptions (id, workspace_id, url, topics, sealed_secret, created_by)
VALUES (:subscription_id, :workspace_id, :url, :topics, :sealed_secret, :created_by);

-- name: list_webhooks
-- Subscriptions of the transaction's workspace, in the order in which they were made.
SELECT * FROM webhook_subscriptions WHERE deleted_at IS NULL ORDER BY created_at, id;

-- name: get_webhook^
-- One subscription of the transaction's workspace.
SELECT * FROM webhook_subscriptions WHERE id = :subscription_id AND deleted_at IS NULL;

-- name: webhook_workspace$
-- The workspace that a subscription belongs to, or did before it was deleted.
SELECT workspace_id FROM webhook_subscriptions WHERE id = :subscription_id;

-- name: delete_webhook^
-- The subscription is over, if it was not before; its log stays for a while. No row when there is none.
WITH before AS (
    SELECT id, deleted_at IS NOT NULL AS was_deleted FROM webhook_subscriptions
    WHERE id = :subscription_id
    FOR UPDATE
)
UPDATE webhook_subscriptions s
SET deleted_at = coalesce(s.deleted_at, clock_timestamp()), previous_secret = NULL, previous_until = NULL
FROM before b
WHERE s.id = b.id
RETURNING b.was_deleted;

-- name: disable_webhook!
-- Nothing more is sent there.
UPDATE webhook_subscriptions SET disabled_at = clock_timestamp()
WHERE id = :subscription_id AND disabled_at IS NULL AND deleted_at IS NULL;

-- name: rotate_webhook_secret^
-- The new secret signs, and the old one beside it for a while.
UPDATE webhook_subscriptions
SET previous_secret = sealed_secret, sealed_secret = :sealed_secret,
    previous_until = clock_timestamp() + make_interval(secs => :overlap_seconds)
WHERE id = :subscription_id AND deleted_at IS NULL
RETURNING previous_until;

-- Deliveries ------------------------------------------------------------------------------------

-- name: add_deliveries!
-- One delivery of the event for each subscription to its topic; a second one of its key is dropped.
INSERT INTO webhook_deliveries (subscription_id, workspace_id, event_key, payload)
SELECT s.id, s.workspace_id, :event_key, :payload
FROM webhook_subscriptions s
WHERE s.workspace_id = :workspace_id AND :topic = ANY(s.topics)
  AND s.disabled_at IS NULL AND s.deleted_at IS NULL
ON CONFLICT (subscription_id, event_key) DO NOTHING;

-- name: add_test_delivery!
-- A sample event for one subscription, unless one is on its way to it.
INSERT INTO webhook_deliveries (id, subscription_id, workspace_id, event_key, payload, is_test)
SELECT :delivery_id, s.id, s.workspace_id, :event_key, :payload, true
FROM webhook_subscriptions s
WHERE s.id = :subscription_id AND s.disabled_at IS NULL AND s.deleted_at IS NULL
  AND NOT EXISTS (
      SELECT FROM webhook_deliveries d
      WHERE d.subscription_id = s.id AND d.is_test AND d.status = 'pending');

-- name: redeliver^
-- The delivery is to be sent again, at once, as this person asked.
UPDATE webhook_deliveries d
SET status = 'pending', finished_at = NULL, error_code = NULL, failures = 0, next_attempt_at = now(),
    redelivered_at = now(), redelivered_by = :who
FROM webhook_subscriptions s
WHERE d.id = :delivery_id AND d.subscription_id = :subscription_id AND d.status = ANY(:sources)
  AND s.id = d.subscription_id AND s.disabled_at IS NULL AND s.deleted_at IS NULL
RETURNING d.event_key;

-- name: fail_pending_deliveries!
-- What still waited for this subscription is not sent any more.
UPDATE webhook_deliveries SET status = 'failed', error_code = :code, finished_at = now()
WHERE subscription_id = :subscription_id AND status = ANY(:sources);

-- name: get_delivery^
-- One delivery of a subscription.
SELECT * FROM webhook_deliveries WHERE id = :delivery_id AND subscription_id = :subscription_id;

-- name: list_deliveries
-- Deliveries of a subscription, newest first.
SELECT * FROM webhook_deliveries
WHERE subscription_id = :subscription_id
  AND (CAST(:before AS timestamptz) IS NULL OR (created_at, id) < (:before, :before_id))
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- name: attempts_of_deliveries
-- Every try of these deliveries, in order.
SELECT * FROM webhook_attempts WHERE delivery_id = ANY(CAST(:delivery_ids AS uuid[]))
ORDER BY delivery_id, number;

-- Claims, in every workspace --------------------------------------------------------------------

-- name: webhooks_due$
-- Whether some delivery could be sent now.
SELECT EXISTS (
    SELECT FROM webhook_subscriptions s
    WHERE s.disabled_at IS NULL AND s.deleted_at IS NULL
      AND (s.lease_expires_at IS NULL OR s.lease_expires_at <= clock_timestamp())
      AND EXISTS (
          SELECT FROM webhook_deliveries d
          WHERE d.subscription_id = s.id AND d.status = 'pending' AND d.next_attempt_at <= clock_timestamp()));

-- name: claim_webhook^
-- Of the subscriptions with something due and nothing in flight, the one that waited longest.
WITH candidate AS (
    SELECT s.id FROM webhook_subscriptions s
    WHERE s.disabled_at IS NULL AND s.deleted_at IS NULL
      AND (s.lease_expires_at IS NULL OR s.lease_expires_at <= clock_timestamp())
      AND EXISTS (
          SELECT FROM webhook_deliveries d
          WHERE d.subscription_id = s.id AND d.status = 'pending' AND d.next_attempt_at <= clock_timestamp())
    ORDER BY s.last_claimed_at NULLS FIRST, s.id
    LIMIT 1
    FOR UPDATE OF s SKIP LOCKED
)
UPDATE webhook_subscriptions s
SET owner_id = :owner_id, claim_epoch = s.claim_epoch + 1, last_claimed_at = clock_timestamp(),
    lease_expires_at = clock_timestamp() + make_interval(secs => :lease_seconds)
FROM candidate c
WHERE s.id = c.id
RETURNING s.id AS subscription_id, s.workspace_id, s.owner_id, s.claim_epoch;

-- name: release_webhook!
-- Nothing is in flight any more; no row when it is another owner's by now.
UPDATE webhook_subscriptions SET owner_id = NULL, lease_expires_at = NULL
WHERE id = :subscription_id AND claim_epoch = :claim_epoch AND owner_id IS NOT NULL;

-- Attempts, in one workspace --------------------------------------------------------------------

-- name: take_due_delivery^
-- What this owner sends next: the delivery that is due longest, with what it takes to send it.
SELECT d.id AS delivery_id, d.payload, d.failures, s.url, s.sealed_secret,
       CASE WHEN s.previous_until > clock_timestamp() THEN s.previous_secret END AS previous_secret
FROM webhook_deliveries d JOIN webhook_subscriptions s ON s.id = d.subscription_id
WHERE s.id = :subscription_id AND s.claim_epoch = :claim_epoch
  AND s.disabled_at IS NULL AND s.deleted_at IS NULL
  AND d.status = 'pending' AND d.next_attempt_at <= clock_timestamp()
ORDER BY d.next_attempt_at, d.created_at, d.id
LIMIT 1
FOR UPDATE OF d;

-- name: end_lost_attempts$
-- Tries whose worker is gone have ended, and count as failed: whether they arrived, nobody knows.
WITH lost AS (
    UPDATE webhook_attempts SET ended_at = now(), error_code = 'worker_lost'
    WHERE delivery_id = :delivery_id AND ended_at IS NULL
    RETURNING 1
)
UPDATE webhook_deliveries SET failures = failures + (SELECT count(*) FROM lost)
WHERE id = :delivery_id
RETURNING failures;

-- name: begin_attempt$
-- One more try; returns its number.
INSERT INTO webhook_attempts (delivery_id, number, workspace_id, owner_id)
SELECT :delivery_id, count(*) + 1, :workspace_id, :owner_id FROM webhook_attempts
WHERE delivery_id = :delivery_id
RETURNING number;

-- name: finish_attempt^
-- What came of the try, and what is next; no row when the subscription is another owner's by now.
-- Nothing is tried again for a subscription that has ended meanwhile.
WITH mine AS (
    UPDATE webhook_subscriptions SET owner_id = NULL, lease_expires_at = NULL
    WHERE id = :subscription_id AND claim_epoch = :claim_epoch AND owner_id IS NOT NULL
    RETURNING disabled_at IS NOT NULL OR deleted_at IS NOT NULL AS has_ended
), attempt AS (
    UPDATE webhook_attempts a
    SET ended_at = now(), status_code = :status_code, error_code = :error_code,
        duration_ms = :duration_ms, excerpt = :excerpt
    FROM mine
    WHERE a.delivery_id = :delivery_id AND a.number = :number
)
UPDATE webhook_deliveries d
SET status = CASE WHEN has_ended AND :status = 'pending' THEN 'failed' ELSE :status END,
    error_code = :error_code, failures = :failures,
    next_attempt_at = CASE WHEN :status = 'pending'
        THEN now() + make_interval(secs => :delay_seconds) ELSE d.next_attempt_at END,
    finished_at = CASE WHEN :status = 'pending' AND NOT has_ended THEN NULL ELSE now() END
FROM mine
WHERE d.id = :delivery_id
RETURNING d.status, d.next_attempt_at;

-- Cleanup ---------------------------------------------------------------------------------------

-- name: delete_old_deliveries!
-- Deliveries that are kept no longer are gone, with their attempts.
DELETE FROM webhook_deliveries WHERE id IN (
    SELECT id FROM webhook_deliveries
    WHERE created_at < clock_timestamp() - make_interval(days => :keep_days)
    ORDER BY created_at
    LIMIT :limit);

-- name: delete_old_webhooks!
-- Subscriptions that ended long ago and have no log left are gone.
DELETE FROM webhook_subscriptions s
WHERE s.deleted_at < clock_timestamp() - make_interval(days => :keep_days)
  AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.subscription_id = s.id);
