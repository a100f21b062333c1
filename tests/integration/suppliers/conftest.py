"""An object store that speaks S3 over HTTP, with conditional writes, and a tree of suppliers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from app.adapters import s3
from app.suppliers.bucket_states import BucketStates
from app.suppliers.states import PosixStates, States
from tests.integration.suppliers.tree import Tree, tree

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "dummy-id",
    "AWS_SECRET_ACCESS_KEY": "dummy-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@pytest.fixture(scope="package")
def s3_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket_states(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> BucketStates:
    """An empty store of states in a bucket of its own."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    bucket = f"states-{uuid.uuid4().hex[:12]}"
    s3.client(s3_url).create_bucket(Bucket=bucket)
    return BucketStates(bucket, "etl", endpoint_url=s3_url)


@pytest.fixture(params=["posix", "s3"])
def states(request: pytest.FixtureRequest, tmp_path: Path) -> States:
    """A store of states: both kinds keep one contract."""
    if request.param == "posix":
        return PosixStates(tmp_path / "raw_v1")
    found: BucketStates = request.getfixturevalue("bucket_states")
    return found


@pytest.fixture
def mine(tmp_path: Path) -> Tree:
    """A supplier with a config, states on disk and an empty inbox."""
    found = tree(tmp_path)
    found.configure()
    return found


@pytest.fixture
def on(tmp_path: Path) -> Callable[[States], Tree]:
    """A supplier whose states are in this store."""

    def make(kept: States) -> Tree:
        found = tree(tmp_path)
        found = replace(found, services=replace(found.services, states=kept))
        found.configure()
        return found

    return make
