"""Every SQLSTATE that the product meets has its line; a mistake of our own has none."""

from __future__ import annotations

import psycopg2
import psycopg2.errors
import pytest

from app.adapters import database
from app.kernel import errors

STATES = [
    # driver's class                               ours
    (psycopg2.errors.AdminShutdown, errors.ConnectionLost),  # 57P01
    (psycopg2.errors.CannotConnectNow, errors.ConnectionLost),  # 57P03
    (psycopg2.errors.DeadlockDetected, errors.Deadlock),  # 40P01
    (psycopg2.errors.SerializationFailure, errors.Deadlock),  # 40001
    (psycopg2.errors.QueryCanceled, errors.TransactionTimeout),  # 57014
    (psycopg2.errors.LockNotAvailable, errors.TransactionTimeout),  # 55P03
    (psycopg2.errors.InsufficientPrivilege, errors.AccessDenied),  # 42501
    (psycopg2.errors.UniqueViolation, errors.UniqueViolated),  # 23505
    (psycopg2.errors.ForeignKeyViolation, errors.ForeignKeyMissing),  # 23503
    (psycopg2.errors.CheckViolation, errors.RowRefused),  # 23514
    (psycopg2.errors.NumericValueOutOfRange, errors.RowRefused),  # 22003
    (psycopg2.errors.CardinalityViolation, errors.RowRefused),  # 21000
    (psycopg2.errors.DiskFull, errors.DiskFull),  # 53100
    (psycopg2.errors.TooManyConnections, errors.ConnectionLost),  # 53300
    (psycopg2.OperationalError, errors.ConnectionLost),  # no state: the socket broke
    (psycopg2.InterfaceError, errors.ConnectionLost),  # no state: closed already
    (psycopg2.errors.UndefinedColumn, None),  # 42703
    (psycopg2.errors.SyntaxError, None),  # 42601
]


@pytest.mark.parametrize(("kind", "ours"), STATES)
def test_a_driver_error_becomes_ours(
    kind: type[psycopg2.Error], ours: type[errors.HeadworksError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = database.translate(_raised(kind))
    assert type(found) is (ours or type(None))


def _raised(kind: type[psycopg2.Error]) -> psycopg2.Error:
    """An error as the driver raises it; its state can only be read from one of a server."""
    state = next((s for s, k in _states().items() if k is kind), None)

    class Shown(kind):  # type: ignore[misc, valid-type]
        pgcode = state

    return Shown("secret detail")


def _states() -> dict[str, type[psycopg2.Error]]:
    return {
        name: psycopg2.errors.lookup(name)
        for name in (
            "57P01 57P03 40P01 40001 57014 55P03 42501 23505 23503 23514 22003 21000 53100 53300 42703 42601"
        ).split()
    }
