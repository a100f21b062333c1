"""Nobody reads what belongs to another tenant, whatever they send."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.conftest import KEY, SECRET, Servers
from tests.integration.refdata_query.conftest import Pods
from tests.integration.refdata_query.serving import PROFILES, Serving, World, open_world, place
from tests.integration.refdata_query.wire import Answer
from tests.integration.threads import wait_until
from tests.unit.refdata import signing

OURS, THEIRS = "acme", "globex"
SECRETS = {OURS: "what only acme may know", THEIRS: "what only globex may know"}
RESTS = ["items/a", "items/none", "items?keys=a,b", "all", "all?limit=1", "version", "watch"]


def token(tenant: Any, *, key: str = "r1", **claims: Any) -> str:
    """A token that speaks for the tenant (None: for none)."""
    told = {"sub": "somebody", "tenant_id": tenant, "exp": int(time.time()) + 600, **claims}
    told = {name: value for name, value in told.items() if value is not None}
    return signing.compact({"alg": "RS256", "kid": key}, told, signing.rs256(key))


def bearer(*args: Any, **more: Any) -> str:
    return f"Bearer {token(*args, **more)}"


@pytest.fixture(scope="module")
def both(world: World) -> World:
    """Two tenants with the same keys, and texts that give them away."""
    for tenant, secret in SECRETS.items():
        if not world.stored(tenant):
            world.write(tenant, {"a": {"of": secret}, "b": {"of": secret}, f"only-{tenant}": {"of": secret}})
    return world


@pytest.fixture
def reading(both: World, serving: Serving) -> Serving:
    for tenant in SECRETS:
        serving.await_version(tenant, 1)
    return serving


def says_nothing_of(tenant: str, answer: Answer) -> bool:
    text = answer.body.decode() + repr(answer.headers)
    return SECRETS[tenant] not in text and f"only-{tenant}" not in text


@pytest.mark.parametrize("rest", RESTS)
def test_a_token_reads_its_own_tenant(rest: str, reading: Serving) -> None:
    if rest == "watch":
        answer = reading.head(place(OURS, rest), Authorization=bearer(OURS))
    else:
        answer = reading.get(place(OURS, rest), Authorization=bearer(OURS))
    assert answer.status == (404 if rest == "items/none" else 200)
    if rest in ("items/a", "items?keys=a,b", "all"):
        assert SECRETS[OURS] in answer.body.decode()
    assert says_nothing_of(THEIRS, answer)


@pytest.mark.parametrize("rest", RESTS)
def test_a_token_reads_no_other_tenant(rest: str, reading: Serving) -> None:
    answer = reading.get(place(THEIRS, rest), Authorization=bearer(OURS))
    assert answer.refusal == (403, "tenant_mismatch")
    assert says_nothing_of(THEIRS, answer)
    assert [name for name, _ in answer.headers if name.lower().startswith(("x-dict", "etag", "x-data"))] == []


@pytest.mark.parametrize("tenant", ["globex2", "never", "ACME", "acme2", "acm"])
def test_nor_one_that_is_not_there(tenant: str, reading: Serving) -> None:
    """So nobody learns which tenants there are."""
    answer = reading.get(place(tenant, "all"), Authorization=bearer(OURS))
    there = reading.get(place(THEIRS, "all"), Authorization=bearer(OURS))
    assert answer.refusal == (403, "tenant_mismatch")
    assert answer.body.replace(tenant.encode(), b"T") == there.body.replace(THEIRS.encode(), b"T")


NOBODY = {
    "no token": None,
    "an empty header": "",
    "a scheme alone": "Bearer",
    "a scheme and a blank": "Bearer ",
    "no token at all": "Bearer abc",
    "three parts that are none": "Bearer a.b.c",
    "a password": "Basic YWNtZTphY21l",
    "a token without its scheme": token(OURS),
    "of another's key": bearer(OURS, key="r2"),
    "expired": bearer(OURS, exp=int(time.time()) - 3600),
    "never expiring": bearer(OURS, exp=None),
    "not yet": bearer(OURS, nbf=int(time.time()) + 3600),
    "for another audience": bearer(OURS, aud="billing"),
    "unsigned": "Bearer "
    + signing.compact({"alg": "none"}, {"tenant_id": OURS, "exp": 1 << 33}, lambda _: b""),
    "signed with what everybody knows": "Bearer "
    + signing.compact(
        {"alg": "HS256", "kid": "r1"},
        {"tenant_id": OURS, "exp": 1 << 33},
        signing.hs256(signing.public_pem("r1")),
    ),
    "changed": bearer(OURS)[:-6] + "AAAAAA",
    "two of them": f"{bearer(OURS)}, {bearer(OURS)}",
    "longer than any": "Bearer " + "a" * 9000 + ".b.c",
    "the instance's key with more": f"Bearer {KEY}x",
    "a part of the instance's key": f"Bearer {KEY[:-1]}",
    "the instance's key as a password": f"Basic {KEY}",
    "the instance's secret": f"Bearer {SECRET}",
}


@pytest.mark.parametrize("case", NOBODY)
def test_nobody_reads_anything(case: str, reading: Serving) -> None:
    for rest in ("items/a", "all", "watch"):
        answer = reading.get(place(OURS, rest), Authorization=NOBODY[case])
        assert answer.refusal == (401, "unauthorized")
        assert answer["WWW-Authenticate"]
        assert says_nothing_of(OURS, answer)


@pytest.mark.parametrize(
    "claim", [None, "", "acme,globex", "*", [], "acme ", "../globex", {"acme": 1}, 7, True]
)
def test_a_claim_that_names_no_tenant_reads_none(claim: Any, reading: Serving) -> None:
    for tenant in SECRETS:
        answer = reading.get(place(tenant, "all"), Authorization=bearer(claim))
        assert answer.status in (401, 403)
        assert says_nothing_of(tenant, answer)


def test_a_token_may_be_for_several_tenants(reading: Serving) -> None:
    for tenant, secret in SECRETS.items():
        answer = reading.get(place(tenant, "items/a"), Authorization=bearer([OURS, THEIRS]))
        assert answer.json == {"of": secret}
    assert reading.get(place("shelf", "all"), Authorization=bearer([OURS, THEIRS])).status == 403


def test_a_token_of_one_is_not_remembered_as_anothers(reading: Serving) -> None:
    """On one connection, in turns, more often than any cache is cold."""
    tokens = {tenant: bearer(tenant) for tenant in SECRETS}
    with reading.wire() as wire:
        for n in range(200):
            asks, of = (OURS, THEIRS)[n % 2], (OURS, THEIRS)[n // 2 % 2]
            wire.send(reading.request(place(of, "items/a"), headers={"Authorization": tokens[asks]}))
            answer = wire.answer()
            if asks == of:
                assert answer.json == {"of": SECRETS[of]}
            else:
                assert answer.refusal == (403, "tenant_mismatch")


def test_a_token_that_expires_is_not_taken_any_more(reading: Serving) -> None:
    # 30 s are forgiven: leewaySeconds is as it comes.
    authorization = bearer(OURS, exp=int(time.time()) - 28)
    assert reading.get(place(OURS, "items/a"), Authorization=authorization).status == 200
    deadline = time.monotonic() + 5
    while reading.get(place(OURS, "items/a"), Authorization=authorization).status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    answer = reading.get(place(OURS, "items/a"), Authorization=authorization)
    assert answer.refusal == (401, "unauthorized")


def test_the_key_of_the_instance_reads_every_tenant(reading: Serving) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        for tenant, secret in SECRETS.items():
            answer = reading.get(place(tenant, "items/a"), Authorization=f"{scheme} {KEY}")
            assert answer.json == {"of": secret}


# -- tricks


TRICKS = {
    # what else is sent with acme's token            status
    "the tenant in a header": ({"X-Tenant-Id": THEIRS}, 403),
    "a certificate of the mesh": (
        {"X-Forwarded-Client-Cert": "URI=spiffe://cluster.local/ns/a/sa/globex"},
        403,
    ),
    "an address of this machine": ({"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1"}, 403),
    "another address": ({"X-Original-Url": place(THEIRS, "all"), "X-Rewrite-Url": place(THEIRS, "all")}, 403),
    "another method": ({"X-Http-Method-Override": "GET"}, 403),
    "another Host": ({"X-Forwarded-Host": THEIRS}, 403),
}


@pytest.mark.parametrize("case", TRICKS)
def test_headers_open_nothing(case: str, reading: Serving) -> None:
    headers, status = TRICKS[case]
    named = {name.replace("-", "_"): value for name, value in headers.items()}
    answer = reading.get(place(THEIRS, "all"), Authorization=bearer(OURS), **named)
    assert (answer.status, answer.code) == (status, "tenant_mismatch")
    assert says_nothing_of(THEIRS, answer)
    own = reading.get(place(OURS, "all"), Authorization=bearer(OURS), **named)
    assert says_nothing_of(THEIRS, own)


def test_a_header_that_contradicts_the_address_is_refused(reading: Serving) -> None:
    answer = reading.get(place(OURS, "all"), Authorization=bearer(OURS), X_Tenant_Id=THEIRS)
    assert answer.refusal == (403, "tenant_mismatch")
    assert reading.get(place(OURS, "all"), Authorization=bearer(OURS), X_Tenant_Id=OURS).status == 200


def test_a_trusted_client_may_name_the_tenant(reading: Serving) -> None:
    gateway = bearer(None, sub="gateway")
    for tenant, secret in SECRETS.items():
        answer = reading.get(place(tenant, "items/a"), Authorization=gateway, X_Tenant_Id=tenant)
        assert answer.json == {"of": secret}
    assert reading.get(place(OURS, "all"), Authorization=gateway).status == 403
    assert reading.get(place(OURS, "all"), Authorization=gateway, X_Tenant_Id=THEIRS).status == 403


TWICE = [
    # two lines of one header
    [("Authorization", bearer(OURS)), ("Authorization", bearer(THEIRS))],
    [("Authorization", bearer(THEIRS)), ("Authorization", bearer(OURS))],
    [("Authorization", bearer(OURS)), ("Authorization", f"Bearer {KEY}")],
    [("Authorization", f"Bearer {KEY}"), ("Authorization", bearer(OURS))],
    [("Authorization", bearer(None, sub="gateway")), ("X-Tenant-Id", OURS), ("X-Tenant-Id", THEIRS)],
    [("Authorization", bearer(None, sub="gateway")), ("X-Tenant-Id", THEIRS), ("X-Tenant-Id", OURS)],
]


@pytest.mark.parametrize("headers", TWICE)
@pytest.mark.parametrize("tenant", SECRETS)
def test_a_header_that_stands_twice_is_believed_by_nobody(
    tenant: str, headers: list[tuple[str, str]], reading: Serving
) -> None:
    with reading.wire() as wire:
        wire.send(reading.request(place(tenant, "all"), headers=headers))
        answer = wire.answer()
    assert answer.status in (400, 401, 403)
    assert says_nothing_of(tenant, answer)


TRAILERS = {
    # what stands behind the chunks of a body that nobody asked for
    "the key of the instance": f"Authorization: Bearer {KEY}",
    "a token": f"Authorization: {bearer(OURS)}",
}


@pytest.mark.parametrize("case", TRAILERS)
def test_what_stands_behind_a_body_proves_nothing(case: str, reading: Serving) -> None:
    """Gateways look at headers, and let trailers pass."""
    headers = {"Authorization": None, "Transfer-Encoding": "chunked", "Connection": "close"}
    body = b"3\r\nabc\r\n0\r\n" + TRAILERS[case].encode() + b"\r\n\r\n"
    with reading.wire() as wire:
        wire.send(reading.request(place(OURS, "items/a"), headers=headers, body=body))
        assert wire.answer().refusal == (401, "unauthorized")


ADDRESSES = [
    "/v1/tenants/acme/../globex/dictionaries/NOTES/all",
    "/v1/tenants/acme%2F..%2Fglobex/dictionaries/NOTES/all",
    "/v1/tenants/acme%2e%2e%2fglobex/dictionaries/NOTES/all",
    "/v1/tenants/acme;globex/dictionaries/NOTES/all",
    "/v1/tenants/acme%00globex/dictionaries/NOTES/all",
    "/v1/tenants/acme//globex/dictionaries/NOTES/all",
    "//v1/tenants/globex/dictionaries/NOTES/all",
    "/./v1/tenants/globex/dictionaries/NOTES/all",
    "/v1/tenants/globex/dictionaries/NOTES/all?tenantId=acme",
    "/v1/tenants/acme/dictionaries/NOTES/all?tenantId=globex",
    "/v1/tenants/acme/dictionaries/NOTES/items/..%2F..%2F..%2Fglobex%2Fdictionaries%2FNOTES%2Fitems%2Fa",
    "/v1/tenants/acme/dictionaries/globex:NOTES/all",
    "/v1/tenants/acme/dictionaries/NOTES%2F..%2F..%2Fglobex/all",
    "/v1/tenants/acme:NOTES/dictionaries/NOTES/all",
    "/v1/tenants/%67lobex/dictionaries/NOTES/all",
    "/v1/tenants/glob%65x/dictionaries/NOTES/items/a",
    "/v1/tenants/acme/dictionaries/NOTES/items?keys=only-globex,..%2Fglobex",
    "/v1/tenants/globex/dictionaries/NOTES/all#/v1/tenants/acme/dictionaries/NOTES/all",
    "http://acme/v1/tenants/globex/dictionaries/NOTES/all",
]


@pytest.mark.parametrize("target", ADDRESSES)
def test_addresses_open_nothing(target: str, reading: Serving) -> None:
    answer = reading.get(target, Authorization=bearer(OURS))
    assert answer.status < 500
    assert SECRETS[THEIRS] not in answer.body.decode()


def test_a_tenant_that_is_percent_encoded_is_the_tenant_it_says(reading: Serving) -> None:
    answer = reading.get("/v1/tenants/%61cm%65/dictionaries/NOTES/items/a", Authorization=bearer(OURS))
    assert answer.json == {"of": SECRETS[OURS]}


def test_a_cursor_or_a_tag_of_another_shows_nothing_of_them(reading: Serving) -> None:
    first = reading.get(place(THEIRS, "all?limit=1"), Authorization=bearer(THEIRS))
    cursor = quote(first.json["next"], safe="")
    for rest in (f"all?after={cursor}", f"all?limit=5&after={cursor}"):
        answer = reading.get(place(OURS, rest), Authorization=bearer(OURS))
        assert answer.status in (200, 400, 410)
        assert says_nothing_of(THEIRS, answer)
        if answer.status == 200:
            assert set(answer.json["items"]) <= {"a", "b", f"only-{OURS}"}
    tagged = reading.get(place(OURS, "items/a"), Authorization=bearer(OURS), If_None_Match=first["ETag"])
    assert (tagged.status, tagged.json) == (200, {"of": SECRETS[OURS]})


def test_neither_is_anything_shown_by_the_way_to_the_database(reading: Serving, both: World) -> None:
    """An answer of the primary is of the caller's tenant alone, too."""
    for n in range(5):
        versions = {tenant: both.commit(tenant, {"a": {"of": secret}}) for tenant, secret in SECRETS.items()}
        for asks in SECRETS:
            for of, version in versions.items():
                answer = reading.get(
                    place(of, "items?keys=a,only-acme,only-globex"),
                    Authorization=bearer(asks), X_Min_Version=str(version),
                )  # fmt: skip
                if asks == of:
                    assert answer.json["items"] == {
                        key: {"of": SECRETS[of]} for key in ("a", f"only-{of}")
                    }, n
                else:
                    assert answer.refusal == (403, "tenant_mismatch")


