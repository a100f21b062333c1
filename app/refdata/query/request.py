"""A request as both servers hand it on, and what its parts say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes
from uuid import UUID

from app.refdata.commands import LARGEST
from app.refdata.query.image import token_of
from app.refdata.query.replies import Refusal
from app.refdata.query.table import Place

LONGEST_TARGET = 64 * 1024 - 1
LONGEST_HEADER = 64 * 1024
LONGEST_HEAD = LONGEST_TARGET + LONGEST_HEADER + 1024
LONGEST_BODY = 64 * 1024
HEAD_SECONDS = 10.0
"""So long the head of a request may take from its first byte."""

IDLE_SECONDS = 75.0
GRACE_SECONDS = 20.0
"""So long answers under way may take once the process is to end; Kubernetes ends it by force after 30."""


LONGEST_KEY = 1024
MOST_KEYS = 1000
LARGEST_PAGE = 100_000

Lines = dict[bytes, bytes]

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_UUID = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Headers:
    """The header of a request, found by names in any case; what came in several lines is joined."""

    __slots__ = ("lines",)

    def __init__(self, lines: Lines) -> None:
        self.lines = lines

    def get(self, name: str, /) -> str | None:
        """The value; None: there is none."""
        found = self.lines.get(name.lower().encode())
        return None if found is None else found.decode("latin-1")


class Head:
    """The header of requests that are alike, and what was found out about them in one second.

    `moment` counts the seconds: `place` is a dictionary that the caller was let in to in that one.
    """

    __slots__ = ("alike", "lines", "moment", "peer", "place")

    def __init__(self, lines: Lines, peer: str | None) -> None:
        """`lines` have their names in lower case; `peer` is the address at the other end."""
        self.lines = lines
        self.peer = peer
        self.place = ("", "")
        self.moment = -1
        self.alike: Alike | None = None


@dataclass(frozen=True, slots=True)
class Alike:
    """A request for an item that was answered: others of its dictionary can be asked for in short."""

    path: bytes  # of the item, without its key
    place: Place
    moment: int
    least: int  # the version that the header demands


_ITEM = re.compile(
    rb"(/v1/tenants/[A-Za-z0-9._-]+/dictionaries/[A-Za-z0-9._-]+/items/)[A-Za-z0-9._~-]{1,256}"
)
_PLAIN_KEY = re.compile(rb"[A-Za-z0-9._~-]{1,256}")
_PLAIN_KEYS = re.compile(rb"keys=[A-Za-z0-9._~-]+(?:,[A-Za-z0-9._~-]+)*")
_TELLING = (
    b"if-none-match", b"x-dict-epoch", b"content-length", b"transfer-encoding", b"connection", b"upgrade",
    b"expect",
)  # fmt: skip
"""With one of these in its header a request is looked at by itself."""


def is_plain(key: bytes) -> bool:
    """Whether a key is the same in an address and in JSON."""
    return _PLAIN_KEY.fullmatch(key) is not None


class Request:
    """One request."""

    __slots__ = ("head", "is_modern", "method", "target")

    def __init__(self, method: bytes, target: bytes, head: Head, *, is_modern: bool) -> None:
        self.method = method
        self.target = target
        self.head = head
        self.is_modern = is_modern  # HTTP/1.1, and not 1.0

    def remember(self) -> None:
        """The request was answered with an item, by the way of everything that has to be looked at."""
        head = self.head
        found = _ITEM.fullmatch(self.target)
        head.alike = None
        if found is not None and self.method == b"GET" and head.lines.keys().isdisjoint(_TELLING):
            least = int(head.lines.get(b"x-min-version", b"0"))
            head.alike = Alike(found[1], head.place, head.moment, least)


def add_line(lines: Lines, name: bytes, value: bytes) -> None:
    """The line is in the header, behind an earlier one of its name (RFC 9110 §5.2)."""
    name, value = name.lower(), value.strip(b" \t")
    before = lines.get(name)
    lines[name] = value if before is None else before + b", " + value


@dataclass(frozen=True, slots=True)
class Barrier:
    """What a reader demands of the version: at least this one, or exactly this one, of this history."""

    at_least: int = 0
    exactly: int | None = None
    epoch: UUID | None = None


NO_BARRIER = Barrier()


def barrier_of(lines: Lines, query: bytes) -> Barrier:
    """Refusal where a version or an epoch is none."""
    given, epoch = lines.get(b"x-min-version"), lines.get(b"x-dict-epoch")
    exact = parameter(query, b"version") if query else None
    if given is None and epoch is None and exact is None:
        return NO_BARRIER
    if epoch is not None and _UUID.fullmatch(epoch) is None:
        raise Refusal(400, "invalid_epoch", "X-Dict-Epoch is no UUID.")
    exactly = None if exact is None else _version(exact, "version")
    at_least = 0 if given is None else _version(given, "X-Min-Version")
    return Barrier(max(at_least, exactly or 0), exactly, None if epoch is None else UUID(epoch.decode()))


def _version(text: bytes, name: str) -> int:
    if not text.isdigit() or len(text) > 19 or int(text) > LARGEST:
        raise Refusal(400, "invalid_version", f"{name} is no version: a whole number from 0 to {LARGEST}.")
    return int(text)


def parameter(query: bytes, name: bytes) -> bytes | None:
    """The first value of this name, as it stands there."""
    return next(iter(parameters(query, name)), None)


def parameters(query: bytes, name: bytes) -> list[bytes]:
    """Every value of this name, as it stands there."""
    pairs = (part.partition(b"=") for part in query.split(b"&"))
    return [value for found, _, value in pairs if found == name]


def unquoted(part: bytes) -> bytes:
    """A part of the address without its escapes; Refusal where it is no UTF-8."""
    if b"%" in part:
        if _BAD_ESCAPE.search(part):
            raise Refusal(400, "invalid_key", "A key is not escaped as it should be: %41 is an A.")
        part = unquote_to_bytes(part)
    return part


def name_in(part: bytes) -> str:
    """A tenant's or a dictionary's name, which may turn out to be none."""
    return unquote_to_bytes(part).decode("utf-8", "replace") if b"%" in part else part.decode("latin-1")


def token_in(part: bytes) -> bytes:
    """What the entry begins with whose key is this part of the address."""
    key = unquoted(part)
    if not 1 <= len(key) <= LONGEST_KEY:
        raise Refusal(400, "invalid_key", f"A key has 1 to {LONGEST_KEY} bytes.")
    try:
        return token_of(key)
    except UnicodeDecodeError:
        raise Refusal(400, "invalid_key", "A key is not in UTF-8.") from None


def tokens_in(query: bytes) -> list[bytes]:
    """What the entries begin with that `keys` names, each once, in their order."""
    if _PLAIN_KEYS.fullmatch(query):
        plain = query[5:].split(b",")
        if len(plain) <= MOST_KEYS and max(map(len, plain)) <= LONGEST_KEY:
            return [b',"%b":' % key for key in dict.fromkeys(plain)]
    parts = [part for value in parameters(query, b"keys") for part in value.split(b",")]
    if not parts or parts == [b""]:
        raise Refusal(400, "invalid_key", "Name keys: ?keys=RU,KZ")
    if len(parts) > MOST_KEYS:
        raise Refusal(400, "too_many_keys", f"At most {MOST_KEYS:,} keys at once.")
    return list(dict.fromkeys(map(token_in, parts)))


def limit_in(query: bytes) -> int | None:
    """How many entries a page has; None: all of them."""
    text = parameter(query, b"limit")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= LARGEST_PAGE:
        raise Refusal(400, "invalid_limit", f"limit is a whole number from 1 to {LARGEST_PAGE:,}.")
    return int(text)


def matches(given: bytes, etag: bytes) -> bool:
    """Whether If-None-Match names this tag (RFC 9110 §13.1.2)."""
    if given == etag or given.strip() == b"*":
        return True
    return any(one.strip().removeprefix(b"W/") == etag for one in given.split(b","))


def takes_gzip(accepted: bytes) -> bool:
    """Whether Accept-Encoding takes gzip, and not less gladly than the plain text."""
    worth = {b"identity": 1.0 if b"gzip" not in accepted else 0.0}
    for part in accepted.lower().split(b","):
        name, _, rest = part.partition(b";")
        quality = rest.strip().removeprefix(b"q=") if rest.strip().startswith(b"q=") else b"1"
        try:
            worth[name.strip()] = float(quality)
        except ValueError:
            worth[name.strip()] = 0.0
    gzip = worth.get(b"gzip", worth.get(b"x-gzip", worth.get(b"*", 0.0)))
    return gzip > 0 and gzip >= worth.get(b"identity", 0.0)
