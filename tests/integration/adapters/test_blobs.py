"""Files on disk and in an object store: one contract, held by both."""

from __future__ import annotations

import hashlib
import http.server
import io
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import boto3
import pytest

from app.adapters import blobs, retries
from app.adapters.blobs import Blobs, PosixBlobs
from app.adapters.bucket_blobs import S3Blobs
from app.kernel import errors
from tests.conftest import SetClock
from tests.integration.one_bucket import credentials, s3_url  # noqa: F401
from tests.integration.threads import at_once

ROOT = Path(__file__).parent.parent.parent.parent
MB = 1 << 20
pytestmark = pytest.mark.usefixtures("credentials")


@dataclass
class Case:
    """A store, and a look at everything that it keeps."""

    store: Blobs
    kept: Callable[[], list[str]]
    address: str
    endpoint_url: str = ""


@pytest.fixture(params=["posix", "s3"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    if request.param == "posix":
        folder = tmp_path / "a store"

        def files() -> list[str]:
            return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())

        yield Case(PosixBlobs(folder), files, folder.as_uri())
        return
    endpoint = request.getfixturevalue("s3_url")
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=bucket)

    def objects() -> list[str]:
        found = client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return [entry["Key"].removeprefix("some/prefix/") for entry in found]

    store = S3Blobs(bucket, "some/prefix", endpoint_url=endpoint)
    yield Case(store, objects, f"s3://{bucket}/some/prefix", endpoint)
    store._client.close()
    client.close()


def content_at(store: Blobs, url: str) -> bytes:
    with store.open(url) as file:
        return file.read()


def test_what_is_put_can_be_opened_until_it_is_deleted(case: Case) -> None:
    stored = case.store.put("uploads/one", io.BytesIO(b"some content"))
    assert content_at(case.store, stored.url) == b"some content"
    assert case.kept() == ["uploads/one"]
    case.store.delete(stored.url)
    assert case.kept() == []
    with pytest.raises(errors.FileGone), case.store.open(stored.url):
        pass


def test_size_and_digest_are_those_of_the_content(case: Case) -> None:
    content = bytes(range(256)) * 5000
    stored = case.store.put("one", io.BytesIO(content))
    assert (len(content), hashlib.sha256(content).hexdigest()) == (stored.size_bytes, stored.sha256)


def test_an_address_is_below_that_of_its_store(case: Case) -> None:
    stored = case.store.put("uploads/one", io.BytesIO(b"x"))
    assert f"{case.address}/uploads/one" == stored.url


def test_an_address_is_good_in_another_process(case: Case) -> None:
    stored = case.store.put("uploads/one", io.BytesIO(b"x"))
    other = blobs.connect(case.address, endpoint_url=case.endpoint_url)
    assert content_at(other, stored.url) == b"x"


def test_an_opened_content_can_be_read_from_any_place(case: Case) -> None:
    stored = case.store.put("one", io.BytesIO(b"0123456789"))
    with case.store.open(stored.url) as file:
        assert file.read(4) == b"0123"
        file.seek(-2, 2)
        assert file.read() == b"89"
        file.seek(0)
        assert file.read() == b"0123456789"


def test_a_second_put_replaces_the_content(case: Case) -> None:
    first = case.store.put("one", io.BytesIO(b"a longer first content"))
    second = case.store.put("one", io.BytesIO(b"second"))
    assert first.url == second.url
    assert content_at(case.store, second.url) == b"second"
    assert case.kept() == ["one"]


def test_an_empty_content_is_a_content(case: Case) -> None:
    stored = case.store.put("empty", io.BytesIO(b""))
    assert (0, hashlib.sha256().hexdigest()) == (stored.size_bytes, stored.sha256)
    assert content_at(case.store, stored.url) == b""


def test_a_key_may_hold_blanks_percent_signs_and_letters_of_any_script(case: Case) -> None:
    stored = case.store.put("my reports/über %41 日本.csv", io.BytesIO(b"x"))
    assert content_at(case.store, stored.url) == b"x"
    assert case.kept() == ["my reports/über %41 日本.csv"]


def test_deleting_what_is_not_there_is_no_error(case: Case) -> None:
    stored = case.store.put("one", io.BytesIO(b"x"))
    case.store.delete(stored.url)
    assert case.store.delete(stored.url) is None


def test_a_content_of_just_the_limit_is_taken(case: Case) -> None:
    stored = case.store.put("one", io.BytesIO(b"x" * MB), max_bytes=MB)
    assert stored.size_bytes == MB