def test_metrics_name_no_tenant(reading: Serving) -> None:
    text = reading.get("/actuator/prometheus", Authorization=None).body.decode()
    health = reading.get("/actuator/health", Authorization=None).body.decode()
    for tenant, secret in SECRETS.items():
        assert tenant not in text + health
        assert secret not in text + health


# -- other ways to say who one is


@pytest.fixture(scope="module")
def worlds(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, World]]:
    """A platform for each of the other sources of a tenant."""
    spiffe = "spiffe://cluster.local/ns/a/sa/acme"
    rules: dict[str, dict[str, Any] | None] = {
        "nothing said": None,
        "header": {"source": "TRUSTED_HEADER", "trustedPeers": ["127.0.0.1"]},
        "header of others": {"source": "TRUSTED_HEADER", "trustedPeers": ["192.0.2.0/24"]},
        "mesh": {"source": "MTLS_HEADER", "trustedPeers": ["127.0.0.1"], "mtlsTenants": {spiffe: [OURS]}},
        "mesh of others": {
            "source": "MTLS_HEADER", "trustedPeers": ["192.0.2.1"], "mtlsTenants": {spiffe: [OURS]},
        },
    }  # fmt: skip
    with ExitStack() as open_ones:
        found = {}
        for name, one in rules.items():
            folder: Path = tmp_path_factory.mktemp("tenants")
            found[name] = open_ones.enter_context(open_world(servers, folder, tenant_rules=one))
            for tenant, secret in SECRETS.items():
                found[name].write(tenant, {"a": {"of": secret}})
        yield found


