"""Metrics as text: those of all processes that share a folder, and what is asked for at this moment."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prometheus_client
from prometheus_client import multiprocess
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from app.adapters import logs, metric_files, metrics
from app.adapters.settings import ENVIRON

log = logs.get(__name__)

SUFFIXES = {
    # kind       what its samples are called behind its name
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}


class _Families:
    """What was asked for already, as prometheus_client wants it."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def text(asked: Iterable[Metric] = ()) -> tuple[bytes, str]:
    """The metrics of all processes, and behind them what was asked for; and the content type.

    With PROMETHEUS_MULTIPROC_DIR set (by `headworks up` and in a container) every process writes to
    that folder; without it only this process is seen.
    """
    return _kept() + as_text(asked), prometheus_client.CONTENT_TYPE_LATEST


def _kept() -> bytes:
    folder = ENVIRON.get("PROMETHEUS_MULTIPROC_DIR", "")
    if not folder or not Path(folder).is_dir():
        return prometheus_client.generate_latest(prometheus_client.REGISTRY)
    kept = prometheus_client.CollectorRegistry()
    multiprocess.MultiProcessCollector(kept, path=folder)  # type: ignore[no-untyped-call]
    with metric_files.alone(Path(folder)):
        try:
            metric_files.merge_the_dead(Path(folder))
        except OSError as error:
            log.warning("metric_files_not_merged", reason=error.strerror)
        return prometheus_client.generate_latest(kept)


def as_text(families: Iterable[Metric]) -> bytes:
    """These alone."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(_Families(families))
    return prometheus_client.generate_latest(registry)


@dataclass(frozen=True, slots=True)
class Described:
    """One metric of the product."""

    name: str  # of its samples; of a histogram without its suffixes
    kind: str
    labels: tuple[str, ...]
    meaning: str
    is_asked: bool  # when somebody looks, instead of being kept

    @property
    def samples(self) -> tuple[str, ...]:
        """What its samples are called."""
        return tuple(f"{self.name}{suffix}" for suffix in SUFFIXES[self.kind])


def described() -> list[Described]:
    """Every metric of the product, in the order of their making."""
    return [
        _described(found)
        for found in vars(metrics).values()
        if isinstance(found, (MetricWrapperBase, metrics.Asked))
    ]


def _described(found: Any) -> Described:
    if isinstance(found, metrics.Asked):
        return Described(found.name, "gauge", found.labels, found.meaning, True)
    kind = type(found).__name__.lower()
    name = f"{found._name}_total" if kind == "counter" else found._name
    return Described(name, kind, tuple(found._labelnames), found._documentation, False)


def serve(bind: str) -> None:
    """From now on this process answers `/metrics` and `/healthz` at host:port; nothing where it is empty.

    For processes that answer nothing else and share no folder with one that does. Where somebody else is
    already, the log says so, and the process goes on with its work.
    """
    if not bind:
        return
    host, _, port = bind.rpartition(":")
    try:
        server = http.server.ThreadingHTTPServer((host.strip("[]"), int(port)), _Answers)
    except OSError as error:
        log.error("metrics_not_served", bind=bind, reason=error.strerror)
        return
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    log.info("metrics_served", port=server.server_port)


class _Answers(http.server.BaseHTTPRequestHandler):
    """The two addresses, for GET."""

    timeout = 10.0

    def do_GET(self) -> None:
        """As `http.server` wants it named."""
        if self.path == "/metrics":
            self._answer(200, *text())
        elif self.path == "/healthz":
            self._answer(200, b'{"status": "alive"}\n', "application/json")
        else:
            self._answer(404, b"Nothing is here.\n", "text/plain")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A look every few seconds is no news."""
