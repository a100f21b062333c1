"""The door: who makes each request, the login page, and the headers of every answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import flask
import werkzeug

from app.access import exposure, headers, keys, limits, origin, principal, sessions
from app.access.principal import LOCAL_BROWSER, LOCAL_KEY, Admission, Principal
from app.adapters import buckets, database, logs, metrics
from app.adapters.settings import Settings
from app.kernel import errors
from app.kernel.clock import Clock

log = logs.get(__name__)

blueprint = flask.Blueprint(
    "access", __name__, template_folder="templates", static_folder="static", static_url_path="/access/static"
)

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
LOGIN_BYTES = 16_384
"""More than a login form holds."""


class Door:
    """What the door of one instance knows."""

    def __init__(self, settings: Settings, db: database.Database, clock: Clock) -> None:
        """Raises `exposure.NotSafeToStart` for an instance that others can reach without a secret."""
        self.is_local = exposure.check(settings)
        self.settings = settings
        self.db = db
        self.limits = limits.Limits(settings, buckets.Buckets(settings.redis, clock))
        self.secret = settings.secret or settings.api_key

    @property
    def is_https(self) -> bool:
        """Whether browsers reach this instance by https, as far as this request shows."""
        return flask.request.is_secure or self.settings.url.startswith("https:")

    @property
    def session_cookie(self) -> str:
        """With https a name that no other host and no plain connection can set."""
        return "__Host-headworks_session" if self.is_https else "headworks_session"

    @property
    def visitor_cookie(self) -> str:
        return "__Host-headworks_visitor" if self.is_https else "headworks_visitor"

    @property
    def origins(self) -> tuple[str, ...]:
        """Where this instance's own pages come from."""
        return origin.of_urls(self.settings.url, flask.request.host_url)


def install(
    app: flask.Flask,
    door: Door,
    *,
    open_endpoints: tuple[str, ...],
    public_endpoints: tuple[str, ...] = (),
    upload_endpoints: tuple[str, ...],
) -> None:
    """Every request of the application passes the door first.

    `open_endpoints` are for everybody; `public_endpoints` too, and anybody on the way may keep their
    answers, as with static files; `upload_endpoints` take reports in.
    """
    app.extensions["access"] = door
    app.register_blueprint(blueprint)
    app.before_request(lambda: _let_in((*open_endpoints, *public_endpoints), upload_endpoints))
    app.after_request(lambda response: _add_headers(response, public_endpoints))
    app.teardown_request(lambda _error: principal.bind(None))


def _door() -> Door:
    return cast(Door, flask.current_app.extensions["access"])


# -- letting in


@dataclass(frozen=True, slots=True)
class _Entrant:
    principal: Principal
    key_id: str | None  # None: nobody whose requests are counted
    bound_to: str | None = None  # the cookie that forms are bound to; None: let in by a header


def _is_open(open_endpoints: tuple[str, ...]) -> bool:
    endpoint = flask.request.endpoint or ""
    return endpoint in ("access.login", *open_endpoints) or _is_static(endpoint)


def _is_static(endpoint: str) -> bool:
    return endpoint == "static" or endpoint.endswith(".static")


def _let_in(open_endpoints: tuple[str, ...], upload_endpoints: tuple[str, ...]) -> werkzeug.Response | None:
    principal.bind(None)
    if _is_open(open_endpoints):
        return None
    door = _door()
    entrant = _entrant(door)
    if entrant is None:
        return _to_login()
    is_ours = origin.is_ours(flask.request.headers, door.origins)
    token = sessions.csrf_token(door.secret, entrant.bound_to) if entrant.bound_to else ""
    if entrant.bound_to and flask.request.method not in origin.SAFE_METHODS:
        _check_form(token, is_ours)
    flask.g.key_id = entrant.key_id
    flask.g.rate_levels = door.limits.take_request(
        entrant.key_id,
        is_upload=flask.request.endpoint in upload_endpoints and flask.request.method == "POST",
    )
    # A program says nothing of origins. A browser that opens a socket always does.
    same_origin = entrant.bound_to is None or (is_ours is True and "Origin" in flask.request.headers)
    principal.bind(Admission(entrant.principal, token, same_origin))
    return None


def count_uploads(number: int) -> None:
    """A request that hands in so many reports more than one counts as all of them."""
    _door().limits.take_uploads(flask.g.get("key_id"), number)


def _entrant(door: Door) -> _Entrant | None:
    """Who this is: by the Authorization header, else by the session, else by sitting at the machine."""
    authorization = flask.request.headers.get("Authorization")
    if authorization is not None:
        return _by_key(door, authorization)
    cookie = flask.request.cookies.get(door.session_cookie)
    if cookie and (found := sessions.identify(door.db, cookie, local_key=door.settings.api_key)):
        key_id, who = found
        return _Entrant(who, key_id, bound_to=cookie)
    if door.is_local and origin.is_at_this_machine(flask.request.remote_addr, flask.request.headers):
        return _Entrant(LOCAL_BROWSER, None, bound_to=_visitor(door))
    return None


def _by_key(door: Door, authorization: str) -> _Entrant:
    scheme, _, given = authorization.partition(" ")
    try:
        if scheme.lower() != "bearer":
            raise keys.KeyRefused(reason="malformed")
        key_id, who = _identify(door, given.strip())
        return _Entrant(who, key_id)
    except keys.KeyRefused as refusal:
        network = origin.network_of(flask.request.remote_addr)
        log.info("key_refused", reason=refusal.reason, network=network, public_id=refusal.public_id)
        metrics.keys_refused.labels("key", refusal.reason).inc()
        door.limits.count_failed_key(network)
        raise