CERTIFICATE = "URI=spiffe://cluster.local/ns/a/sa/acme"
SOURCES = [
    # source           headers                                       of acme, of globex
    ("header", {"X-Tenant-Id": OURS}, 200, 403),
    ("header", {"X-Tenant-Id": THEIRS}, 403, 200),
    ("header", {"X-Tenant-Id": f"{OURS}, {THEIRS}"}, 401, 401),
    ("header", {}, 401, 401),
    ("header of others", {"X-Tenant-Id": OURS}, 401, 401),
    ("header of others", {"X-Tenant-Id": OURS, "X-Forwarded-For": "192.0.2.1"}, 401, 401),
    ("mesh", {"X-Forwarded-Client-Cert": CERTIFICATE}, 200, 403),
    ("mesh", {"X-Forwarded-Client-Cert": f"{CERTIFICATE},URI=spiffe://x.example/ns/a"}, 403, 403),
    ("mesh", {"X-Forwarded-Client-Cert": "garbage"}, 401, 401),
    ("mesh", {"X-Tenant-Id": OURS}, 401, 401),
    ("mesh of others", {"X-Forwarded-Client-Cert": CERTIFICATE}, 401, 401),
    # The peer is who is at the other end of the connection, whatever headers say.
    ("mesh of others", {"X-Forwarded-Client-Cert": CERTIFICATE, "X-Forwarded-For": "192.0.2.1"}, 401, 401),
    ("header", {"X-Tenant-Id": OURS, "X-Forwarded-For": "198.51.100.1"}, 200, 403),
    ("nothing said", {"X-Tenant-Id": OURS}, 401, 401),
    ("nothing said", {"Authorization": bearer(OURS)}, 401, 401),
    ("nothing said", {}, 401, 401),
]


