"""A pod that answers reads of reference data answers as the document says."""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import resource
from collections.abc import Iterator
from importlib import resources
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
import schemathesis
from schemathesis import engine
from schemathesis.config import SchemathesisConfig

from app.refdata.query import watchers
from app.refdata.query.reads import KINDS
from tests import patience
from tests.conftest import BEARER, KEY, Servers
from tests.faults.proxy import Proxy
from tests.integration.openapi.conftest import TOKEN_SECRET
from tests.integration.openapi.schemas import DOCUMENT, examples, follow, is_read, operations, wrongs
from tests.integration.openapi.test_fuzz import ACCEPTED, PHASES, SEED, findings
from tests.integration.refdata_query.serving import Serving, World, open_world
from tests.integration.refdata_query.wire import Answer
from tests.integration.threads import wait_until
from tests.unit.refdata.signing import b64

OPERATIONS = {
    name: (path, method, operation)
    for name, (path, method, operation) in operations().items()
    if is_read(path)
}
TENANT = "tenant-a"
COUNTRIES = {"KZ": {"name": "Kazakhstan"}, "RU": {"name": "Russia"}, "AM": {"name": "Armenia"}}
VERSIONS = 42
SECONDS = 24
"""How long requests are made up."""


class Pod:
    """Calls operations by their names, and holds each answer against the document."""

    def __init__(self, world: World, serving: Serving, database: Proxy) -> None:
        self.world = world
        self.serving = serving
        self.database = database

    def call(
        self, name: str, *, status: int = 200, query: str = "", method: str = "GET", token: str | None = KEY,
        protocol: str = "HTTP/1.1", headers: dict[str, Any] | None = None, **places: str,
    ) -> Answer:  # fmt: skip
        """The answer, which has this status and is as it is described."""
        path, _, operation = OPERATIONS[name]
        target = path.format(**{"tenant_id": TENANT, "dict_code": "NOTES", **places})
        sent = {"Authorization": token and f"Bearer {token}", **(headers or {})}
        request = self.serving.request(
            f"{target}?{query}" if query else target, method=method, protocol=protocol, headers=sent
        )
        with self.serving.wire() as wire:
            wire.send(request)
            is_endless = "text/event-stream" in self._contents(operation, 200) and status == 200
            answer = wire.head()[0] if is_endless else wire.answer(to_head=method == "HEAD")
            assert answer.status == status, answer
            if is_endless and method == "GET":
                answer = Answer(status, answer.headers, wire.chunk(), answer.protocol)
        self._check(operation, answer, is_head=method == "HEAD")
        return answer

    @staticmethod
    def _contents(operation: dict[str, Any], status: int) -> dict[str, Any]:
        found: dict[str, Any] = follow(operation["responses"].get(str(status), {})).get("content", {})
        return found

    def _check(self, operation: dict[str, Any], answer: Answer, *, is_head: bool) -> None:
        described = follow(operation["responses"][str(answer.status)])
        for header, about in described.get("headers", {}).items():
            about = follow(about)
            value: Any = answer[header]
            assert value is not None or not about.get("required"), header
            if value is not None:
                value = int(value) if about["schema"].get("type") == "integer" else value
                assert wrongs(about["schema"], value) == [], header
        contents = self._contents(operation, answer.status)
        if not contents:
            assert answer.body == b""
        elif not is_head:
            kind = (answer["Content-Type"] or "").partition(";")[0]
            value = json.loads(answer.body) if kind.endswith("json") else answer.body.decode()
            assert wrongs(contents[kind]["schema"], value) == []


