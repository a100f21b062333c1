"""No secret, and nothing that a person has written into a cell, stands where it does not belong.

Every subsystem is driven with secrets and with personal data, in good requests and in bad ones. Then
they are looked for in all that the fleet leaves behind: logs, arguments of processes, metrics, problems,
the audit log, events and messages.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg2
import pytest
import redis

from tests.acceptance.conftest import Api, Problem, Run, RunningFleet, token_of
from tests.conftest import KEY, SECRET
from tests.integration.suppliers.tree import tree
from tests.integration.threads import wait_until

PERSON = "Ivanka Testperson-7731"
CARD = "4276160012345678"
LOST_URL_SECRET = "in-the-path-of-a-hook-7731"
REPORT = f"""Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD)
2025-09-01,Spring,1,10,1,1.50
2025-09-02,Spring,1,10,1,1.50
2025-09-03,{PERSON},2,10,1,1.50
2025-09-04,Spring,1,{PERSON},1,1.50
2025-09-05,Spring,1,10,1,{CARD}{CARD}
{PERSON},Spring,1,10,1,1.50
""".encode()


@dataclass
class Driven:
    """What was put in, and what the fleet said to strangers."""

    secrets: dict[str, str] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)  # problems and pages
    workspace: str = field(default_factory=lambda: str(uuid.uuid4()))

    def refused(self, api: Api, path: str, **request: Any) -> None:
        """The request is refused, and how is kept."""
        with pytest.raises(Problem) as caught:
            api.send(path, request.get("body"), request.get("headers"))
        self.answers.append(json.dumps(caught.value.body) + str(caught.value.headers))


@pytest.fixture(scope="module")
def driven(fleet: RunningFleet) -> Driven:
    """Every subsystem has been used, in good faith and in bad."""
    found = Driven()
    found.secrets |= {
        "the key of the instance": KEY,
        "the secret of the instance": SECRET,
        "the database's password": urlsplit(fleet.dsn).password or "",
        "the broker's password": urlsplit(fleet.env["HEADWORKS_BROKER_URL"]).password or "",
        "the secret of tokens": fleet.env["REFDATA_TOKEN_SECRET"],
        "a token of a tenant": token_of("tenant-a"),
    }
    _uploads(fleet, found)
    _webhooks(fleet, found)
    _refdata(fleet, found)
    _pipeline(fleet, found)
    _suppliers(fleet)
    _strangers(fleet, found)
    return found


def _uploads(fleet: RunningFleet, found: Driven) -> None:
    for fields in ({"force_partial": "true"}, {}):
        made = fleet.api.upload(REPORT, workspace_id=found.workspace, platform="meta", **fields)
        fleet.api.finished(made["upload_id"])
    fleet.api.upload(REPORT, workspace_id=found.workspace, platform="meta", dry_run="true")
    with pytest.raises(Problem) as caught:
        fleet.api.upload(f"{PERSON};{CARD}".encode(), workspace_id=found.workspace, platform="nowhere")
    found.answers.append(json.dumps(caught.value.body))


def _webhooks(fleet: RunningFleet, found: Driven) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/{LOST_URL_SECRET}"
        made = fleet.api.post_json(
            "/v1/webhooks", {"workspace_id": found.workspace, "url": url, "topics": ["ingestion-complete"]}
        )
        found.secrets["what signs webhooks"] = made["secret"].removeprefix("whsec_")
        upload = fleet.api.upload(REPORT, workspace_id=found.workspace, platform="meta", force_partial="1")
        fleet.api.finished(upload["upload_id"])

        def tried() -> bool:
            path = f"/v1/webhooks/{made['subscription_id']}/deliveries"
            return any(one["attempts"] for one in fleet.api.get(path)["deliveries"])

        wait_until(tried, seconds=30)
    body = json.dumps(
        {"workspace_id": found.workspace, "url": "https://user:hidden-word-7731@x/", "topics": []}
    )
    headers = {"Content-Type": "application/json"}
    found.secrets["a password in the address of a webhook"] = "hidden-word-7731"
    found.refused(fleet.api, "/v1/webhooks", body=body.encode(), headers=headers)


def _refdata(fleet: RunningFleet, found: Driven) -> None:
    token = found.secrets["a token of a tenant"]
    command = {
        "eventId": str(uuid.uuid4()), "dictCode": "COUNTRY", "eventType": "DELTA",
        "items": [{"key": "X", "payload": {"name": PERSON}}],
    }  # fmt: skip
    api = Api(fleet.api.url, token)
    headers = {"Content-Type": "application/json"}
    with contextlib.suppress(Problem):
        api.send("/tenants/tenant-a/updates", json.dumps(command).encode(), headers)
    bad = json.dumps({**command, "items": [{"key": PERSON * 20, "payload": CARD}]}).encode()
    found.refused(api, "/tenants/tenant-a/updates", body=bad, headers=headers)
    found.refused(
        Api(fleet.api.url, token[:-4] + "AAAA"), "/tenants/tenant-a/updates", body=bad, headers=headers
    )


def _pipeline(fleet: RunningFleet, found: Driven) -> None:
    headers = {"Content-Type": "application/json"}
    body = json.dumps({"filename": f"{PERSON}/x", "shards": [1]}).encode()
    found.refused(fleet.api, "/files/register", body=body, headers=headers)


def _suppliers(fleet: RunningFleet) -> None:
    configs = Path(fleet.env["HEADWORKS_SUPPLIER_CONFIGS_DIR"])
    mine = tree(fleet.data / "etl_data", configs=configs).of(f"person-{uuid.uuid4().hex[:8]}")
    mine.configure(dq={"min_fact_count": 1, "max_bad_ratio": 0.9, "allow_empty_snapshot": False})
    mine.put(f"Code;Name;Price;Stock\nA-1;{PERSON};1;5\nA-2;x;{PERSON};{CARD}\n".encode())
    wait_until(mine.published, seconds=60)


def _strangers(fleet: RunningFleet, found: Driven) -> None:
    api = fleet.api
    query = urllib.parse.urlencode(
        {"api_key": KEY, "name": PERSON, "token": found.secrets["a token of a tenant"]}
    )
    for path in ("/v1/uploads", "/v1/nothing-here", "/login", "/v1/performance"):
        found.refused(
            Api(api.url, "hw_abcd2345_" + "s" * 43), f"{path}?{query}"
        ) if path != "/login" else None
    found.secrets["a key that is none"] = "s" * 43
    bad_query = urllib.request.Request(f"{api.url}/v1/uploads?from={urllib.parse.quote(PERSON)}")
    bad_query.add_header("Authorization", f"Bearer {KEY}")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(bad_query, timeout=30)
    with caught.value as answer:
        found.answers.append(answer.read().decode())
    with socket.create_connection((urlsplit(api.url).hostname, urlsplit(api.url).port), timeout=30) as raw:
        raw.sendall(b"GET /v1/uploads?x=\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said = b"".join(iter(lambda: raw.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 400"), said[:200]


def test_the_logs_hold_no_secret_and_no_cell(driven: Driven, fleet: RunningFleet) -> None:
    time.sleep(1)  # what was done last is written by then
    logs = sorted((fleet.data / "logs").glob("*.log"))
    assert len(logs) > 8
    for log in logs:
        text = log.read_text(encoding="utf-8", errors="replace")
        _assert_clean(text, driven, log.name)
        assert PERSON not in text and CARD not in text, log.name
        assert urllib.parse.quote(PERSON) not in text and urllib.parse.quote_plus(PERSON) not in text, (
            log.name
        )
        assert LOST_URL_SECRET not in text, log.name


def test_no_process_has_a_secret_among_its_arguments(driven: Driven, fleet: RunningFleet) -> None:
    seen = 0
    for arguments in _arguments_of(fleet):
        seen += 1
        _assert_clean(arguments, driven, "arguments of a process")
        assert "tests:tests" not in arguments
    assert seen > 8


def _arguments_of(fleet: RunningFleet) -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(fleet.data).encode() in (entry / "environ").read_bytes():
                yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/openapi.json"])
def test_what_is_open_for_everybody_tells_of_nobody(path: str, driven: Driven, fleet: RunningFleet) -> None:
    with contextlib.suppress(Problem):
        text = Api(fleet.api.url, "").send(path)[2].decode()
        _assert_clean(text, driven, path)
        assert PERSON not in text and CARD not in text and driven.workspace not in text


def test_no_problem_repeats_what_was_sent_to_prove_who_asks(driven: Driven) -> None:
    assert len(driven.answers) > 5
    for answer in driven.answers:
        _assert_clean(answer, driven, answer)


def test_pages_and_lists_show_no_secret(driven: Driven, fleet: RunningFleet, run: Run) -> None:
    shown = [
        fleet.api.send(path)[2].decode()
        for path in (
            f"/v1/webhooks?workspace_id={driven.workspace}", f"/v1/audit?workspace_id={driven.workspace}",
            f"/v1/uploads?workspace_id={driven.workspace}",
        )
    ]  # fmt: skip
    shown += [said for command in (("keys", "list"), ("doctor",)) for said in run(*command)[1:]]
    for text in shown:
        _assert_clean(text, driven, text[:200])


def test_what_is_kept_of_events_and_keys_holds_no_secret_and_no_cell(
    driven: Driven, fleet: RunningFleet, run: Run
) -> None:
    code, made, _ = run("keys", "create", "--workspace", driven.workspace, "--scope", "read", "--name", "x")
    assert code == 0 and made.startswith("hw_")
    driven.secrets["a key of a workspace"] = made.strip().split("_", 2)[2]
    Api(fleet.api.url, made.strip()).get("/v1/uploads", workspace_id=driven.workspace)
    connection = psycopg2.connect(fleet.dsn)
    with contextlib.closing(connection), connection.cursor() as cursor:
        kept = ""
        for table in ("audit", "outbox", "webhook_attempts", "api_keys", "sessions"):
            cursor.execute(f"SELECT count(*), string_agg(t::text, E'\\n') FROM {table} t")
            count, rows = cursor.fetchone() or (0, "")
            assert count or table == "sessions", table
            kept += rows or ""
    _assert_clean(kept, driven, "tables")
    assert PERSON not in kept and CARD not in kept and LOST_URL_SECRET not in kept


def test_what_waits_at_the_broker_holds_no_secret(driven: Driven, fleet: RunningFleet) -> None:
    with redis.Redis.from_url(fleet.env["HEADWORKS_BROKER_URL"], decode_responses=False) as broker:
        for key in broker.scan_iter(count=1000):
            held = broker.dump(key) or b""
            _assert_clean((key + held).decode("latin-1"), driven, str(key))


def _assert_clean(text: str, driven: Driven, where: str) -> None:
    for name, secret in driven.secrets.items():
        assert len(secret) > 7, name
        assert secret not in text, f"{name} stands in {where}"
