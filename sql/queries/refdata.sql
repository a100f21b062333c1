-- The platform of reference data: versions, requests, snapshots on their way in, announcements. The tables
-- are in the database of the dictionary itself.

-- name: installation^
-- Of which release the tables are; no row, or an error, where there are none.
SELECT tables, epoch FROM refdata.installation;

-- name: there_are_tables$
-- Whether the platform has its tables here.
SELECT to_regclass('refdata.installation') IS NOT NULL;

-- name: renew_epoch$
-- From now on versions are those of another history.
UPDATE refdata.installation SET epoch = gen_random_uuid() RETURNING epoch;

-- name: lock_versions
-- The versions of these dictionaries, which are this transaction's to change; names are looked up in this schema.
INSERT INTO refdata.dictionary_meta AS meta (tenant_id, dict_code, version, updated_at)
SELECT DISTINCT tenant_id, dict_code, 0, now()
FROM unnest(:tenant_ids::text[], :dict_codes::text[]) AS wanted (tenant_id, dict_code),
     set_config('search_path', :schema, true)
ORDER BY tenant_id, dict_code  -- two that want the same wait for each other, and not in a circle
ON CONFLICT (tenant_id, dict_code) DO UPDATE SET version = meta.version
RETURNING tenant_id, dict_code, version, last_source_revision, pinned_at IS NOT NULL AS is_pinned, pin_allows;

-- name: processed
-- What became of these events, as far as they had their end before.
SELECT tenant_id, event_id, digest, version, error_code, snapshot_id
FROM refdata.processed_event
JOIN unnest(:tenant_ids::text[], :event_ids::uuid[]) AS wanted (tenant_id, event_id) USING (tenant_id, event_id);

-- name: end_commands$
-- These commands have had their end: versions, events, requests and announcements say so; whoever waits is told.
WITH ended AS (
    SELECT * FROM unnest(
        :tenant_ids::text[], :event_ids::uuid[], :dict_codes::text[], :sources::text[], :digests::bytea[],
        :snapshot_ids::uuid[], :versions::bigint[], :revisions::bigint[], :error_codes::text[],
        :sentences::text[], :keys::text[], :counts::integer[], :traceparents::text[]
    ) WITH ORDINALITY AS one (
        tenant_id, event_id, dict_code, source, digest, snapshot_id, version, revision, error_code, sentence,
        keys, items, traceparent, place
    )
), newest AS (
    SELECT tenant_id, dict_code, max(version) AS version, max(revision) AS revision
    FROM ended WHERE version IS NOT NULL
    GROUP BY tenant_id, dict_code
), versioned AS (
    UPDATE refdata.dictionary_meta AS meta
    SET version = newest.version, updated_at = clock_timestamp(),
        last_source_revision = COALESCE(newest.revision, meta.last_source_revision)
    FROM newest
    WHERE meta.tenant_id = newest.tenant_id AND meta.dict_code = newest.dict_code
), noted AS (
    INSERT INTO refdata.processed_event (
        tenant_id, event_id, source, dict_code, digest, snapshot_id, version, error_code
    )
    SELECT tenant_id, event_id, source, dict_code, digest, snapshot_id, version, error_code FROM ended
), answered AS (
    UPDATE refdata.update_request AS request
    SET status = CASE WHEN ended.error_code IS NULL THEN 'COMMITTED' ELSE 'FAILED' END,
        committed_version = ended.version, error_code = ended.error_code, error_message = ended.sentence,
        command = NULL, updated_at = clock_timestamp()
    FROM ended
    WHERE request.tenant_id = ended.tenant_id AND request.event_id = ended.event_id
      AND request.digest = ended.digest  -- another command under its id has an end of its own
      AND request.status = 'PENDING' AND (ended.version IS NOT NULL OR ended.error_code IS NOT NULL)
    RETURNING request.tenant_id, request.event_id, request.awaited
), announced AS (
    INSERT INTO refdata.outbox_event (tenant_id, event_id, dict_code, version, payload, traceparent)
    SELECT tenant_id, event_id, dict_code, version,
           jsonb_build_object(
               'eventId', event_id, 'tenantId', tenant_id, 'dictCode', dict_code, 'version', version,
               'committedAt', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'epoch', installation.epoch, 'items', items
           ) || CASE WHEN keys IS NULL THEN '{}' ELSE jsonb_build_object('keys', keys::jsonb) END,
           traceparent
    FROM ended, refdata.installation
    WHERE version IS NOT NULL
    ORDER BY place
    RETURNING 1
), woken AS (
    SELECT pg_notify('refdata_ended', tenant_id || ' ' || event_id) FROM answered WHERE awaited
)
SELECT (SELECT count(*) FROM woken) + CASE
    WHEN EXISTS (SELECT FROM announced) THEN (SELECT count(*) FROM pg_notify('refdata_announce', '')) ELSE 0