@pytest.fixture(scope="module", params=PROFILES)
def other_pods(
    request: pytest.FixtureRequest, worlds: dict[str, World], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Serving]]:
    found = {
        name: Serving(world, tmp_path_factory.mktemp("pod") / "data", profile=request.param).begin()
        for name, world in worlds.items()
    }
    for pod in found.values():
        pod.await_health("readiness", 200)
    yield found
    for pod in found.values():
        pod.stop()


@pytest.mark.parametrize(("source", "headers", "ours", "theirs"), SOURCES)
def test_a_tenant_is_known_from_its_source_only(
    source: str, headers: dict[str, str], ours: int, theirs: int, other_pods: dict[str, Serving]
) -> None:
    for tenant, status in ((OURS, ours), (THEIRS, theirs)):
        with other_pods[source].wire() as wire:
            wire.send(
                other_pods[source].request(
                    place(tenant, "items/a"), headers={"Authorization": None, **headers}
                )
            )
            answer = wire.answer()
        assert answer.status == status
        if status == 200:
            assert answer.json == {"of": SECRETS[tenant]}


@pytest.mark.parametrize("source", ["header of others", "mesh", "nothing said"])
def test_the_key_of_the_instance_is_enough_everywhere(source: str, other_pods: dict[str, Serving]) -> None:
    for tenant, secret in SECRETS.items():
        assert other_pods[source].get(place(tenant, "items/a")).json == {"of": secret}


