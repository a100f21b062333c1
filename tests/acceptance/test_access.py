"""Two workspaces on one instance: neither sees the other's things, by whatever way it asks.

What is compared: a request that names another workspace's things, and the same request with ids of
nothing. No byte of the two answers may differ, and nothing of the other workspace may be in them.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import structlog

from app import cli, web
from app.access import keys, sessions
from app.adapters import database
from app.adapters.settings import Settings
from tests import patience
from tests.acceptance.conftest import ROOT, TOKEN_SECRET, Api, RunningFleet, multipart, token_of
from tests.conftest import KEY, SECRET, Servers

EVERY_SCOPE = frozenset({"upload", "read", "ops"})
MARK = "Nobody else's campaign"
WAYS_IN = ("key", "session")


def report(name: str) -> bytes:
    return (
        "Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD)\n"
        f"2025-05-01,{name},101,100,10,1.50\n2025-05-02,{name},101,x,20,2.50\n"
    ).encode()


# -- asking


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def seen(self) -> str:
        """All that the asker sees, without what differs between any two requests."""
        headers = {k: v for k, v in self.headers.items() if k not in VARYING}
        text = f"{self.status} {sorted(headers.items())} {self.body}"
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(\+00:00|Z)", "<time>", text)
        text = re.sub(r"whsec_[\w+/=]+", "<secret>", text)
        text = re.sub(r'name="csrf_token" value="[0-9a-f]*"', "<token>", text)
        return re.sub(r"headworks_session=[\w-]{43}; Expires=[^;]+", "<session>", text)


VARYING = ("date", "ratelimit", "content-length")  # the length: of times with more or fewer digits


@dataclass(frozen=True)
class Ask:
    """One request, before it is sent."""

    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    form: list[tuple[str, str]] = field(default_factory=list)
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, url: str, key: str | None) -> Answer:
        headers = dict(self.headers)
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        data: bytes | None = None
        if self.form:
            file = dict(self.form).get("file")
            if file is None:
                data = urllib.parse.urlencode(self.form).encode()
                headers["Content-Type"] = "application/x-www-form-urlencoded"
            else:
                rest = [pair for pair in self.form if pair[0] != "file"]
                data, headers["Content-Type"] = form_with_file(file.encode(), rest)
        elif self.body is not None:
            data, headers["Content-Type"] = json.dumps(self.body).encode(), "application/json"
        path = f"{self.path}?{urllib.parse.urlencode(self.query)}" if self.query else self.path
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        try:
            connection.request(self.method, path, body=data, headers=headers)
            answer = connection.getresponse()
            # A stream would be read for an hour.
            goes_on = answer.headers.get_content_type() == "text/event-stream"
            text = (answer.read1() if goes_on else answer.read()).decode("utf-8", "replace")
            found: dict[str, str] = {}
            for name, value in answer.getheaders():
                found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
            return Answer(answer.status, found, text)
        finally:
            connection.close()


def form_with_file(content: bytes, fields: list[tuple[str, str]]) -> tuple[bytes, str]:
    """A multipart body in which a field may stand twice."""
    boundary = uuid.uuid4().hex
    body = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields
    )
    file, content_type = multipart(content, {})
    inner = content_type.rpartition("=")[2]
    return body + file.replace(inner.encode(), boundary.encode()), f"multipart/form-data; boundary={boundary}"


# -- two workspaces


@dataclass(frozen=True)
class Workspace:
    id: str
    upload_id: str
    client_id: str
    key: str
    idempotency_key: str
    event_id: str
    subscription_id: str = ""
    delivery_id: str = ""

    @property
    def token(self) -> str:
        """What speaks for the workspace where it is a tenant of reference data."""
        return token_of(self.id)


@dataclass(frozen=True)
class Two:
    """Ours asks; theirs is not to be seen."""

    url: str
    ours: Workspace
    theirs: Workspace


@pytest.fixture(scope="module")
def access(fleet: RunningFleet) -> Iterator[database.Database]:
    db = database.Database(fleet.dsn, name="tests")
    yield db
    db.close()


def new_key(db: database.Database, workspace_id: str | None, scopes: frozenset[str] = EVERY_SCOPE) -> str:
    return keys.create(
        db,
        workspace_id=uuid.UUID(workspace_id) if workspace_id else None,
        scopes=scopes,
        name="CI",
        created_by="tests",
    ).text


@pytest.fixture(scope="module")
def both(fleet: RunningFleet, access: database.Database) -> Two:
    def workspace(name: str) -> Workspace:
        id_, client_id = str(uuid.uuid4()), str(uuid.uuid4())
        api = Api(fleet.api.url, new_key(access, id_))
        fields = {"workspace_id": id_, "platform": "meta", "filename": f"{name}.csv", "force_partial": "true"}
        # The same bytes again, once for each way of being let in: what repeats them is a duplicate.
        sent = [
            *(
                api.upload(report(name), headers={"Idempotency-Key": f"{by} {id_}"}, **fields)
                for by in WAYS_IN
            ),
            api.upload(report(name), client_id=client_id, **fields),
        ]
        for answer in sent:
            assert api.finished(answer["upload_id"])["status"] == "completed"
        return Workspace(id_, sent[-1]["upload_id"], client_id, api.key, "", changed(fleet, id_, name))

    return Two(fleet.api.url, workspace("Ours"), workspace(MARK))


def changed(fleet: RunningFleet, tenant_id: str, name: str) -> str:
    """The eventId of a change of this tenant's countries, which is committed."""
    tenant = Api(fleet.api.url, token_of(tenant_id))
    items = [{"key": "AT", "op": "UPSERT", "payload": {"name": name}}]
    body = {"dictCode": "COUNTRY", "eventType": "DELTA", "items": items}
    sent = tenant.post_json(f"/v1/tenants/{tenant_id}/updates", body)
    deadline = patience.deadline(30)
    while (found := tenant.get(sent["statusUrl"]))["status"] != "COMMITTED":
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    event_id: str = found["eventId"]
    return event_id