END;

-- name: fail_request$
-- The request of this very command has failed, if it still waits.
WITH failed AS (
    UPDATE refdata.update_request
    SET status = 'FAILED', error_code = :error_code, error_message = :sentence, command = NULL,
        updated_at = clock_timestamp()
    WHERE tenant_id = :tenant_id AND event_id = :event_id AND digest = :digest AND status = 'PENDING'
    RETURNING tenant_id, event_id, awaited
)
SELECT count(pg_notify('refdata_ended', tenant_id || ' ' || event_id)) FROM failed WHERE awaited;

-- name: forget_refusal!
-- The refusal of this very command is forgotten: it may come once more, and its request waits again.
WITH forgotten AS (
    DELETE FROM refdata.processed_event
    WHERE tenant_id = :tenant_id AND event_id = :event_id AND digest = :digest AND error_code IS NOT NULL
)
UPDATE refdata.update_request
SET status = 'PENDING', error_code = NULL, error_message = NULL, updated_at = clock_timestamp()
WHERE tenant_id = :tenant_id AND event_id = :event_id AND digest = :digest AND status = 'FAILED';

-- name: discarded_letters
-- Which of these dead letters somebody has discarded.
SELECT letter FROM refdata.discarded_letter WHERE letter = ANY(:letters);

-- name: discard_letter!
-- The dead letter is none any more; who discarded it first stays.
INSERT INTO refdata.discarded_letter (letter, message_key, error_code, origin, discarded_by, reason)
VALUES (:letter, :key, :error_code, :origin, :who, :reason)
ON CONFLICT (letter) DO NOTHING;

-- name: note_chunk!
-- This chunk is here, and its request waits for the others.
INSERT INTO refdata.processed_event (tenant_id, event_id, source, dict_code, digest, snapshot_id)
VALUES (:tenant_id, :event_id, :source, :dict_code, :digest, :snapshot_id);

-- name: begin_snapshot^
-- The snapshot that this chunk belongs to, as its first chunk described it.
INSERT INTO refdata.snapshot AS snapshot (tenant_id, dict_code, snapshot_id, chunks_total, source_revision)
VALUES (:tenant_id, :dict_code, :snapshot_id, :chunks_total, :source_revision)
ON CONFLICT (tenant_id, dict_code, snapshot_id) DO UPDATE SET updated_at = now()
RETURNING chunks_total, source_revision, version;

-- name: add_chunk^
-- The chunk, as it came first.
INSERT INTO refdata.snapshot_chunk AS chunk (tenant_id, dict_code, snapshot_id, chunk_index, digest, items)
VALUES (:tenant_id, :dict_code, :snapshot_id, :chunk_index, :digest, :items::jsonb)
ON CONFLICT (tenant_id, dict_code, snapshot_id, chunk_index) DO UPDATE SET chunk_index = chunk.chunk_index
RETURNING digest;

-- name: count_chunks$
-- How many chunks of the snapshot are here.
SELECT count(*) FROM refdata.snapshot_chunk
WHERE tenant_id = :tenant_id AND dict_code = :dict_code AND snapshot_id = :snapshot_id;

-- name: unpack_snapshot!
-- The entries of the whole snapshot, each in a row, for the rest of this transaction.
CREATE TEMPORARY TABLE refdata_wanted ON COMMIT DROP AS
SELECT chunk_index, place::integer, (entry ->> 'key') COLLATE "C" AS item_key, entry -> 'payload' AS payload
FROM refdata.snapshot_chunk, jsonb_array_elements(items) WITH ORDINALITY AS entries (entry, place)
WHERE tenant_id = :tenant_id AND dict_code = :dict_code AND snapshot_id = :snapshot_id;

-- name: analyze_snapshot!
-- How many they are is known to whoever plans with them.
ANALYZE refdata_wanted;

-- name: twice_in_snapshot$
-- A key that two chunks of the snapshot have; none: NULL.
SELECT item_key FROM refdata_wanted GROUP BY item_key HAVING count(*) > 1 LIMIT 1;

-- name: snapshot_json$
-- The entries of the snapshot as one JSON array: what :snapshotJson stands for.
SELECT COALESCE(
    jsonb_agg(jsonb_build_object('key', item_key, 'payload', payload) ORDER BY chunk_index, place), '[]'
) FROM refdata_wanted WHERE :chunk_index::integer IS NULL OR chunk_index = :chunk_index;

