-- name: staging_select_latest
-- What the ledger says of these things of one entity (seed §6.1).
SELECT source_id, content_hash, field_hashes, s3_key, applied_version, saved_at
FROM apl.staging
WHERE source = :source AND entity = :entity AND source_id = ANY (:source_ids);

-- name: staging_batch_upsert!
-- The ledger names this object as the newest, applied by this version or not yet (seed §6.2).
INSERT INTO apl.staging AS s (
    source, entity, source_id, content_hash, field_hashes, s3_key, etag, saved_at, applied_at, applied_version
) VALUES (
    :source, :entity, :source_id, :content_hash, :field_hashes, :s3_key, :etag, :saved_at,
    CASE WHEN :applied_version::integer IS NOT NULL THEN now() END, :applied_version
)
ON CONFLICT (source, entity, source_id) DO UPDATE
SET content_hash = excluded.content_hash,
    field_hashes = excluded.field_hashes,
    s3_key = excluded.s3_key,
    etag = excluded.etag,
    saved_at = excluded.saved_at,
    applied_at = excluded.applied_at,
    applied_version = excluded.applied_version,
    updated_at = now()
WHERE s.content_hash <> excluded.content_hash;

-- name: staging_applied!
-- This content has been applied, by the code of this version.
UPDATE apl.staging
SET applied_at = now(), applied_version = :apply_version, updated_at = now()
WHERE source = :source AND entity = :entity AND source_id = :source_id AND content_hash = :content_hash;

-- name: staging_select_entity
-- Every line of the ledger of one entity, page by page, behind an id; with others' version, or with any.
SELECT source_id, content_hash, field_hashes, s3_key, applied_version, saved_at
FROM apl.staging
WHERE source = :source AND entity = :entity AND source_id > :behind
  AND (NOT :outdated OR applied_version IS DISTINCT FROM :apply_version)
ORDER BY source_id
LIMIT :limit;

-- name: upsert_shop!
-- The shop of an item is known.
INSERT INTO apl.shop AS s (rakuten_shop_code, shop_name, shop_url)
VALUES (:rakuten_shop_code, :shop_name, :shop_url)
ON CONFLICT (rakuten_shop_code) DO UPDATE
SET shop_name = excluded.shop_name, shop_url = excluded.shop_url, updated_at = now()
WHERE (s.shop_name, s.shop_url) IS DISTINCT FROM (excluded.shop_name, excluded.shop_url);

-- name: upsert_item$
-- The item says what the record says; its id. updated_at moves when it said something else.
INSERT INTO apl.item AS i (
    rakuten_item_code, rakuten_shop_code, rakuten_genre_id, item_name, catchcopy, item_caption, item_url,
    item_price, tax_flag, postage_flag, credit_card_flag, gift_flag, availability, sale_starts_at, sale_ends_at
) VALUES (
    :rakuten_item_code, :rakuten_shop_code, :rakuten_genre_id, :item_name, :catchcopy, :item_caption,
    :item_url, :item_price, :tax_flag, :postage_flag, :credit_card_flag, :gift_flag, :availability,
    :sale_starts_at, :sale_ends_at
)
ON CONFLICT (rakuten_item_code) DO UPDATE
SET rakuten_shop_code = excluded.rakuten_shop_code,
    rakuten_genre_id = excluded.rakuten_genre_id,
    item_name = excluded.item_name,
    catchcopy = excluded.catchcopy,
    item_caption = excluded.item_caption,
    item_url = excluded.item_url,
    item_price = excluded.item_price,
    tax_flag = excluded.tax_flag,
    postage_flag = excluded.postage_flag,
    credit_card_flag = excluded.credit_card_flag,
    gift_flag = excluded.gift_flag,
    availability = excluded.availability,
    sale_starts_at = excluded.sale_starts_at,
    sale_ends_at = excluded.sale_ends_at,
    updated_at = CASE WHEN (
        i.rakuten_shop_code, i.rakuten_genre_id, i.item_name, i.catchcopy, i.item_caption, i.item_url,
        i.item_price, i.tax_flag, i.postage_flag, i.credit_card_flag, i.gift_flag, i.availability,
        i.sale_starts_at, i.sale_ends_at
    ) IS DISTINCT FROM (
        excluded.rakuten_shop_code, excluded.rakuten_genre_id, excluded.item_name, excluded.catchcopy,
        excluded.item_caption, excluded.item_url, excluded.item_price, excluded.tax_flag,
        excluded.postage_flag, excluded.credit_card_flag, excluded.gift_flag, excluded.availability,
        excluded.sale_starts_at, excluded.sale_ends_at
    ) THEN now() ELSE i.updated_at END
