"""The recorded answers, and the items, rankings, genres and tags that they tell of."""

from __future__ import annotations

import functools
import json
import re
import urllib.parse
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import orjson

from app.catalog.replay import packing, shapes
from app.catalog.replay.shapes import Record

ARCHIVE = Path(__file__).with_name("recordings.zip")

# Who asks and in which shape: the same question with others of these has the same answer.
NOT_THE_QUESTION = ("applicationId", "accessKey", "affiliateId", "format", "formatVersion", "callback")
THE_SAME_AS_ABSENT = {("carrier", "0"), ("page", "1"), ("genreId", "0")}

Versions = Mapping[str, tuple[Record, ...]]
Question = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Recording:
    """One recorded answer as it came; `real` is false where only its text is known, not the whole answer."""

    path: str
    entity: str
    status: int
    uri: str | None
    date: str | None
    real: bool
    format_version: int | None
    body: bytes


@dataclass(frozen=True)
class Index:
    """Flat records by the id that the API is asked for, each in all versions, the oldest first.

    An item is as item search gives it. Those that only rankings tell of are brought into that shape; the
    texts for mobile phones (`carrier` 1 and 2) count where there are no others. A genre whose own answer
    was not recorded is put together from the answers that name it: its brothers and children are those
    that became known. A tag is the whole answer about it: its group, with this tag alone. `answers` are
    whole flat answers to questions.
    """

    items: Versions
    rankings: Versions
    genres: Versions
    tags: Versions
    answers: Mapping[tuple[str, Question], Record]


@functools.cache
def answers() -> tuple[Recording, ...]:
    """All recordings, ordered by path."""
    names = [field.name for field in fields(Recording) if field.name != "body"]
    with zipfile.ZipFile(ARCHIVE) as archive:
        return tuple(
            Recording(**{name: entry[name] for name in names}, body=archive.read(entry["path"]))
            for entry in json.loads(archive.read(packing.MANIFEST))
        )


@functools.cache
def error(name: str) -> Recording:
    """The error answer of that name, such as `429_too_many_requests`. KeyError when there is none."""
    for recording in answers():
        if recording.path == f"errors/{name}.json":
            return recording
    raise KeyError(name)


def question(query: Mapping[str, str]) -> Question:
    """What a query asks for, whoever asks and in whichever shape."""
    asked = {(key, value) for key, value in query.items() if key not in NOT_THE_QUESTION}
    return frozenset(asked - THE_SAME_AS_ABSENT)


@functools.cache
def index() -> Index:
    """The recorded answers taken apart."""
    found = sorted((one for one in answers() if one.status == 200), key=_recorded_at)
    flat = [(one, _question_of(one), shapes.flat(orjson.loads(one.body))) for one in found]
    searches = [(asked, answer) for one, asked, answer in flat if one.entity == "item"]
    rankings = [(asked, answer) for one, asked, answer in flat if one.entity == "ranking"]
    genres = [answer for one, _, answer in flat if one.entity == "genre"]
    tags = [answer for one, _, answer in flat if one.entity == "tag"]
    return Index(
        items=_items(searches, rankings),
        rankings=_versions(("0", answer) for asked, answer in rankings if not asked),
        genres=_genres(genres),
        tags=_tags([*genres, *tags]),
        answers={(one.entity, asked): answer for one, asked, answer in flat if one.uri},
    )


def _question_of(recording: Recording) -> Question:
    return question(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(recording.uri or "").query)))


def _recorded_at(recording: Recording) -> tuple[datetime, str]:
    """Some tell when they were recorded, others only the day on which they were kept."""
    day = re.search(r"\d{4}-\d\d-\d\d", recording.date or "")
    if day:
        return datetime.fromisoformat(day[0]).replace(tzinfo=UTC), recording.path
    return parsedate_to_datetime(recording.date or ""), recording.path


def _items(searches: list[tuple[Question, Record]], rankings: list[tuple[Question, Record]]) -> Versions:
    mobile = [answer for asked, answer in searches if "carrier" in dict(asked)]
    desktop = [answer for asked, answer in searches if "carrier" not in dict(asked)]
    ranked = [{"Items": list(map(shapes.searched, answer["Items"]))} for _, answer in rankings]
    sources = (mobile, ranked, desktop)  # the last that knows an item tells its versions
    found: dict[str, tuple[Record, ...]] = {}
    for source in sources:
        found |= _versions((str(item["itemCode"]), item) for one in source for item in one.get("Items", []))
    return found


def _genres(recorded: list[Record]) -> Versions:
    named: dict[str, Record] = {}
    for one in (one for answer in recorded for one in _named_in(answer)):
        genre_id = str(one["current"]["genreId"])
        told = {key: value for key, value in one.items() if value}
        named[genre_id] = {**named.get(genre_id, one), **told}
    own = _versions((str(answer["current"]["genreId"]), answer) for answer in recorded)
    return {**_versions(named.items()), **own}


def _named_in(answer: Record) -> Iterator[Record]:
    """What an answer tells about each genre that is not its own."""
    parents, current, children = answer["parents"], answer["current"], answer["children"]
    family = [current, *answer.get("brothers", [])]
    for genre in family[1:]:
        yield _genre(parents, genre, family)
    for at, genre in enumerate(parents):
        last = at == len(parents) - 1
        yield {**_genre(parents[:at], genre, []), "children": family if last else []}
    above = [*parents, current] if current["genreLevel"] else []  # the root is nobody's parent
    for genre in children:
        yield _genre(above, genre, children)


def _genre(parents: list[Record], current: Record, family: list[Record]) -> Record:
    brothers = [genre for genre in family if genre["genreId"] != current["genreId"]]
    whole = {"parents": parents, "current": current, "brothers": brothers}
    return {**whole, "children": [], "tagGroups": []}


def _tags(recorded: list[Record]) -> Versions:
    return _versions(
        (str(tag["tagId"]), {"tagGroups": [{**group, "tags": [tag]}]})
        for answer in recorded
        for group in answer.get("tagGroups", [])
        for tag in group["tags"]
    )


def _versions(records: Iterable[tuple[str, Record]]) -> Versions:
    """By id, each version once for as long as it stayed the same."""
    found: dict[str, list[Record]] = {}
    for record_id, record in records:
        versions = found.setdefault(record_id, [])
        if not versions or versions[-1] != record:
            versions.append(record)
    return {record_id: tuple(versions) for record_id, versions in found.items()}
