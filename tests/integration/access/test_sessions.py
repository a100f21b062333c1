"""People at a browser: login, what a session may do, when it ends, and that no other site uses it."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from typing import Any

import markupsafe
import pytest

from app.access import keys, limits, principal
from tests.conftest import KEY
from tests.integration.access.conftest import EVERY_SCOPE, LIST, OURS, THEIRS, Web
from tests.integration.access.test_keys import UNKNOWN, refused

OwnerSql = Callable[[str], list[Any]]
COOKIE = "headworks_session"
REQUEUE = f"/v1/uploads/{UNKNOWN}/requeue"
FORM = {"reason": "a test"}


def session_of(client: Any, name: str = COOKIE) -> str:
    cookie = client.get_cookie(name)
    assert cookie is not None
    return str(cookie.value)


def token_of(client: Any) -> str:
    """What a page of this browser writes into its forms."""
    token: str = client.get("/page").text
    assert re.fullmatch("[0-9a-f]{64}", token)
    return token


# -- login


def test_a_login_with_a_key_opens_what_the_key_opens(site: Web) -> None:
    client = site.logged_in(site.key(OURS).text)
    assert client.get(LIST).status_code == 200
    refused(client.get(f"/v1/uploads?workspace_id={THEIRS}"), 404, "not_found")


def test_a_session_has_the_scopes_of_its_key(site: Web) -> None:
    client = site.logged_in(site.key(scopes=frozenset({"ops"})).text)
    refused(client.get(LIST), 403, "forbidden")


def test_a_login_without_a_valid_key_opens_nothing(site: Web, owner_sql: OwnerSql) -> None:
    revoked = site.key()
    keys.revoke(site.services.db, revoked.public_id)
    for text in ("", "wrong", site.key().text + "x", revoked.text, "é" * 1000, "\x00"):
        client = site.client()
        answer = client.post("/login", data={"key": text})
        assert (answer.status_code, answer.mimetype) == (401, "text/html")
        assert 'role="alert"' in answer.text and client.get_cookie(COOKIE) is None
    assert owner_sql("SELECT count(*) FROM sessions") == [(0,)]


def test_the_key_is_read_from_the_form_alone(site: Web) -> None:
    key = site.key().text
    for answer in (
        site.client().post(f"/login?key={key}"),
        site.client().post("/login", headers={"X-Api-Key": key}),
        site.client().post("/login", json={"key": key}),
    ):
        assert answer.status_code == 401
    assert site.client().get(f"/login?key={key}").status_code == 200  # the page, and no session


def test_a_login_form_larger_than_any_is_refused(site: Web) -> None:
    answer = site.client().post("/login", data={"key": "x" * 100_000})
    assert (answer.status_code, answer.content_type) == (413, "application/problem+json")


def test_only_the_hash_of_a_session_is_kept(site: Web, owner_sql: OwnerSql) -> None:
    key = site.key()
    session_id = session_of(site.logged_in(key.text))
    ((row,),) = owner_sql("SELECT to_jsonb(sessions)::text FROM sessions")
    assert session_id not in row and key.public_id in row
    assert hashlib.sha256(session_id.encode()).hexdigest() in row


def test_the_page_has_one_form_nothing_inline_and_a_stylesheet(site: Web) -> None:
    answer = site.client().get("/login?next=/uploads")
    assert answer.status_code == 200
    assert not re.search(r"<script|<style|\sstyle=|\son\w+=|javascript:", answer.text)
    assert answer.text.count("<form") == 1 and 'value="/uploads"' in answer.text
    (href,) = re.findall(r'<link rel="stylesheet" href="([^"]+)"', answer.text)
    with site.client().get(href) as stylesheet:
        assert (stylesheet.status_code, stylesheet.mimetype) == (200, "text/css")


def test_what_is_shown_again_is_no_markup(site: Web) -> None:
    evil = '/"><script>alert(1)</script>'
    for answer in (
        site.client().get("/login", query_string={"next": evil}),
        site.client().post("/login", data={"next": evil, "key": evil}),
    ):
        assert "<script" not in answer.text and str(markupsafe.escape(evil)) in answer.text


# -- the way back

ELSEWHERE = [
    "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example",
    "http:evil.example", "javascript:alert(1)", "evil.example", " //evil.example", "/\t/evil.example",
    "/\n/evil.example", "\t//evil.example", "/%0d%0aSet-Cookie:x=1\r\nX: y", "", "/" + "a" * 3000, "@evil",
    "/\x00/evil.example", "/ /evil.example", "data:text/html,x",
]  # fmt: skip


@pytest.mark.parametrize("target", ELSEWHERE)
def test_a_login_never_leads_to_another_site(target: str, site: Web) -> None:
    for where in (
        {"data": {"key": KEY, "next": target}},
        {"data": {"key": KEY}, "query_string": {"next": target}},
    ):
        answer = site.client().post("/login", **where)
        assert (answer.status_code, answer.headers["Location"]) == (303, "/")
        assert "X" not in answer.headers


@pytest.mark.parametrize("target", ["/", "/uploads", "/uploads/7?page=2&x=%2F", "/a/b#c", "/größe"])
def test_a_login_leads_back_to_where_it_was_asked_for(target: str, site: Web) -> None:
    answer = site.client().post("/login", data={"key": KEY, "next": target})
    assert answer.status_code == 303
    assert answer.headers["Location"] in (target, "/gr%C3%B6%C3%9Fe")


def test_a_person_without_a_session_is_led_to_the_login_and_a_program_is_told(site: Web) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = site.client().get(f"{LIST}&status=failed", headers=browser)
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/login?next=/v1/uploads?workspace_id")
    for accept in ("*/*", "application/json", ""):
        refused(site.client().get(LIST, headers={"Accept": accept}), 401, "unauthorized")
    refused(site.client().post(REQUEUE, headers=browser), 401, "unauthorized")
    refused(site.client().get(LIST, headers={**browser, "Authorization": "Bearer x"}), 401, "unauthorized")


# -- the cookie


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(site: Web) -> None:
    answer = site.client().post("/login", data={"key": KEY})
    (cookie,) = answer.headers.getlist("Set-Cookie")
    assert re.fullmatch(
        COOKIE + r"=[\w-]{43}; Expires=[^;]+; Max-Age=604800; HttpOnly; Path=/; SameSite=Lax", cookie
    )


@pytest.mark.parametrize("how", ["the request", "the address of the instance"])
def test_with_https_the_cookie_is_bound_to_the_host(how: str, make_web: Callable[..., Web]) -> None:
    site = make_web(**({} if how == "the request" else {"url": "https://headworks.example"}))
    base = "https://headworks.example" if how == "the request" else "http://headworks.example"
    client = site.client()
    answer = client.post("/login", data={"key": KEY}, base_url=base)
    (cookie,) = answer.headers.getlist("Set-Cookie")
    assert cookie.startswith(f"__Host-{COOKIE}=")
    assert "; Secure; HttpOnly; Path=/; SameSite=Lax" in cookie and "Domain" not in cookie
    # A name that a plain page could have set is not looked at.
    value = cookie.partition("=")[2].partition(";")[0]
    plain = site.client()
    plain.set_cookie(COOKIE, value, domain="headworks.example")
    assert plain.get(LIST, base_url=base).status_code == 401


# -- fixation, logout, revocation, time


def test_a_login_makes_a_new_session_and_ends_the_one_before(site: Web, owner_sql: OwnerSql) -> None:
    client = site.logged_in(site.key().text)
    before = session_of(client)
    site.logged_in(site.key().text, client)
    assert session_of(client) != before
    stolen = site.client()
    stolen.set_cookie(COOKIE, before)
    refused(stolen.get(LIST), 401, "unauthorized")
    assert owner_sql("SELECT count(*) FROM sessions") == [(1,)]


def test_a_session_that_somebody_else_chose_is_not_taken_over(site: Web) -> None:
    chosen = "A" * 43
    client = site.client()
    client.set_cookie(COOKIE, chosen)
    refused(client.get(LIST), 401, "unauthorized")
    site.logged_in(KEY, client)
    assert session_of(client) != chosen
    attacker = site.client()
    attacker.set_cookie(COOKIE, chosen)
    refused(attacker.get(LIST), 401, "unauthorized")


@pytest.mark.parametrize("value", ["", "x", "A" * 42, "A" * 44, "é" * 43, "A" * 5000, "' OR 1=1", "\x00"])
def test_a_cookie_that_is_none_opens_nothing(value: str, site: Web) -> None:
    answer = site.client().get(LIST, environ_overrides={"HTTP_COOKIE": f"{COOKIE}={value}"})
    refused(answer, 401, "unauthorized")


def test_the_hash_of_a_session_is_no_session(site: Web) -> None:
    client = site.logged_in()
    client.set_cookie(COOKIE, keys.digest(session_of(client)).hex()[:43])
    refused(client.get(LIST), 401, "unauthorized")


def test_a_logout_ends_the_session_everywhere(site: Web, owner_sql: OwnerSql) -> None:
    client = site.logged_in(site.key().text)
    session_id, token = session_of(client), token_of(client)
    answer = client.post("/logout", data={"csrf_token": token})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/login")
    assert client.get_cookie(COOKIE) is None
    client.set_cookie(COOKIE, session_id)
    refused(client.get(LIST), 401, "unauthorized")
    assert owner_sql("SELECT count(*) FROM sessions") == [(0,)]


def test_a_logout_needs_its_page_s_token(site: Web) -> None:
    client = site.logged_in(site.key().text)
    refused(client.post("/logout"), 403, "csrf")
    assert client.get("/logout").status_code == 405
    assert client.get(LIST).status_code == 200


def test_a_revoked_key_ends_its_sessions_and_no_other(site: Web, owner_sql: OwnerSql) -> None:
    key = site.key()
    ended, other = site.logged_in(key.text), site.logged_in(site.key().text)
    keys.revoke(site.services.db, key.public_id)
    refused(ended.get(LIST), 401, "unauthorized")
    assert other.get(LIST).status_code == 200
    assert owner_sql("SELECT count(*) FROM sessions") == [(1,)]


def test_a_key_that_is_revoked_past_this_code_ends_its_sessions_too(site: Web, owner_sql: OwnerSql) -> None:
    client = site.logged_in(site.key().text)
    owner_sql("UPDATE api_keys SET revoked_at = clock_timestamp()")
    refused(client.get(LIST), 401, "unauthorized")


def test_an_expired_key_ends_its_sessions(site: Web, owner_sql: OwnerSql) -> None:
    client = site.logged_in(site.key(expires_days=1).text)
    owner_sql("UPDATE api_keys SET expires_at = clock_timestamp()")
    refused(client.get(LIST), 401, "unauthorized")


def test_another_own_key_of_the_instance_ends_the_sessions_of_the_last(make_web: Callable[..., Web]) -> None:
    client = make_web().logged_in()
    session_id = session_of(client)
    for api_key in ("another-key-of-this-test-run", ""):
        after = make_web(api_key=api_key).client()
        after.set_cookie(COOKIE, session_id)
        refused(after.get(LIST), 401, "unauthorized")


HOURS = "round(extract(epoch FROM expires_at - clock_timestamp()) / 3600, 1)::float"


def test_a_session_ends_twelve_hours_after_its_last_request(site: Web, owner_sql: OwnerSql) -> None:
    client = site.logged_in(site.key().text)
    assert owner_sql(f"SELECT {HOURS} FROM sessions") == [(12.0,)]
    owner_sql("UPDATE sessions SET expires_at = clock_timestamp() + interval '1 hour'")
    assert client.get(LIST).status_code == 200
    assert owner_sql(f"SELECT {HOURS} FROM sessions") == [(12.0,)]
    owner_sql("UPDATE sessions SET expires_at = clock_timestamp()")
    refused(client.get(LIST), 401, "unauthorized")


def test_a_session_ends_seven_days_after_its_login(site: Web, owner_sql: OwnerSql) -> None:
    client = site.logged_in(site.key().text)
    owner_sql(
        "UPDATE sessions SET created_at = clock_timestamp() - interval '163 hours',"
        " expires_at = clock_timestamp() + interval '1 hour'"
    )
    assert client.get(LIST).status_code == 200
    assert owner_sql(f"SELECT {HOURS} FROM sessions") == [(5.0,)]


def test_a_session_is_written_to_at_most_once_a_minute(site: Web, owner_sql: OwnerSql) -> None:
    client = site.logged_in(site.key().text)
    written = owner_sql("SELECT xmin::text, expires_at FROM sessions")
    client.get(LIST)
    assert written == owner_sql("SELECT xmin::text, expires_at FROM sessions")
    owner_sql("UPDATE sessions SET created_at = clock_timestamp() - interval '167 hours',"
              " expires_at = created_at + interval '1 hour'")  # fmt: skip
    owner_sql("UPDATE sessions SET expires_at = created_at + interval '168 hours'")
    written = owner_sql("SELECT xmin::text, expires_at FROM sessions")
    client.get(LIST)  # at its longest there is nothing to move on
    assert written == owner_sql("SELECT xmin::text, expires_at FROM sessions")


def test_expired_sessions_are_not_kept_past_the_next_login(site: Web, owner_sql: OwnerSql) -> None:
    site.logged_in(site.key().text)
    owner_sql("UPDATE sessions SET expires_at = clock_timestamp()")
    site.logged_in(site.key().text)
    assert owner_sql("SELECT count(*) FROM sessions") == [(1,)]


def test_the_use_of_a_session_is_noted_at_its_key(site: Web, owner_sql: OwnerSql) -> None:
    client = site.logged_in(site.key().text)
    owner_sql("UPDATE api_keys SET last_used_at = NULL")
    owner_sql("UPDATE sessions SET expires_at = clock_timestamp() + interval '1 hour'")
    client.get(LIST)
    assert owner_sql("SELECT last_used_at IS NOT NULL FROM api_keys") == [(True,)]


# -- forms


def test_an_unsafe_request_of_a_session_needs_its_token(site: Web) -> None:
    client = site.logged_in(site.key().text)
    token = token_of(client)
    refused(client.post(REQUEUE, data=FORM), 403, "csrf")
    refused(client.post(REQUEUE, json=FORM), 403, "csrf")
    refused(client.post(REQUEUE, json={**FORM, "csrf_token": token}), 403, "csrf")
    refused(client.post(f"{REQUEUE}?csrf_token={token}", data=FORM), 403, "csrf")
    for answer in (
        client.post(REQUEUE, data={**FORM, "csrf_token": token}),
        client.post(REQUEUE, json=FORM, headers={"X-CSRF-Token": token}),
        client.post(REQUEUE, data={**FORM, "csrf_token": token}, content_type="multipart/form-data"),
    ):
        refused(answer, 404, "not_found")  # let in


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_every_unsafe_method_needs_the_token(method: str, site: Web) -> None:
    client = site.logged_in(site.key().text)
    refused(client.open(LIST, method=method), 403, "csrf")
    token = {"X-CSRF-Token": token_of(client)}
    assert client.open(LIST, method=method, headers=token).status_code in (405, 422)


def test_a_token_is_of_one_session(site: Web) -> None:
    one, two = site.logged_in(site.key().text), site.logged_in(site.key().text)
    assert token_of(one) != token_of(two)
    for token in (token_of(two), "", "0" * 64, session_of(one), "é", token_of(one)[:-1]):
        refused(one.post(REQUEUE, data={**FORM, "csrf_token": token}), 403, "csrf")


def test_a_token_does_not_tell_the_session(site: Web) -> None:
    client = site.logged_in(site.key().text)
    assert session_of(client) not in token_of(client)


def test_a_request_with_a_key_needs_no_token_wherever_it_comes_from(site: Web) -> None:
    bearer = {"Authorization": f"Bearer {site.key().text}", "Origin": "https://evil.example"}
    refused(site.client().post(REQUEUE, data=FORM, headers=bearer), 404, "not_found")


FOREIGN = [
    # what a browser says of another site's page
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost:81"},
    {"Origin": "https://localhost"},
    {"Origin": "http://localhost.evil.example"},
    {"Origin": "http://evil.example/http://localhost"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
]
OWN = [
    {},
    {"Origin": "http://localhost"},
    {"Origin": "http://127.0.0.1:8000"},  # HEADWORKS_URL
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"},
    {"Sec-Fetch-Site": "none"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_another_site_s_page_does_nothing_even_with_the_token(headers: dict[str, str], site: Web) -> None:
    client = site.logged_in(site.key().text)
    token = {"X-CSRF-Token": token_of(client)}
    refused(client.post(REQUEUE, data=FORM, headers={**token, **headers}), 403, "csrf")


@pytest.mark.parametrize("headers", OWN)
def test_a_page_of_the_instance_does_what_it_may(headers: dict[str, str], site: Web) -> None:
    client = site.logged_in(site.key().text)
    token = {"X-CSRF-Token": token_of(client)}
    refused(client.post(REQUEUE, data=FORM, headers={**token, **headers}), 404, "not_found")


@pytest.mark.parametrize("headers", FOREIGN)
def test_another_site_s_page_logs_nobody_in(headers: dict[str, str], site: Web) -> None:
    client = site.client()
    refused(client.post("/login", data={"key": KEY}, headers=headers), 403, "csrf")
    assert client.get_cookie(COOKIE) is None


SOCKETS = [
    # headers of the handshake                                            whether it is opened
    ({"Origin": "http://localhost"}, True),
    ({"Origin": "http://127.0.0.1:8000"}, True),
    ({"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}, True),
    ({"Origin": "https://evil.example"}, False),
    ({"Origin": "null"}, False),
    ({"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"}, False),
    ({}, False),  # every browser names the origin of a socket
    ({"Sec-Fetch-Site": "same-origin"}, False),
]


@pytest.mark.parametrize(("headers", "expected"), SOCKETS)
def test_a_socket_is_opened_by_the_instance_s_own_pages_alone(
    headers: dict[str, str], expected: bool, site: Web
) -> None:
    assert site.logged_in().get("/socket", headers=headers).text == str(expected)
    bearer = {"Authorization": f"Bearer {KEY}"}
    assert site.client().get("/socket", headers={**headers, **bearer}).text == "True"


# -- failures are limited


def test_failed_logins_are_limited_for_each_address(site: Web) -> None:
    client = site.client()
    for _ in range(limits.FAILED_LOGINS_PER_MINUTE):
        assert client.post("/login", data={"key": "wrong"}).status_code == 401
    for key in ("wrong", KEY):  # no key is looked at any more
        answer = client.post("/login", data={"key": key})
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "6")
        assert client.get_cookie(COOKIE) is None
    site.logged_in(KEY, site.client(REMOTE_ADDR="192.0.2.7"))
    site.later(seconds=6)
    site.logged_in(KEY, client)


def test_logins_that_succeed_are_not_counted(site: Web) -> None:
    for _ in range(limits.FAILED_LOGINS_PER_MINUTE + 2):
        site.logged_in()


def test_failed_keys_are_limited_and_valid_ones_are_not_held_up(site: Web) -> None:
    for _ in range(limits.FAILED_KEYS_PER_MINUTE):
        assert site.get(key="wrong").status_code == 401
    answer = site.get(key="wrong")
    refused(answer, 429, "too_many_requests")
    assert answer.headers["Retry-After"] == "1"
    assert site.get(key=site.key().text).status_code == 200
    site.later(seconds=1)
    assert site.get(key="wrong").status_code == 401


def test_the_hosts_of_an_ipv6_network_are_counted_as_one(site: Web) -> None:
    network = f"2001:db8:{uuid.uuid4().hex[:4]}"
    for number in range(limits.FAILED_LOGINS_PER_MINUTE):
        client = site.client(REMOTE_ADDR=f"{network}:1::{number:x}")
        assert client.post("/login", data={"key": "wrong"}).status_code == 401
    assert site.client(REMOTE_ADDR=f"{network}:1:ffff::1").post("/login").status_code == 429
    assert site.client(REMOTE_ADDR=f"{network}:2::1").post("/login").status_code == 401


def test_behind_proxies_the_address_is_what_the_last_of_them_says(make_web: Callable[..., Web]) -> None:
    site = make_web(trusted_proxies=1)

    def fails(forwarded: str) -> int:
        headers = {"X-Forwarded-For": forwarded}
        return int(site.client().post("/login", data={"key": "wrong"}, headers=headers).status_code)

    for number in range(limits.FAILED_LOGINS_PER_MINUTE):  # what a client claims itself is left of it
        assert fails(f"198.51.100.{number}, 203.0.113.{site.address[-1]}") == 401
    assert fails(f"203.0.113.{site.address[-1]}") == 429
    assert fails("203.0.113.99") == 401


def test_without_trusted_proxies_nobody_chooses_the_address(site: Web) -> None:
    client = site.client()
    answers = [
        client.post("/login", data={"key": "wrong"}, headers={"X-Forwarded-For": f"198.51.100.{number}"})
        for number in range(limits.FAILED_LOGINS_PER_MINUTE + 1)
    ]
    assert answers[-1].status_code == 429


def test_scopes_are_those_that_the_schema_knows(owner_sql: OwnerSql) -> None:
    assert set(principal.SCOPES) == EVERY_SCOPE
    assert owner_sql(
        "SELECT count(*) FROM pg_constraint WHERE conrelid = 'api_keys'::regclass"
        " AND pg_get_constraintdef(oid) LIKE '%upload%read%ops%'"
    ) == [(1,)]
