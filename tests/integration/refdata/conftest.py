from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.adapters import tracing
from tests.conftest import Servers, run_statement
from tests.integration.refdata.platform import SEED, Platform, open_platform
from tests.integration.refdata.two_databases import databases  # noqa: F401


@pytest.fixture
def platform(
    servers: Servers,
    databases: tuple[str, str],  # noqa: F811
    tmp_path: Path,
) -> Iterator[Platform]:
    """The platform without an entry, its configuration a file of its own."""
    config = tmp_path / "refdata.yaml"
    name = uuid.uuid4().hex[:10]
    config.write_text(
        SEED.read_text()
        .replace("commandsTopic: refdata.commands", f"commandsTopic: {name}.commands")
        .replace("    keyTemplate", f"    deadLetterTopic: {name}.commands.dlq\n    keyTemplate")
        .replace(
            "    urlFromEnv: REFDATA_REDIS",
            f"    urlFromEnv: REFDATA_REDIS\n    pubChannel: {name}:pub\n    streamKey: {name}:stream",
        )
    )
    first, second = databases
    environ = {"REFDATA_FIRST": first, "REFDATA_SECOND": second, "REFDATA_REDIS": servers.valkey.url}
    found = Platform(first, second, environ, config, open_platform(servers, config, environ))
    for name in ("postgres", "second"):
        assert found.services.databases[name]
    yield found
    found.services.close()
    for dsn, table in ((first, "mdm_country, laws"), (second, "mdm.mdm_currency")):
        run_statement(
            dsn,
            f"TRUNCATE {table}, refdata.dictionary_meta, refdata.dictionary_item, refdata.processed_event,"
            " refdata.update_request, refdata.snapshot, refdata.snapshot_chunk, refdata.outbox_event,"
            " refdata.archived_chunk, refdata.discarded_letter",
        )


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Sequence[ReadableSpan]]:
    """What was traced since the test began."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("tests"))
    return exporter.get_finished_spans