@pytest.fixture(scope="module")
def pod(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """One pod whose way to the database can be broken; the tenant has three notes, in version 42."""
    rules = {"algorithms": ["HS256"], "secretFromEnv": "REFDATA_TOKEN_SECRET"}
    with contextlib.ExitStack() as running:
        world = running.enter_context(
            open_world(
                servers, tmp_path_factory.mktemp("reads"), tenant_rules=rules, consistency={"readWaitMs": 0}
            )
        )
        for _ in range(VERSIONS):  # before the pod begins, so that it keeps the last one alone
            world.commit(TENANT, COUNTRIES)
            world.commit(TENANT, COUNTRIES, code="COUNTRY")  # of the examples
        world.announce()
        database = Proxy(servers.postgres.port or 0)
        running.callback(database.close)
        environ = {
            name: database.leads_to(world.platform.environ[name])
            for name in ("REFDATA_FIRST", "REFDATA_SECOND")
        }
        serving = Serving(
            world, tmp_path_factory.mktemp("pod") / "data", profile="fast",
            environ=environ | {"REFDATA_TOKEN_SECRET": TOKEN_SECRET},
        )  # fmt: skip
        yield Pod(world, running.enter_context(serving), database)


# -- what is answered


def test_every_address_is_there_and_no_other_of_a_dictionary_is(pod: Pod) -> None:
    of_dictionary = {path.split("/")[6] for path, _, _ in OPERATIONS.values() if path.startswith("/v1/")}
    assert of_dictionary == {kind.decode() for kind in KINDS}
    others = {path for path, _, _ in OPERATIONS.values() if not path.startswith("/v1/")}
    assert {path for path in others if pod.serving.get(path).status == 200} == others
    for path, _, _ in OPERATIONS.values():
        refused = pod.serving.get(path.format(tenant_id=TENANT, dict_code="NOTES", key="RU"), method="POST")
        assert (refused.refusal, refused["Allow"]) == ((405, "method_not_allowed"), "GET, HEAD"), path


def test_data_is_told_as_described(pod: Pod) -> None:
    assert pod.call("readItem", key="RU").json == COUNTRIES["RU"]
    some = pod.call("readItems", query="keys=RU,XX").json
    assert some == {"version": VERSIONS, "items": {"RU": COUNTRIES["RU"]}, "missing": ["XX"]}
    assert pod.call("readDictionary").json == {"version": VERSIONS, "items": COUNTRIES}
    packed = pod.call("readDictionary", method="HEAD", headers={"Accept-Encoding": "gzip"})
    assert packed["Content-Encoding"] == "gzip"
    told = pod.call("showDictionaryVersion").json
    assert (told["version"], told["items"], told["source"]) == (VERSIONS, 3, "memory")
    events = pod.call("watchDictionary").body.decode()
    [(_, example)] = examples(
        OPERATIONS["watchDictionary"][2]["responses"]["200"]["content"]["text/event-stream"]
    )
    assert events == example.replace("7c1f0a52-9b8e-4c41-a3f5-6f1f3a0c2b10", pod.world.epoch())


def test_a_page_leads_to_the_next_one_as_described(pod: Pod) -> None:
    (link,) = OPERATIONS["readDictionary"][2]["responses"]["200"]["links"].values()
    assert link["parameters"]["after"] == "$response.body#/next"
    first = pod.call("readDictionary", query="limit=2").json
    assert [*first["items"]] == ["AM", "KZ"]
    last = pod.call(link["operationId"], query=urlencode({"after": first["next"], "limit": 2})).json
    assert last == {"version": VERSIONS, "next": None, "items": {"RU": COUNTRIES["RU"]}}


@pytest.mark.parametrize(
    ("name", "query", "headers"),
    [
        ("readItem", "", {}),
        ("readItems", "keys=RU", {}),
        ("readDictionary", "", {}),
        ("readDictionary", "", {"Accept-Encoding": "gzip"}),
        ("readDictionary", "limit=2", {}),
    ],
)
def test_what_the_caller_has_is_told_as_described(
    name: str, query: str, headers: dict[str, str], pod: Pod
) -> None:
    tag = pod.call(name, key="RU", query=query, headers=headers, method="HEAD")["ETag"]
    again = pod.call(name, key="RU", query=query, headers={**headers, "If-None-Match": tag}, status=304)
    assert again["ETag"] == tag


def test_the_database_answers_as_described(pod: Pod) -> None:
    tenant = "of-the-database"
    pod.world.write(tenant, {"RU": {"n": 0}})
    for name, key, status in (("readItem", "RU", 200), ("readItem", "XX", 404), ("readItems", "RU", 200)):

        def of_database(name: str = name, key: str = key, status: int = status) -> Answer | None:
            version = pod.world.commit(tenant, {"RU": {"n": 1}})
            answer = pod.call(
                name, query="keys=RU" if name == "readItems" else "", key=key, status=status,
                headers={"X-Min-Version": version, "X-Dict-Epoch": pod.world.epoch()}, tenant_id=tenant,
            )  # fmt: skip
            assert answer.version >= version
            # What is compared now and then may have been loaded meanwhile.
            return answer if answer["X-Data-Source"] == "postgres_fallback" else None

        assert wait_until(of_database)["ETag"] is None


def test_the_process_is_told_as_described(pod: Pod) -> None:
    for name in ("checkReads", "checkReadsReady"):
        assert pod.call(name, token=None).json["loader"] == "UP"
    pod.call("checkReadsAlive", token=None)
    assert b"headworks_refdata_reads_total{" in pod.call("showReadsMetrics", token=None).body


# -- what is refused


def token(tenant: str) -> str:
    claims = {"sub": "tests", "tenant_id": tenant, "exp": 4_000_000_000}
    return jwt.encode(claims, TOKEN_SECRET, algorithm="HS256")


OF_DICTIONARY = [name for name, (path, _, _) in OPERATIONS.items() if path.startswith("/v1/")]


def refusals(pod: Pod) -> Iterator[Answer]:
    """A request of every kind that is refused, and its answer."""
    query = {"readItems": "keys=RU"}
    for name in OF_DICTIONARY:
        asked: dict[str, Any] = {"name": name, "query": query.get(name, ""), "key": "RU"}
        yield pod.call(**asked, token=None, status=401)
        yield pod.call(**asked, token=token("tenant-b"), status=403)
        yield pod.call(**asked, tenant_id="a%20tenant", status=422)
        for code in ("NEVER", "OLD"):
            yield pod.call(**asked, dict_code=code, status=404)
        if name == "watchDictionary":
            yield pod.call(**asked, protocol="HTTP/1.0", status=505)
            continue
        yield pod.call(**asked, headers={"X-Min-Version": "-1"}, status=400)
        yield pod.call(**asked, headers={"X-Min-Version": "1", "X-Dict-Epoch": "none"}, status=400)
        yield pod.call(**asked, headers={"X-Min-Version": str(VERSIONS + 1)}, status=409)
        other = {"X-Min-Version": "1", "X-Dict-Epoch": "7c1f0a52-9b8e-4c41-a3f5-6f1f3a0c2b10"}
        yield pod.call(**asked, headers=other, status=409)
        exactly = f"{asked['query']}&version=7".lstrip("&")
        yield pod.call(**asked | {"query": exactly}, status=410)
    yield pod.call("readItem", key="XX", status=404)
    yield pod.call("readItem", key="%ff", status=400)
    for keys in ("", "keys=", "keys=%ff", "keys=" + ",".join(f"k{n}" for n in range(1001))):
        yield pod.call("readItems", query=keys, status=400)
    yield pod.call("readItems", query="keys=" + ",".join(["k" * 700] * 100), status=414)
    for limit in ("limit=0", "limit=100001", "after=none"):
        yield pod.call("readDictionary", query=limit, status=400)
    cursor = b64(f'7.{pod.world.epoch()[:8]}.,"RU":'.encode())
    yield pod.call("readDictionary", query=f"after={cursor}", status=410)


def late(pod: Pod) -> Iterator[Answer]:
    """A request of every kind that can be sent again, and its answer."""
    tenant = "late"
    place = {"tenant_id": tenant, "dict_code": "BRAKED", "key": "RU"}
    pod.world.write(tenant, {"RU": {"n": 1}}, code="BRAKED")
    pod.serving.await_version(tenant, 1, code="BRAKED")
    with pod.world.braked(6):
        version = pod.world.commit(tenant, {"RU": {"n": 2}}, code="BRAKED")
        yield pod.call("readDictionary", **place, headers={"X-Min-Version": str(version)}, status=503)
        pod.world.commit("later", {"RU": {"n": 1}}, code="BRAKED")
        yield pod.call("readItem", **place | {"tenant_id": "later"}, status=503)
    pod.serving.await_version(tenant, version, code="BRAKED")
    with watching(pod):
        yield pod.call("watchDictionary", status=503)
    pod.database.refuse()
    pod.database.cut()
    try:
        yield pod.call("readItem", key="RU", headers={"X-Min-Version": str(VERSIONS + 1)}, status=503)
    finally:
        pod.database.heal()


@contextlib.contextmanager
def watching(pod: Pod) -> Iterator[None]:
    """As many watch as may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    path = OPERATIONS["watchDictionary"][0].format(tenant_id=TENANT, dict_code="NOTES")
    try:
        with contextlib.ExitStack() as open_ones:
            wires = [open_ones.enter_context(pod.serving.wire()) for _ in range(watchers.MOST)]
            for wire in wires:
                wire.send(pod.serving.request(path))
            assert all(wire.head()[0].status in (200, 503) for wire in wires)
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_every_refusal_is_told_as_described_and_every_example_of_one_is_real(pod: Pod) -> None:
    found = [answer.json for answer in (*refusals(pod), *late(pod))]
    promised = [
        (name, status, value)
        for name in OF_DICTIONARY
        for status, response in OPERATIONS[name][2]["responses"].items()
        for kind, content in follow(response).get("content", {}).items()
        if kind == "application/problem+json"
        for _, value in examples(content)
    ]
    assert len({json.dumps(value) for _, _, value in promised}) >= 20
    assert [one for one in promised if one[2] not in found] == []


ELSEWHERE = {"keys_unavailable"}
"""Codes of what reads are built on."""


def test_the_codes_of_the_document_are_those_that_are_raised() -> None:
    raised = {
        node.args[1].value
        for file in resources.files("app.refdata.query").iterdir()
        if file.name.endswith(".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Refusal", "problem")
        if len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
    }
    assert DOCUMENT["components"]["schemas"]["ReadCode"]["enum"] == sorted(raised | ELSEWHERE)


# -- whatever is asked for


NOT_ALL_IS_SAID = {
    # operation      what a schema cannot say, and how it is refused
    "readItem": ["400"],  # how many bytes the characters of a key are
    "readItems": ["400"],  # the same; and a client may encode the commas between keys
    "readDictionary": ["400"],  # whether a cursor came from here
}
ENDLESS = "watchDictionary"
"""Nobody waits for the end of its answer: the tests above hold its beginning against the document."""

ASKED = {path: DOCUMENT["paths"][path] for name, (path, _, _) in OPERATIONS.items() if name != ENDLESS}


def configuration(phase: str, pod: Pod) -> SchemathesisConfig:
    known = {"path.tenant_id": TENANT, "path.dict_code": "COUNTRY", "header.X-Dict-Epoch": pod.world.epoch()}
    accepted = [*ACCEPTED, "304", "410"]
    return SchemathesisConfig.from_dict(
        {
            "base-url": f"http://127.0.0.1:{pod.serving.port}",
            "max-time": SECONDS // len(PHASES),
            "phases": {name: {"enabled": name == phase} for name in PHASES},
            "seed": SEED,
            "headers": BEARER,
            "continue-on-failure": True,
            "generation": {
                "database": "none",
                "allow-extra-parameters": False,
                "mode": "all" if phase == "coverage" else "positive",
            },
            "checks": {"positive_data_acceptance": {"expected-statuses": accepted}},
            # What is made up is mostly nobody's: here it is asked of data.
            "parameters": {} if phase == "coverage" else known,
            "operations": [
                {
                    "include-operation-id": name,
                    "checks": {"positive_data_acceptance": {"expected-statuses": [*accepted, *more]}},
                }
                for name, more in NOT_ALL_IS_SAID.items()
            ],
        }
    )


def happenings(pod: Pod, told: dict[str, Any]) -> Iterator[Any]:
    """What the engine tells, phase by phase, of this document."""
    for phase in PHASES:
        schema = schemathesis.openapi.from_dict(told, config=configuration(phase, pod))
        yield from engine.from_schema(schema).execute()


def test_no_answer_breaks_the_document(pod: Pod) -> None:
    found, answers = findings(happenings(pod, {**DOCUMENT, "paths": ASKED}))
    for _ in range(round(patience.PATIENCE)):  # a machine that is busy asks little in the time
        if found or {phase for phase, _, _ in answers} == {*PHASES}:
            break
        found, more = findings(happenings(pod, {**DOCUMENT, "paths": ASKED}))
        answers += more
    assert "\n\n".join(f"## {name}\n{told}" for name, told in found.items()) == ""
    assert {phase for phase, _, _ in answers} == {*PHASES}
    for name, (path, method, _) in OPERATIONS.items():
        statuses = {status for _, label, status in answers if label == f"{method} {path}"}
        assert 200 in statuses or name == ENDLESS, name


def test_the_search_finds_an_answer_that_is_not_described(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    path = OPERATIONS["showDictionaryVersion"][0]
    told = copy.deepcopy({**DOCUMENT, "paths": {path: ASKED[path]}})
    schema = told["components"]["schemas"]["VersionOfDictionary"]
    del schema["properties"]["checksum"]
    schema["required"].remove("checksum")
    monkeypatch.setattr(f"{__name__}.SECONDS", 8)
    found, _ = findings(happenings(pod, told))
    assert f"GET {path} response_schema_conformance" in found
