"""JOB-E-02: the vector of each item's text, by one model; and which items are nearest to a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from app.adapters import logs, retries
from app.adapters.database import Database
from app.catalog.embedding_models import Model, ModelUnusable, TextRefused
from app.catalog.repos.embedding_repo import Embedded, EmbeddingRepo, Near, Source
from app.kernel import errors
from app.kernel.clock import Clock

log = logs.get(__name__)

BATCH_TEXTS = 64
STORM = 20
"""So many texts refused in a row are not the fault of the texts."""

MOST_CHARACTERS_OF_A_QUESTION = 2_000


@dataclass(slots=True)
class _Tally:
    """What came of the texts so far."""

    total: int = 0
    embedded: int = 0
    failed: int = 0
    in_a_row: int = 0


def update_embeddings(
    db: Database, clock: Clock, model: Model, *, batch_texts: int = BATCH_TEXTS,
    limit: int | None = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Every text stands with its vector of this model, under the hash that was read with the text.

    Each batch is written as soon as it is embedded, and what is written is not embedded again: a run that
    was cut off goes on where it stopped. A text that changes meanwhile differs from the hash, and is for
    the next run. Other models' vectors stay. A text that the model refuses is counted, and for the next run
    as well. ModelUnusable where no text would do better. A dry run embeds nothing, and counts what it would.
    """
    _check_width(db, model)
    tally = _Tally()
    behind: UUID | None = None
    while limit is None or tally.total < limit:
        size = batch_texts if limit is None else min(batch_texts, limit - tally.total)
        sources = retries.call(partial(_next_texts, db, model, behind, size), clock)
        tally.total += len(sources)
        if not dry_run:
            embedded = _embed(model, sources, tally)
            tally.embedded += retries.call(partial(_write, db, model, embedded), clock)
        if tally.in_a_row >= STORM:
            raise ModelUnusable(f"The model {model.name} refuses one text after the other.")
        if len(sources) < size:
            break
        behind = sources[-1].item_id
    return {
        "total": tally.total, "embedded": tally.embedded, "failed": tally.failed, "model": model.name,
    }  # fmt: skip


def nearest(db: Database, model: Model, to: str | Sequence[float], *, limit: int = 10) -> list[Near]:
    """The items of this model whose vectors are nearest to a text's or to this one, the nearest first.

    By cosine distance, items of equal distance by their ids. Where there is pgvector its index finds them,
    which may miss one; elsewhere every vector is looked at. At most 1,000.
    """
    if isinstance(to, str):
        text = to[:MOST_CHARACTERS_OF_A_QUESTION]
        vector = _checked(model, model.embed([text]), 1)[0]
    else:
        vector = to
    if len(vector) != model.dimensions or not _has_direction(vector):
        raise errors.Refused(
            f"The model {model.name} compares vectors of {model.dimensions} numbers that are not all zero."
        )
    if limit < 1:
        return []
    with db.transaction("catalog") as conn:
        return EmbeddingRepo(conn).nearest(vector, model=model.name, limit=limit)


def _check_width(db: Database, model: Model) -> None:
    with db.transaction("catalog") as conn:
        column = EmbeddingRepo(conn).column()
    if column.width is not None and column.width != model.dimensions:
        raise ModelUnusable(
            f"The database keeps vectors of {column.width} numbers, and those of {model.name} have"
            f" {model.dimensions}: set HEADWORKS_CATALOG_EMBEDDING_DIMENSIONS to {column.width}, or choose a"
            " model that has so many."
        )


def _next_texts(db: Database, model: Model, behind: UUID | None, limit: int) -> list[Source]:
    with db.transaction("catalog") as conn:
        return EmbeddingRepo(conn).source_diff(model=model.name, behind=behind, limit=limit)


def _write(db: Database, model: Model, embedded: Sequence[Embedded]) -> int:
    with db.transaction("catalog") as conn:
        return EmbeddingRepo(conn).write_embeddings(embedded, model=model.name)


def _embed(model: Model, sources: Sequence[Source], tally: _Tally) -> list[Embedded]:
    """The vectors of these texts, without those that are refused: halved until only they are left over."""
    if not sources:
        return []
    try:
        vectors = _checked(model, model.embed([one.source_text for one in sources]), len(sources))
    except TextRefused as refusal:
        if len(sources) > 1:
            half = len(sources) // 2
            return [*_embed(model, sources[:half], tally), *_embed(model, sources[half:], tally)]
        return _refused(model, sources[0], refusal.sentence, tally)
    found = []
    for source, vector in zip(sources, vectors, strict=True):
        if _has_direction(vector):
            tally.in_a_row = 0
            found.append(Embedded(source.item_id, vector, source.source_hash))
        else:
            _refused(model, source, "its vector has no direction", tally)
    return found


def _refused(model: Model, source: Source, why: str, tally: _Tally) -> list[Embedded]:
    log.warning("embedding_refused", item_id=str(source.item_id), model=model.name, reason=why)
    tally.failed += 1
    tally.in_a_row += 1
    return []


def _checked(model: Model, vectors: Sequence[Sequence[float]], count: int) -> Sequence[Sequence[float]]:
    """The vectors, one for each text and as wide as the model says."""
    if len(vectors) != count or any(len(vector) != model.dimensions for vector in vectors):
        raise ModelUnusable(
            f"The model {model.name} gives no vector of {model.dimensions} numbers for each text."
        )
    return vectors


def _has_direction(vector: Sequence[float]) -> bool:
    """Whether it can be compared: some number is not zero, and none too large for single precision."""
    norm = math.hypot(*vector)
    return math.isfinite(norm) and 1e-18 < norm < 1e18