RETURNING id;

-- name: sync_item_images!
-- The images of an item are these, in this order; those of a size that is not known stay.
WITH gone AS (
    DELETE FROM apl.item_image i
    WHERE i.item_id = :item_id AND i.size = ANY (:known)
      AND NOT EXISTS (
          SELECT FROM unnest(:sizes::text[], :orders::smallint[]) AS w (size, sort_order)
          WHERE (w.size, w.sort_order) = (i.size, i.sort_order)
      )
)
INSERT INTO apl.item_image AS i (item_id, size, sort_order, image_url, base_url)
SELECT :item_id, w.* FROM unnest(:sizes::text[], :orders::smallint[], :urls::text[], :bases::text[]) AS w
ON CONFLICT (item_id, size, sort_order) DO UPDATE
SET image_url = excluded.image_url, base_url = excluded.base_url
WHERE (i.image_url, i.base_url) IS DISTINCT FROM (excluded.image_url, excluded.base_url);

-- name: sync_item_tags!
-- The tags of an item are these.
WITH gone AS (
    DELETE FROM apl.item_tag WHERE item_id = :item_id AND rakuten_tag_id <> ALL (:rakuten_tag_ids::bigint[])
)
INSERT INTO apl.item_tag (item_id, rakuten_tag_id)
SELECT :item_id, tag_id FROM unnest(:rakuten_tag_ids::bigint[]) AS tag_id
ON CONFLICT DO NOTHING;

-- name: insert_market_snapshot!
-- What the item cost at this time stands, once.
INSERT INTO apl.item_market_snapshot (
    item_id, collected_at, item_price, availability, postage_flag, affiliate_rate, point_rate,
    point_rate_starts_at, point_rate_ends_at
) VALUES (
    :item_id, :collected_at, :item_price, :availability, :postage_flag, :affiliate_rate, :point_rate,
    :point_rate_starts_at, :point_rate_ends_at
)
ON CONFLICT DO NOTHING;

-- name: has_snapshots$
-- Whether it is known what the item cost at some time.
SELECT EXISTS (SELECT FROM apl.item_market_snapshot WHERE item_id = :item_id);

-- name: insert_review_snapshot!
-- How the item was reviewed at this time stands, once.
INSERT INTO apl.item_review_snapshot (item_id, collected_at, review_count, review_average)
VALUES (:item_id, :collected_at, :review_count, :review_average)
ON CONFLICT DO NOTHING;

-- name: rank_snapshot_select
-- The snapshot of a ranking that was built at this time, as it stands.
SELECT rank, rakuten_item_code FROM apl.item_rank_snapshot
WHERE rakuten_genre_id = :rakuten_genre_id AND collected_at = :collected_at
ORDER BY rank, rakuten_item_code;

-- name: insert_rank_snapshot!
-- The ranking stands as it was built; what stands already of the same build stays.
INSERT INTO apl.item_rank_snapshot (
    rakuten_genre_id, rakuten_item_code, collected_at, rank, last_build_date, fetched_at, run_id
)
SELECT :rakuten_genre_id, code, :collected_at, rank, :last_build_date, :fetched_at, :run_id
FROM unnest(:codes::text[], :ranks::integer[]) AS r (code, rank)
ON CONFLICT DO NOTHING;

