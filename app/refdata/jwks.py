"""The public keys that tokens are signed with: a JSON Web Key Set (RFC 7517) kept fresh in the background."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import jwt
import jwt.utils
import urllib3
import urllib3.exceptions

from app.adapters import logs
from app.kernel import errors
from app.kernel.clock import Clock
from app.refdata import strict_json

MOST_BYTES = 256 * 1024
MOST_KEYS = 100
LEAST_RSA_BITS = 2048  # RFC 7518 §3.3
MOST_RSA_BITS = 8192  # a check takes 16 times as long as with 2048
FETCH_SECONDS = 5.0
RETRY_SECONDS = 30.0
"""After a failed reading, and between two fetches that unknown keys ask for."""
LOOK_SECONDS = 1.0
"""Between two looks at a file's mtime."""

KINDS = {
    # algorithm  kty    crv
    "RS256": ("RSA", None),
    "PS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}

log = logs.get(__name__)


class BadKeys(errors.Fatal):
    """The document is no set of keys that tokens could be checked with."""

    code = "bad_jwks"


class KeysAway(errors.Transient):
    """No key has been read yet that tokens could be checked with. Try again in a moment."""

    code = "keys_unavailable"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one document. `generation` grows with every change of what the document says."""

    by_name: Mapping[tuple[str, str], Any] = field(default_factory=dict)  # (kid, algorithm)
    by_algorithm: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    generation: int = 0
    digest: bytes = field(default=b"", repr=False)

    def find(self, kid: str | None, algorithm: str) -> Any:
        """The key of this name; without a name, the only one of the algorithm. None: there is none."""
        if kid is not None:
            return self.by_name.get((kid, algorithm))
        candidates = self.by_algorithm.get(algorithm, ())
        return candidates[0] if len(candidates) == 1 else None


def keys_of(content: bytes, algorithms: Collection[str], *, generation: int = 0) -> Keys:
    """The keys of a document that fit one of the algorithms; BadKeys says why it is refused.

    Keys for other purposes are passed over (RFC 7517 §5), and so is an RSA key that is too short or
    too long to be used, with a log line. A document that holds a private or secret key, two keys of
    one name, or no key that fits is refused as a whole.
    """
    by_name: dict[tuple[str, str], Any] = {}
    by_algorithm: dict[str, tuple[Any, ...]] = {}
    for entry in _entries(content):
        for algorithm in _algorithms_of(entry, algorithms):
            key = _key_of(entry, algorithm)
            if key is None:
                continue
            kid = entry.get("kid")
            if kid is not None:
                if (kid, algorithm) in by_name:
                    raise BadKeys("Two keys of the set have one kid.")
                by_name[kid, algorithm] = key
            by_algorithm[algorithm] = (*by_algorithm.get(algorithm, ()), key)
    if not by_algorithm:
        raise BadKeys("No key of the set fits the algorithms " + ", ".join(sorted(algorithms)) + ".")
    digest = hashlib.sha256(content).digest()
    return Keys(by_name, by_algorithm, generation, digest)


def _entries(content: bytes) -> list[dict[str, Any]]:
    if len(content) > MOST_BYTES:
        raise BadKeys(f"The set of keys has more than {MOST_BYTES} bytes.")
    try:
        found = strict_json.object_of(content).get("keys")
    except ValueError:
        raise BadKeys("The set of keys is no JSON object.") from None
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise BadKeys("The set of keys has no list `keys` of objects.")
    if len(found) > MOST_KEYS:
        raise BadKeys(f"The set has more than {MOST_KEYS} keys.")
    return found


def _algorithms_of(entry: dict[str, Any], algorithms: Collection[str]) -> list[str]:
    """What the key may check, of these algorithms."""
    kty, crv, kid = (entry.get(name) for name in ("kty", "crv", "kid"))
    if kty == "oct" or "d" in entry:
        raise BadKeys("The set holds a private or secret key: it has to hold public ones only.")
    if kid is not None and not isinstance(kid, str):
        raise BadKeys("The kid of a key is no text.")
    if entry.get("use", "sig") != "sig" or "verify" not in _operations(entry):
        return []
    return [
        name
        for name in algorithms
        if name in KINDS and KINDS[name] == (kty, None if kty == "RSA" else crv)
        if entry.get("alg", name) == name
    ]


def _operations(entry: dict[str, Any]) -> Collection[Any]:
    found = entry.get("key_ops", ["verify"])
    return found if isinstance(found, list) else ()


def _key_of(entry: dict[str, Any], algorithm: str) -> Any:
    try:
        if entry["kty"] == "RSA":
            bits = int.from_bytes(jwt.utils.base64url_decode(entry["n"])).bit_length()
            if not LEAST_RSA_BITS <= bits <= MOST_RSA_BITS:
                kid = str(entry.get("kid"))[:80]
                log.warning("jwks_key_refused", kid=kid, bits=bits, least=LEAST_RSA_BITS)
                return None
        return jwt.PyJWK(entry, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        raise BadKeys(f"A key of the set is no key for {algorithm}.") from None


class Source(Protocol):
    """Where the document is."""

    name: str
    every_seconds: float  # between two readings that succeed
    again_seconds: float  # after one that failed
    follows_unknown_keys: bool  # whether an unknown kid is a reason to read it now

    def read(self) -> bytes | None:
        """The document, of at most MOST_BYTES + 1; None: as it was. KeysAway when it cannot be read."""


class FileSource:
    """A file, read when it is another than at the last look, as a mounted Kubernetes secret may become."""

    every_seconds = again_seconds = LOOK_SECONDS
    follows_unknown_keys = False

    def __init__(self, path: Path, clock: Clock) -> None:
        self.name = f"the file {path}"
        self._path = path
        self._clock = clock
        self._stamp: tuple[int, int, int] | None = None

    def read(self) -> bytes | None:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._stamp:
                return None
            if not stat.S_ISREG(found.st_mode):  # a pipe would keep us waiting
                raise KeysAway("The file of keys is no file.")
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            self._stamp = None
            raise KeysAway(f"The file of keys cannot be read: {type(error).__name__}.") from None
        # Within the step of the filesystem's clock, a second change would leave the mtime as it is.
        settled = self._clock.now().timestamp() - found.st_mtime > 2
        self._stamp = stamp if settled else None
        return content


class HttpSource:
    """An address, as the `jwks_uri` of an identity provider."""

    again_seconds = RETRY_SECONDS
    follows_unknown_keys = True

    def __init__(self, url: str, clock: Clock, *, every_seconds: float, ca_file: str = "") -> None:
        self.name = url.partition("?")[0]
        self.every_seconds = every_seconds
        self._url = url
        self._clock = clock
        self._ca_file = ca_file or None

    def read(self) -> bytes | None:
        # No redirect is followed: it could lead off https, or to another's address. Nothing
        # compressed is asked for, so that the bound on bytes is one on what arrives, too.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "headworks"}
        # A pool for this time alone: a process that forks must not share a connection with its
        # children, and a file of authorities may be another by now.
        pool = urllib3.PoolManager(
            maxsize=1, retries=False, timeout=urllib3.Timeout(connect=FETCH_SECONDS, read=FETCH_SECONDS),
            cert_reqs="CERT_REQUIRED", ca_certs=self._ca_file,
        )  # fmt: skip
        try:
            response = pool.request(
                "GET", self._url, headers=headers, redirect=False, preload_content=False, decode_content=False
            )
            return self._content(response)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KeysAway(f"The address of the keys does not answer: {type(error).__name__}.") from None
        finally:
            pool.clear()

    def _content(self, response: urllib3.BaseHTTPResponse) -> bytes:
        parts, length = [], 0
        deadline = self._clock.monotonic() + FETCH_SECONDS
        try:
            if response.status != 200:
                raise KeysAway(f"The address of the keys answers {response.status}.")
            while length <= MOST_BYTES and (chunk := response.read1(1 << 16)):
                parts.append(chunk)
                length += len(chunk)
                if self._clock.monotonic() > deadline:
                    raise KeysAway("The address of the keys answers too slowly.")
        finally:
            response.close()
        return b"".join(parts)


class Jwks:
    """The keys of a source, as they were last read well; `current` never waits.

    A thread reads them again in the background (`start`, `close`), also in the children of a process
    that forks. While the source is away or says nonsense, the old keys stay.
    """

    def __init__(
        self, source: Source, algorithms: Collection[str], clock: Clock, *, patience_seconds: float = 0.0
    ) -> None:
        """patience_seconds: how long `find` may wait for the source to be read again."""
        self.current = Keys()
        self._patience_seconds = patience_seconds
        self._source = source
        self._algorithms = tuple(algorithms)
        self._clock = clock
        self._said = ""  # what is wrong with the source, as far as it was logged
        self._asked_at = float("-inf")
        self._thread: threading.Thread | None = None
        self._prepare()

    def _prepare(self) -> None:
        self._changed = threading.Condition()
        self._readings = 0  # those that are over, whatever came of them
        self._awaited = 0  # the number of the reading that an unknown name asked for
        self._reading = self._wanted = self._stopping = False

    @property
    def generation(self) -> int:
        """Grows with every change of what the source says; 0 while nothing was read."""
        return self.current.generation

    def renew(self) -> float:
        """Read the source once. The seconds after which to do it again."""
        try:
            content = self._source.read()
            if content is not None and hashlib.sha256(content).digest() != self.current.digest:
                generation = self.current.generation + 1
                self.current = keys_of(content, self._algorithms, generation=generation)
                log.info("jwks_read", source=self._source.name, keys=len(self.current.by_name))
        except (BadKeys, KeysAway) as error:
            self._say(error.sentence)
            return self._source.again_seconds
        if content is not None:  # nothing new in a file that was refused is no recovery
            self._say("")
        return self._source.every_seconds

    def _say(self, problem: str) -> None:
        """One line for a problem, not one for every try; and one for its end."""
        if problem and problem != self._said:
            log.warning(
                "jwks_refused", source=self._source.name, reason=problem, kept=self.current.generation > 0
            )
        elif self._said and not problem:
            log.info("jwks_back", source=self._source.name)
        self._said = problem

    def start(self) -> None:
        """The keys have been read once, or it was tried, and are read again in the background from now on."""
        seconds = self.renew()
        _running.add(self)
        self._begin(seconds)

    def _begin(self, seconds: float) -> None:
        self._thread = threading.Thread(target=self._keep, args=(seconds,), daemon=True, name="jwks")
        self._thread.start()

    def _begin_in_child(self) -> None:
        if self._thread is not None:
            self._prepare()  # the thread is not in the child, and might have held the lock
            self._begin(0.0)

    def close(self) -> None:
        """Nothing is read any more. The keys stay."""
        _running.discard(self)
        thread, self._thread = self._thread, None
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if thread is not None:
            thread.join(2 * FETCH_SECONDS)

    def _keep(self, seconds: float) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopping, seconds)
                if self._stopping:
                    return
                self._wanted, self._reading = False, True
            try:
                seconds = self.renew()
            except Exception:
                # Without this thread keys would grow old for good, and nobody would hear of it.
                log.exception("jwks_reading_failed", source=self._source.name)
                seconds = RETRY_SECONDS
            with self._changed:
                self._readings += 1
                self._reading = False
                self._changed.notify_all()

    def find(self, kid: str | None, algorithm: str) -> Any:
        """The key of this name, or None; KeysAway while no key was ever read.

        An unknown name makes the source be read, at most once in 30 s, and waited for as long as
        there is patience.
        """
        found = self.current.find(kid, algorithm)
        if found is None and self._source.follows_unknown_keys and self._ask():
            found = self.current.find(kid, algorithm)
        if found is None and self.current.generation == 0:
            raise KeysAway()
        return found

    def _ask(self) -> bool:
        """Whether the reading has ended that an unknown name has last asked for."""
        with self._changed:
            if self._thread is None:
                return False
            now = self._clock.monotonic()
            if now - self._asked_at >= RETRY_SECONDS:
                self._asked_at = now
                # One that is on its way may have seen the source before the new key was there.
                self._awaited = self._readings + 1 + self._reading
                self._wanted = True
                self._changed.notify_all()
            awaited = self._awaited
            return self._changed.wait_for(lambda: self._readings >= awaited, self._patience_seconds)


_running: weakref.WeakSet[Jwks] = weakref.WeakSet()


def _begin_in_child() -> None:
    for one in list(_running):
        one._begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
