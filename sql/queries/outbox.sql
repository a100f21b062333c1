-- name: add_event!
-- A fact is told once: a second event with its key is dropped.
INSERT INTO outbox (workspace_id, topic, key, payload)
VALUES (:workspace_id, :topic, :key, :payload)
ON CONFLICT (topic, key) DO NOTHING;

-- name: take_events
-- The oldest events that are not published yet and that no other relay holds.
SELECT id, topic, key, payload FROM outbox
WHERE published_at IS NULL
ORDER BY id
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: mark_events_published!
-- The events are on their streams.
UPDATE outbox SET published_at = clock_timestamp() WHERE id = ANY(CAST(:event_ids AS bigint[]));
