"""Who may speak for a tenant: by the instance's key, at its machine, or by proof of a tenant's own."""

from __future__ import annotations

import hmac
from typing import Protocol

from app.access import origin
from app.refdata import tenants
from app.refdata.services import Services
from app.refdata.tenants import Unauthorized


class Headers(Protocol):
    """A request's headers, by names whose case does not matter."""

    def get(self, name: str, /) -> str | None:
        """The header's value; None when there is none."""


def let_in(of: Services, tenant_id: str, headers: Headers, peer: str | None, own: tuple[str, ...]) -> None:
    """The caller may speak for this tenant; `own` are the origins of our own pages.

    Refused for what is no tenant's name; Unauthorized; WrongTenant; KeysAway.
    """
    tenants.check_name(tenant_id)  # before anybody's tenants are looked at: the instance's key has no list
    scheme, _, token = (headers.get("Authorization") or "").partition(" ")
    key = of.api_key.encode()
    if key and scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), key):
        return
    here = origin.is_at_this_machine(peer, headers)
    ours = origin.is_ours(headers, own) is not False
    if of.open_here and here and ours and not scheme:
        return
    if of.tenants is None:
        raise Unauthorized()
    of.tenants.check(tenant_id, headers, peer)