-- name: upsert_genre!
-- The genre stands under its parent.
INSERT INTO apl.genre AS g (rakuten_genre_id, genre_name, genre_level, parent_id)
VALUES (:rakuten_genre_id, :genre_name, :genre_level, :parent_id)
ON CONFLICT (rakuten_genre_id) DO UPDATE
SET genre_name = excluded.genre_name, genre_level = excluded.genre_level, parent_id = excluded.parent_id,
    updated_at = now()
WHERE (g.genre_name, g.genre_level, g.parent_id)
    IS DISTINCT FROM (excluded.genre_name, excluded.genre_level, excluded.parent_id);

-- name: genre_name$
-- What the genre is called, where it is known.
SELECT genre_name FROM apl.genre WHERE rakuten_genre_id = :rakuten_genre_id;

-- name: upsert_tag_group!
-- The group of a tag is known.
INSERT INTO apl.tag_group AS g (rakuten_tag_group_id, tag_group_name)
VALUES (:rakuten_tag_group_id, :tag_group_name)
ON CONFLICT (rakuten_tag_group_id) DO UPDATE
SET tag_group_name = excluded.tag_group_name, updated_at = now()
WHERE g.tag_group_name <> excluded.tag_group_name;

-- name: upsert_tag!
-- The tag stands in its group, under its parent; no row where the parent is not known yet.
INSERT INTO apl.tag AS t (rakuten_tag_id, tag_name, parent_tag_id, rakuten_tag_group_id)
SELECT :rakuten_tag_id, :tag_name, :parent_tag_id, :rakuten_tag_group_id
WHERE :parent_tag_id::bigint IS NULL
   OR EXISTS (SELECT FROM apl.tag p WHERE p.rakuten_tag_id = :parent_tag_id)
ON CONFLICT (rakuten_tag_id) DO UPDATE
SET tag_name = excluded.tag_name, parent_tag_id = excluded.parent_tag_id,
    rakuten_tag_group_id = excluded.rakuten_tag_group_id,
    updated_at = CASE WHEN (t.tag_name, t.parent_tag_id, t.rakuten_tag_group_id) IS DISTINCT FROM
        (excluded.tag_name, excluded.parent_tag_id, excluded.rakuten_tag_group_id)
        THEN now() ELSE t.updated_at END;

-- name: item_is_active_update!
-- An item is active when its genre and its shop are known; only what changes is touched (seed §6.3).
WITH computed AS (
    SELECT i.id,
           EXISTS (SELECT FROM apl.genre g WHERE g.rakuten_genre_id = i.rakuten_genre_id)
       AND EXISTS (SELECT FROM apl.shop s WHERE s.rakuten_shop_code = i.rakuten_shop_code) AS next_is_active
    FROM apl.item i
)
UPDATE apl.item i
SET is_active = c.next_is_active, updated_at = now()
FROM computed c
WHERE i.id = c.id AND i.is_active IS DISTINCT FROM c.next_is_active;

-- name: targets_ranking_genre_ids
-- The genres whose rankings are wanted.
SELECT rakuten_genre_id::text AS target FROM apl.target_genre_config WHERE is_enabled ORDER BY rakuten_genre_id;

-- name: targets_item_codes
-- The items of today's rankings, and those that an older version applied or nobody yet.
SELECT rakuten_item_code AS target FROM apl.item_rank_snapshot
WHERE fetched_at >= :day_start AND fetched_at < :day_end
UNION
SELECT source_id FROM apl.staging
WHERE source = :source AND entity = 'item' AND applied_version IS DISTINCT FROM :apply_version
ORDER BY target;

-- name: targets_genre_ids
-- The genres of today's items, those that any item names and nobody knows, and those to be applied again.
SELECT DISTINCT i.rakuten_genre_id::text AS target
FROM apl.item i
JOIN apl.staging s ON s.source = :source AND s.entity = 'item' AND s.source_id = i.rakuten_item_code
WHERE i.rakuten_genre_id IS NOT NULL
  AND (
      (s.saved_at >= :day_start AND s.saved_at < :day_end)
      OR NOT EXISTS (SELECT FROM apl.genre g WHERE g.rakuten_genre_id = i.rakuten_genre_id)
  )
