"""JOB-E-01: the text of each item that is embedded, and the hash by which a change of it is seen."""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from app.adapters import retries
from app.adapters.database import Database
from app.catalog.repos.embedding_repo import EmbeddingRepo, Source
from app.kernel.clock import Clock

EMBEDDING_SOURCE_VERSION = 1
"""Raised by hand in the change after which `source_text` says something else."""

PAGE_ITEMS = 300
MOST_TAGS = 30
MOST_CHARACTERS = 2_000
"""Of one line: captions of shops go on for pages, and a model hears the beginning best."""

MOST_RAW_CHARACTERS = 20_000
"""Of a value before it is cleaned: ten times what is kept, more than any caption that was ever seen."""

# What shops write as markup. Named one by one, since <CCCD> and <All Full PV> are titles of goods.
_ELEMENTS = (
    "br|hr|div|span|font|center|table|thead|tbody|tr|td|th|img|strong|em|big|small|ul|ol|li|dl|dt|dd|h[1-6]|map"
    "|area|form|input|iframe|object|embed|param|marquee|blink|html|head|body|link|meta|style|script"
)
_SHORT_ELEMENTS = "a|b|i|p|s|u"
_UNSEEN = r"<!--.*?(?:-->|\Z)|<(style|script)\b[^<>]*>.*?(?:</\1\s*>|\Z)"
_FLAGS = re.IGNORECASE | re.DOTALL
_MARKUP = re.compile(rf"{_UNSEEN}|</?(?:{_ELEMENTS}|{_SHORT_ELEMENTS})(?:[\s/][^<>]*)?>", _FLAGS)
# Escaped it is markup only when the shop has escaped it twice over; <S> is a size then.
_ESCAPED_MARKUP = re.compile(rf"{_UNSEEN}|</?(?:{_ELEMENTS})(?:[\s/][^<>]*)?>", _FLAGS)
# Nobody sees them, so that texts that look the same are the same. What is white space is none of them.
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Record:
    """What of an item goes into its text, as it is stored."""

    item_name: str
    catchcopy: str | None = None
    item_caption: str | None = None
    genre_name: str | None = None
    tag_names: tuple[str, ...] = ()
    item_price: int | None = None


def source_text(record: Record, *, with_price: bool = False) -> str:
    """The item in up to six lines, each cleaned, none of them empty.

    Without the price, unless it is asked for: each change of one would have the item embedded again.
    """
    tags = sorted({tag for tag in map(clean, record.tag_names) if tag})[:MOST_TAGS]
    lines = {
        "商品名": clean(record.item_name),
        "キャッチコピー": clean(record.catchcopy),
        "商品説明": clean(record.item_caption),
        "ジャンル": clean(record.genre_name),
        "タグ": ",".join(tags)[:MOST_CHARACTERS],
        "価格": f"{record.item_price}円" if with_price and record.item_price is not None else "",
    }
    return "\n".join(f"{name}: {value}" for name, value in lines.items() if value)


def source_hash(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def clean(value: str | None) -> str:
    """The value as a person reads it: no markup, no entities, one spelling of widths, single spaces.

    This is the one place where NFKC is applied: what is stored elsewhere stays as it was given.
    """
    text = _MARKUP.sub(" ", (value or "")[:MOST_RAW_CHARACTERS])
    text = _ESCAPED_MARKUP.sub(" ", html.unescape(text))
    text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    return " ".join(text.split())[:MOST_CHARACTERS].rstrip()


def update_sources(
    db: Database, clock: Clock, *, with_price: bool = False, page_items: int = PAGE_ITEMS,
    limit: int | None = None, dry_run: bool = False,
) -> dict[str, int]:  # fmt: skip
    """Every item's text stands with its hash, written only where it is not what stood already.

    Page by page, each written by a transaction of its own: a run that is cut off leaves whole pages, and
    the next one finds those unchanged. A dry run counts what it would write.
    """
    total = written = 0
    behind: UUID | None = None
    while limit is None or total < limit:
        size = page_items if limit is None else min(page_items, limit - total)
        rows = retries.call(partial(_read, db, behind, size), clock)
        # No transaction is open meanwhile: page after page of hostile markup takes its time.
        changed = _changed(rows, with_price)
        written += len(changed) if dry_run else retries.call(partial(_write, db, changed), clock)
        total += len(rows)
        if len(rows) < size:
            break
        behind = rows[-1].item_id
    return {"total": total, "written": written, "unchanged": total - written}


def _read(db: Database, behind: UUID | None, limit: int) -> list[Any]:
    with db.transaction("catalog") as conn:
        return EmbeddingRepo(conn).source_records(behind=behind, limit=limit, most=MOST_RAW_CHARACTERS)


def _write(db: Database, changed: Sequence[Source]) -> int:
    with db.transaction("catalog") as conn:
        return EmbeddingRepo(conn).write_sources(changed, source_version=EMBEDDING_SOURCE_VERSION)


def _changed(rows: Sequence[Any], with_price: bool) -> list[Source]:
    """The texts that do not stand as they are."""
    sources = [_source(row, with_price) for row in rows]
    return [
        source for source, row in zip(sources, rows, strict=True)
        if (source.source_hash, EMBEDDING_SOURCE_VERSION) != (row.source_hash, row.source_version)
    ]  # fmt: skip


def _source(row: Any, with_price: bool) -> Source:
    record = Record(
        row.item_name, row.catchcopy, row.item_caption, row.genre_name, tuple(row.tag_names), row.item_price
    )
    text = source_text(record, with_price=with_price)
    return Source(row.item_id, text, source_hash(text))
