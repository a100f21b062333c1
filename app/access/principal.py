"""Who makes this request, and what they may do: the one module of access that views ask.

`views` binds the answer before a request is handled and takes it away afterwards.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from uuid import UUID

from app.kernel import errors

SCOPES = {
    # scope    what a key with it may do
    "upload": "hand in reports",
    "read": "look at uploads, their files and rejected rows, and at the numbers",
    "ops": "send an upload on its way again, or manage webhooks",
}

NOT_FOUND = "There is no such upload or workspace for this key."
"""The one sentence for what is not there and for what belongs to somebody else."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who was let in."""

    name: str  # who, for the audit trail: "key hw_ab12cd34 (CI)", "local key"
    workspace_id: UUID | None  # None: every workspace
    scopes: frozenset[str]

    def may(self, scope: str, workspace_id: UUID) -> bool:
        """Whether this is allowed in that workspace."""
        return scope in self.scopes and self.workspace_id in (None, workspace_id)


LOCAL_KEY = Principal("local key", None, frozenset(SCOPES))
"""Who holds the instance's own key, HEADWORKS_API_KEY."""

LOCAL_BROWSER = Principal("local browser", None, frozenset(SCOPES))
"""Who sits at the machine of an embedded instance."""


@dataclass(frozen=True, slots=True)
class Admission:
    """How one request was let in."""

    principal: Principal
    csrf_token: str = ""  # "": let in by a header that no other site can make a browser send
    same_origin: bool = True


_admission: ContextVar[Admission | None] = ContextVar("headworks_admission", default=None)


def bind(admission: Admission | None) -> None:
    """The rest of this request is made by this principal; None: by nobody."""
    _admission.set(admission)


def current() -> Principal:
    """Who makes this request; Refused (`unauthorized`) when nobody was let in."""
    found = _admission.get()
    if found is None:
        raise errors.Refused(
            "This needs a key: send it as `Authorization: Bearer <key>`."
            " `headworks env` prints the key of a local instance.",
            code="unauthorized",
        )
    return found.principal


def found() -> Principal | None:
    """Who makes this request; None when nobody was let in, as where somebody logs in."""
    admission = _admission.get()
    return admission.principal if admission else None


def require_scope(scope: str) -> Principal:
    """The principal, who has this scope; else Refused (`forbidden`).

    Asked before anything is looked up, so that a refusal tells nothing about what is there.
    """
    who = current()
    if scope not in who.scopes:
        raise errors.Refused(
            f"This key may not {SCOPES[scope]}: that needs the scope `{scope}`.", code="forbidden"
        )
    return who


def require(scope: str, workspace_id: UUID) -> Principal:
    """The principal, who may do this in that workspace.

    Refused (`forbidden`) without the scope; NotFound for another workspace, as if it were not there.
    """
    who = require_scope(scope)
    if not who.may(scope, workspace_id):
        raise errors.NotFound(NOT_FOUND)
    return who


def csrf_token() -> str:
    """What a form of this session sends back as `csrf_token`, a script as `X-CSRF-Token`.

    Empty when nobody was let in, so that a page which says so can be written like any other.
    """
    found = _admission.get()
    return found.csrf_token if found else ""


def same_origin() -> bool:
    """Whether no other site's page makes this request: to be asked before a socket is opened.

    Of sockets alone: a browser names the origin there, and need not when it fetches from its own.
    """
    found = _admission.get()
    return found is not None and found.same_origin