UNION
SELECT source_id FROM apl.staging
WHERE source = :source AND entity = 'genre' AND applied_version IS DISTINCT FROM :apply_version
ORDER BY target;

-- name: targets_tag_ids
-- The tags of today's items, those that any item has and nobody knows, and those to be applied again.
SELECT DISTINCT t.rakuten_tag_id::text AS target
FROM apl.item i
JOIN apl.item_tag t ON t.item_id = i.id
JOIN apl.staging s ON s.source = :source AND s.entity = 'item' AND s.source_id = i.rakuten_item_code
WHERE (s.saved_at >= :day_start AND s.saved_at < :day_end)
   OR NOT EXISTS (SELECT FROM apl.tag k WHERE k.rakuten_tag_id = t.rakuten_tag_id)
UNION
SELECT source_id FROM apl.staging
WHERE source = :source AND entity = 'tag' AND applied_version IS DISTINCT FROM :apply_version
ORDER BY target;

-- name: break_runs
-- Runs whose process is not heard of any more are broken.
UPDATE apl.etl_run
SET status = 'broken', reason_code = 'lease_expired', expires_at = NULL, ended_at = now()
WHERE status = 'running' AND expires_at < clock_timestamp()
RETURNING run_id, job_id;

-- name: begin_run!
-- The job is this run's; no row when another run of it is at work, or the net has had one: who saw none may
-- have looked before that one began, and come here after its end.
INSERT INTO apl.etl_run (
    run_id, net_id, env, job_id, job_start_at, apply_version, only_targets, target_limit, from_raw,
    owner_id, expires_at
)
SELECT
    :run_id, :net_id, :env, :job_id, :job_start_at, :apply_version, :only_targets, :target_limit, :from_raw,
    :owner_id,
    clock_timestamp() + make_interval(secs => :lease_seconds)
WHERE NOT EXISTS (
    SELECT FROM apl.etl_run o WHERE o.net_id = CAST(:net_id AS uuid) AND o.job_id = :job_id
)
ON CONFLICT (env, job_id) WHERE status = 'running' DO NOTHING;

-- name: resume_run!
-- A run that broke or failed is at work again, by code of this version.
UPDATE apl.etl_run
SET status = 'running', reason_code = NULL, ended_at = NULL, exit_code = NULL, summary = NULL,
    apply_version = :apply_version, owner_id = :owner_id,
    expires_at = clock_timestamp() + make_interval(secs => :lease_seconds)
WHERE run_id = :run_id AND status IN ('broken', 'failed')
  AND NOT EXISTS (
      SELECT FROM apl.etl_run o
      WHERE o.env = etl_run.env AND o.job_id = etl_run.job_id AND o.status = 'running'
  );

-- name: extend_run!
-- The run is alive; no row when it is not its owner's any more.
UPDATE apl.etl_run SET expires_at = clock_timestamp() + make_interval(secs => :lease_seconds)
WHERE run_id = :run_id AND status = 'running' AND owner_id = :owner_id;

-- name: holds_run^
-- Whether the run is still its owner's, and stays so until this transaction ends.
SELECT run_id FROM apl.etl_run
WHERE run_id = :run_id AND status = 'running' AND owner_id = :owner_id
FOR KEY SHARE;

-- name: end_run!
-- The run is over.
UPDATE apl.etl_run
SET status = :status, reason_code = :reason_code, summary = :summary, exit_code = :exit_code,
    ended_at = now(), expires_at = NULL
WHERE run_id = :run_id AND status = 'running' AND owner_id = :owner_id;

