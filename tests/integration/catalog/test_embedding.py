"""Every item has its text, every text its vector, and the nearest ones are found."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import textwrap
from collections.abc import Sequence

import pytest

from app.catalog import embedding, embedding_source
from app.catalog.embedding import update_embeddings
from app.catalog.embedding_models import ModelUnusable
from app.catalog.embedding_source import source_hash, update_sources
from app.catalog.repos.embedding_repo import EmbeddingRepo
from tests.integration.catalog.shelves import Remembering, Shelf

# -- JOB-E-01


def test_the_text_is_of_the_item_its_genre_and_its_tags(array_shelf: Shelf) -> None:
    array_shelf.sql("INSERT INTO apl.genre (rakuten_genre_id, genre_name) VALUES (7, '花')")
    array_shelf.sql("INSERT INTO apl.tag_group VALUES (1, '色')")
    array_shelf.sql(
        "INSERT INTO apl.tag (rakuten_tag_id, tag_name, rakuten_tag_group_id)"
        " VALUES (1, '赤', 1), (2, 'ピンク', 1)"
    )
    (item_id,) = array_shelf.add("母の日", catchcopy="送料&nbsp;無料", caption="鉢", price=3980, genre=7)
    array_shelf.sql(
        "INSERT INTO apl.item_tag SELECT %(id)s, t FROM generate_series(1, 3) t", id=item_id
    )  # nobody knows the third yet
    update_sources(array_shelf.db, array_shelf.clock)
    ((text, hash_, version),) = array_shelf.sql(
        "SELECT source_text, source_hash, source_version FROM apl.item_embedding_source"
    )
    assert text == ("商品名: 母の日\nキャッチコピー: 送料 無料\n商品説明: 鉢\nジャンル: 花\nタグ: ピンク,赤")
    assert (hash_, version) == (source_hash(text), embedding_source.EMBEDDING_SOURCE_VERSION)
    update_sources(array_shelf.db, array_shelf.clock, with_price=True)
    assert array_shelf.sql("SELECT source_text FROM apl.item_embedding_source") == [
        (f"{text}\n価格: 3980円",)
    ]


def test_only_texts_that_differ_are_written(array_shelf: Shelf) -> None:
    _, second, third = array_shelf.add("一", "二", "三")
    update = "SELECT item_id, updated_at FROM apl.item_embedding_source ORDER BY 1"
    assert update_sources(array_shelf.db, array_shelf.clock) == {"total": 3, "written": 3, "unchanged": 0}
    before = array_shelf.sql(update)
    assert update_sources(array_shelf.db, array_shelf.clock) == {"total": 3, "written": 0, "unchanged": 3}
    array_shelf.sql("UPDATE apl.item SET item_name = '２' WHERE id = %(id)s", id=second)
    array_shelf.sql("UPDATE apl.item SET item_name = ' 三 ', item_price = 5 WHERE id = %(id)s", id=third)
    assert update_sources(array_shelf.db, array_shelf.clock) == {"total": 3, "written": 1, "unchanged": 2}
    changed = [old[0] for old, new in zip(before, array_shelf.sql(update), strict=True) if old != new]
    assert (changed, len(before)) == ([second], 3)


def test_another_version_of_the_text_is_written_though_it_says_the_same(
    array_shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    array_shelf.texts("一", "二")
    monkeypatch.setattr(embedding_source, "EMBEDDING_SOURCE_VERSION", 99)
    assert update_sources(array_shelf.db, array_shelf.clock)["written"] == 2
    assert array_shelf.sql("SELECT DISTINCT source_version FROM apl.item_embedding_source") == [(99,)]


@pytest.mark.parametrize(("count", "page"), [(0, 3), (2, 3), (3, 3), (7, 3), (6, 3)])
def test_every_item_is_on_one_page(array_shelf: Shelf, count: int, page: int) -> None:
    array_shelf.add(*map(str, range(count)))
    found = update_sources(array_shelf.db, array_shelf.clock, page_items=page)
    assert found == {"total": count, "written": count, "unchanged": 0}
    assert array_shelf.sql("SELECT count(*) FROM apl.item_embedding_source") == [(count,)]


def test_a_page_that_fails_takes_no_page_before_it_along(
    array_shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    array_shelf.add("a", "b", "c", "broken", "e")
    real = embedding_source.source_text

    def text_of(record: embedding_source.Record, *, with_price: bool) -> str:
        if record.item_name == "broken":
            raise KeyboardInterrupt
        return real(record, with_price=with_price)

    monkeypatch.setattr(embedding_source, "source_text", text_of)
    with pytest.raises(KeyboardInterrupt):
        update_sources(array_shelf.db, array_shelf.clock, page_items=2)
    assert array_shelf.sql("SELECT count(*) FROM apl.item_embedding_source") == [(2,)]
    monkeypatch.undo()
    assert update_sources(array_shelf.db, array_shelf.clock)["written"] == 3


def test_a_caption_of_megabytes_is_not_fetched_whole(array_shelf: Shelf) -> None:
    array_shelf.add("花", caption="花" * 1_000_000)
    with array_shelf.db.transaction("catalog") as conn:
        (row,) = EmbeddingRepo(conn).source_records(behind=None, limit=9, most=100)
    assert row.item_caption == "花" * 100
    update_sources(array_shelf.db, array_shelf.clock)
    assert array_shelf.sql("SELECT length(source_text) FROM apl.item_embedding_source") == [(2_013,)]


def test_an_item_that_goes_meanwhile_costs_no_other_its_text(
    array_shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = array_shelf.add("一", "二")
    real = embedding_source.source_hash

    def hash_of(text: str) -> str:
        array_shelf.sql("DELETE FROM apl.item WHERE id = %(id)s", id=gone)
        return real(text)

    monkeypatch.setattr(embedding_source, "source_hash", hash_of)
    assert update_sources(array_shelf.db, array_shelf.clock)["written"] == 1
    assert array_shelf.sql("SELECT item_id FROM apl.item_embedding_source") == [(stays,)]


# -- JOB-E-02, on both kinds of servers


def test_every_text_is_embedded_once(shelf: Shelf) -> None:
    ids = shelf.texts(*map(str, range(7)))
    model = Remembering()
    found = update_embeddings(shelf.db, shelf.clock, model, batch_texts=3)
    assert found == {"total": 7, "embedded": 7, "failed": 0, "model": "remembering"}
    assert [len(some) for some in model.asked] == [3, 3, 1]
    hashes = dict(shelf.sql("SELECT item_id, source_hash FROM apl.item_embedding_source"))
    assert shelf.vectors(model.name) == hashes and set(hashes) == set(ids)
    assert update_embeddings(shelf.db, shelf.clock, model)["total"] == 0
    assert len(model.texts) == len(set(model.texts)) == 7


def test_a_vector_stands_as_the_model_gave_it(shelf: Shelf) -> None:
    shelf.texts("花")
    given = [random.Random(7).uniform(-1, 1) for _ in range(512)]
    update_embeddings(shelf.db, shelf.clock, Remembering(vector=lambda text: given))
    ((stored,),) = shelf.sql("SELECT embedding::real[] FROM apl.item_embedding")
    assert stored == pytest.approx(given, rel=1e-6)


def test_a_changed_text_is_embedded_again_and_no_other(shelf: Shelf) -> None:
    _, second = shelf.texts("一", "二")
    model = Remembering()
    update_embeddings(shelf.db, shelf.clock, model)
    shelf.sql("UPDATE apl.item SET item_name = '弐' WHERE id = %(id)s", id=second)
    update_sources(shelf.db, shelf.clock)
    assert update_embeddings(shelf.db, shelf.clock, model)["embedded"] == 1
    assert model.texts[2:] == ["商品名: 弐"]
    assert shelf.vectors(model.name)[second] == source_hash("商品名: 弐")


def test_another_model_embeds_everything_and_leaves_the_old_vectors(shelf: Shelf) -> None:
    shelf.texts("一", "二")
    update_embeddings(shelf.db, shelf.clock, Remembering(name="old"))
    old = shelf.sql("SELECT * FROM apl.item_embedding ORDER BY 1")
    assert update_embeddings(shelf.db, shelf.clock, Remembering(name="new"))["embedded"] == 2
    assert shelf.sql("SELECT * FROM apl.item_embedding WHERE model = 'old' ORDER BY 1") == old
    assert len(shelf.vectors("new")) == 2


def test_a_vector_stands_under_the_hash_that_was_read_with_its_text(shelf: Shelf) -> None:
    (item_id,) = shelf.texts("before")

    def meanwhile(texts: Sequence[str]) -> None:
        shelf.sql("UPDATE apl.item SET item_name = 'after'")
        update_sources(shelf.db, shelf.clock)

    update_embeddings(shelf.db, shelf.clock, Remembering(before=meanwhile))
    assert shelf.vectors("remembering") == {item_id: source_hash("商品名: before")}
    model = Remembering()
    assert update_embeddings(shelf.db, shelf.clock, model)["embedded"] == 1
    assert model.texts == ["商品名: after"]
    assert shelf.vectors("remembering") == {item_id: source_hash("商品名: after")}


def test_an_item_that_goes_while_it_is_embedded_costs_no_other_its_vector(shelf: Shelf) -> None:
    gone, stays = shelf.texts("一", "二")

    def meanwhile(texts: Sequence[str]) -> None:
        shelf.sql("DELETE FROM apl.item WHERE id = %(id)s", id=gone)

    assert update_embeddings(shelf.db, shelf.clock, Remembering(before=meanwhile))["embedded"] == 1
    assert set(shelf.vectors("remembering")) == {stays}


def test_texts_that_the_model_refuses_cost_no_other_its_vector(shelf: Shelf) -> None:
    names = ["a", "bad 1", "c", "d", "e", "f", "bad 2", "bad 3", "i"]
    ids = shelf.texts(*names)
    model = Remembering(refused=("bad",))
    found = update_embeddings(shelf.db, shelf.clock, model, batch_texts=5)
    assert (found["total"], found["embedded"], found["failed"]) == (9, 6, 3)
    good = {item_id for item_id, name in zip(ids, names, strict=True) if "bad" not in name}
    assert set(shelf.vectors(model.name)) == good
    again = update_embeddings(shelf.db, shelf.clock, Remembering())
    assert (again["total"], again["embedded"]) == (3, 3)


@pytest.mark.parametrize("number", [0.0, math.nan, math.inf, 1e300])
def test_a_vector_without_a_direction_is_a_refusal(shelf: Shelf, number: float) -> None:
    shelf.texts("good", "bad")
    model = Remembering(vector=lambda text: [number if "bad" in text else 1.0] * 512)
    found = update_embeddings(shelf.db, shelf.clock, model)
    assert (found["embedded"], found["failed"]) == (1, 1)


def test_a_model_that_refuses_text_after_text_is_stopped(array_shelf: Shelf) -> None:
    array_shelf.texts("good", *(f"bad {n}" for n in range(2 * embedding.STORM)), "good")
    with pytest.raises(ModelUnusable, match="one text after the other"):
        update_embeddings(array_shelf.db, array_shelf.clock, Remembering(refused=("bad",)), batch_texts=10)
    assert len(array_shelf.vectors("remembering")) == 1


@pytest.mark.parametrize("answer", [[], [[1.0] * 512] * 3, [[1.0] * 511] * 2])
def test_an_answer_of_another_shape_is_not_guessed_at(
    array_shelf: Shelf, answer: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    array_shelf.texts("一", "二")
    model = Remembering()
    monkeypatch.setattr(model, "embed", lambda texts: answer)
    with pytest.raises(ModelUnusable, match="512 numbers"):
        update_embeddings(array_shelf.db, array_shelf.clock, model)
    assert array_shelf.vectors(model.name) == {}


def test_only_so_many_texts_are_embedded_as_are_asked_for(array_shelf: Shelf) -> None:
    array_shelf.texts(*map(str, range(5)))
    model = Remembering()
    for total in (3, 2, 0):
        found = update_embeddings(array_shelf.db, array_shelf.clock, model, batch_texts=2, limit=3)
        assert (found["total"], found["embedded"]) == (total, total)


def test_a_dry_run_writes_nothing(array_shelf: Shelf) -> None:
    array_shelf.add("一", "二")
    assert update_sources(array_shelf.db, array_shelf.clock, dry_run=True)["written"] == 2
    assert array_shelf.sql("SELECT * FROM apl.item_embedding_source") == []
    update_sources(array_shelf.db, array_shelf.clock)
    model = Remembering()
    found = update_embeddings(array_shelf.db, array_shelf.clock, model, dry_run=True)
    assert (found["total"], found["embedded"], model.asked) == (2, 0, [])
    assert array_shelf.vectors(model.name) == {}


KILLED = textwrap.dedent("""
    import sys, time
    from app.adapters.database import Database
    from app.catalog.embedding import update_embeddings
    from app.kernel.clock import SystemClock
    from tests.integration.catalog.shelves import Remembering
    batches = []
    def before(texts):
        batches.append(texts)
        if len(batches) == 3:
            print("in the third", flush=True)
            time.sleep(600)
    update_embeddings(Database(sys.argv[1]), SystemClock(), Remembering(before=before), batch_texts=2)
""")


def test_a_run_that_is_killed_goes_on_where_it_stopped(shelf: Shelf) -> None:
    shelf.texts(*map(str, range(7)))
    url = shelf.db._engine.url.render_as_string(hide_password=False).replace("+psycopg2", "")
    with subprocess.Popen([sys.executable, "-c", KILLED, url], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in the third\n"
        process.kill()
    before = shelf.sql("SELECT item_id, updated_at FROM apl.item_embedding ORDER BY 1")
    assert len(before) == 4
    model = Remembering()
    assert update_embeddings(shelf.db, shelf.clock, model, batch_texts=2)["embedded"] == 3
    assert model.texts == ["商品名: 4", "商品名: 5", "商品名: 6"]
    assert shelf.sql("SELECT item_id, updated_at FROM apl.item_embedding ORDER BY 1")[:4] == before
