"""Rows that were read well and failed promotion are told with their cells, as rejected ones are."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import flask.testing
import pytest

from app import web
from app.access import keys
from app.kernel import errors
from app.uploads import rejected, store
from app.uploads.services import Services
from tests.integration.uploads.conftest import BAD, WORKSPACE, Uploads, report

PAGE = {"Accept": "text/html"}
AGES = "Day,Campaign name,Campaign ID,Age,Impressions,Clicks (all),Amount spent (USD),Note"

# Lines 5 and 6 become one day with BAD impressions; line 3 cannot be read.
MIXED = [
    "2025-05-01,Spring,101,18-24,100,1,1.50,one",
    "2025-05-02,Spring,101,18-24,many,1,1.50,two",
    "2025-05-02,Spring,101,25-34,5,1,1.50,three",
    '2025-05-03,"Spring, late",101,18-24,400,1,"1,234.50",=four',
    "2025-05-03,Spring,101,25-34,37,1,,",
    "2025-05-04,Spring,101,18-24,100,1,1.50,six",
    *[f"2025-06-{day:02},Spring,101,18-24,100,1,1.50," for day in range(1, 11)],
]
REFUSED = [
    ["2025-05-03", "Spring, late", "101", "18-24", "400", "1", "1,234.50", "=four"],
    ["2025-05-03", "Spring", "101", "25-34", "37", "1", "", ""],
]
WHY = "The row's values were refused by the database."


@pytest.fixture
def client(services: Services) -> Iterator[flask.testing.FlaskClient]:
    """Somebody who may read the uploads of the workspace, on the pages and by the API."""
    app = web.create_app(services.settings)
    made = app.extensions["services"]
    app.extensions["services"] = services
    key = keys.create(
        services.db, workspace_id=WORKSPACE, scopes=frozenset({"read"}), name="test", created_by="tests"
    )
    client = app.test_client()
    assert client.post("/login", data={"key": key.text}).status_code == 303
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {key.text}"
    yield client
    made.db.close()


@pytest.fixture
def partial(uploads: Uploads, refuse_one: Callable[..., None]) -> Callable[..., UUID]:
    """An upload whose rows of BAD impressions were refused by the database."""

    def hand_in(content: bytes, **fields: Any) -> UUID:
        refuse_one()
        upload_id = uploads.finished(content, **fields)
        assert uploads.show(upload_id).status == "partial"
        return upload_id

    return hand_in


def as_csv(client: flask.testing.FlaskClient, upload_id: UUID) -> list[list[str]]:
    answer = client.get(f"/v1/uploads/{upload_id}/errors.csv")
    assert answer.status_code == 200
    return list(csv.reader(io.StringIO(answer.get_data().decode("utf-8-sig"), newline="")))


def as_json(client: flask.testing.FlaskClient, upload_id: UUID) -> list[tuple[Any, ...]]:
    rows = client.get(f"/v1/uploads/{upload_id}/errors").get_json()["errors"]
    return [(row["line"], row["code"], row["cells"]) for row in rows]


def on_page(client: flask.testing.FlaskClient, upload_id: UUID) -> str:
    """The table of rejected rows, as text between bars."""
    answer = client.get(f"/uploads/{upload_id}", headers=PAGE)
    assert answer.status_code == 200
    table = answer.text[answer.text.index('<table class="rejected">') :]
    return re.sub(r"\s*\|[\s|]*", "|", unescape(re.sub(r"<[^>]+>", "|", table[: table.index("</table>")])))


def test_rows_that_failed_promotion_have_their_line_and_their_cells(
    partial: Callable[..., UUID], client: flask.testing.FlaskClient
) -> None:
    upload_id = partial(report(*MIXED, header=AGES))
    first = ["2025-05-02", "Spring", "101", "18-24", "many", "1", "1.50", "two"]
    assert as_json(client, upload_id) == [
        (3, "invalid_number", first),
        (5, "row_refused", REFUSED[0]),
        (6, "row_refused", REFUSED[1]),
    ]
    assert as_csv(client, upload_id) == [
        [*AGES.split(","), "line", "code", "reason"],
        [*first, "3", "invalid_number", "many is not a number."],
        [*REFUSED[0][:-1], "'=four", "5", "row_refused", WHY],
        [*REFUSED[1], "6", "row_refused", WHY],
    ]
    shown = on_page(client, upload_id)
    assert "|400|2025-05-03|Spring, late|101|18-24|1|1,234.50|=four|6|" in shown


def test_they_are_handed_in_again_as_they_came(
    partial: Callable[..., UUID],
    client: flask.testing.FlaskClient,
    uploads: Uploads,
    refuse_one: Callable[..., None],
    days: Callable[[], list[Any]],
) -> None:
    upload_id = partial(report(*MIXED, header=AGES))
    content = client.get(f"/v1/uploads/{upload_id}/errors.csv").get_data().replace(b"many", b"7")
    refuse_one(False)
    again = uploads.show(uploads.finished(content))
    assert (again.status, again.promoted_rows) == ("completed", 3)
    assert ("101", "2025-05-03", 1234.5, BAD, 2, None, None) in days()


def bytes_of(kind: str) -> bytes:
    """The same rows, of which the third is refused, as a file of this kind."""
    names = ["Day", "Campaign name", "Campaign ID", "Impressions", "Amount spent (USD)", "Note"]
    rows = [[f"2025-05-0{day}", "Spring", "101", "100", "1.50", "ä"] for day in range(1, 4)]
    rows[2][3] = str(BAD)
    if kind.startswith("json"):
        return json.dumps([dict(zip(names, row, strict=True)) for row in rows]).encode()
    if kind == "ndjson":
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        return ("\n".join(lines) + "\n").encode()
    # Some exports end each row with one cell more than there are names, an empty one.
    ends = "\t\t" if kind == "wide" else ""
    lines = ["Report of May", "\t".join(names), "", *["\t".join(row) + ends for row in rows]]
    text = "\r\n".join([*lines, ""])
    return text.encode("utf-16") if kind.startswith("utf-16") else text.encode()


@pytest.mark.parametrize(
    ("kind", "packed", "line"),
    [
        ("csv", False, 6),
        ("csv", True, 6),
        ("wide", False, 6),
        ("utf-16", False, 6),
        ("utf-16", True, 6),
        ("ndjson", False, 3),
        ("json", False, None),  # rows of a document have no line
        ("json", True, None),
    ],
)
def test_the_cells_are_found_in_a_file_of_any_kind(
    kind: str,
    packed: bool,
    line: int | None,
    partial: Callable[..., UUID],
    client: flask.testing.FlaskClient,
) -> None:
    content = bytes_of(kind)
    upload_id = partial(gzip.compress(content) if packed else content)
    cells = ["2025-05-03", "Spring", "101", str(BAD), "1.50", "ä"]
    assert as_json(client, upload_id) == [(line, "row_refused", cells)]
    assert as_csv(client, upload_id)[1] == [*cells, str(line or ""), "row_refused", WHY]
    assert f"|{line or '–'}|" in on_page(client, upload_id)


def test_rows_that_contradict_another_keep_to_their_columns(
    uploads: Uploads, client: flask.testing.FlaskClient
) -> None:
    rows = [f"2025-05-{day:02},Spring,101,100,1,1.50,," for day in range(1, 21)]
    upload_id = uploads.finished(report(*rows, "2025-05-20,Spring,101,200,1,1.50,,"))
    header, *records = as_csv(client, upload_id)
    assert [len(header)] * 2 == [len(record) for record in records]
    assert [record[-3:-1] for record in records] == [
        ["21", "duplicate_key_conflict"],
        ["22", "duplicate_key_conflict"],
    ]


def test_when_the_file_is_gone_it_is_said_and_the_line_stays(
    partial: Callable[..., UUID], client: flask.testing.FlaskClient, services: Services
) -> None:
    upload_id = partial(report(*MIXED, header=AGES))
    [stored] = (Path(services.settings.data_dir) / "files").rglob(str(upload_id))
    stored.unlink()
    assert [row[::2] for row in as_json(client, upload_id)][1:] == [(5, []), (6, [])]
    records = as_csv(client, upload_id)
    assert records[1][4] == "many"  # staging has the cells of what was rejected
    assert records[2] == [*[""] * 8, "5", "row_refused", f"{WHY} {rejected.WITHOUT_CELLS}"]
    assert "which cannot be read now" in on_page(client, upload_id)


def test_a_damaged_archive_is_as_good_as_gone(
    partial: Callable[..., UUID], client: flask.testing.FlaskClient, services: Services
) -> None:
    upload_id = partial(gzip.compress(report(*MIXED, header=AGES)))
    [stored] = (Path(services.settings.data_dir) / "files").rglob(str(upload_id))
    stored.write_bytes(stored.read_bytes()[:60])
    assert [row[::2] for row in as_json(client, upload_id)][1:] == [(5, []), (6, [])]
    assert as_csv(client, upload_id)[3][-1] == f"{WHY} {rejected.WITHOUT_CELLS}"


def test_while_the_store_is_away_the_page_answers_without_the_cells(
    partial: Callable[..., UUID], client: flask.testing.FlaskClient, services: Services
) -> None:
    upload_id = partial(report(*MIXED, header=AGES))
    with mock.patch.object(type(services.blobs), "open", side_effect=errors.ConnectionLost()):
        assert client.get(f"/v1/uploads/{upload_id}/errors").status_code == 503
        assert client.get(f"/v1/uploads/{upload_id}/errors.csv").status_code == 503
        assert "which cannot be read now" in on_page(client, upload_id)


def test_the_file_is_left_alone_where_staging_has_the_cells(
    uploads: Uploads, client: flask.testing.FlaskClient, services: Services
) -> None:
    upload_id = uploads.finished(report(*MIXED, header=AGES))
    with mock.patch.object(type(services.blobs), "open", side_effect=errors.ConnectionLost()):
        assert [row[0] for row in as_json(client, upload_id)] == [3]
        assert len(as_csv(client, upload_id)) == 2


def test_memory_stays_bounded_however_many_rows_failed(
    uploads: Uploads, services: Services, owner_sql: Callable[[str], list[Any]]
) -> None:
    workspace_id = uuid.uuid4()
    rows = [f"2025-05-01,Spring {n},{n},{n},1,1.50,{'x' * 200}" for n in range(30_000)]
    content = report(*rows, header="Day,Campaign name,Campaign ID,Impressions,Clicks (all),Cost,Note")
    upload_id = uploads.parsed(content, workspace_id=workspace_id, currency="USD")
    owner_sql("UPDATE staging_rows SET promotion_error = 'row_refused' WHERE entity_type = 'daily_metric'")
    with services.db.transaction("read", workspace_id) as conn:
        upload = store.get_upload(conn, upload_id)
    tracemalloc.start()
    try:
        lines = sum(piece.count("row_refused") for piece in rejected.as_csv(services, workspace_id, upload))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines == len(rows)
    assert peak < len(content)
