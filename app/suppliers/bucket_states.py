"""Published states in an object store: immutable facts, and a pointer that is switched on a condition."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.adapters import s3
from app.kernel import errors
from app.suppliers.failures import SupplierFailure
from app.suppliers.states import Published


class BucketStates:
    """States below one prefix of a bucket; `state/current/<supplier>.json` says which one is current."""

    def __init__(self, bucket: str, prefix: str, *, endpoint_url: str | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = s3.client(endpoint_url)

    def current(self, supplier: str) -> Published | None:
        found = self._pointer(supplier)
        return found[0] if found else None

    def _pointer(self, supplier: str) -> tuple[Published, str] | None:
        """The pointer and its ETag."""
        try:
            with s3.errors_of():
                answer = self._client.get_object(Bucket=self._bucket, Key=self._pointer_key(supplier))
                with answer["Body"] as body:
                    return Published.from_json(json.loads(body.read())), answer["ETag"]
        except errors.FileGone:
            return None

    def _pointer_key(self, supplier: str) -> str:
        return f"{self._prefix}state/current/{supplier}.json"

    def store(self, state: Published, facts: Path) -> None:
        # The service refuses what has not arrived as it was sent.
        digest = base64.b64encode(bytes.fromhex(state.facts_sha256)).decode()
        try:
            with facts.open("rb") as body:
                self._put(
                    f"{self._prefix}{state.path}", Body=body, IfNoneMatch="*", ChecksumSHA256=digest,
                    ContentType="application/x-ndjson",
                )  # fmt: skip
        except errors.Conflict:
            return  # it stands: an answer was lost

    def switch(self, state: Published, *, instead_of: Published | None) -> None:
        seen = self._pointer(state.supplier)
        if (seen and seen[0].run_id) != (instead_of and instead_of.run_id):
            raise SupplierFailure("PUBLISH_CONFLICT", stage="publish")
        condition = {"IfMatch": seen[1]} if seen else {"IfNoneMatch": "*"}
        body = json.dumps(state.as_json(), ensure_ascii=False, indent=1).encode()
        try:
            self._put(
                self._pointer_key(state.supplier), Body=body, ContentType="application/json", **condition
            )
        except errors.Conflict:
            raise SupplierFailure("PUBLISH_CONFLICT", stage="publish") from None

    def _put(self, key: str, **arguments: Any) -> None:
        with s3.errors_of():
            self._client.put_object(Bucket=self._bucket, Key=key, **arguments)

    @contextmanager
    def facts(self, state: Published) -> Iterator[Path]:
        with tempfile.NamedTemporaryFile(suffix=".ndjson") as copy:
            with s3.errors_of(), errors.disk_errors():
                key = f"{self._prefix}{state.path}"
                with self._client.get_object(Bucket=self._bucket, Key=key)["Body"] as body:
                    shutil.copyfileobj(body, copy, 1 << 20)
                copy.flush()
            yield Path(copy.name)

    def stored(self, supplier: str) -> list[str]:
        return sorted({key.split("/")[-2] for key in self._keys(f"state_store/{supplier}/")})

    def _keys(self, below: str) -> Iterator[str]:
        with s3.errors_of():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{self._prefix}{below}"
            )
            for page in pages:
                yield from (found["Key"] for found in page.get("Contents", ()))

    def drop(self, supplier: str, run_id: str) -> None:
        for key in list(self._keys(f"state_store/{supplier}/{run_id}/")):
            with s3.errors_of():
                self._client.delete_object(Bucket=self._bucket, Key=key)