@pytest.fixture
def two(both: Two, access: database.Database, fleet: RunningFleet, servers: Servers) -> Two:
    """Both workspaces, with no upload and no event on its way; ours with a key whose requests nobody has
    counted. Each has a webhook, and a test of it that is never due."""
    on_their_way = (
        f"SELECT id FROM data_uploads u WHERE workspace_id = '{both.ours.id}' AND (finished_at IS NULL"
        " OR event_emitted AND NOT EXISTS (SELECT FROM audit a WHERE a.upload_id = u.id"
        " AND a.action = 'event_received'))"
    )
    deadline = patience.deadline(60)
    while servers.sql(on_their_way, dsn=fleet.dsn):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    ours = replace(both.ours, key=new_key(access, both.ours.id))
    return replace(
        both,
        ours=with_webhook(ours, fleet, servers),
        theirs=with_webhook(both.theirs, fleet, servers),
    )


WEBHOOK_URL = "https://hooks.example/"
WEBHOOK = """
DELETE FROM webhook_deliveries WHERE workspace_id = '{ws}';
DELETE FROM webhook_subscriptions WHERE workspace_id = '{ws}';
INSERT INTO webhook_subscriptions (id, workspace_id, url, topics, sealed_secret, created_by)
VALUES ('{subscription}', '{ws}', '{url}', '{{ingestion-complete}}', 's', 'tests');
INSERT INTO webhook_deliveries
    (id, subscription_id, workspace_id, event_key, payload, is_test, next_attempt_at)
VALUES ('{delivery}', '{subscription}', '{ws}', 'test', '{{}}', true, 'infinity');
"""


def with_webhook(workspace: Workspace, fleet: RunningFleet, servers: Servers) -> Workspace:
    subscription_id, delivery_id = str(uuid.uuid4()), str(uuid.uuid4())
    servers.sql(
        WEBHOOK.format(ws=workspace.id, subscription=subscription_id, delivery=delivery_id, url=WEBHOOK_URL),
        dsn=fleet.dsn,
    )
    return replace(workspace, subscription_id=subscription_id, delivery_id=delivery_id)


# -- every route

PIPELINE = "/api/v1/pipeline"
FIELDS = {"platform": "meta", "source": "manual", "file": report("Ours").decode()}
CHUNK = {
    # of two: nothing becomes of it, and each answer says so
    "dictCode": "CURRENCY", "eventType": "SNAPSHOT", "chunkIndex": 1, "chunksTotal": 2,
    "snapshotId": str(uuid.uuid4()), "items": [{"key": "EUR", "payload": {"name": "Euro"}}],
}  # fmt: skip


@dataclass(frozen=True)
class Route:
    """What the table says of one route and method.

    The scope is one of a key's; `a session`: whoever is let in; `the instance`: keys of all workspaces, and
    nothing is here for others; `a token`: the pipeline's own, or the instance's own key; `a tenant`: a token
    that speaks for the tenant in the path, or the instance's own key.
    """

    scope: str | None = None  # None: for everybody
    names: str | None = None  # where it is asked for a workspace; None: by the id of a thing in its path
    form: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = None


