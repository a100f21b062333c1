from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Servers
from tests.integration.refdata_query.serving import PROFILES, Serving, World, new_tenant, open_world
from tests.unit.refdata import signing

SHELF = {f"k{n}": {"n": n} for n in range(100)}
BIG_ITEMS = 80_000

Pods = Callable[..., Serving]


@pytest.fixture(scope="session")
def world(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A platform for the whole run; each test writes for tenants of its own."""
    folder = tmp_path_factory.mktemp("query")
    keys = folder / "jwks.json"
    keys.write_bytes(signing.jwks(signing.rsa_jwk("r1"), signing.ec_jwk("e1")))
    rules = {
        "jwksFile": str(keys),
        "allowHeaderOverrideForTrustedClients": True,
        "trustedClients": ["gateway"],
    }
    with open_world(servers, folder, tenant_rules=rules) as found:
        yield found


@pytest.fixture(scope="session")
def shelf(world: World) -> str:
    """A tenant with a hundred notes in version 1, which stay as they are."""
    tenant = "shelf"
    assert world.write(tenant, SHELF) == 1
    return tenant


@pytest.fixture(scope="session")
def big_world(world: World) -> str:
    """A tenant with 80,000 notes, some 40 MB of JSON, in version 1."""
    tenant = "big"
    world.platform.sql(
        "INSERT INTO refdata.dictionary_item"
        f" SELECT '{tenant}', 'NOTES', 'k' || n, jsonb_build_object('n', n, 'text', repeat('x', 470)),"
        " false, now()"
        f" FROM generate_series(1, {BIG_ITEMS - 1}) AS n"
    )
    assert world.write(tenant, {"k0": {"n": 0}}) == 1
    return tenant


@pytest.fixture(scope="session", params=PROFILES)
def serving(
    request: pytest.FixtureRequest, world: World, shelf: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    """A pod with one reader, of either profile."""
    with Serving(world, tmp_path_factory.mktemp("pod") / "data", profile=request.param) as found:
        yield found


@pytest.fixture
def big(big_world: str, serving: Serving) -> str:
    """The tenant with 80,000 notes, which the pod has loaded."""
    serving.await_version(big_world, 1, seconds=60)
    return big_world


@pytest.fixture
def tenant() -> str:
    """A tenant that has nothing yet."""
    return new_tenant()


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    """Further pods, each with a folder of its own, unless `name` names one; they end with the test."""
    with ExitStack() as running:
        made = 0

        def make(of: World, *, name: str = "", **more: Any) -> Serving:
            nonlocal made
            made += 1
            return running.enter_context(Serving(of, tmp_path / (name or f"pod{made}"), **more))

        yield make