HERE = [
    # what is sent at the machine of an embedded instance        status
    ({}, 200),
    ({"Authorization": f"Bearer {KEY}"}, 200),
    ({"Authorization": "Bearer nobody"}, 401),
    ({"X-Forwarded-For": "192.0.2.1"}, 401),
    ({"Forwarded": "for=192.0.2.1"}, 401),
    ({"X-Real-Ip": "192.0.2.1"}, 401),
]


def embedded(servers: Servers, folder: Path) -> dict[str, str | None]:
    """What an instance has that is on the servers of its own data folder, and without a secret."""
    folder.mkdir(parents=True)
    (folder / "postgres").symlink_to(servers.postgres.folder)
    (folder / "valkey").symlink_to(servers.valkey.folder)
    return {
        "HEADWORKS_SECRET": None, "HEADWORKS_DATABASE_URL": servers.postgres.dsn,
        "HEADWORKS_BROKER_URL": servers.valkey.url,
    }  # fmt: skip


def ask_without_key(pod: Serving, tenant: str, headers: dict[str, str], **more: Any) -> Answer:
    with pod.wire() as wire:
        wire.send(pod.request(place(tenant, "items/a"), headers={"Authorization": None, **headers}, **more))
        return wire.answer()


@pytest.mark.parametrize("profile", PROFILES)
def test_whoever_is_at_the_machine_of_an_embedded_instance_needs_no_token(
    profile: str, pods: Pods, worlds: dict[str, World], servers: Servers, tmp_path: Path
) -> None:
    environ = embedded(servers, tmp_path / "here")
    pod = pods(worlds["nothing said"], name="here", profile=profile, environ=environ)
    for headers, status in HERE:
        for tenant, secret in SECRETS.items():
            answer = ask_without_key(pod, tenant, headers)
            assert answer.status == status, headers
            assert status != 200 or answer.json == {"of": secret}
    # A page whose name was made to lead here sends its own name.
    assert ask_without_key(pod, OURS, {}, host="evil.example").refusal == (401, "unauthorized")


