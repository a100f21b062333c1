"""What readers were answered, checked against what writers wrote."""

from __future__ import annotations

import asyncio
import bisect
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TENANT = "tenant-a"
AT_ONCE = 20
"""So many requests a client sends at a time (pipelining), so that a Python client asks enough."""

EXCUSES = {"LOADING", "RELOADING", "PRIMARY_UNAVAILABLE"}


@dataclass
class Model:
    """Every version of a dictionary that was committed, by key."""

    code: str
    committed: int = 0
    _versions: dict[str, list[int]] = field(default_factory=dict)
    _payloads: dict[str, list[Any]] = field(default_factory=dict)

    def wrote(self, version: int, items: dict[str, Any]) -> None:
        """These entries will be written with this version; None: taken away."""
        for key, payload in items.items():
            self._versions.setdefault(key, []).append(version)
            self._payloads.setdefault(key, []).append(payload)

    def at(self, version: int, key: str) -> Any:
        """The payload of an entry at this version; None: it was not there."""
        index = bisect.bisect_right(self._versions.get(key, []), version) - 1
        return None if index < 0 else self._payloads[key][index]

    def all_at(self, version: int) -> dict[str, Any]:
        """Every entry at this version."""
        found = {key: self.at(version, key) for key in list(self._versions)}
        return {key: payload for key, payload in found.items() if payload is not None}


@dataclass
class History:
    """The answers of all clients, each checked when it comes."""

    models: list[Model]
    reads: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    faults: list[tuple[float, float]] = field(default_factory=list)
    """From when to when something was out of order."""

    def judge(self, model: Model, ask: Ask, status: int, header: dict[str, str], body: bytes) -> None:
        """The answer is what the model says of its version, which is not below what was asked for."""
        self.reads += 1
        if status == 503:
            code = json.loads(body)["code"]
            self.excused[code] += 1
            if code not in EXCUSES or not self.is_troubled(ask.at):
                self.wrong.append(f"{ask}: {code} while nothing was out of order")
            return
        version = int(header.get("x-dict-version", "-1"))
        self.sources[header.get("x-data-source", "")] += 1
        if status not in (200, 404) or version < ask.at_least:
            self.wrong.append(f"{ask}: status {status}, version {version}, {body[:200]!r}")
        elif ask.keys is None:
            found = json.loads(body)
            if found["version"] != version or found["items"] != model.all_at(version):
                self.wrong.append(f"{ask}: not what version {version} is")
        elif len(ask.keys) == 1:
            payload = json.loads(body) if status == 200 else None
            if payload != model.at(version, ask.keys[0]):
                self.wrong.append(f"{ask}: at version {version} {payload} is wrong")
        else:
            found = json.loads(body)
            wanted = {key: payload for key in ask.keys if (payload := model.at(version, key)) is not None}
            if found["version"] != version or found["items"] != wanted:
                self.wrong.append(f"{ask}: at version {version} {found} is wrong")

    def is_troubled(self, moment: float) -> bool:
        """Whether something was out of order, or not yet as before."""
        return any(began - 0.5 <= moment <= ended for began, ended in self.faults)


@dataclass(frozen=True)
class Ask:
    """One request."""

    pod: int
    at: float
    at_least: int
    keys: tuple[str, ...] | None  # None: all


class Client:
    """One connection after the other to pods chosen by chance, and what is asked there."""

    def __init__(self, history: History, ports: list[int], keys: list[str], seed: int) -> None:
        self._history = history
        self._ports = ports
        self._keys = keys
        self._random = random.Random(seed)
        self.broken = 0

    async def run(self, goes_on: Callable[[], bool]) -> None:
        """Asks until it is enough."""
        while goes_on():
            pod = self._random.randrange(len(self._ports))
            try:
                await asyncio.wait_for(self._talk(pod), 20)
            except (OSError, asyncio.IncompleteReadError):
                self.broken += 1
                if not self._history.is_troubled(time.monotonic()):
                    self._history.wrong.append(f"pod {pod} broke a connection while nothing was out of order")
                await asyncio.sleep(0.05)

    async def _talk(self, pod: int) -> None:
        stream, sink = await asyncio.open_connection("127.0.0.1", self._ports[pod])
        seen: dict[str, int] = {}  # one process answers a connection, and does not go back
        try:
            for _ in range(10):
                asked = [self._ask(pod) for _ in range(AT_ONCE)]
                sink.write(b"".join(_request(model, ask) for model, ask in asked))
                for model, ask in asked:
                    status, header, body = await answer(stream)
                    self._history.judge(model, ask, status, header, body)
                    if header.get("x-data-source") in ("memory", "snapshot"):
                        version, before = int(header["x-dict-version"]), seen.get(model.code, 0)
                        if version < before:
                            self._history.wrong.append(f"{ask}: from {before} back to {version}")
                        seen[model.code] = version
        finally:
            sink.close()

    def _ask(self, pod: int) -> tuple[Model, Ask]:
        model = self._random.choice(self._history.models)
        at_least = model.committed if self._random.random() < 0.5 else 0
        kind = self._random.random()
        keys: tuple[str, ...] | None = (self._random.choice(self._keys),)
        if kind > 0.99:
            keys = None
        elif kind > 0.8:
            keys = tuple(self._random.sample(self._keys, 5))
        return model, Ask(pod, time.monotonic(), at_least, keys)


def _request(model: Model, ask: Ask) -> bytes:
    if ask.keys is None:
        rest = "all"
    else:
        rest = f"items/{ask.keys[0]}" if len(ask.keys) == 1 else f"items?keys={','.join(ask.keys)}"
    barrier = f"X-Min-Version: {ask.at_least}\r\n" if ask.at_least else ""
    path = f"/v1/tenants/{TENANT}/dictionaries/{model.code}/{rest}"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n{barrier}\r\n".encode()


KEY = "the key of this instance"


async def answer(stream: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, header and body of the next answer."""
    head = (await stream.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    lines = (line.partition(":") for line in head[1:] if line)
    header = {name.lower(): value.strip() for name, _, value in lines}
    body = await stream.readexactly(int(header.get("content-length", "0")))
    return int(head[0].split()[1]), header, body