@pytest.mark.parametrize("size", [MB + 1, 3 * MB])
def test_what_is_too_large_leaves_nothing_behind(size: int, case: Case) -> None:
    with pytest.raises(blobs.TooLarge) as refusal:
        case.store.put("uploads/one", io.BytesIO(b"x" * size), max_bytes=MB)
    assert refusal.value.code == "file_too_large"
    assert "1 MB" in refusal.value.sentence
    assert case.kept() == []


class Breaks(io.BytesIO):
    """A source whose second read fails."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise ConnectionResetError("the client is gone")
        return super().read(size)


@pytest.mark.parametrize("before", [None, b"earlier"], ids=["new", "replaced"])
def test_a_put_that_breaks_leaves_what_was_there(before: bytes | None, case: Case) -> None:
    if before is not None:
        case.store.put("one", io.BytesIO(before))
    with pytest.raises(ConnectionResetError):
        case.store.put("one", Breaks(b"x" * 3 * MB))
    if before is None:
        assert case.kept() == []
    else:
        assert case.kept() == ["one"]
        assert before == content_at(case.store, f"{case.address}/one")


@pytest.mark.parametrize("key", ["../outside", "a/../../outside", "a/../../../../etc/outside", ""])
def test_a_key_that_leads_out_of_the_store_is_refused(key: str, case: Case) -> None:
    with pytest.raises(errors.Fatal):
        case.store.put(key, io.BytesIO(b"x"))
    assert case.kept() == []


@pytest.mark.parametrize("change", ["/../outside", "-of-others/one", "/../../../outside"])
def test_an_address_out_of_the_store_is_refused(change: str, case: Case, tmp_path: Path) -> None:
    outside = case.address + change
    if case.endpoint_url:
        bucket, key = outside.removeprefix("s3://").split("/", 1)
        client = boto3.client("s3", endpoint_url=case.endpoint_url)
        client.put_object(Bucket=bucket, Key=key, Body=b"secret")
        client.close()
    else:
        path = Path(outside.removeprefix("file://").replace("%20", " "))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"secret")
    with pytest.raises(errors.Fatal), case.store.open(outside):
        pass


@pytest.mark.parametrize("address", ["s3://another-bucket/some/prefix/one", "file:///etc/hostname"])
def test_an_address_of_another_store_is_refused(address: str, case: Case) -> None:
    with pytest.raises(errors.Fatal), case.store.open(address):
        pass


def test_an_unknown_kind_of_store_is_refused_with_the_known_ones() -> None:
    with pytest.raises(errors.Fatal) as refusal:
        blobs.connect("ftp://somewhere")
    assert "file://" in refusal.value.sentence and "s3://" in refusal.value.sentence


# -- size and memory


PUT_AND_OPEN = """
import hashlib, resource, sys
from app.adapters import blobs, retries

class Source:
    left = 0
    def read(self, size=-1):
        size = min(size, self.left)
        self.left -= size
        return b"x" * size

def put_and_open(size):
    source = Source()
    source.left = size
    stored = store.put("large", source)
    digest = hashlib.sha256()
    with store.open(stored.url) as file:
        while chunk := file.read(1 << 16):
            digest.update(chunk)
    assert (stored.size_bytes, stored.sha256) == (size, digest.hexdigest())

