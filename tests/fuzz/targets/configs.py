"""Configurations in YAML: what operators write is taken, or refused with a line or a key."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from app.refdata import config as of_refdata
from app.refdata import templates
from app.refdata.yaml_lines import BadConfig
from app.suppliers import config as of_suppliers
from app.suppliers.failures import SupplierFailure
from tests.fuzz.target import ROOT, SAMPLES, Target

ENVIRON = {
    "REFDATA_FIRST": "postgresql://x/y",
    "REFDATA_SECOND": "postgresql://x/z",
    "REFDATA_REDIS": "redis://x",
}


@cache
def _file() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-")) / "config.yaml"


def _of_supplier(content: bytes) -> None:
    _file().write_bytes(content)
    try:
        found = of_suppliers.load(_file(), "acme")
    except SupplierFailure as failure:
        assert failure.code in ("CONFIG_INVALID", "CONFIG_DQ_MISSING")
        return
    assert found.supplier == "acme" and found.dq.min_fact_count >= 0


def _of_dictionaries(content: bytes) -> None:
    try:
        found = of_refdata.parse(content.decode("utf-8", "replace"), ENVIRON)
    except BadConfig as refusal:
        assert "Line " in refusal.sentence or "is not set" in refusal.sentence or "MiB" in refusal.sentence
        return
    assert all(code == one.code for code, one in found.dictionaries.items())


def _template(content: bytes) -> None:
    try:
        templates.compile_template(
            content.decode("utf-8", "replace"), templates.ITEM, reads=len(content) % 2 == 0
        )
    except templates.TemplateRefused as refusal:
        assert refusal.line >= 1 and refusal.sentence


KINDS = (_of_supplier, _of_dictionaries, _template)


def check(data: bytes) -> None:
    """The first byte chooses whose configuration it is."""
    if data:
        KINDS[data[0] % 3](data[1:])


def seeds() -> Iterator[bytes]:
    """The sample of a supplier, the dictionaries of the tests, and templates of SQL."""
    sample = (SAMPLES / "tyres.yaml").read_bytes()
    yield b"\x00" + sample
    yield (b"\x00" + b"supplier: acme\ncategory_key: g\ncurrency: RUB\nversion: 1\ndq: {min_fact_count: 1}\n")
    yield b"\x01" + (ROOT / "tests/integration/refdata/seed.yaml").read_bytes()
    yield b"\x02select code as k, v from t where id = :tenantId -- x\n"
    yield b"\x02insert into t values (:key, cast(:payload->>'a' as text), E'\\'', $$;$$) /* x"


TARGET = Target(
    check,
    seeds,
    words=(
        b"supplier: acme", b"columns:", b"from:", b"dq:", b"&a", b"*a", b"!!python/object", b"<<: ", b"- ",
        b": ", b"? ", b"|\n",
        b"refdata:", b"dictionaries:", b"code:", b"loadSql:", b"apply:", b"mode:", b":tenantId",
        b":payload", b"$$", b"/*", b"--",
        b"E'", b";", b"\xef\xbb\xbf", b"\x00", b"1e400", b"0o7", b"2026-01-01", b"null", b"{", b"[", b"'",
    ),
    most_bytes=4096,
)  # fmt: skip
