"""How the record of a target is fetched, for each entity."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.catalog.client import TAGS_AT_ONCE, RakutenClient
from app.catalog.etl_service import Fetcher
from app.catalog.failures import TargetFailure
from app.catalog.normalize import IN_ORDER
from app.catalog.raw_store import RawStore
from app.catalog.repos.staging_repo import Latest
from app.kernel import errors


def of_ranking(client: RakutenClient, targets: Sequence[str]) -> Fetcher:
    """Rankings, one by one."""
    return lambda target: client.fetch_ranking(genre_id=_id(target))


def of_item(client: RakutenClient, targets: Sequence[str]) -> Fetcher:
    """Items, one by one: the API knows no other way."""
    return lambda target: client.fetch_item(item_code=target)


def of_genre(client: RakutenClient, targets: Sequence[str]) -> Fetcher:
    """Genres, one by one."""
    return lambda target: client.fetch_genre(genre_id=_id(target))


class TagsAtOnce:
    """Tags, ten by one request: a tenth of the time at the pace that the API allows."""

    def __init__(self, client: RakutenClient, targets: Sequence[str]) -> None:
        self._client = client
        self._of: dict[str, Sequence[str]] = {}
        for start in range(0, len(targets), TAGS_AT_ONCE):
            some = targets[start : start + TAGS_AT_ONCE]
            self._of |= dict.fromkeys(some, some)
        self._found: dict[str, Mapping[str, Any]] = {}
        self._asked: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, target: str) -> Mapping[str, Any]:
        with self._lock:
            if target not in self._asked and target not in self._found:
                self._ask_for(target)
        if target not in self._found:
            raise TargetFailure("not_found")
        return self._found[target]

    def _ask_for(self, target: str) -> None:
        some = self._of.get(target, (target,))
        try:
            self._found |= self._client.fetch_tags(tag_ids=[_id(one) for one in some])
        except TargetFailure as failure:
            if failure.category != "target_refused" or len(some) == 1:
                raise
            # Which of them is none is not said: from now on each is asked for alone.
            self._of |= {one: (one,) for one in some}
            self._ask_for(target)
        else:
            self._asked.update(some)


class RawRecords:
    """Records from the raw store, as they were fetched last: their lists stand in their own order again."""

    def __init__(self, store: RawStore, ledger: Mapping[str, Latest]) -> None:
        self._store = store
        self._ledger = ledger

    def __call__(self, target: str) -> Mapping[str, Any]:
        if target not in self._ledger:
            raise TargetFailure("not_found")
        try:
            body = self._store.get_json(s3_key=self._ledger[target].s3_key)
        except errors.Fatal as error:
            raise TargetFailure("raw_store", excerpt=error.sentence) from error
        in_order = body.pop(IN_ORDER, {})
        return {**body, **in_order}


FETCHERS: dict[str, Callable[[RakutenClient, Sequence[str]], Fetcher]] = {
    "ranking": of_ranking, "item": of_item, "genre": of_genre, "tag": TagsAtOnce,
}  # fmt: skip


def _id(target: str) -> int:
    if not (target.isascii() and target.isdigit()):
        raise TargetFailure("target_refused", excerpt=f"{target} is no number")
    return int(target)