ROUTES = {
    # rule and method
    ("/v1/uploads", "POST"): Route("upload", "form", FIELDS),
    ("/v1/uploads", "GET"): Route("read", "query"),
    ("/v1/uploads/<uuid:upload_id>", "GET"): Route("read"),
    ("/v1/uploads/<uuid:upload_id>/errors", "GET"): Route("read"),
    ("/v1/uploads/<uuid:upload_id>/errors.csv", "GET"): Route("read"),
    ("/v1/uploads/<uuid:upload_id>/file", "GET"): Route("read"),
    ("/v1/uploads/<uuid:upload_id>/requeue", "POST"): Route("ops", None, {"reason": "a test"}),
    ("/v1/performance", "GET"): Route("read", "query"),
    ("/v1/uploads/<uuid:upload_id>/progress", "GET"): Route("read"),
    ("/v1/uploads/<uuid:upload_id>/events", "GET"): Route("read"),
    ("/v1/audit", "GET"): Route("read", "query"),
    ("/v1/webhooks", "POST"): Route(
        "ops", "body", body={"url": WEBHOOK_URL, "topics": ["ingestion-complete"]}
    ),
    ("/v1/webhooks", "GET"): Route("ops", "query"),
    ("/v1/webhooks/<uuid:subscription_id>", "DELETE"): Route("ops"),
    ("/v1/webhooks/<uuid:subscription_id>/rotate-secret", "POST"): Route("ops"),
    ("/v1/webhooks/<uuid:subscription_id>/test", "POST"): Route("ops"),
    ("/v1/webhooks/<uuid:subscription_id>/deliveries", "GET"): Route("ops"),
    ("/v1/webhooks/<uuid:subscription_id>/deliveries/<uuid:delivery_id>/redeliver", "POST"): Route("ops"),
    # pages
    ("/", "GET"): Route("read", "query"),
    ("/guess", "POST"): Route("a session", None, FIELDS),
    ("/uploads", "POST"): Route("upload", "form", FIELDS),
    ("/uploads", "GET"): Route("read", "query"),
    ("/uploads/<uuid:upload_id>", "GET"): Route("read"),
    ("/uploads/<uuid:upload_id>/again", "POST"): Route("upload"),
    ("/uploads/<uuid:upload_id>/requeue", "POST"): Route("ops", None, {"reason": "a test"}),
    ("/uploads/<uuid:upload_id>/rejected.csv", "GET"): Route("read"),
    ("/uploads/<uuid:upload_id>/original", "GET"): Route("read"),
    ("/data", "GET"): Route("read", "query"),
    ("/audit", "GET"): Route("read", "query"),
    # lists belong to no workspace: to a workspace's key there is nothing here
    ("/suppliers", "GET"): Route("the instance"),
    ("/suppliers/<supplier>", "GET"): Route("the instance"),
    ("/suppliers/<supplier>/requeue", "POST"): Route("the instance", None, {"file": "a", "reason": "b"}),
    ("/suppliers/runs/<run_id>", "GET"): Route("the instance"),
    ("/suppliers/runs/<run_id>/bad.csv", "GET"): Route("the instance"),
    ("/suppliers/runs/<run_id>/diff", "GET"): Route("the instance"),
    # tasks belong to no workspace either
    ("/pipeline", "GET"): Route("the instance"),
    ("/pipeline/files/<filename>", "GET"): Route("the instance"),
    ("/pipeline/stages/<stage>/retry", "POST"): Route("the instance", None, {"filename": "a"}),
    # and daemons hold no key; a body without a filename changes nothing
    (f"{PIPELINE}/files/register", "POST"): Route("a token", body={}),
    (f"{PIPELINE}/files", "GET"): Route("a token"),
    (f"{PIPELINE}/files/<filename>", "GET"): Route("a token"),
    (f"{PIPELINE}/files/<filename>/history", "GET"): Route("a token"),
    (f"{PIPELINE}/stages/event-ingest/done", "POST"): Route("a token", body={}),
    (f"{PIPELINE}/stages/event-ingest/<any(fail, retry):transition>", "POST"): Route("a token", body={}),
    (f"{PIPELINE}/stages/<stage>/<any(start, done, fail, retry):transition>", "POST"): Route(
        "a token", body={}
    ),
    (f"{PIPELINE}/stages/<stage>/retry-failed", "POST"): Route("a token", body={"dry_run": True}),
    (f"{PIPELINE}/queues/<stage>", "GET"): Route("a token"),
    (f"{PIPELINE}/queues/<stage>/claim", "POST"): Route("a token", body={}),
    (f"{PIPELINE}/queues/<stage>/heartbeat", "POST"): Route("a token", body={}),
    (f"{PIPELINE}/tasks", "GET"): Route("a token"),
    (f"{PIPELINE}/stuck", "GET"): Route("a token"),
    (f"{PIPELINE}/metrics/summary", "GET"): Route("a token"),
    (f"{PIPELINE}/metrics", "GET"): Route("a token"),
    (f"{PIPELINE}/events", "GET"): Route("a token"),
    # a tenant of reference data has the id of a workspace here, which it need not have
    ("/v1/tenants/<tenant_id>/updates", "POST"): Route("a tenant", "path and body", body=CHUNK),
    ("/v1/tenants/<tenant_id>/updates/<uuid:event_id>", "GET"): Route("a tenant", "path"),
    ("/v1/refdata/config", "GET"): Route("the instance"),
    ("/v1/refdata/config/reload", "POST"): Route("the instance"),
    ("/templates", "GET"): Route("a session"),
    ("/templates/<platform>.csv", "GET"): Route("a session"),
    ("/assets/<path:filename>", "GET"): Route(),
    ("/logout", "POST"): Route("a session"),
    ("/login", "GET"): Route(),
    ("/login", "POST"): Route(None, None, {"key": "KEY"}),
    ("/healthz", "GET"): Route(),
    ("/readyz", "GET"): Route(),
    ("/metrics", "GET"): Route(),
    ("/openapi.json", "GET"): Route(),
    ("/docs", "GET"): Route(),
    ("/docs/token", "GET"): Route("a session"),
    ("/docs/viewer/<filename>", "GET"): Route(),
    ("/docs/assets/<path:filename>", "GET"): Route(),
    ("/static/<path:filename>", "GET"): Route(),
    ("/access/static/<path:filename>", "GET"): Route(),
}


@pytest.fixture(scope="module")
def url_map(fleet: RunningFleet) -> Any:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in fleet.env.items():
            patched.setenv(name, value)
        app = web.create_app(Settings.from_env(fleet.env))
    app.extensions["services"].db.close()
    app.extensions["pipeline"].pipeline.db.close()
    app.extensions["refdata"].close()
    structlog.reset_defaults()
    return app.url_map


def test_every_route_has_its_line_in_the_table(url_map: Any) -> None:
    found = {(rule.rule, method) for rule in url_map.iter_rules() for method in rule.methods}
    assert set(ROUTES) == {(rule, method) for rule, method in found if method not in ("HEAD", "OPTIONS")}


SOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def ask(rule: str, method: str, by: Workspace) -> Ask:
    """The plain request of this route for a workspace's own things."""
    route = ROUTES[rule, method]
    files = {"/assets": "site.css", "/docs/assets": "docs.css"}
    filename = files.get(rule.rpartition("/")[0], "login.css")
    path = rule.replace("<uuid:upload_id>", by.upload_id).replace("<path:filename>", filename)
    path = path.replace("<filename>", "swagger-ui.css")
    path = path.replace("<platform>", "meta").replace("<uuid:subscription_id>", by.subscription_id)
    path = path.replace("<uuid:delivery_id>", by.delivery_id).replace("<supplier>", "acme")
    path = path.replace("<run_id>", "acme_20260101T000000Z_000000").replace("<stage>", "shard-worker")
    path = path.replace("<tenant_id>", by.id).replace("<uuid:event_id>", by.event_id)
    path = re.sub(r"<any\((\w+)[^>]*>", r"\1", path)
    assert "<" not in path, "say here what stands in this place of the path"
    named = [("workspace_id", by.id)]
    form = [(name, by.key if value == "KEY" else value) for name, value in route.form.items()]
    return Ask(
        method,
        path,
        query=named if route.names == "query" else [],
        form=[*named, *form] if route.names == "form" else form,
        body=body_of(route, by),
        headers=SOCKET if rule.endswith("<uuid:upload_id>/events") else {},
    )


def body_of(route: Route, by: Workspace) -> dict[str, Any] | None:
    if route.body is None:
        return None
    return {"tenantId" if route.scope == "a tenant" else "workspace_id": by.id, **route.body}


def ids(asked: Ask, of: Workspace) -> list[tuple[str, str]]:
    if asked.path.startswith("/v1/tenants/"):
        return [
            ("tenant_id", of.id),
            ("tenantId", of.id),
            ("event_id", of.event_id),
            ("eventId", of.event_id),
        ]
    named = [("workspace_id", of.id), ("upload_id", of.upload_id), ("client_id", of.client_id)]
    # An upload may name any client, and would then be found under it.
    return named[:2] if asked.method == "POST" else named


def foreign_path(asked: Ask, ours: Workspace, theirs: Workspace) -> Ask:
    """Their things where ours are named."""
    path = asked.path.replace(ours.upload_id, theirs.upload_id)
    path = path.replace(ours.subscription_id, theirs.subscription_id)
    path = path.replace(ours.event_id, theirs.event_id)
    return replace(asked, path=path.replace(ours.delivery_id, theirs.delivery_id))


def foreign_name(asked: Ask, ours: Workspace, theirs: Workspace) -> Ask:
    """Their workspace where ours is named."""

    def swap(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(name, theirs.id if value == ours.id else value) for name, value in pairs]

    body = dict(swap(list(asked.body.items()))) if asked.body is not None else None
    path = asked.path.replace(ours.id, theirs.id)
    return replace(asked, path=path, query=swap(asked.query), form=swap(asked.form), body=body)


def with_headers(asked: Ask, theirs: Workspace) -> Ask:
    names = ("X-Workspace-Id", "Workspace-Id", "X-Headworks-Workspace", "X-Tenant-Id", "X-Upload-Id")
    path = f"/v1/uploads/{theirs.upload_id}"
    paths = dict.fromkeys(("X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Prefix"), path)
    more = {"Idempotency-Key": theirs.idempotency_key, "X-User": theirs.key[:11]}
    return replace(asked, headers={**asked.headers, **dict.fromkeys(names, theirs.id), **paths, **more})


def with_cookies(asked: Ask, theirs: Workspace) -> Ask:
    pairs = [*ids(asked, theirs), ("session", theirs.id), ("key", theirs.key[:11])]
    cookies = "; ".join(f"{name}={value}" for name, value in pairs)
    return replace(asked, headers={**asked.headers, "Cookie": cookies})


def with_form(asked: Ask, theirs: Workspace, *, first: bool) -> Ask:
    more = ids(asked, theirs)
    return replace(asked, form=[*more, *asked.form] if first else [*asked.form, *more])


def with_query(asked: Ask, theirs: Workspace, *, first: bool) -> Ask:
    more = ids(asked, theirs)
    return replace(asked, query=[*more, *asked.query] if first else [*asked.query, *more])


def with_json(asked: Ask, theirs: Workspace) -> Ask:
    body = {**dict(asked.form), **(asked.body or {}), **dict(ids(asked, theirs)), "source": "api", "rows": []}
    return replace(asked, form=[], body=body)


WAYS = {
    # where the ids of the other workspace stand
    "the path": foreign_path,
    "where the workspace is named": foreign_name,
    "a query before ours": lambda a, _, t: with_query(a, t, first=True),
    "a query after ours": lambda a, _, t: with_query(a, t, first=False),
    "form fields before ours": lambda a, _, t: with_form(a, t, first=True),
    "form fields after ours": lambda a, _, t: with_form(a, t, first=False),
    "a JSON body": lambda a, _, t: with_json(a, t),
    "headers": lambda a, _, t: with_headers(a, t),
    "cookies": lambda a, _, t: with_cookies(a, t),
    "everywhere at once": lambda a, o, t: with_cookies(
        with_query(with_form(foreign_path(a, o, t), t, first=True), t, first=True), t
    ),
}


def log_in(url: str, key: str) -> dict[str, str]:
    """The headers with which a browser's page sends a request of a session of this key."""
    answer = Ask("POST", "/login", form=[("key", key)]).send(url, None)
    assert answer.status == 303
    cookie = answer.headers["set-cookie"].partition(";")[0]
    token = sessions.csrf_token(SECRET, cookie.partition("=")[2])
    return {"Cookie": cookie, "X-CSRF-Token": token, "Origin": url, "Sec-Fetch-Site": "same-origin"}


def asker(two: Two, by: str) -> Callable[[Ask], Answer]:
    """Sends requests of ours, by the key itself, by a session of it, or by a token of the tenant."""
    browser: dict[str, str] = {}

    def send(asked: Ask) -> Answer:
        nonlocal browser
        if by != "session":
            return asked.send(two.url, two.ours.key if by == "key" else two.ours.token)
        browser = browser or log_in(two.url, two.ours.key)
        cookie = "; ".join(filter(None, [browser["Cookie"], asked.headers.get("Cookie")]))
        answer = replace(asked, headers={**asked.headers, **browser, "Cookie": cookie}).send(two.url, None)
        if "set-cookie" in answer.headers:  # it is over, or another one
            browser = {}
        return answer

    return send


