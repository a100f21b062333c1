"""An OpenTelemetry collector: it takes spans in as OTLP over HTTP, and keeps them to be looked at."""

from __future__ import annotations

import http.server
import threading
from dataclasses import dataclass
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Seen:
    """A span as it was told."""

    process: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, str]
    failed: bool


class Collector:
    """A server on a port of this machine."""

    def __init__(self) -> None:
        self._seen: list[Seen] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces", self.path
                collector._take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            process = _values(resource.resource.attributes).get("service.name", "")
            self._seen += [
                Seen(
                    process, span.name, span.kind, span.trace_id.hex(), span.span_id.hex(),
                    span.parent_span_id.hex(), _values(span.attributes), span.status.code == 2,
                )
                for scope in resource.scope_spans for span in scope.spans
            ]  # fmt: skip

    def trace(self, trace_id: str) -> list[Seen]:
        """What was told of this trace so far."""
        return [span for span in list(self._seen) if span.trace_id == trace_id]

    def everything(self) -> str:
        """All that was ever told, as text."""
        return repr(self._seen)


def _values(attributes: Any) -> dict[str, str]:
    found = {one.key: one.value for one in attributes}
    return {key: str(getattr(value, value.WhichOneof("value"))) for key, value in found.items()}