@pytest.mark.parametrize("profile", PROFILES)
def test_elsewhere_it_is_not_enough_to_be_at_the_machine(
    profile: str, pods: Pods, worlds: dict[str, World]
) -> None:
    """On a database that is not its own, or with a secret, an instance is not embedded."""
    for environ in ({"HEADWORKS_SECRET": None}, {}):
        pod = pods(worlds["nothing said"], profile=profile, environ=environ)
        assert ask_without_key(pod, OURS, {}).refusal == (401, "unauthorized")


def test_an_instance_that_others_can_reach_lets_nobody_in_without_a_token(
    worlds: dict[str, World], servers: Servers, tmp_path: Path
) -> None:
    environ = embedded(servers, tmp_path / "pod")
    pod = Serving(worlds["nothing said"], tmp_path / "pod", environ=environ)
    pod.bind("0.0.0.0")
    process = pod.begin().process
    assert process is not None
    try:
        wait_until(lambda: process.poll() is not None or pod.health("readiness") == 200, seconds=30)
        if process.poll() is None:
            assert pod.get(place(OURS, "items/a"), Authorization=None).refusal == (401, "unauthorized")
        else:  # it may as well say what is missing
            assert process.returncode != 0 and "HEADWORKS_SECRET" in pod.said()
    finally:
        pod.kill()
