"""One contract for every raw store, and what is in it after something went wrong on the way to the ledger."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from app.adapters import blobs
from app.catalog import raw_store
from app.catalog.normalize import compute_content_hash
from app.catalog.raw_store import RawGone, RawStore, build_key
from app.catalog.repos.staging_repo import StagingRepo
from app.kernel import errors
from tests.integration.catalog.world import Clock, World
from tests.integration.one_bucket import credentials, s3_url  # noqa: F401
from tests.integration.threads import at_once

CODE = "book:17924463"
KEY = build_key(entity="item", source_id="shop:1", content_hash="a" * 64)
ODD = [
    "a/b",
    "..",
    ".",
    "../../etc/passwd",
    "a b",
    "お茶:1",
    "a\nb",
    "%2F",
    "a\\b",
    "~",
    "-rf",
    "a=b",
    "x" * 60,
]


@dataclass
class Place:
    """A store, and what lies in it as its owner sees it."""

    store: RawStore
    url: str
    content: Callable[[], dict[str, bytes]]
    lay: Callable[[str, bytes], None]
    endpoint_url: str = ""


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return folder(tmp_path / "raw")
    request.getfixturevalue("credentials")
    return bucket(request.getfixturevalue("s3_url"), f"raw-{tmp_path.name.replace('_', '-').lower()[-40:]}")


def folder(root: Path) -> Place:
    def content() -> dict[str, bytes]:
        return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}

    def lay(key: str, body: bytes) -> None:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(body)

    return Place(raw_store.connect(root.as_uri(), Clock()), root.as_uri(), content, lay)


def bucket(address: str, name: str) -> Place:
    s3 = boto3.client("s3", endpoint_url=address)
    s3.create_bucket(Bucket=name)

    def content() -> dict[str, bytes]:
        keys = [one["Key"] for one in s3.list_objects_v2(Bucket=name).get("Contents", [])]
        return {key.removeprefix("pre/"): s3.get_object(Bucket=name, Key=key)["Body"].read() for key in keys}

    def lay(key: str, body: bytes) -> None:
        s3.put_object(Bucket=name, Key=f"pre/{key}", Body=body)

    url = f"s3://{name}/pre"
    return Place(raw_store.connect(url, Clock(), endpoint_url=address), url, content, lay, address)


# The contract


def test_what_is_put_is_there_and_nothing_else(place: Place) -> None:
    put = place.store.put_json(s3_key=KEY, body={"b": "お茶", "a": [1, None]})
    assert put.s3_key == KEY
    assert place.store.get_json(s3_key=KEY) == {"a": [1, None], "b": "お茶"}
    assert place.content() == {KEY: '{"a":[1,null],"b":"お茶"}'.encode()}


def test_what_is_put_again_changes_nothing(place: Place) -> None:
    first = place.store.put_json(s3_key=KEY, body={"a": 1})
    second = place.store.put_json(s3_key=KEY, body={"a": 1})
    assert (second.s3_key, second.etag) == (first.s3_key, first.etag)
    assert second.saved_at >= first.saved_at
    assert place.content() == {KEY: b'{"a":1}'}


def test_what_another_put_first_stays(place: Place) -> None:
    place.lay(KEY, b'{"theirs":1}')
    place.store.put_json(s3_key=KEY, body={"ours": 1})
    assert place.content() == {KEY: b'{"theirs":1}'}


def test_of_many_who_put_at_once_one_is_kept_and_none_fails(place: Place) -> None:
    puts = [lambda n=n: place.store.put_json(s3_key=KEY, body={"writer": n}) for n in range(8)]
    found = at_once(*puts)
    assert [one.s3_key for one in found] == [KEY] * 8
    assert list(place.content()) == [KEY]
    assert place.store.get_json(s3_key=KEY)["writer"] in range(8)


def test_what_is_not_there_is_gone(place: Place) -> None:
    with pytest.raises(RawGone):
        place.store.get_json(s3_key=KEY)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null"])
def test_what_is_no_object_is_damaged(place: Place, content: bytes) -> None:
    place.lay(KEY, content)
    with pytest.raises(errors.Fatal) as caught:
        place.store.get_json(s3_key=KEY)
    assert caught.value.code == "raw_object_damaged"


def test_an_odd_id_stays_in_a_folder_of_its_own(place: Place) -> None:
    keys = {build_key(entity="item", source_id=odd, content_hash="a" * 64) for odd in ODD}
    assert len(keys) == len(ODD)
    for key in keys:
        place.store.put_json(s3_key=key, body={"key": key})
        assert key.startswith("raw/source=rakuten/entity=item/source_id=")
        assert key.count("/") == 4
        assert key.isascii()
    assert set(place.content()) == keys
    assert all(place.store.get_json(s3_key=key) == {"key": key} for key in keys)


def test_the_key_is_laid_out_as_agreed() -> None:
    assert build_key(entity="item", source_id="shop:1", content_hash="ab") == (
        "raw/source=rakuten/entity=item/source_id=shop%3A1/hash=ab.json"
    )


# With the ledger


@pytest.fixture
def stored(world: World, place: Place) -> World:
    """A catalog whose raw objects are in the place."""
    world.settings = replace(
        world.settings, catalog_raw_url=place.url, storage_endpoint_url=place.endpoint_url
    )
    return world


def run(world: World) -> Any:
    return world.ends(world.run("JOB-I-01", only=[CODE])).get(CODE)


def test_a_content_that_comes_back_is_the_newest_again(stored: World, place: Place) -> None:
    stored.item(CODE, itemPrice=1)
    run(stored)
    first = stored.ledger("item", CODE)
    stored.item(CODE, itemPrice=2)
    run(stored)
    second = stored.ledger("item", CODE)
    saved = stored.sql("SELECT saved_at FROM apl.staging")
    content = place.content()
    stored.item(CODE, itemPrice=1)
    assert run(stored) == ("applied", None)
    assert len({first, second}) == 2
    assert stored.ledger("item", CODE) == first
    assert place.content() == content
    assert sorted(content) == sorted([first[2], second[2]])
    assert stored.sql("SELECT saved_at FROM apl.staging") > saved
    assert stored.sql("SELECT item_price FROM apl.item") == [(1,)]


def test_a_raw_object_bears_the_hash_of_its_key(stored: World, place: Place) -> None:
    run(stored)
    content_hash, _, key = stored.ledger("item", CODE)
    body = stored.services.raw.get_json(s3_key=key)
    assert compute_content_hash(body) == content_hash
    assert list(place.content()) == [key]
    assert body["itemCode"] == CODE


def test_an_object_without_its_line_of_the_ledger_is_taken_up(
    stored: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object was put, and the database failed before the ledger knew."""

    def away(*_: Any, **__: Any) -> None:
        raise errors.ConnectionLost()

    with monkeypatch.context() as patched:
        patched.setattr(StagingRepo, "batch_upsert", away)
        found = stored.run("JOB-I-01", only=[CODE])
    assert (found.status, found.reason_code, found.exit_code) == ("failed", "connection_lost", 1)
    content = place.content()
    assert len(content) == 1
    assert stored.table("staging") == stored.table("item") == []
    assert run(stored) == ("applied", None)
    assert place.content() == content
    assert stored.ledger("item", CODE)[2] in content


