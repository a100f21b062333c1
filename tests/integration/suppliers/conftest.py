"""Stores of states of both kinds, and a supplier on them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters import s3
from app.suppliers.bucket_states import BucketStates
from app.suppliers.states import PosixStates, States
from tests.integration.one_bucket import credentials, s3_url  # noqa: F401
from tests.integration.suppliers.tree import Tree, tree


@pytest.fixture
def bucket_states(s3_url: str, credentials: None) -> BucketStates:  # noqa: F811
    """An empty store of states in a bucket of its own."""
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