-- name: record_targets!
-- How these targets of a run ended.
INSERT INTO apl.etl_run_target AS t (run_id, target, outcome, attempts, category, http_status, excerpt)
SELECT :run_id, r.*
FROM unnest(
    :targets::text[], :outcomes::text[], :attempts::smallint[], :categories::text[],
    :http_statuses::smallint[], :excerpts::text[]
) AS r
ON CONFLICT (run_id, target) DO UPDATE
SET outcome = excluded.outcome, attempts = excluded.attempts, category = excluded.category,
    http_status = excluded.http_status, excerpt = excluded.excerpt, ended_at = now();

-- name: done_targets
-- The targets that a run is through with; those that failed are to be tried again.
SELECT target, outcome FROM apl.etl_run_target WHERE run_id = :run_id AND outcome <> 'failed';

-- name: select_run^
-- One run.
SELECT * FROM apl.etl_run WHERE run_id = :run_id;

-- name: select_runs
-- The newest runs, of one job or of all.
SELECT * FROM apl.etl_run
WHERE :job_id::text IS NULL OR job_id = :job_id
ORDER BY started_at DESC
LIMIT :limit;

-- name: select_targets
-- The targets of a run that ended so, in their order.
SELECT * FROM apl.etl_run_target
WHERE run_id = :run_id AND (:outcome::text IS NULL OR outcome = :outcome)
ORDER BY target
LIMIT :limit;

-- name: begin_net!
-- A net of jobs begins; no row when another one of this catalog is at work.
INSERT INTO apl.etl_net (net_id, env, job_start_at)
VALUES (:net_id, :env, :job_start_at)
ON CONFLICT (env) WHERE status = 'running' DO NOTHING;

-- name: select_net^
-- The net of this catalog that is at work.
SELECT * FROM apl.etl_net WHERE env = :env AND status = 'running';

-- name: jobs_of_net
-- How the newest run of each job of a net ended.
SELECT DISTINCT ON (job_id) job_id, run_id, status, reason_code FROM apl.etl_run
WHERE net_id = :net_id ORDER BY job_id, started_at DESC;

-- name: end_net!
-- The net is over.
UPDATE apl.etl_net SET status = :status, ended_at = now() WHERE net_id = :net_id AND status = 'running';

-- name: reopen_net^
-- The newest net of this catalog that failed goes on.
UPDATE apl.etl_net SET status = 'running', ended_at = NULL
WHERE net_id = (
    SELECT net_id FROM apl.etl_net WHERE env = :env AND status = 'failed' ORDER BY started_at DESC LIMIT 1
) AND status = 'failed' AND NOT EXISTS (SELECT FROM apl.etl_net WHERE env = :env AND status = 'running')
RETURNING *;

-- name: select_target_genres
-- The genres whose rankings are wanted, or were.
SELECT t.rakuten_genre_id, t.is_enabled, g.genre_name
FROM apl.target_genre_config t
LEFT JOIN apl.genre g USING (rakuten_genre_id)
ORDER BY t.rakuten_genre_id;

-- name: set_target_genre!
-- The ranking of this genre is wanted, or not any more.
INSERT INTO apl.target_genre_config (rakuten_genre_id, is_enabled) VALUES (:rakuten_genre_id, :is_enabled)
ON CONFLICT (rakuten_genre_id) DO UPDATE SET is_enabled = excluded.is_enabled;

-- name: embedding_source_records
-- What the texts of the next items are made of, and the text that stands for each.
SELECT i.id AS item_id, left(i.item_name, :most) AS item_name, left(i.catchcopy, :most) AS catchcopy,
       left(i.item_caption, :most) AS item_caption, i.item_price, left(g.genre_name, :most) AS genre_name,
       ARRAY(
           SELECT left(t.tag_name, :most)
           FROM apl.item_tag it JOIN apl.tag t USING (rakuten_tag_id)
           WHERE it.item_id = i.id
       ) AS tag_names,
       s.source_hash, s.source_version
