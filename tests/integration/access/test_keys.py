"""Keys over HTTP: what each opens, when it stops opening, and what of it is kept."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from app.access import keys, principal
from app.kernel import errors
from tests.conftest import KEY
from tests.integration.access.conftest import EVERY_SCOPE, LIST, OURS, THEIRS, Web
from tests.integration.observe.log_lines import Lines, lines  # noqa: F401

OwnerSql = Callable[[str], list[Any]]
UNKNOWN = uuid.UUID("00000000-0000-4000-8000-000000000000")


def refused(answer: Any, status: int, code: str) -> str:
    """The answer is this problem, told as every problem is; its sentence."""
    assert answer.content_type == "application/problem+json", answer.data
    problem = json.loads(answer.data)
    assert (status, code, status) == (answer.status_code, problem["code"], problem["status"])
    assert len(problem["detail"].split()) >= 4
    return str(problem["detail"])


# -- what is kept


def test_of_a_key_only_the_hash_of_its_secret_is_kept(site: Web, owner_sql: OwnerSql) -> None:
    key = site.key()
    ((row,),) = owner_sql("SELECT to_jsonb(api_keys)::text FROM api_keys")
    assert key.public_id in row and key.secret not in row
    assert hashlib.sha256(key.secret.encode()).hexdigest() in row


def test_a_key_has_a_public_id_and_a_secret_of_256_random_bits(site: Web) -> None:
    made = {keys.new() for _ in range(100)}
    assert len({key.public_id for key in made}) == len({key.secret for key in made}) == 100
    assert {len(key.secret) for key in made} == {43} and {len(key.public_id) for key in made} == {8}
    assert all(keys.parse(key.text) == key for key in made)


def test_a_taken_public_id_is_not_given_twice(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    first = site.key()
    offered = [keys.Key(first.public_id, "s" * 43), keys.Key("zzzzzzzz", "t" * 43)]
    monkeypatch.setattr(keys, "new", lambda: offered.pop(0))
    assert site.key().public_id == "zzzzzzzz"
    assert site.get(key=first.text).status_code == 200


def test_the_use_of_a_key_is_noted_once_a_minute(site: Web, owner_sql: OwnerSql) -> None:
    key = site.key()
    noted = "SELECT last_used_at FROM api_keys"
    assert owner_sql(noted) == [(None,)]
    site.get(key=key.text)
    first = owner_sql(noted)
    assert first != [(None,)]
    site.get(key=key.text)
    assert first == owner_sql(noted)
    owner_sql("UPDATE api_keys SET last_used_at = last_used_at - interval '61 seconds'")
    site.get(key=key.text)
    assert owner_sql(noted) > first


def test_a_key_that_is_refused_is_not_noted_as_used(site: Web, owner_sql: OwnerSql) -> None:
    key = site.key()
    site.get(key=key.text + "x")
    assert owner_sql("SELECT last_used_at FROM api_keys") == [(None,)]


# -- what opens nothing

NO_KEYS = [
    # what is sent                            and what it is
    ("", "nothing"),
    (" ", "a blank"),
    ("hw_", "a beginning"),
    ("hw_abcdefgh_", "no secret"),
    ("hw_abcdefgh_" + "s" * 31, "a secret that is too short"),
    ("hw_abcdefgh_" + "s" * 129, "a secret that is too long"),
    ("hw_abcdefg_" + "s" * 43, "a public id that is too short"),
    ("hw_ABCDEFGH_" + "s" * 43, "capitals"),
    ("hw_abcdefgh_" + "s" * 42 + "é", "a letter that is no ASCII"),
    ("hw_abcdefgh_" + "s" * 42 + "٣", "a digit that is no ASCII"),
    ("hw_abcdefgh_" + "s" * 42 + "\x00", "a zero byte"),
    ("hw_abcdefgh_" + "s" * 43 + "' OR 1=1--", "SQL"),
    ("hw_abcdefgh_" + "s" * 43, "a key of nobody"),
    ("x" * 1_000_000, "a megabyte"),
    ("é" * 10_000, "much that is no ASCII"),
    ("None", "a word"),
]


@pytest.mark.parametrize(("text", "what"), NO_KEYS, ids=[what for _, what in NO_KEYS])
def test_what_is_no_key_opens_nothing(text: str, what: str, site: Web) -> None:
    answer = site.client().get(LIST, environ_overrides={"HTTP_AUTHORIZATION": f"Bearer {text}"})
    assert refused(answer, 401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert len(answer.data) < 1000 and (len(text) < 20 or text not in answer.text)


@pytest.mark.parametrize("scheme", ["Basic", "Token", "bearer,", "Bearer:", "Digest"])
def test_a_key_under_another_scheme_opens_nothing(scheme: str, site: Web) -> None:
    answer = site.client().get(LIST, headers={"Authorization": f"{scheme} {site.key().text}"})
    assert refused(answer, 401, "unauthorized")


def test_every_single_character_of_a_key_counts(site: Web) -> None:
    key = site.key()
    assert site.get(key=key.text).status_code == 200
    for place in (12, 30, len(key.text) - 1):  # of the secret
        other = "A" if key.text[place] != "A" else "B"
        wrong = key.text[:place] + other + key.text[place + 1 :]
        assert site.get(key=wrong).status_code == 401
    assert site.get(key=key.text + "A").status_code == 401
    assert site.get(key=key.text[:-1]).status_code == 401


def test_the_secret_of_one_key_does_not_fit_another(site: Web) -> None:
    one, two = site.key(OURS), site.key(THEIRS)
    assert site.get(key=keys.Key(one.public_id, two.secret).text).status_code == 401


def test_the_hash_of_a_key_is_no_key(site: Web) -> None:
    key = site.key()
    stolen = keys.digest(key.secret).hex()
    assert site.get(key=keys.Key(key.public_id, stolen).text).status_code == 401


def test_a_revoked_key_opens_nothing_from_the_next_request_on(site: Web, owner_sql: OwnerSql) -> None:
    key = site.key()
    client = site.client()
    bearer = {"Authorization": f"Bearer {key.text}"}
    assert client.get(LIST, headers=bearer).status_code == 200
    keys.revoke(site.services.db, key.public_id)
    assert "revoked" in refused(client.get(LIST, headers=bearer), 401, "unauthorized")
    first = owner_sql("SELECT revoked_at FROM api_keys")
    keys.revoke(site.services.db, key.public_id)  # once more changes nothing
    assert first == owner_sql("SELECT revoked_at FROM api_keys")


def test_a_revoked_key_is_told_so_only_with_its_secret(site: Web) -> None:
    key = site.key()
    keys.revoke(site.services.db, key.public_id)
    guess = site.get(key=keys.Key(key.public_id, "s" * 43).text)
    assert "revoked" not in refused(guess, 401, "unauthorized")


def test_an_expired_key_opens_nothing(site: Web, owner_sql: OwnerSql) -> None:
    key = site.key(expires_days=1)
    assert site.get(key=key.text).status_code == 200
    owner_sql("UPDATE api_keys SET expires_at = clock_timestamp()")
    assert "expired" in refused(site.get(key=key.text), 401, "unauthorized")


def test_a_key_lives_as_many_days_as_it_was_given(site: Web, owner_sql: OwnerSql) -> None:
    site.key(expires_days=30)
    found = owner_sql("SELECT round(extract(epoch FROM expires_at - created_at) / 86400) FROM api_keys")
    assert found == [(30,)]


def test_an_unknown_key_cannot_be_revoked(site: Web) -> None:
    with pytest.raises(errors.NotFound, match="hw_zzzzzzzz"):
        keys.revoke(site.services.db, "zzzzzzzz")


def test_the_instance_s_own_key_opens_every_workspace(site: Web) -> None:
    for workspace_id in (OURS, THEIRS, UNKNOWN):
        assert site.get(f"/v1/uploads?workspace_id={workspace_id}", KEY).status_code == 200
    assert site.get(key=KEY + "x").status_code == 401


def test_without_an_own_key_no_empty_one_opens_anything(make_web: Callable[..., Web]) -> None:
    site = make_web(api_key="")
    for text in ("", " ", "None"):
        assert site.get(key=text).status_code == 401
    assert site.get(key=site.key().text).status_code == 200


def test_a_header_wins_over_a_session(site: Web) -> None:
    client = site.logged_in()
    assert client.get(LIST).status_code == 200
    refused(client.get(LIST, headers={"Authorization": "Bearer wrong"}), 401, "unauthorized")
    theirs = {"Authorization": f"Bearer {site.key(THEIRS).text}"}
    refused(client.get(LIST, headers=theirs), 404, "not_found")


def test_after_a_request_nobody_is_let_in_any_more(site: Web) -> None:
    assert site.get(key=site.key().text).status_code == 200
    with pytest.raises(errors.Refused) as refusal:
        principal.current()
    assert refusal.value.code == "unauthorized"
    assert (principal.csrf_token(), principal.same_origin()) == ("", False)


# -- scopes

CALLS = {
    # method and path                             the scope that it needs
    ("POST", "/v1/uploads"): "upload",
    ("GET", LIST): "read",
    ("GET", f"/v1/uploads/{UNKNOWN}"): "read",
    ("GET", f"/v1/uploads/{UNKNOWN}/errors"): "read",
    ("GET", f"/v1/uploads/{UNKNOWN}/errors.csv"): "read",
    ("GET", f"/v1/uploads/{UNKNOWN}/file"): "read",
    ("GET", f"/v1/performance?workspace_id={OURS}"): "read",
    ("POST", f"/v1/uploads/{UNKNOWN}/requeue"): "ops",
}


@pytest.mark.parametrize("workspace_id", [OURS, None], ids=["one workspace", "every workspace"])
@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_key_does_only_what_its_scopes_say(
    method: str, path: str, workspace_id: uuid.UUID | None, site: Web
) -> None:
    needed = CALLS[method, path]

    def call(scopes: frozenset[str]) -> Any:
        bearer = {"Authorization": f"Bearer {site.key(workspace_id, scopes).text}"}
        return site.client().open(path, method=method, headers=bearer)

    sentence = refused(call(EVERY_SCOPE - {needed}), 403, "forbidden")
    assert f"`{needed}`" in sentence
    assert call(frozenset({needed})).status_code not in (401, 403)


def test_a_key_has_at_least_one_scope_and_none_that_is_unknown(site: Web) -> None:
    for scopes in (frozenset(), frozenset({"read", "root"})):
        with pytest.raises(errors.RowRefused):
            site.key(scopes=scopes)


def test_of_a_key_that_was_revoked_the_log_says_which_and_of_a_guess_nothing(
    site: Web,
    lines: Lines,  # noqa: F811
) -> None:
    key = site.key()
    keys.revoke(site.services.db, key.public_id)
    for shown in (key, keys.Key(key.public_id, "s" * 43)):
        assert site.get(key=shown.text).status_code == 401
    told = [line for line in lines("app.access") if line["event"] == "key_refused"]
    found = [(line["reason"], line["public_id"]) for line in told]
    assert found == [("revoked", key.public_id), ("unknown", None)]