def test_where_no_object_can_be_put_nothing_is_written(
    stored: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(stored.services.raw)

    def full(*_: Any, **__: Any) -> None:
        raise errors.DiskFull()

    with monkeypatch.context() as patched:
        patched.setattr(kind, "put_json", full)
        assert run(stored) == ("failed", "raw_store")
    assert stored.table("staging") == stored.table("item") == []
    with monkeypatch.context() as patched:
        patched.setattr(kind, "put_json", _denied)
        found = stored.run("JOB-I-01", only=[CODE])
    assert (found.reason_code, found.exit_code) == ("access", 1)


def _denied(*_: Any, **__: Any) -> None:
    raise errors.AccessDenied()


def test_an_id_too_long_for_any_store_is_one_targets_failure(world: World) -> None:
    code = "x" * 5000
    world.api.put("item", code, {**world.api.record("item", CODE), "itemCode": code})
    found = world.run("JOB-I-01", only=[code, CODE])
    ends = world.ends(found)
    assert ends[CODE] == ("applied", None)
    assert ends[code][0] == "failed"


# A store that refuses


class _Answering(http.server.BaseHTTPRequestHandler):
    """A store that answers everything alike."""

    status = 500

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"secret")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(
    "status, kind",
    [(401, errors.AccessDenied), (403, errors.AccessDenied), (404, errors.FileGone),
     (500, errors.ConnectionLost), (503, errors.ConnectionLost), (429, errors.ConnectionLost)],
)  # fmt: skip
def test_what_a_store_answers_is_an_error_of_our_own(status: int, kind: type[Exception]) -> None:
    handler = type("Handler", (_Answering,), {"status": status})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        store = raw_store.connect("s3://raw", Clock(), endpoint_url=f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(kind) as caught:
            store.put_json(s3_key=KEY, body={})
        assert "secret" not in str(caught.value)
        server.shutdown()


@pytest.mark.usefixtures("credentials")
def test_a_store_that_is_away_is_a_lost_connection() -> None:
    store = raw_store.connect("s3://raw", Clock(), endpoint_url="http://127.0.0.1:9")
    with pytest.raises(errors.ConnectionLost):
        store.put_json(s3_key=KEY, body={})
    with pytest.raises(errors.ConnectionLost):
        store.get_json(s3_key=KEY)


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("make", [
    lambda: raw_store.connect("s3://raw", Clock(), endpoint_url="http://127.0.0.1:9"),
    lambda: blobs.connect("s3://files", endpoint_url="http://127.0.0.1:9").delete("s3://files/a"),
])  # fmt: skip
def test_a_store_without_credentials_says_so(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(errors.AccessDenied, match="AWS_ACCESS_KEY_ID"):
        make()
