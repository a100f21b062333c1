"""PostgreSQL: transactions under a role and a workspace, and its errors in the product's words.

SQLAlchemy's engine keeps the pool; a transaction hands out the psycopg2 connection itself, which
aiosql's queries and COPY both want.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import psycopg2
import psycopg2.extras
import sqlalchemy
import sqlalchemy.event
import sqlalchemy.exc

from app.adapters import array_literals, patience, pooler
from app.kernel import errors

psycopg2.extras.register_uuid()
array_literals.register()

T = TypeVar("T")

Connection: TypeAlias = psycopg2.extensions.connection
"""What a store function takes: a connection inside of a transaction that it does not end."""

SQLSTATES: dict[str, type[errors.HeadworksError]] = {
    # class or code   error                        PostgreSQL's name
    "08": errors.ConnectionLost,  # connection exceptions
    "57P01": errors.ConnectionLost,  # admin_shutdown: the backend was terminated
    "57P02": errors.ConnectionLost,  # crash_shutdown
    "57P03": errors.ConnectionLost,  # cannot_connect_now: starting up or shutting down
    "57P05": errors.ConnectionLost,  # idle_session_timeout
    "25P03": errors.ConnectionLost,  # idle_in_transaction_session_timeout
    "53300": errors.ConnectionLost,  # too_many_connections
    "40P01": errors.Deadlock,  # deadlock_detected
    "40001": errors.Deadlock,  # serialization_failure
    "57014": errors.TransactionTimeout,  # query_canceled: statement_timeout
    "55P03": errors.TransactionTimeout,  # lock_not_available: lock_timeout
    "25P04": errors.TransactionTimeout,  # transaction_timeout
    "53100": errors.DiskFull,  # disk_full
    "42501": errors.AccessDenied,  # insufficient_privilege: grants and row-level security
    "22023": errors.AccessDenied,  # invalid_parameter_value: a role that is not there
    "23505": errors.UniqueViolated,  # unique_violation
    "23503": errors.ForeignKeyMissing,  # foreign_key_violation
    "23": errors.RowRefused,  # other integrity constraints: CHECK, NOT NULL
    "22": errors.RowRefused,  # data exceptions: out of range, invalid text
    "21000": errors.RowRefused,  # cardinality_violation: one key twice in one statement
}


_OWN_WORDS = re.compile(r"\bFATAL:\s*(.+)")


def translate(error: psycopg2.Error) -> errors.HeadworksError | None:
    """The product's error for a driver error, by SQLSTATE; None for a mistake in our own SQL."""
    state = error.pgcode or ""
    kind = SQLSTATES.get(state) or SQLSTATES.get(state[:2])
    if not state and _is_of_connection(error):
        kind = errors.ConnectionLost
    return kind(_sentence(kind, error)) if kind else None


def _is_of_connection(error: psycopg2.Error) -> bool:
    # The driver sets no SQLSTATE when the socket breaks or is closed already, and during COPY it
    # raises the general DatabaseError itself. Our own mistakes are narrower kinds of that.
    of_driver = isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError)
    return of_driver or type(error) is psycopg2.DatabaseError


def _is_lost(error: psycopg2.Error) -> bool:
    return isinstance(translate(error), errors.ConnectionLost)


def _sentence(kind: type[errors.HeadworksError], error: psycopg2.Error) -> str:
    # Only names of the schema are repeated: the driver's own text may hold a row's values or a
    # connection's password.
    where = error.diag.constraint_name or error.diag.table_name
    text = (kind.__doc__ or "").splitlines()[0]
    return f"{text} ({where})" if where else text