# Whatever a request could change of a workspace; the relay and the audit of events go on meanwhile.
STATE = """
SELECT t::text FROM data_uploads t WHERE workspace_id = '{id}'
UNION ALL SELECT t::text FROM audit t WHERE workspace_id = '{id}' AND action <> 'event_received'
UNION ALL SELECT t.key FROM outbox t WHERE workspace_id = '{id}'
UNION ALL SELECT t::text FROM campaigns t WHERE workspace_id = '{id}'
UNION ALL SELECT t::text FROM daily_metrics t WHERE workspace_id = '{id}'
UNION ALL SELECT t::text FROM webhook_subscriptions t WHERE workspace_id = '{id}'
UNION ALL SELECT t::text FROM webhook_deliveries t WHERE workspace_id = '{id}'
ORDER BY 1
"""


# Of reference data; the relay goes on meanwhile.
STATE_OF_TENANT = """
SELECT t::text FROM refdata.update_request t WHERE tenant_id = '{id}'
UNION ALL SELECT t::text FROM refdata.processed_event t WHERE tenant_id = '{id}'
UNION ALL SELECT t::text FROM refdata.dictionary_meta t WHERE tenant_id = '{id}'
UNION ALL SELECT t::text FROM refdata.dictionary_item t WHERE tenant_id = '{id}'
UNION ALL SELECT t::text FROM refdata.snapshot t WHERE tenant_id = '{id}'
UNION ALL SELECT t::text FROM refdata.snapshot_chunk t WHERE tenant_id = '{id}'
UNION ALL SELECT t.payload::text FROM refdata.outbox_event t WHERE tenant_id = '{id}'
ORDER BY 1
"""


def state_of(workspace: Workspace, fleet: RunningFleet, servers: Servers) -> Any:
    of_tenant = STATE_OF_TENANT.format(id=workspace.id)
    return (
        servers.sql(STATE.format(id=workspace.id), dsn=fleet.dsn),
        servers.sql(of_tenant, dsn=fleet.env["HEADWORKS_REFDATA_DATABASE_URL"]),
    )


ROUTE_IDS = [f"{method} {rule}" for rule, method in ROUTES]
CLOSED = [place for place, route in ROUTES.items() if route.scope is not None]
OF_TENANTS = [place for place, route in ROUTES.items() if route.scope == "a tenant"]
ASKED = [(*place, by) for place in ROUTES for by in WAYS_IN] + [(*place, "token") for place in OF_TENANTS]


def way_in(rule: str, method: str, of: Workspace) -> str:
    """What a program of this workspace shows here."""
    return of.token if (rule, method) in OF_TENANTS else of.key


@pytest.mark.parametrize(
    ("rule", "method", "by"), ASKED, ids=[f"{method} {rule} by {by}" for rule, method, by in ASKED]
)
def test_another_workspace_is_as_if_it_were_not_there(
    rule: str, method: str, by: str, two: Two, fleet: RunningFleet, servers: Servers
) -> None:
    theirs = replace(two.theirs, idempotency_key=f"{by} {two.theirs.id}")
    before, send = state_of(theirs, fleet, servers), asker(two, by)
    for way, change in WAYS.items():
        a, b, c, d, e, f, g = (str(uuid.uuid4()) for _ in range(7))
        nothing = Workspace(a, b, c, f"hw_aaaaaaaa_{theirs.key[12:]}", d, e, f, g)
        asked = change(ask(rule, method, two.ours), two.ours, theirs)
        foreign = send(asked)
        unknown = send(change(ask(rule, method, two.ours), two.ours, nothing))
        hidden = (theirs.id, theirs.upload_id, theirs.client_id, theirs.subscription_id, theirs.delivery_id)
        for mark in (*hidden, theirs.event_id, theirs.key, MARK):
            if mark not in str(vars(asked)):  # what was sent may be shown again
                assert mark not in foreign.body and mark not in str(foreign.headers), way
        assert foreign.status < 500 and foreign.status != 429, (way, foreign)
        if rule != "/metrics":  # which counts on
            assert unknown.seen == foreign.seen, way
        if way in (refused := refusals(rule, method, by)):
            assert foreign.status == refused[way], (way, foreign)
    assert before == state_of(theirs, fleet, servers)


def refusals(rule: str, method: str, by: str) -> dict[str, int]:
    """The ways in which this route is really asked for another workspace's things, and what they lead to."""
    route = ROUTES[rule, method]
    if by == "token":
        of_event = {"the path": 404} if "<uuid:event_id>" in rule else {}
        return {"where the workspace is named": 403, **of_event}
    if route.scope == "a tenant":
        return dict.fromkeys(WAYS, 401)
    if route.scope not in EVERY_SCOPE:
        return {}
    return {"where the workspace is named" if route.names else "the path": 404}


OTHER_STATUS = {
    ("/static/<path:filename>", "GET"): 404,  # there are none
    ("/v1/uploads/<uuid:upload_id>/requeue", "POST"): 409,  # it is completed
    ("/uploads/<uuid:upload_id>/requeue", "POST"): 409,
    ("/v1/uploads/<uuid:upload_id>/events", "GET"): 101,  # a socket
    ("/v1/webhooks", "POST"): 409,  # the URL is subscribed already
    ("/v1/tenants/<tenant_id>/updates", "POST"): 202,  # it is on its way
    ("/v1/webhooks/<uuid:subscription_id>/test", "POST"): 409,  # one is on its way
    ("/v1/webhooks/<uuid:subscription_id>/deliveries/<uuid:delivery_id>/redeliver", "POST"): 409,
}


