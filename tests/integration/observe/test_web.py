"""`/metrics` of the web process: what it says of requests, and of the instance whatever is away."""

from __future__ import annotations

import re
from dataclasses import replace

import flask.testing
import pytest

from app.adapters import dispatch, metrics
from app.uploads.services import Services
from app.web import create_app
from tests.conftest import BEARER
from tests.integration.one_database import database_url, emptied  # noqa: F401

HERE = "http://127.0.0.1"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "HINT_SECONDS", 0.3)


@pytest.fixture
def http(services: Services) -> flask.testing.FlaskClient:
    client = create_app(services.settings).test_client()
    client.environ_base["REMOTE_ADDR"] = "10.11.12.13"  # failures are counted for each address
    return client


def text_of(http: flask.testing.FlaskClient) -> str:
    answer = http.get("/metrics", base_url=HERE)
    assert (answer.status_code, answer.mimetype) == (200, "text/plain")
    return answer.text


def value(text: str, name: str, **labels: str) -> float:
    """The only value of the metric with exactly these labels; -1 when there is none."""
    found = re.findall(rf"^{name}(?:\{{(.*?)\}})? (\S+)$", text, re.MULTILINE)
    wanted = {f'{label}="{of}"' for label, of in labels.items()}
    values = [float(number) for given, number in found if set(filter(None, given.split(","))) == wanted]
    assert len(values) < 2
    return values[0] if values else -1.0


def test_whoever_gathers_metrics_needs_no_key_and_learns_which_parts_answer(
    http: flask.testing.FlaskClient,
) -> None:
    text = text_of(http)
    for part in ("database", "broker", "fleet", "disk"):
        assert value(text, "headworks_part_up", part=part) == 1.0, part
    assert value(text, "headworks_queue_workers", queue="parse") == 0.0
    assert value(text, "headworks_uploads", status="pending") == 0.0
    assert text.count("# HELP headworks_part_up ") == 1


def test_an_instance_whose_servers_are_away_still_says_so(services: Services) -> None:
    app = create_app(replace(services.settings, broker_url="redis://127.0.0.1:1/0"))
    text = text_of(app.test_client())
    assert value(text, "headworks_part_up", part="database") == 1.0
    assert value(text, "headworks_part_up", part="broker") == 0.0
    assert value(text, "headworks_part_up", part="fleet") == 0.0
    assert "headworks_queue_messages{" not in text
    assert value(text, "headworks_outbox_events") == 0.0


def requests(endpoint: str, method: str, status: int) -> float:
    return float(metrics.http_requests.labels(endpoint, method, str(status))._value.get())


@pytest.mark.parametrize(
    ("method", "path", "headers", "counted"),
    [
        ("GET", "/healthz", {}, ("healthz", "GET", 200)),
        ("GET", "/v1/audit", {}, ("audit.list_audit", "GET", 401)),
        ("GET", "/v1/audit", BEARER, ("audit.list_audit", "GET", 422)),
        # neither a path nor a method of somebody's own makes a series
        ("GET", "/wp-admin/setup.php", BEARER, ("none", "GET", 404)),
        ("BREW", "/healthz", BEARER, ("none", "other", 405)),
    ],
)
def test_a_request_is_counted_by_its_route_and_status(
    method: str, path: str, headers: dict[str, str], counted: tuple[str, str, int],
    http: flask.testing.FlaskClient,
) -> None:  # fmt: skip
    before = requests(*counted)
    timed = metrics.http_request_seconds.labels(counted[0])
    seconds = timed._sum.get()
    answer = http.open(path, method=method, headers=headers, base_url=HERE)
    assert answer.status_code == counted[2]
    assert requests(*counted) == before + 1
    assert timed._sum.get() > seconds


def test_a_request_that_breaks_is_counted_as_such(
    http: flask.testing.FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> str:
        raise ZeroDivisionError

    before = requests("healthz", "GET", 500)
    monkeypatch.setitem(http.application.view_functions, "healthz", breaks)
    assert http.get("/healthz", base_url=HERE).status_code == 500
    assert requests("healthz", "GET", 500) == before + 1


def test_a_key_that_opens_nothing_is_counted_with_the_reason(http: flask.testing.FlaskClient) -> None:
    def refused(door: str, reason: str) -> float:
        return float(metrics.keys_refused.labels(door, reason)._value.get())

    before = refused("key", "malformed"), refused("login", "malformed")
    headers = {"Authorization": "Basic abc"}
    assert http.get("/v1/audit", headers=headers, base_url=HERE).status_code == 401
    assert http.post("/login", data={"key": "guess"}, base_url=HERE).status_code == 401
    assert (refused("key", "malformed"), refused("login", "malformed")) == (before[0] + 1, before[1] + 1)