class Database:
    """The pool of connections of one process."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "headworks",
        timeout_seconds: float = 60.0,
        idle_seconds: float = 10.0,
        pool_size: int = 5,
    ) -> None:
        """One statement may take `timeout_seconds`, a pause between two of a transaction `idle_seconds`.

        Whoever takes longer is cut off, so that a frozen process holds nobody up for long; and a
        server that does not even do that is given up a few seconds later.
        """
        self._timeout_seconds = timeout_seconds
        self._idle_seconds = idle_seconds
        self._abandoned: set[int] = set()
        self._engine = sqlalchemy.create_engine(
            sqlalchemy.engine.make_url(url).set(drivername="postgresql+psycopg2"),
            pool_size=pool_size,
            max_overflow=16,
            pool_recycle=1800,
            connect_args={
                "connect_timeout": 5,
                # A dead peer is noticed within half a minute, not after two hours.
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 20_000,
                "connection_factory": patience.Connection,
                "cursor_factory": patience.Cursor,
            },
        )
        sqlalchemy.event.listen(self._engine, "do_connect", functools.partial(_sign, name))
        self._limits = (_milliseconds(idle_seconds), _milliseconds(timeout_seconds))
        bound = functools.partial(_bound, self._limits)
        # Before SQLAlchemy, which begins a transaction on the first connection to ask what server it is.
        sqlalchemy.event.listen(self._engine, "connect", bound, insert=True)

    @contextmanager
    def transaction(
        self, role: str | None, workspace_id: UUID | None = None, *, timeout_seconds: float | None = None,
        snapshot: bool = False, durable: bool = True,
    ) -> Iterator[Connection]:  # fmt: skip
        """One transaction as `headworks_<role>` (None: as the user that logged in), in `workspace_id`.

        Committed when the block ends, rolled back when it raises. Driver errors leave it as the
        product's own errors. None as workspace sees no row that belongs to a workspace, unless a
        policy of the role says otherwise. `snapshot`: it only reads, and sees the database as it was at
        its beginning. Not `durable`: its commit returns before the disk has it, and a crash of the server
        may take it back, until a durable one follows it.
        """
        seconds = timeout_seconds or self._timeout_seconds
        settings = (
            f"headworks_{role}" if role else "none",
            str(workspace_id or ""),
            _milliseconds(seconds),
            _milliseconds(self._idle_seconds),
            durable,
        )

        def begin(connection: Any) -> None:
            if snapshot:
                connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            with connection.cursor() as cursor:
                cursor.execute(_BEGIN, settings)
                connection.backend = cursor.fetchone().backend
            connection.answer_seconds = seconds + patience.GRACE_SECONDS

        with _translated():
            pooled = self._take(begin)
        connection: Any = pooled.dbapi_connection
        backend = connection.backend
        try:
            with _translated():
                yield connection
                connection.commit()
        except BaseException:
            with suppress(psycopg2.Error):
                connection.rollback()
            if connection.closed:
                self._abandoned.add(backend)
                pooled.invalidate()
            raise
        finally:
            connection.answer_seconds = patience.IDLE_SECONDS
            if snapshot and not connection.closed:
                connection.set_session(isolation_level="DEFAULT", readonly="DEFAULT")
            pooled.close()  # back to the pool

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """A connection on which each statement is a transaction of its own, as the user that logged in.

        Driver errors leave it as the product's own errors. Behind a pooler the whole block is one
        transaction, since the limits of time hold in nothing else there.
        """

        def begin(connection: Any) -> None:
            connection.autocommit = not connection.is_pooled
            with connection.cursor() as cursor:
                if connection.is_pooled:
                    cursor.execute(_LIMIT, (*self._limits, True))
                else:
                    cursor.execute("select pg_backend_pid() as backend")
                connection.backend = cursor.fetchone().backend
            connection.answer_seconds = self._timeout_seconds + patience.GRACE_SECONDS

        with _translated():
            pooled = self._take(begin)
        connection: Any = pooled.dbapi_connection
        backend = connection.backend
        try:
            with _translated():
                yield connection
                if connection.is_pooled:
                    connection.commit()
            connection.autocommit = False
        except BaseException as error:
            if connection.closed:
                self._abandoned.add(backend)
            if connection.closed or not isinstance(error, errors.HeadworksError):
                pooled.invalidate()  # what is going on in it is not known
            else:
                if connection.is_pooled:
                    connection.rollback()
                connection.autocommit = False
            raise
        finally:
            connection.answer_seconds = patience.IDLE_SECONDS
            pooled.close()

    def _take(self, prepare: Callable[[Any], None]) -> sqlalchemy.PoolProxiedConnection:
        """A connection of the pool, for which `prepare` has been done.

        One that broke while it lay in the pool shows it there, and is replaced by another.
        """
        while True:
            pooled = self._connect()
            connection: Any = pooled.dbapi_connection
            # Behind a pooler none is known yet: its number is not PostgreSQL's.
            backend = None if connection.is_pooled else connection.info.backend_pid
            is_new = not pooled.info.get(_KNOWN)
            pooled.info[_KNOWN] = True
            try:
                self._end_abandoned(connection)
                prepare(connection)
                return pooled
            except BaseException as error:
                pooled.invalidate()
                pooled.close()
                if backend is not None:
                    self._abandoned.add(backend)
                if is_new or not isinstance(error, psycopg2.Error) or not _is_lost(error):
                    raise

    def _connect(self) -> sqlalchemy.PoolProxiedConnection:
        try:
            return self._engine.raw_connection()
        except sqlalchemy.exc.DBAPIError as error:
            raise error.orig or error from None
        except sqlalchemy.exc.TimeoutError:
            raise errors.ConnectionLost("Every connection of this process's pool is busy.") from None

    def _end_abandoned(self, connection: patience.Connection) -> None:
        """Backends whose connection broke here hold nothing any more.

        The server may not have heard of it: its timeouts do not end a COPY that waits for its client,
        and until it does end, the rows that it brought keep everybody else from bringing them.
        """
        if ended := list(self._abandoned):
            with connection.cursor() as cursor:
                cursor.execute(_END_ABANDONED, (ended,))
            connection.commit()
            self._abandoned.difference_update(ended)  # another thread may have added some meanwhile

    def end_backends(self, owner: str) -> None:
        """The server's processes of a process that is not heard of any more hold nothing.

        Frozen in the middle of a COPY it would hold its rows, and its lease is another's by now.
        """
        with self.transaction(None) as connection, connection.cursor() as cursor:
            cursor.execute(_END_OF_OWNER, (f"{owner} ",))

    def forget_connections(self) -> None:
        """Drop the pool without closing its sockets: they belong to the parent process."""
        self._engine.dispose(close=False)
        self._abandoned.clear()

    def close(self) -> None:
        """Close every idle connection."""
        self._engine.dispose()


_KNOWN = "headworks: was in use before"
_BEGIN = (
    "select pg_backend_pid() as backend, array["
    "set_config('role', %s, true), set_config('headworks.workspace_id', %s, true),"
    " set_config('statement_timeout', %s, true),"
    " set_config('idle_in_transaction_session_timeout', %s, true),"
    " set_config('synchronous_commit',"
    "  case when %s then current_setting('synchronous_commit') else 'off' end, true)] as settings"
)
_LIMIT = (
    "with given(idle, statement, is_local) as (values (%s, %s, %s))"
    " select pg_backend_pid() as backend, array["
    "set_config('idle_in_transaction_session_timeout', idle, is_local),"
    " set_config('statement_timeout', statement, is_local)] as settings from given"
)
_END_BACKENDS = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where usename = session_user and pid <> pg_backend_pid() and "
)
_END_ABANDONED = _END_BACKENDS + "application_name = current_setting('application_name') and pid = any(%s)"
_END_OF_OWNER = _END_BACKENDS + "starts_with(application_name, %s)"


def _sign(name: str, _dialect: Any, _record: Any, _args: Any, options: dict[str, Any]) -> None:
    """The server knows whose each connection is: of which process, and what for."""
    options["application_name"] = f"{this_process()} {name}"[:63]


def _bound(limits: tuple[str, str], connection: Any, _record: Any) -> None:
    """A transaction that has only begun ends, too.

    The driver begins one with a message of its own; when the network falls silent behind it, the
    settings of the transaction never arrive. A statement without a transaction has no other limit.
    A pooler's session is everybody's: there it is the pooler that ends what its client has left.
    """
    connection.autocommit = True
    connection.is_pooled = pooler.is_before(connection)
    if not connection.is_pooled:
        with connection.cursor() as cursor:
            cursor.execute(_LIMIT, (*limits, False))
    connection.autocommit = False


HOST_CHARACTERS = 32
"""So much of a host's name stands in names of processes: the server cuts those of its clients at 63 bytes."""