@pytest.mark.parametrize(("rule", "method"), ROUTES, ids=ROUTE_IDS)
def test_ones_own_workspace_is_there(rule: str, method: str, two: Two) -> None:
    # The comparison above would hold as well if nothing worked at all.
    answer = ask(rule, method, two.ours).send(two.url, way_in(rule, method, two.ours))
    nothing_here = {"the instance": 404, "a token": 401}
    if ROUTES[rule, method].scope in nothing_here:
        assert answer.status == nothing_here[ROUTES[rule, method].scope]
        return
    if (rule, method) in OTHER_STATUS:
        assert answer.status == OTHER_STATUS[rule, method]
        return
    usual = {"POST": (200, 201, 303), "GET": (200,), "DELETE": (204,)}[method]
    assert answer.status in usual, answer
    if ROUTES[rule, method].scope == "a tenant":
        told = json.loads(answer.body)
        assert (told["eventId"], told["status"]) == (two.ours.event_id, "COMMITTED")
    if ROUTES[rule, method].scope == "read":
        of_a_log = {"/v1/audit": '"action":"moved"', "/audit": 'data-name="What"'}
        found = ("Ours", two.ours.upload_id, "2025-05-01", of_a_log.get(rule, "Ours"))
        assert any(sign in answer.body for sign in found)


@pytest.mark.parametrize(("rule", "method"), CLOSED)
def test_without_a_key_only_open_routes_answer(rule: str, method: str, two: Two) -> None:
    plain, key = ask(rule, method, two.ours), way_in(rule, method, two.ours)
    places = [
        {},
        {"query": [*plain.query, ("key", key), ("api_key", key), ("access_token", key)]},
        {"form": [*plain.form, ("key", key), ("api_key", key), ("access_token", key)]},
        {"headers": {"X-Api-Key": key, "Api-Key": key, "X-Authorization": f"Bearer {key}"}},
        {"headers": {"Proxy-Authorization": f"Bearer {key}"}},
        {
            "headers": {
                "Cookie": f"key={key}; api_key={key}; headworks_session={key}; Authorization=Bearer {key}"
            }
        },
        {"headers": {"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1"}},
        {"headers": {"Host": "localhost"}},
    ]
    for change in places:
        answer = replace(plain, **change).send(two.url, None)
        assert (answer.status, json.loads(answer.body)["code"]) == (401, "unauthorized"), change


@pytest.mark.parametrize("scope", sorted(EVERY_SCOPE))
def test_a_key_with_one_scope_uses_its_routes_alone(scope: str, two: Two, access: database.Database) -> None:
    key = new_key(access, two.ours.id, frozenset({scope}))
    for (rule, method), route in ROUTES.items():
        if route.scope in EVERY_SCOPE:
            answer = ask(rule, method, two.ours).send(two.url, key)
            assert (route.scope != scope) == (answer.status == 403), (rule, method, answer)


OF_PIPELINE = [place for place, route in ROUTES.items() if route.scope == "a token"]