def _identify(door: Door, key: str) -> tuple[str | None, Principal]:
    if door.settings.api_key and keys.equal(key, door.settings.api_key):
        return None, LOCAL_KEY
    return keys.identify(door.db, key)


def _visitor(door: Door) -> str:
    """The visitor's cookie; a new one is sent along with the answer."""
    cookie = flask.request.cookies.get(door.visitor_cookie, "")
    if not sessions.is_visitor(door.secret, cookie):
        cookie = flask.g.new_visitor = sessions.new_visitor(door.secret)
    return cookie


def _check_form(token: str, is_ours: bool | None) -> None:
    """A page of ours sends this; else Refused (`csrf`)."""
    if is_ours is False:
        raise errors.Refused("Another site's page has sent this, so it was not done.", code="csrf")
    given = flask.request.headers.get("X-CSRF-Token")
    if given is None and flask.request.mimetype in FORM_TYPES:
        given = flask.request.form.get("csrf_token")
    if given is None or not keys.equal(given, token):
        raise errors.Refused(
            "The page that sent this is of an earlier session: load it again, then repeat it."
            " A program sends its key as `Authorization: Bearer <key>` instead.",
            code="csrf",
        )


def _to_login() -> werkzeug.Response:
    """A person's page leads to the login; whatever else is told that a key is needed."""
    accepted = flask.request.accept_mimetypes.best_match(["application/json", "text/html"])
    if flask.request.method not in ("GET", "HEAD") or accepted != "text/html":
        principal.current()  # refuses, since nobody was let in
    path = flask.request.full_path.removesuffix("?")
    return flask.redirect(flask.url_for("access.login", next=path), code=303)


# -- pages


@blueprint.route("/login", methods=["GET", "POST"])
def login() -> werkzeug.Response:
    """A person shows a key once and has a session with it."""
    flask.request.max_content_length = LOGIN_BYTES
    target = origin.local_path(flask.request.values.get("next"))
    if flask.request.method != "POST":
        return _login_page(target)
    door = _door()
    if origin.is_ours(flask.request.headers, door.origins) is False:
        raise errors.Refused("Another site's page has sent this login, so it was not done.", code="csrf")
    network = origin.network_of(flask.request.remote_addr)
    try:
        door.limits.check_login(network)
        key_id, who = _identify(door, flask.request.form.get("key", "").strip())
    except limits.TooManyRequests as refusal:
        return _login_page(target, status=429, error=refusal)
    except keys.KeyRefused as refusal:
        log.info("login_refused", reason=refusal.reason, network=network, public_id=refusal.public_id)
        metrics.keys_refused.labels("login", refusal.reason).inc()
        door.limits.count_failed_login(network)
        return _login_page(target, status=401, error=_in_a_form(refusal))
    session_id = sessions.open_session(
        door.db,
        key_id=key_id,
        local_key=door.settings.api_key,
        ends=flask.request.cookies.get(door.session_cookie, ""),
    )
    log.info("session_opened", who=who.name)
    response = flask.redirect(target, code=303)
    _set_cookie(response, door.session_cookie, session_id, max_age=sessions.MAX_SECONDS)
    return response


def _in_a_form(refusal: keys.KeyRefused) -> keys.KeyRefused:
    """The refusal in the words of a person at the login, who knows nothing of headers."""
    if refusal.reason != "malformed":
        return refusal
    return keys.KeyRefused(
        "This is no key: one begins with hw_ and is long. Take the whole of it.", reason=refusal.reason
    )


def _login_page(
    target: str, *, status: int = 200, error: errors.HeadworksError | None = None
) -> werkzeug.Response:
    if isinstance(error, limits.TooManyRequests):
        flask.g.retry_after = error.wait_seconds
    sentence = error.sentence if error else None
    page = flask.render_template("access/login.html", target=target, error=sentence)
    return flask.make_response(page, status)


@blueprint.post("/logout")
def logout() -> werkzeug.Response:
    """The session is over, here and in the database."""
    door = _door()
    if cookie := flask.request.cookies.get(door.session_cookie):
        sessions.close_session(door.db, cookie)
        log.info("session_ended", who=principal.current().name)
    response = flask.redirect(flask.url_for("access.login"), code=303)
    response.delete_cookie(door.session_cookie, path="/", secure=door.is_https, httponly=True, samesite="Lax")
    return response


def _set_cookie(response: werkzeug.Response, name: str, value: str, *, max_age: int | None = None) -> None:
    response.set_cookie(
        name, value, max_age=max_age, path="/", secure=_door().is_https, httponly=True, samesite="Lax"
    )


# -- the headers of every answer


def _add_headers(response: flask.Response, public_endpoints: tuple[str, ...]) -> flask.Response:
    door = _door()
    endpoint = flask.request.endpoint or ""
    kept = (_is_static(endpoint) or endpoint in public_endpoints) and response.status_code < 400
    response.headers.update(headers.of_answer(https=door.is_https, kept=kept))
    response.headers.update(limits.headers_of(flask.g.get("rate_levels", ())))
    if wait_seconds := flask.g.get("retry_after"):
        response.headers["Retry-After"] = str(wait_seconds)
    if visitor := flask.g.get("new_visitor"):
        _set_cookie(response, door.visitor_cookie, visitor)
    return response
