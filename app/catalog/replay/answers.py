"""What a request is answered with, as the real API does; no sockets here.

Known paths and versions, the checks of the keys, and the four APIs. Where a record was put by a test, it
is answered with as it is: a record in the spelling of 2026 (`genre`, `ancestors`, …) comes out so.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from app.catalog.replay import recordings, shapes
from app.catalog.replay.shapes import Record

# Path and the versions that are served; any other version is answered as a retired one.
PATHS = {
    "/ichibams/api/IchibaItem/Search/": ("item", ("20260401", "20260701")),
    "/ichibaranking/api/IchibaItem/Ranking/": ("ranking", ("20220601",)),
    "/ichibagt/api/IchibaGenre/Search/": ("genre", ("20260401", "20260701")),
    "/ichibagt/api/IchibaTag/Search/": ("tag", ("20140222",)),
    "/services/api/IchibaItem/Search/": ("item", ("20120723", "20140222", "20170706", "20220601")),
    "/services/api/IchibaItem/Ranking/": ("ranking", ("20120927", "20170628", "20220601")),
    "/services/api/IchibaGenre/Search/": ("genre", ("20120723", "20140222")),
    "/services/api/IchibaTag/Search/": ("tag", ("20140222",)),
}
OLD_HOST = "/services/api/"  # knows no accessKey
MOST_TAGS = 10
ASKED_OF_RANKINGS = ("genreId", "age", "sex", "carrier", "page", "period")  # the rest changes nothing

Query = Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """Status and body of an answer."""

    status: int
    body: bytes


class Answers:
    """The answers to all requests; `put` and `remove` change what there is, from any thread."""

    def __init__(self) -> None:
        index = recordings.index()
        known = {"item": index.items, "ranking": index.rankings, "genre": index.genres, "tag": index.tags}
        self._records = {
            entity: {record_id: versions[-1] for record_id, versions in found.items()}
            for entity, found in known.items()
        }
        self._recorded = index.answers
        self._lock = threading.Lock()
        self._prepared: dict[tuple[str, str, bool], Answer] = {}
        self._apis: Mapping[str, Callable[[str, Query], Answer]] = {
            "item": self._item,
            "ranking": self._ranking,
            "genre": self._genre,
            "tag": self._tag,
        }

    def put(self, entity: str, record_id: str, record: Record) -> None:
        """The id is answered with this flat record from now on."""
        with self._lock:
            self._records[entity][record_id] = copy.deepcopy(record)
            for is_wrapped in (True, False):
                self._prepared.pop((entity, record_id, is_wrapped), None)

    def remove(self, entity: str, record_id: str) -> None:
        """The id is unknown from now on. KeyError when it was before."""
        with self._lock:
            del self._records[entity][record_id]

    def record(self, entity: str, record_id: str) -> Record:
        """A copy of the flat record of an id. KeyError when there is none."""
        return copy.deepcopy(self._records[entity][record_id])

    def ids(self, entity: str) -> list[str]:
        """The ids that there are."""
        with self._lock:
            return list(self._records[entity])

    def answer(self, path: str, query: Query, access_key: str | None = None) -> Answer:
        """What the API answers; `access_key` is the one of the headers."""
        api, _, version = path.rpartition("/")
        if f"{api}/" not in PATHS:
            return _own_error(404, "not_found", "there is no such service")
        entity, versions = PATHS[f"{api}/"]
        if version not in versions:
            return _error("400_retired_version")
        if not query.get("applicationId"):
            return _error("400_wrong_parameter_applicationId")
        if not (access_key or query.get("accessKey") or path.startswith(OLD_HOST)):
            return _error("400_accessKey_missing")
        return self._apis[entity](path, query)

    def items(self, found: tuple[Record, ...], query: Query) -> Answer:
        """The answer of an item search that found these items, in the shape that was asked for."""
        return Answer(200, _body(shapes.envelope(found), _is_wrapped(query)))

    def _item(self, _path: str, query: Query) -> Answer:
        if not _page_is_known(query):
            return _error("400_wrong_parameter_page")
        code = query.get("itemCode")
        if code is None:
            return self._search(query)
        item = self._records["item"].get(code)
        in_stock_only = query.get("availability", "1") != "0"
        if item is None or (in_stock_only and item.get("availability") == 0):
            return self.items((), query)
        return self._prepare("item", code, query)

    def _search(self, query: Query) -> Answer:
        """Another search than for one item: as it was recorded, or nothing found."""
        if not {"keyword", "shopCode", "genreId"} & set(query):
            return _error("400_wrong_parameter_no_condition")
        recorded = self._recorded.get(("item", recordings.question(query)))
        return Answer(200, _body(recorded or shapes.envelope(()), _is_wrapped(query)))

    def _ranking(self, _path: str, query: Query) -> Answer:
        if not _page_is_known(query):
            return _error("400_wrong_parameter_page")
        asked = recordings.question({key: query[key] for key in ASKED_OF_RANKINGS if key in query})
        genre_id = query.get("genreId", "0")
        if {key for key, _ in asked} <= {"genreId"}:
            if genre_id in self._records["ranking"]:
                return self._prepare("ranking", genre_id, query)
        # by age, sex, further pages, of this hour: as recorded
        elif recorded := self._recorded.get(("ranking", asked)):
            return Answer(200, _body(recorded, _is_wrapped(query)))
        return _error("404_ranking_genre_without_data")

    def _genre(self, path: str, query: Query) -> Answer:
        genre_id = query.get("genreId", "")
        if genre_id in self._records["genre"]:
            return self._prepare("genre", genre_id, query)
        old = path.startswith(OLD_HOST)
        return _error("400_wrong_parameter_genreId" if old else "400_wrong_parameter_genreId_2026")

    def _tag(self, _path: str, query: Query) -> Answer:
        ids = query.get("tagId", "").split(",")
        if not all(re.fullmatch(r"[1-9]\d{0,9}", tag_id, re.ASCII) for tag_id in ids) or len(ids) > MOST_TAGS:
            # no such answer is recorded: worded as those for genres are
            return _own_error(400, "wrong_parameter", "wrong tagId format")
        groups: dict[int, Record] = {}
        for tag_id in dict.fromkeys(ids):
            for group in self._records["tag"].get(tag_id, {}).get("tagGroups", []):
                before = groups.get(group["tagGroupId"], {"tags": []})
                groups[group["tagGroupId"]] = {**group, "tags": [*before["tags"], *group["tags"]]}
        return Answer(200, _body({"tagGroups": list(groups.values())}, _is_wrapped(query)))

    def _prepare(self, entity: str, record_id: str, query: Query) -> Answer:
        """Made once for each record and shape, since thousands a second are asked for."""
        key = (entity, record_id, _is_wrapped(query))
        prepared = self._prepared.get(key)
        if prepared is None:
            with self._lock:  # so that no older record is prepared after a newer one was put
                record = self._records[entity].get(record_id)
                found = (record,) if record is not None else ()
                whole = shapes.envelope(found) if entity == "item" else record or {}
                prepared = self._prepared[key] = Answer(200, _body(whole, key[2]))
        return prepared


def _is_wrapped(query: Query) -> bool:
    return query.get("formatVersion", "1") != "2"


def _body(answer: Record, is_wrapped: bool) -> bytes:
    return orjson.dumps(shapes.wrapped(answer) if is_wrapped else answer)


def _page_is_known(query: Query) -> bool:
    return re.fullmatch(r"[1-9]\d{0,2}", query.get("page", "1"), re.ASCII) is not None


def _error(name: str) -> Answer:
    recording = recordings.error(name)
    return Answer(recording.status, recording.body)


def _own_error(status: int, code: str, sentence: str) -> Answer:
    return Answer(status, orjson.dumps({"error": code, "error_description": sentence}))