@pytest.mark.parametrize(("rule", "method"), OF_PIPELINE)
def test_the_pipeline_is_for_the_instance_s_own_key_and_no_other(
    rule: str, method: str, two: Two, access: database.Database
) -> None:
    asked = ask(rule, method, two.ours)
    operator = new_key(access, None)
    browser = replace(asked, headers={**asked.headers, **log_in(two.url, operator)})
    local = replace(asked, headers={**asked.headers, **log_in(two.url, KEY)})
    for refused in (asked.send(two.url, operator), browser.send(two.url, None), local.send(two.url, None)):
        assert refused.status == 401
    answer = asked.send(two.url, KEY)
    if "<filename>" in rule:
        assert (answer.status, json.loads(answer.body)["code"]) == (404, "unknown_file")
    elif method == "GET" or rule.endswith("/retry-failed"):
        assert answer.status == 200
    else:
        assert (answer.status, json.loads(answer.body)["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(("rule", "method"), OF_TENANTS)
def test_a_tenant_is_its_tokens_and_the_instance_s_own_key_and_nobody_else(
    rule: str, method: str, two: Two, access: database.Database
) -> None:
    asked = ask(rule, method, two.ours)
    operator = new_key(access, None)
    for key in (operator, two.ours.key, f"{two.ours.token}x", two.theirs.token.rpartition(".")[0] + "."):
        assert asked.send(two.url, key).status == 401
    for key in (operator, KEY, two.ours.key):
        browser = replace(asked, headers=log_in(two.url, key))
        assert browser.send(two.url, None).status == 401
    theirs = asked.send(two.url, two.theirs.token)
    assert (theirs.status, json.loads(theirs.body)["code"]) == (403, "tenant_mismatch")
    for key in (KEY, two.ours.token):
        assert asked.send(two.url, key).status == (202 if method == "POST" else 200)


def test_an_event_id_of_another_tenant_is_as_good_as_any_other(
    two: Two, fleet: RunningFleet, servers: Servers
) -> None:
    before = state_of(two.theirs, fleet, servers)
    asked = ask("/v1/tenants/<tenant_id>/updates", "POST", two.ours)
    for event_id in (two.theirs.event_id, str(uuid.uuid4())):
        shown = f"{asked.path}/{event_id}"
        assert Ask("GET", shown).send(two.url, two.ours.token).status == 404
        answer = replace(asked, body={**asked.body, "eventId": event_id}).send(two.url, two.ours.token)
        told = json.loads(answer.body)
        assert (answer.status, told["eventId"], told["tenantId"]) == (202, event_id, two.ours.id)
        assert (told["dictCode"], told["status"]) == ("CURRENCY", "PENDING")
        assert json.loads(Ask("GET", shown).send(two.url, two.ours.token).body)["dictCode"] == "CURRENCY"
    assert before == state_of(two.theirs, fleet, servers)


def test_the_configuration_of_reference_data_is_for_operators_with_the_scope(
    two: Two, access: database.Database
) -> None:
    for scope, path, method in (
        ("read", "/v1/refdata/config", "GET"),
        ("ops", "/v1/refdata/config/reload", "POST"),
    ):
        right, wrong = (
            new_key(access, None, scopes) for scopes in (frozenset({scope}), EVERY_SCOPE - {scope})
        )
        answer = Ask(method, path).send(two.url, right)
        codes = [one["dictCode"] for one in json.loads(answer.body)["dictionaries"]]
        assert (answer.status, codes) == (200, ["COUNTRY", "CURRENCY"])
        assert Ask(method, path).send(two.url, wrong).status == 403
        assert Ask(method, path).send(two.url, two.ours.token).status == 401


KEPT = ("/openapi.json", "/docs/viewer/<filename>", *(r for r, _ in ROUTES if r.endswith("<path:filename>")))


@pytest.mark.parametrize(("rule", "method"), ROUTES, ids=ROUTE_IDS)
def test_every_answer_has_the_headers_that_keep_a_browser_safe(rule: str, method: str, two: Two) -> None:
    for key in (way_in(rule, method, two.ours), None):
        answer = ask(rule, method, two.ours).send(two.url, key)
        if answer.status == 101:
            continue  # a socket is no page
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "camera=()" in answer.headers["permissions-policy"]
        kept = rule in KEPT and answer.status == 200
        assert kept or answer.headers["cache-control"] == "no-store"
        assert "strict-transport-security" not in answer.headers  # it is plain http here


def test_open_routes_tell_nothing_about_a_workspace(two: Two) -> None:
    for (rule, method), route in ROUTES.items():
        if route.scope is None and method == "GET":
            for of in (two.ours, two.theirs):
                answer = ask(rule, method, of).send(two.url, None)
                for mark in (of.id, of.upload_id, of.client_id, of.key[3:11], MARK, "Ours"):
                    assert mark not in answer.body, rule


# -- who did it


def test_the_audit_trail_names_the_key_and_the_drop_folder(
    both: Two, two: Two, fleet: RunningFleet, access: database.Database
) -> None:
    api = Api(two.url, two.ours.key)
    history = api.get(f"/v1/uploads/{two.ours.upload_id}")["history"]
    assert history[0]["owner"] == f"key {both.ours.key[:11]} (CI)"
    failed = api.upload(b"a,b\n1,2\n", workspace_id=two.ours.id, platform="meta")["upload_id"]
    assert api.finished(failed)["status"] == "failed"
    operator = new_key(access, None, frozenset({"ops"}))
    Api(two.url, operator).post_json(f"/v1/uploads/{failed}/requeue", {"reason": "again"})
    moves = [(e["action"], e["owner"]) for e in api.get(f"/v1/uploads/{failed}")["history"]]
    assert ("requeued", f"key {operator[:11]} (CI)") in moves
    folder = fleet.data / "drop" / two.ours.id / "meta"
    folder.mkdir(parents=True)
    (folder / "dropped.csv").write_bytes(report("Ours"))
    deadline = patience.deadline(30)
    while not (found := [u for u in uploads(api, two) if u["filename"] == "dropped.csv"]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert api.get(f"/v1/uploads/{found[0]['upload_id']}")["history"][0]["owner"] == "file drop"


def uploads(api: Api, two: Two) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/v1/uploads", workspace_id=two.ours.id)["uploads"]
    return found


# -- names that want to be more than names

NAMES = [
    "../../../etc/passwd", "..\\..\\x.csv", "/etc/passwd", "a/../../b.csv", "a.csv\" ; filename=\"b.html",
    "a.csv%0d%0aX-Injected: yes", "<script>alert(1)</script>.csv", "{{7*7}}.csv", "=cmd|' /C calc'!A0",
    "a" * 5000, "‮fdp.csv", ".", "-", "名前.csv",
]  # fmt: skip


def test_a_file_s_name_is_text_and_never_a_path_or_a_header(two: Two, fleet: RunningFleet) -> None:
    api = Api(two.url, two.ours.key)
    for name in NAMES:
        answer = api.upload(
            report("Ours"), workspace_id=two.ours.id, platform="meta", filename=name, force_partial="true"
        )
        upload_id = answer["upload_id"]
        assert api.get(f"/v1/uploads/{upload_id}")["filename"] == name[:255]
        for end in ("", "/errors", "/errors.csv", "/file"):
            shown = Ask("GET", f"/v1/uploads/{upload_id}{end}").send(two.url, two.ours.key)
            assert shown.status == 200 and "x-injected" not in shown.headers
            disposition = shown.headers.get("content-disposition", "")
            assert re.fullmatch(rf'(attachment; filename="(rejected-)?{upload_id}(\.csv)?")?', disposition)
        stored = fleet.data / "files" / "uploads" / two.ours.id / upload_id
        assert stored.read_bytes() == report("Ours")


@pytest.mark.parametrize(
    "name", ["a\r\nX-Injected: yes.csv", "a\nb", "a\x1b[2J.csv", "a\x7f", "a\x9b2J", "\t"]
)
def test_a_file_s_name_with_control_characters_is_refused(name: str, two: Two) -> None:
    body = {"workspace_id": two.ours.id, "platform": "meta", "source": "api", "filename": name, "rows": []}
    answer = Ask("POST", "/v1/uploads", body=body).send(two.url, two.ours.key)
    assert (answer.status, json.loads(answer.body)["code"]) == (422, "invalid_request")


IDS = [
    "..",
    "../x",
    "%2e%2e%2f",
    "a\r\nX-Injected: 1",
    "a b",
    "{}",
    "",
    "null",
    "0",
    "é",
    "x" * 5000,
    "'; --",
]


@pytest.mark.parametrize("name", ["workspace_id", "client_id", "created_by"])
def test_an_id_is_an_id_and_nothing_else(name: str, two: Two) -> None:
    for value in IDS:
        form = {"workspace_id": two.ours.id, **FIELDS, name: value}
        answer = Ask("POST", "/v1/uploads", form=list(form.items())).send(two.url, two.ours.key)
        optional = value == "" and name != "workspace_id"
        assert answer.status == (201 if optional else 422), (value, answer)
        assert "x-injected" not in answer.headers


def test_a_reason_is_stored_as_it_is_or_refused(two: Two) -> None:
    for reason, status in (("a\r\nX-Injected: 1", 409), ("a\x00b", 422), ("x" * 100_000, 409)):
        asked = Ask("POST", f"/v1/uploads/{two.ours.upload_id}/requeue", body={"reason": reason})
        answer = asked.send(two.url, two.ours.key)
        assert (answer.status, "x-injected" in answer.headers) == (status, False), answer


# -- the command line


def headworks(fleet: RunningFleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        cwd=ROOT, env=fleet.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_key_is_made_listed_and_revoked_at_the_command_line(fleet: RunningFleet, two: Two) -> None:
    workspace_id = str(uuid.uuid4())
    made = headworks(
        fleet, "keys", "create", "--workspace", workspace_id, "--scope", "read", "--scope", "upload",
        "--name", "nightly", "--expires", "30",
    )  # fmt: skip
    key = made.stdout.strip()
    assert (made.returncode, made.stdout) == (0, f"{key}\n") and keys.parse(key) is not None
    path = f"/v1/uploads?workspace_id={workspace_id}"
    assert Ask("GET", path).send(two.url, key).status == 200
    listed = headworks(fleet, "keys", "list", "--workspace", workspace_id)
    cells = listed.stdout.rstrip("\n").split("\t")
    assert cells[:4] == [key[:11], workspace_id, "read,upload", "nightly"]
    assert key[12:] not in listed.stdout and "last used 20" in listed.stdout
    revoked = headworks(fleet, "keys", "revoke", key)
    assert (revoked.returncode, key[12:] in revoked.stderr + revoked.stdout) == (0, False)
    assert Ask("GET", path).send(two.url, key).status == 401


WRONG = [
    # arguments                                                                 exit code, what is said
    (["create", "--scope", "read"], 2, "--workspace"),
    (["create", "--workspace", "7", "--scope", "read"], 2, "UUID"),
    (["create", "--all-workspaces"], 2, "--scope"),
    (["create", "--all-workspaces", "--scope", "root"], 2, "root"),
    (["create", "--all-workspaces", "--workspace", str(uuid.uuid4()), "--scope", "read"], 2, "not allowed"),
    (["create", "--all-workspaces", "--scope", "read", "--expires", "0"], 2, "days"),
    (["create", "--all-workspaces", "--scope", "read", "--name", "a\nb"], 2, "printable"),
    (["revoke", "zzzzzzzz"], 1, "hw_zzzzzzzz"),
    (["revoke", "'; --"], 1, "public id"),
]


def test_the_command_line_refuses_in_words(
    fleet: RunningFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWORKS_DATABASE_URL", fleet.dsn)
    for arguments, code, said in WRONG:
        try:
            ended = cli.main(["keys", *arguments])
        except SystemExit as stopped:  # the parser's own way
            ended = stopped.code  # type: ignore[assignment]
        printed = capsys.readouterr()
        assert (ended, printed.out) == (code, "") and said in printed.err, (arguments, printed)


# -- logs


def test_no_log_of_the_fleet_holds_a_key_a_session_or_a_token(fleet: RunningFleet, two: Two) -> None:
    cookies = log_in(two.url, two.ours.key)
    session_id = cookies["Cookie"].partition("=")[2]
    for headers in (
        cookies,
        {**cookies, "X-CSRF-Token": "wrong"},
        {"Authorization": f"Bearer {two.ours.key}x"},
    ):
        Ask("POST", "/v1/uploads", form=[("csrf_token", "x")], headers=headers).send(two.url, None)
    Ask("POST", "/login", form=[("key", two.ours.key + "x")]).send(two.url, None)
    of_tenant = ask("/v1/tenants/<tenant_id>/updates/<uuid:event_id>", "GET", two.ours)
    tokens = (two.ours.token, two.theirs.token)
    for token in (*tokens, f"{tokens[0]}x"):
        of_tenant.send(two.url, token)
    secrets = {
        TOKEN_SECRET,
        *(token.rpartition(".")[2] for token in tokens),
        two.ours.key[12:],
        two.theirs.key[12:],
        session_id,
        cookies["X-CSRF-Token"],
        KEY,
        SECRET,
    }
    logs = sorted((fleet.data / "logs").glob("*.log"))
    assert "key_refused" in (fleet.data / "logs" / "web.log").read_text(encoding="utf-8")
    for log in logs:
        text = log.read_text(encoding="utf-8", errors="replace")
        assert set() == {secret for secret in secrets if secret in text}, log.name