-- name: end_snapshot!
-- The snapshot is in: every chunk's event and request has its version, and their entries are let go.
WITH snapshot AS (
    UPDATE refdata.snapshot SET version = :version, updated_at = now()
    WHERE tenant_id = :tenant_id AND dict_code = :dict_code AND snapshot_id = :snapshot_id
), chunks AS (
    UPDATE refdata.snapshot_chunk SET items = NULL
    WHERE tenant_id = :tenant_id AND dict_code = :dict_code AND snapshot_id = :snapshot_id
), events AS (
    UPDATE refdata.processed_event SET version = :version
    WHERE tenant_id = :tenant_id AND dict_code = :dict_code AND snapshot_id = :snapshot_id
      AND version IS NULL AND error_code IS NULL
    RETURNING event_id, digest
), answered AS (
    UPDATE refdata.update_request AS request
    SET status = 'COMMITTED', committed_version = :version, command = NULL, updated_at = clock_timestamp()
    FROM events
    WHERE request.tenant_id = :tenant_id AND request.event_id = events.event_id
      AND request.digest = events.digest AND request.status = 'PENDING'
    RETURNING request.event_id, request.awaited
)
SELECT pg_notify('refdata_ended', :tenant_id || ' ' || event_id) FROM answered WHERE awaited;

-- name: expire_snapshots
-- Snapshots that were not whole in time are gone, and their requests have failed.
WITH old AS (
    SELECT tenant_id, dict_code, snapshot_id FROM refdata.snapshot
    WHERE version IS NULL AND updated_at < now() - make_interval(secs => :seconds)
    ORDER BY updated_at
    LIMIT 100
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM refdata.snapshot s USING old
    WHERE (s.tenant_id, s.dict_code, s.snapshot_id) = (old.tenant_id, old.dict_code, old.snapshot_id)
), events AS (
    UPDATE refdata.processed_event e SET error_code = :error_code FROM old
    WHERE (e.tenant_id, e.dict_code, e.snapshot_id) = (old.tenant_id, old.dict_code, old.snapshot_id)
      AND e.version IS NULL AND e.error_code IS NULL
    RETURNING e.tenant_id, e.event_id, e.digest
), answered AS (
    UPDATE refdata.update_request r
    SET status = 'FAILED', error_code = :error_code, error_message = :sentence, command = NULL,
        updated_at = clock_timestamp()
    FROM events
    WHERE r.tenant_id = events.tenant_id AND r.event_id = events.event_id AND r.digest = events.digest
      AND r.status = 'PENDING'
    RETURNING r.tenant_id, r.event_id, r.awaited
), woken AS (
    SELECT pg_notify('refdata_ended', tenant_id || ' ' || event_id) FROM answered WHERE awaited
)
SELECT old.*, (SELECT count(*) FROM woken) AS woken FROM old;

-- name: upsert_entries!
-- These entries are in the dictionary, or gone from it; what is so already is left alone.
INSERT INTO refdata.dictionary_item AS item (tenant_id, dict_code, item_key, payload, deleted, updated_at)
SELECT :tenant_id, :dict_code, item_key, payload::jsonb, payload IS NULL, now()
FROM unnest(:item_keys::text[], :payloads::text[]) AS entry (item_key, payload)
ORDER BY item_key
ON CONFLICT (tenant_id, dict_code, item_key) DO UPDATE
SET payload = excluded.payload, deleted = excluded.deleted, updated_at = excluded.updated_at
WHERE (item.payload, item.deleted) IS DISTINCT FROM (excluded.payload, excluded.deleted);

-- name: replace_entries!
-- The entries of the snapshot are in the dictionary; what is so already is left alone.
INSERT INTO refdata.dictionary_item AS item (tenant_id, dict_code, item_key, payload, deleted, updated_at)
SELECT :tenant_id, :dict_code, item_key, payload, false, now() FROM refdata_wanted
ORDER BY item_key
ON CONFLICT (tenant_id, dict_code, item_key) DO UPDATE
SET payload = excluded.payload, deleted = false, updated_at = excluded.updated_at
WHERE (item.payload, item.deleted) IS DISTINCT FROM (excluded.payload, excluded.deleted);

-- name: delete_other_entries!
-- What the snapshot does not have is gone from the dictionary.
UPDATE refdata.dictionary_item AS item SET payload = NULL, deleted = true, updated_at = now()
WHERE item.tenant_id = :tenant_id AND item.dict_code = :dict_code AND NOT item.deleted
  AND NOT EXISTS (SELECT FROM refdata_wanted wanted WHERE wanted.item_key = item.item_key);