FROM apl.item i
LEFT JOIN apl.genre g ON g.rakuten_genre_id = i.rakuten_genre_id
LEFT JOIN apl.item_embedding_source s ON s.item_id = i.id
WHERE :behind::uuid IS NULL OR i.id > :behind
ORDER BY i.id
LIMIT :limit;

-- name: embedding_source_upsert!
-- These texts stand; what is the same already is not touched.
INSERT INTO apl.item_embedding_source AS s (item_id, source_text, source_hash, source_version)
SELECT w.item_id, w.source_text, w.source_hash, :source_version
FROM unnest(:item_ids::uuid[], :texts::text[], :hashes::text[]) AS w (item_id, source_text, source_hash)
JOIN apl.item i ON i.id = w.item_id
FOR KEY SHARE OF i
ON CONFLICT (item_id) DO UPDATE
SET source_text = excluded.source_text, source_hash = excluded.source_hash,
    source_version = excluded.source_version, updated_at = now()
WHERE (s.source_hash, s.source_version) IS DISTINCT FROM (excluded.source_hash, excluded.source_version);

-- name: embedding_source_diff_select
-- The next items that this model has not embedded, or when their texts were others (seed §6.4).
SELECT s.item_id, s.source_text, s.source_hash
FROM apl.item_embedding_source s
LEFT JOIN apl.item_embedding e ON e.item_id = s.item_id AND e.model = :model
WHERE (:behind::uuid IS NULL OR s.item_id > :behind)
  AND (e.item_id IS NULL OR e.source_hash IS DISTINCT FROM s.source_hash)
ORDER BY s.item_id
LIMIT :limit;

-- name: embedding_upsert!
-- These vectors stand under the hashes that were read with their texts. An array becomes whatever the
-- column is made of.
INSERT INTO apl.item_embedding (item_id, model, embedding, source_hash)
SELECT w.item_id, :model, w.embedding::real[], w.source_hash
FROM unnest(:item_ids::uuid[], :embeddings::text[], :hashes::text[]) AS w (item_id, embedding, source_hash)
JOIN apl.item i ON i.id = w.item_id
FOR KEY SHARE OF i
ON CONFLICT (item_id, model) DO UPDATE
SET embedding = excluded.embedding, source_hash = excluded.source_hash, updated_at = now();

-- name: embedding_column^
-- What vectors are kept in, and by which pgvector.
SELECT format_type(a.atttypid, a.atttypmod) AS column_type,
       (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS vector_version
FROM pg_attribute a
WHERE a.attrelid = 'apl.item_embedding'::regclass AND a.attname = 'embedding';

-- name: embedding_search_settings^
-- For this transaction the index looks further than usual, and on, until enough vectors of one model are
-- found; in the order of their distance.
SELECT set_config('hnsw.ef_search', :ef_search, true),
       CASE WHEN :scans_on THEN set_config('hnsw.iterative_scan', 'strict_order', true) END;

-- name: embedding_nearest_by_index
-- The nearest vectors of a model by cosine distance, where there is pgvector.
SELECT item_id, distance
FROM (
    SELECT item_id, embedding <=> :embedding::real[]::vector AS distance
    FROM apl.item_embedding
    WHERE model = :model
    ORDER BY embedding <=> :embedding::real[]::vector
    LIMIT :limit
) nearest
ORDER BY distance, item_id;

-- name: embedding_nearest_of_all
-- The nearest vectors of a model by cosine distance, where there are arrays: all of them are looked at.
SELECT e.item_id, 1 - d.dot / (d.norm * q.norm) AS distance
FROM apl.item_embedding e,
    (SELECT sqrt(sum(x::float8 * x)) AS norm FROM unnest(:embedding::real[]) AS x) q,
    LATERAL (
        SELECT sum(a::float8 * b) AS dot, sqrt(sum(a::float8 * a)) AS norm
        FROM unnest(e.embedding, :embedding::real[]) AS u (a, b)
    ) d
WHERE e.model = :model
ORDER BY distance, e.item_id
LIMIT :limit;