store = blobs.connect(sys.argv[1], endpoint_url=sys.argv[2])
put_and_open(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
put_and_open(20 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_twenty_megabytes_pass_in_bounded_memory(case: Case) -> None:
    argv = [sys.executable, "-c", PUT_AND_OPEN, case.address, case.endpoint_url]
    grown = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert int(grown) < 8 * 1024, f"{grown} KiB"


# -- races


def test_two_puts_at_once_leave_one_whole_content(case: Case) -> None:
    contents = [bytes([letter]) * (2 * MB) for letter in b"abcd"]
    case.store.put("one", io.BytesIO(b"before"))
    # As in the product, what a busy store answers with is tried again.
    puts = [
        lambda c=content: retries.call(lambda: case.store.put("one", io.BytesIO(c)), SetClock())
        for content in contents
    ]
    stored = at_once(*puts)
    assert case.kept() == ["one"]
    assert content_at(case.store, stored[0].url) in contents


def test_a_reader_never_sees_half_a_content(case: Case) -> None:
    contents = [b"a" * MB, b"b" * (MB + 4096)]
    url = case.store.put("one", io.BytesIO(contents[0])).url
    done = threading.Event()

    def write() -> None:
        for number in range(20):
            case.store.put("one", io.BytesIO(contents[number % 2]))
        done.set()

    def read() -> set[bytes]:
        seen = set()
        while not done.is_set():
            # The emulator may answer 500 to whoever reads while another writes.
            seen.add(retries.call(lambda: content_at(case.store, url), SetClock()))
        return seen

    _, *seen = at_once(write, read, read)
    assert seen[0] and seen[1]
    assert set() == (seen[0] | seen[1]) - set(contents)


# -- what the object store may answer


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers every request alike."""

    protocol_version = "HTTP/1.1"
    status, code, cut = 200, "", False

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        body = f"<Error><Code>{self.code}</Code><Message>no</Message></Error>".encode() if self.code else b""
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body) + 1000 if self.cut else len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    do_GET = do_PUT = do_DELETE = answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def store_that_answers() -> Iterator[Callable[..., S3Blobs]]:
    servers: list[http.server.ThreadingHTTPServer] = []
    stores: list[S3Blobs] = []

    def make(**answer: Any) -> S3Blobs:
        handler = type("Handler", (Answers,), answer)
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        stores.append(S3Blobs("bucket", "", endpoint_url=f"http://127.0.0.1:{servers[-1].server_port}"))
        return stores[-1]

    yield make
    for store in stores:
        store._client.close()
    for server in servers:
        server.shutdown()
        server.server_close()


def open_one(store: Blobs) -> None:
    with store.open("s3://bucket/one"):
        pass


OPERATIONS: dict[str, Callable[[Blobs], Any]] = {
    "put": lambda store: store.put("one", io.BytesIO(b"content")),
    "open": open_one,
    "delete": lambda store: store.delete("s3://bucket/one"),
}
ANSWERS = [
    # status, S3's code, ours
    (503, "SlowDown", errors.RateLimited),  # asked to slow down
    (503, "", errors.RateLimited),  # a proxy before the store, without a body
    (503, "ServiceUnavailable", errors.RateLimited),  # S3's own words for reduce your rate
    (429, "TooManyRequests", errors.RateLimited),
    (429, "", errors.RateLimited),
    (400, "RequestLimitExceeded", errors.RateLimited),
    (403, "AccessDenied", errors.AccessDenied),
    (403, "InvalidAccessKeyId", errors.AccessDenied),
    (403, "SignatureDoesNotMatch", errors.AccessDenied),
    (403, "", errors.AccessDenied),  # a proxy that denies, without a body
    (404, "NoSuchKey", errors.FileGone),
    (404, "NoSuchBucket", errors.FileGone),
    (500, "InternalError", errors.ConnectionLost),  # try again, says the store
    (500, "", errors.ConnectionLost),
    (502, "", errors.ConnectionLost),  # a proxy without its store
    (504, "", errors.ConnectionLost),
    (400, "RequestTimeout", errors.ConnectionLost),
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("status", "code", "ours"), ANSWERS)
def test_an_answer_of_the_store_becomes_our_error(
    status: int,
    code: str,
    ours: type[errors.HeadworksError],
    operation: str,
    store_that_answers: Callable[..., S3Blobs],
) -> None:
    with pytest.raises(errors.HeadworksError) as raised:
        OPERATIONS[operation](store_that_answers(status=status, code=code))
    assert ours is type(raised.value)


def test_a_content_that_is_cut_off_is_a_lost_connection(
    store_that_answers: Callable[..., S3Blobs],
) -> None:
    with pytest.raises(errors.ConnectionLost):
        open_one(store_that_answers(code="x", cut=True))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_store_that_is_away_is_a_lost_connection(
    operation: str, store_that_answers: Callable[..., S3Blobs]
) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as closed:
        port = closed.server_port
    store = S3Blobs("bucket", "", endpoint_url=f"http://127.0.0.1:{port}")
    with pytest.raises(errors.ConnectionLost):
        OPERATIONS[operation](store)
    store._client.close()


def test_an_error_never_repeats_the_credentials(store_that_answers: Callable[..., S3Blobs]) -> None:
    with pytest.raises(errors.AccessDenied) as raised:
        open_one(store_that_answers(status=403, code="AccessDenied"))
    assert "dummy" not in str(raised.value)


# -- the disk


class FullDisk(io.BytesIO):
    """A source that stands for a disk without room: errors of the disk come out of any write."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_said_in_our_words_and_leaves_nothing_behind(case: Case) -> None:
    with pytest.raises(errors.DiskFull):
        case.store.put("one", FullDisk())
    assert case.kept() == []


def test_a_source_is_only_read_in_pieces(case: Case) -> None:
    sizes: list[int | None] = []

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            sizes.append(size)
            return super().read(size)

    source: IO[bytes] = Watched(b"x" * 3 * MB)
    case.store.put("one", source)
    assert sizes and all(size is not None and 0 < size <= MB for size in sizes)