-- name: load_entries
-- Every entry of a dictionary that has no tables of its own.
SELECT item_key AS k, payload AS v FROM refdata.dictionary_item
WHERE tenant_id = :tenantId AND dict_code = :dictCode AND NOT deleted;

-- name: entries_as_text
-- Keys and JSON as text, of the rows of whatever stands for ENTRIES.
SELECT loaded.k::text, loaded.v::text FROM (
ENTRIES
) AS loaded;

-- name: count_entries
-- How many rows whatever stands for ENTRIES has.
SELECT count(*) FROM (
ENTRIES
) AS loaded;

-- name: archive
-- What the rows of whatever stands for ENTRIES are is kept as the dictionary's version.
INSERT INTO refdata.archived_chunk (tenant_id, dict_code, version, chunk_index, entries, items)
SELECT %(tenantId)s, %(dictCode)s, %(version)s::bigint, chunk_index, count(*),
       jsonb_agg(jsonb_build_object('key', k::text, 'payload', v))
FROM (
    SELECT loaded.k, loaded.v, (row_number() OVER () - 1) / %(most)s::integer + 1 AS chunk_index FROM (
ENTRIES
    ) AS loaded
) AS numbered
GROUP BY chunk_index
ON CONFLICT DO NOTHING;

-- name: trim_archive!
-- Only so many versions of the dictionary are kept.
DELETE FROM refdata.archived_chunk
WHERE tenant_id = :tenant_id AND dict_code = :dict_code AND version NOT IN (
    SELECT DISTINCT version FROM refdata.archived_chunk
    WHERE tenant_id = :tenant_id AND dict_code = :dict_code
    ORDER BY version DESC
    LIMIT :versions
);

-- name: archived
-- The versions of the dictionary that are kept.
SELECT version, sum(entries)::bigint AS entries, count(*) AS chunks, min(archived_at) AS archived_at
FROM refdata.archived_chunk
WHERE tenant_id = :tenant_id AND dict_code = :dict_code
GROUP BY version ORDER BY version;

-- name: archived_items$
-- The entries of one chunk of a version, as JSON.
SELECT items::text FROM refdata.archived_chunk
WHERE tenant_id = :tenant_id AND dict_code = :dict_code AND version = :version AND chunk_index = :chunk_index;

-- name: pin!
-- The dictionary takes no changes from now on, but for this snapshot.
UPDATE refdata.dictionary_meta
SET pinned_at = COALESCE(pinned_at, now()), pin_reason = :reason, pin_allows = :allows
WHERE tenant_id = :tenant_id AND dict_code = :dict_code;

-- name: unpin!
-- The dictionary takes changes again.
UPDATE refdata.dictionary_meta SET pinned_at = NULL, pin_reason = NULL, pin_allows = NULL
WHERE tenant_id = :tenant_id AND dict_code = :dict_code AND pinned_at IS NOT NULL;

-- name: pinned^
-- The dictionary's version, and since when and why it is pinned.
SELECT version, pinned_at, pin_reason FROM refdata.dictionary_meta
WHERE tenant_id = :tenant_id AND dict_code = :dict_code;

-- name: version$
-- The committed version of the dictionary; NULL: nothing was ever written.
SELECT version FROM refdata.dictionary_meta WHERE tenant_id = :tenant_id AND dict_code = :dict_code;

-- name: add_request^
-- The request is known, as it came first; `added`: it is new.
WITH added AS (
    INSERT INTO refdata.update_request (
        tenant_id, event_id, dict_code, status, digest, command, awaited, traceparent
    )
    VALUES (:tenant_id, :event_id, :dict_code, 'PENDING', :digest, :command, :awaited, :traceparent)
    ON CONFLICT (tenant_id, event_id) DO NOTHING
    RETURNING *
)
SELECT true AS added, status, committed_version, error_code, error_message, digest, dict_code FROM added
UNION ALL
SELECT false, status, committed_version, error_code, error_message, digest, dict_code
FROM refdata.update_request WHERE tenant_id = :tenant_id AND event_id = :event_id;

-- name: await_request!
-- Somebody waits for the end of a request that is known already.
UPDATE refdata.update_request SET awaited = true
WHERE tenant_id = :tenant_id AND event_id = :event_id AND status = 'PENDING';

