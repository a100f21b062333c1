"""The text of an item says what a person reads of it, in one spelling."""

from __future__ import annotations

import hashlib

import pytest

from app.catalog import embedding_models
from app.catalog.embedding_source import (
    MOST_CHARACTERS,
    MOST_RAW_CHARACTERS,
    MOST_TAGS,
    Record,
    clean,
    source_hash,
    source_text,
)

WHOLE = Record(
    item_name="母の日 カーネーション",
    catchcopy="送料無料",
    item_caption="5号鉢",
    genre_name="花",
    tag_names=("赤", "ピンク"),
    item_price=3980,
)


def test_an_item_has_a_line_for_each_thing_that_is_known_of_it() -> None:
    assert source_text(WHOLE) == (
        "商品名: 母の日 カーネーション\nキャッチコピー: 送料無料\n商品説明: 5号鉢\n"
        "ジャンル: 花\nタグ: ピンク,赤"
    )


def test_the_price_is_in_the_text_only_where_it_is_asked_for() -> None:
    assert source_text(WHOLE, with_price=True) == source_text(WHOLE) + "\n価格: 3980円"


@pytest.mark.parametrize("nothing", [None, "", " \u3000", "<br>", "&nbsp;"])
def test_a_line_without_a_value_is_left_out(nothing: str | None) -> None:
    assert source_text(Record("花", nothing, nothing, nothing, (nothing or "",))) == "商品名: 花"


def test_a_price_of_nothing_is_a_price() -> None:
    assert source_text(Record("花", item_price=0), with_price=True).endswith("価格: 0円")
    assert source_text(Record("花"), with_price=True) == "商品名: 花"


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("A&nbsp;B&amp;C &#12399;&#x3042;", "A B&C はあ"),
        ("a\u3000\u3000b\u00a0 c\r\n\td ", "a b c d"),
        ("ＡＢＣ１２３ ｶｰﾈｰｼｮﾝ ①", "ABC123 カーネーション 1"),
        ('一<br />二<BR>三<font color="red">四</font>', "一 二 三 四"),
        ("<style>p { color: red }</style>花<!-- a > b -->束", "花 束"),
        ("花<script>if (a < b)", "花"),
        ("花<!-- <b>", "花"),
        ("一&lt;br&gt;二&lt;div class=&quot;x&quot;&gt;三", "一 二 三"),
        # titles of goods, as shops have written them
        ("［Limited\u3000Edition］ &lt;CCCD&gt; ／NARUTO", "[Limited Edition] <CCCD> /NARUTO"),
        ("DVD9(片面2層式)&lt;8.5GB&gt;", "DVD9(片面2層式)<8.5GB>"),
        ("サイズ&lt;S&gt; 3 < 5 <CCCD> ＜SALE＞", "サイズ<S> 3 < 5 <CCCD> <SALE>"),
        ("花\u200b束\ufeff\u00ad\x00\x07", "花束"),
        ("half \ud800 a character", "half a character"),
    ],
)  # fmt: skip
def test_a_value_is_read_as_a_person_reads_it(value: str, read: str) -> None:
    assert clean(value) == read


def test_values_cannot_bring_lines_of_their_own() -> None:
    forged = source_text(Record("花\n商品説明: 偽物\u2028タグ: 偽物", item_caption="本物\r\nタグ: x"))
    assert [line.split(":")[0] for line in forged.splitlines()] == ["商品名", "商品説明"]


def test_a_caption_is_cut_where_it_has_been_cleaned() -> None:
    caption = "<br>" * 500 + "花" * MOST_CHARACTERS + "束"
    assert source_text(Record("x", item_caption=caption)) == "商品名: x\n商品説明: " + "花" * MOST_CHARACTERS


def test_what_unfolds_is_cut_behind_it() -> None:
    assert len(clean("\ufdfa" * MOST_CHARACTERS)) <= MOST_CHARACTERS


@pytest.mark.parametrize("piece", ["<!--", "<style", "<style>", "<a ", "&", "&#", "< ", "</script"])
def test_hostile_markup_is_read_in_one_go(piece: str) -> None:
    # Tried from each of its beginnings to the end, this would take minutes.
    assert len(clean(piece * (50 * MOST_RAW_CHARACTERS // len(piece)))) <= MOST_CHARACTERS


def test_tags_have_one_order_and_are_named_once() -> None:
    some = Record("x", tag_names=("赤", "花", "Ａ", "A", " 赤 ", "b"))
    assert source_text(some) == "商品名: x\nタグ: A,b,花,赤"
    assert source_text(some) == source_text(Record("x", tag_names=tuple(reversed(some.tag_names))))


def test_of_many_tags_the_first_ones_in_order_are_named() -> None:
    names = tuple(f"{n:03}" for n in range(MOST_TAGS + 10))
    line = source_text(Record("x", tag_names=tuple(reversed(names)))).splitlines()[-1]
    assert line == "タグ: " + ",".join(names[:MOST_TAGS])


def test_no_text_is_longer_than_the_model_takes() -> None:
    long = "<br>" + "花" * MOST_RAW_CHARACTERS
    tags = tuple(f"{n}{long}" for n in range(50))
    most = source_text(Record(long, long, long, long, tags, 10**18), with_price=True)
    assert len(most.splitlines()) == 6
    assert len(most) < embedding_models.MOST_CHARACTERS


def test_the_hash_is_that_of_the_text_in_utf_8() -> None:
    assert source_hash("花") == hashlib.sha256("花".encode()).hexdigest()