def this_process() -> str:
    """The name under which this process holds what is its own."""
    return name_of_process(os.getpid())


def name_of_process(pid: int) -> str:
    """The name of a process of this machine, short enough for every place where it stands.

    Of a long host name also its digest: machines that are made from one template differ at the end.
    """
    host = socket.gethostname()
    if len(host) > HOST_CHARACTERS:
        digest = hashlib.sha256(host.encode()).hexdigest()[:12]
        host = f"{host[: HOST_CHARACTERS - len(digest) - 1]}~{digest}"
    return f"{host}/{pid}"


def _milliseconds(seconds: float) -> str:
    return f"{math.ceil(seconds * 1000)}ms"


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg2.Error as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


def turned_away(error: errors.ConnectionLost) -> str | None:
    """What PostgreSQL says to whom it lets in no further; None: it was not heard of.

    Only its own words, which name users and databases and no password.
    """
    found = _OWN_WORDS.search(str(error.__cause__ or ""))
    return found[1].strip().rstrip(".") if found else None


def savepoint(connection: Connection, work: Callable[[], T]) -> T:
    """What `work` returns; when it raises, its writes alone are undone and the error goes on.

    Only errors of the server are translated here; a lost connection leaves nothing to roll back.
    """
    with connection.cursor() as cursor:
        cursor.execute("savepoint part")
        try:
            with _translated():
                result = work()
        except errors.ConnectionLost:
            raise
        except Exception:
            cursor.execute("rollback to savepoint part")
            cursor.execute("release savepoint part")
            raise
        cursor.execute("release savepoint part")
        return result


def json_value(value: Any) -> Any:
    """A Python value as a parameter for a json or jsonb column."""
    return psycopg2.extras.Json(value)