-- name: mark_published!
-- The topic has the command.
UPDATE refdata.update_request SET published_at = now() WHERE tenant_id = :tenant_id AND event_id = :event_id;

-- name: request^
-- One request, as it stands.
SELECT tenant_id, event_id, dict_code, status, committed_version, error_code, error_message, created_at, updated_at
FROM refdata.update_request WHERE tenant_id = :tenant_id AND event_id = :event_id;

-- name: unpublished_requests
-- Requests whose command no topic has acknowledged.
SELECT tenant_id, event_id, dict_code, command, traceparent FROM refdata.update_request
WHERE status = 'PENDING' AND published_at IS NULL AND command IS NOT NULL
  AND created_at < now() - make_interval(secs => :seconds)
ORDER BY created_at
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: may_announce$
-- Whether this transaction alone announces: two at once would announce out of order.
SELECT pg_try_advisory_xact_lock(4053);

-- name: take_announcements
-- What is to be announced, the oldest first.
SELECT id, tenant_id, event_id, dict_code, version, payload::text AS payload, traceparent
FROM refdata.outbox_event
WHERE NOT published
ORDER BY id
LIMIT :limit;

-- name: mark_announced!
-- These are announced.
UPDATE refdata.outbox_event SET published = true WHERE id = ANY (:ids::bigint[]);

-- name: unannounced^
-- How much waits to be announced, and for how long.
SELECT count(*) AS events, COALESCE(extract(epoch FROM now() - min(created_at)), 0)::float8 AS oldest_seconds
FROM refdata.outbox_event WHERE NOT published;

-- name: trim_announced!
-- What was announced long ago is gone.
DELETE FROM refdata.outbox_event
WHERE id IN (
    SELECT id FROM refdata.outbox_event
    WHERE published AND created_at < now() - make_interval(hours => :hours) LIMIT 10000
);

-- name: trim_processed!
-- Events from long ago are forgotten.
DELETE FROM refdata.processed_event
WHERE (tenant_id, event_id) IN (
    SELECT tenant_id, event_id FROM refdata.processed_event
    WHERE processed_at < now() - make_interval(days => :days) LIMIT 10000
);

-- name: trim_requests!
-- Requests that ended long ago are forgotten.
DELETE FROM refdata.update_request
WHERE (tenant_id, event_id) IN (
    SELECT tenant_id, event_id FROM refdata.update_request
    WHERE status <> 'PENDING' AND updated_at < now() - make_interval(days => :days) LIMIT 10000
);

-- name: trim_snapshots!
-- Snapshots that were in long ago are forgotten.
DELETE FROM refdata.snapshot
WHERE (tenant_id, dict_code, snapshot_id) IN (
    SELECT tenant_id, dict_code, snapshot_id FROM refdata.snapshot
    WHERE version IS NOT NULL AND updated_at < now() - make_interval(days => :days) LIMIT 1000
);

-- name: standings
-- Where every dictionary of this database stands; without a tenant: the epoch alone.
SELECT installation.epoch, meta.tenant_id, meta.dict_code, meta.version
FROM refdata.installation LEFT JOIN refdata.dictionary_meta AS meta ON true;

-- name: standing^
-- Where this dictionary stands; names are looked up in this schema from now on.
SELECT installation.epoch, COALESCE(meta.version, 0) AS version, set_config('search_path', :schema, true)
FROM refdata.installation
LEFT JOIN refdata.dictionary_meta AS meta ON meta.tenant_id = :tenant_id AND meta.dict_code = :dict_code;

-- name: changed_keys$
-- The keys that changed between two versions; NULL: they are not all known.
WITH announced AS (
    SELECT version, payload -> 'keys' AS keys FROM refdata.outbox_event
    WHERE tenant_id = :tenant_id AND dict_code = :dict_code AND version > :since AND version <= :version
)
SELECT CASE
    WHEN (SELECT count(*) FROM announced WHERE keys IS NOT NULL) = :version::bigint - :since::bigint
    THEN ARRAY(SELECT DISTINCT key FROM announced, jsonb_array_elements_text(keys) AS one (key))
END;

-- name: entries_of_keys
-- Keys and JSON as text of some of the entries, by a list that takes the type of the key.
SELECT loaded.k::text, loaded.v::text FROM (
ENTRIES
) AS loaded WHERE loaded.k = ANY (%(keys)s);

-- name: entries_of_texts
-- Keys and JSON as text of some of the entries, for keys that the type of the key cannot have.
SELECT loaded.k::text, loaded.v::text FROM (
ENTRIES
) AS loaded WHERE loaded.k::text = ANY (%(keys)s::text[]);
