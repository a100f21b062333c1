"""The embedded default: pages without a login at its own machine, and nothing for anybody else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app import web
from app.access import exposure
from app.adapters.settings import Settings
from app.uploads.services import Services
from tests.conftest import KEY, SECRET
from tests.integration.access.conftest import LIST, THEIRS, Web
from tests.integration.access.test_keys import refused
from tests.integration.access.test_sessions import FOREIGN, FORM, OWN, REQUEUE, token_of

OwnerSql = Callable[[str], list[Any]]
VISITOR = "headworks_visitor"


@pytest.fixture(scope="module")
def embedded(services: Services) -> dict[str, Any]:
    """Settings under which the servers of this module are those of its own data folder."""
    folder = services.settings.data_dir
    for server in ("postgres", "valkey"):
        url = {"postgres": services.settings.database_url, "valkey": services.settings.broker_url}[server]
        (folder / server).mkdir()
        (folder / server / "password").write_text(url.split("@")[0].rpartition(":")[2], encoding="ascii")
    return {"secret": "", "bind": "127.0.0.1:8000"}


@pytest.fixture
def local(make_web: Callable[..., Web], embedded: dict[str, Any]) -> Web:
    site = make_web(**embedded)
    site.address = "127.0.0.1"
    return site


# -- who needs no key


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"])
def test_a_browser_at_the_machine_needs_no_key(address: str, host: str, local: Web) -> None:
    answer = local.client(REMOTE_ADDR=address).get(LIST, headers={"Host": host})
    assert answer.status_code == 200


STRANGERS = [
    # peer, headers, what it is
    ("192.0.2.7", {}, "another machine"),
    ("10.0.0.1", {"Host": "localhost"}, "another machine that names this one"),
    ("", {}, "a socket without an address"),
    ("127.0.0.1", {"Host": "evil.example"}, "DNS rebinding"),
    ("127.0.0.1", {"Host": "evil.example:8000"}, "DNS rebinding with the port"),
    ("127.0.0.1", {"Host": "localhost.evil.example"}, "a name that begins like it"),
    ("127.0.0.1", {"Host": "127.0.0.1.evil.example"}, "a name that begins like the address"),
    ("127.0.0.1", {"Host": "evil.localhost"}, "a name below it"),
    ("127.0.0.1", {"Host": "evil.example@localhost.evil.example"}, "a name with a user"),
    ("127.0.0.1", {"Host": "192.0.2.1"}, "another address"),
    ("127.0.0.1", {"Host": "0.0.0.0:8000"}, "every address"),
    ("127.0.0.1", {"Host": "[::1"}, "half an address"),
    ("127.0.0.1", {"Host": ""}, "no name"),
    ("127.0.0.1", {"X-Forwarded-For": "192.0.2.7"}, "a proxy"),
    ("127.0.0.1", {"Forwarded": "for=192.0.2.7"}, "a proxy of the standard"),
    ("127.0.0.1", {"X-Real-IP": "192.0.2.7"}, "a proxy of another habit"),
    ("127.0.0.1", {"Via": "1.1 proxy"}, "a proxy that says so"),
    ("127.0.0.1", {"X-Forwarded-Proto": "https"}, "a proxy that speaks https"),
    ("127.0.0.1", {"Authorization": "Bearer wrong"}, "a key that is none"),
    ("127.0.0.1", {"Authorization": ""}, "an empty key"),
]


@pytest.mark.parametrize(("address", "headers", "what"), STRANGERS, ids=[what for _, _, what in STRANGERS])
def test_nobody_else_is_let_in_without_a_key(
    address: str, headers: dict[str, str], what: str, local: Web
) -> None:
    client = local.client(REMOTE_ADDR=address)
    refused(client.get(LIST, headers=headers), 401, "unauthorized")


def test_the_own_key_opens_an_embedded_instance_from_anywhere(local: Web) -> None:
    client = local.client(REMOTE_ADDR="192.0.2.7")
    assert client.get(LIST, headers={"Authorization": f"Bearer {KEY}"}).status_code == 200


def test_a_session_at_the_machine_is_of_its_key(local: Web) -> None:
    client = local.logged_in(local.key(THEIRS).text)
    refused(client.get(LIST), 404, "not_found")
    token = token_of(client)
    assert client.post("/logout", data={"csrf_token": token}).status_code == 303
    assert client.get(LIST).status_code == 200


# -- forms


def test_a_form_at_the_machine_needs_the_token_of_its_browser(local: Web) -> None:
    client, other = local.client(), local.client()
    refused(client.post(REQUEUE, data=FORM), 403, "csrf")
    token = token_of(client)
    refused(client.post(REQUEUE, data={**FORM, "csrf_token": token}), 404, "not_found")  # let in
    refused(other.post(REQUEUE, data={**FORM, "csrf_token": token}), 403, "csrf")
    refused(client.post(REQUEUE, data={**FORM, "csrf_token": token_of(other)}), 403, "csrf")


def test_a_browser_keeps_its_visitor_s_cookie(local: Web) -> None:
    client = local.client()
    first = client.get("/page")
    (cookie,) = first.headers.getlist("Set-Cookie")
    assert cookie.startswith(VISITOR) and cookie.endswith("; HttpOnly; Path=/; SameSite=Lax")
    second = client.get("/page")
    assert second.headers.getlist("Set-Cookie") == [] and first.text == second.text


@pytest.mark.parametrize("value", ["x", "x.y", "", "é.é", "a" * 5000, "." + "0" * 64])
def test_a_visitor_s_cookie_that_was_not_made_here_is_replaced(value: str, local: Web) -> None:
    client = local.client()
    answer = client.get("/page", environ_overrides={"HTTP_COOKIE": f"{VISITOR}={value}"})
    assert len(answer.headers.getlist("Set-Cookie")) == 1
    post = local.client().post(
        REQUEUE, data={**FORM, "csrf_token": answer.text},
        environ_overrides={"HTTP_COOKIE": f"{VISITOR}={value}"},
    )  # fmt: skip
    refused(post, 403, "csrf")


@pytest.mark.parametrize("headers", FOREIGN)
def test_another_site_s_page_does_nothing_at_the_machine(headers: dict[str, str], local: Web) -> None:
    client = local.client()
    token = {"X-CSRF-Token": token_of(client)}
    refused(client.post(REQUEUE, data=FORM, headers={**token, **headers}), 403, "csrf")


@pytest.mark.parametrize("headers", OWN)
def test_the_instance_s_own_page_does_at_the_machine(headers: dict[str, str], local: Web) -> None:
    client = local.client()
    token = {"X-CSRF-Token": token_of(client)}
    refused(client.post(REQUEUE, data=FORM, headers={**token, **headers}), 404, "not_found")


def test_a_rebound_name_is_of_no_use_even_with_its_origin(local: Web) -> None:
    headers = {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"}
    refused(local.client().post(REQUEUE, data=FORM, headers=headers), 401, "unauthorized")


# -- starting


def test_the_embedded_default_starts_without_a_secret(services: Services, embedded: dict[str, Any]) -> None:
    assert exposure.check(replace(services.settings, **embedded)) is True


def test_with_a_secret_even_the_embedded_instance_asks_for_keys(
    make_web: Callable[..., Web], embedded: dict[str, Any]
) -> None:
    site = make_web(**{**embedded, "secret": SECRET})
    refused(site.client(REMOTE_ADDR="127.0.0.1").get(LIST), 401, "unauthorized")


UNSAFE = [
    # what is not the embedded default                               and what the sentence names
    ({"bind": "0.0.0.0:8000"}, "HEADWORKS_BIND"),
    ({"bind": "[::]:8000"}, "HEADWORKS_BIND"),
    ({"bind": "192.0.2.1:8000"}, "HEADWORKS_BIND"),
    ({"bind": "headworks.example:8000"}, "HEADWORKS_BIND"),
    ({"bind": ":8000"}, "HEADWORKS_BIND"),
    ({"bind": ""}, "HEADWORKS_BIND"),
    ({"bind": "unix:/run/headworks.sock"}, "HEADWORKS_BIND"),
    ({"url": "https://headworks.example"}, "HEADWORKS_URL"),
    ({"data_dir": Path("/nowhere")}, "HEADWORKS_DATABASE_URL"),
    ({"broker_url": "redis://:another@127.0.0.1:6379/0"}, "HEADWORKS_BROKER_URL"),
    ({"secret": "x" * 31}, "31 characters"),
    ({"api_key": ""}, "HEADWORKS_API_KEY"),
]


@pytest.mark.parametrize("secret", ["", SECRET])
@pytest.mark.parametrize("api_key", ["hw_abcdefgh_" + "s" * 43, "short"])
def test_an_own_key_that_is_somebody_s_or_weak_is_refused(
    api_key: str, secret: str, services: Services, embedded: dict[str, Any]
) -> None:
    settings = replace(services.settings, **{**embedded, "secret": secret, "api_key": api_key})
    with pytest.raises(exposure.NotSafeToStart, match="HEADWORKS_API_KEY") as refusal:
        exposure.check(settings)
    assert api_key not in refusal.value.sentence


@pytest.mark.parametrize(("change", "named"), UNSAFE)
def test_anything_else_does_not_start_without_a_secret(
    change: dict[str, Any], named: str, services: Services, embedded: dict[str, Any]
) -> None:
    settings: Settings = replace(services.settings, **{**embedded, **change})
    with pytest.raises(exposure.NotSafeToStart, match=named) as refusal:
        web.create_app(settings)
    assert "HEADWORKS_SECRET" in refusal.value.sentence
    assert refusal.value.sentence.endswith(".") and "\n" not in refusal.value.sentence
    for secret in (settings.database_url, settings.broker_url, "x" * 31, KEY):
        assert secret not in refusal.value.sentence
    assert exposure.check(replace(settings, secret=SECRET)) is False
