"""PgBouncer before a PostgreSQL of these tests: connections shared by the transaction (Debian: pgbouncer)."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

import psycopg2
import psycopg2.extensions

from app.adapters.embedded import free_port, leash, machine
from tests import patience

BINARY = Path("/usr/sbin/pgbouncer")
START_SECONDS = 10.0
SETTINGS = """
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
query_wait_timeout = 30
"""


class PgBouncer:
    """A pool of so many connections for each database of the server."""

    def __init__(self, folder: Path, dsn: str, *, pool_size: int = 8) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        of = psycopg2.extensions.parse_dsn(dsn)
        self._text = SETTINGS.format(**of, listen_port=self.port, pool_size=pool_size)
        self._server = f"{of['host']}:{of['port']}"

    def leads_to(self, dsn: str) -> str:
        """The address of this database of the server, by way of the pool."""
        return dsn.replace(self._server, f"127.0.0.1:{self.port}")

    def start(self) -> None:
        """It answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(self._text, encoding="utf-8")
        nobody = pwd.getpwnam("nobody")  # it does not run as root
        account = leash.Account(nobody.pw_uid, nobody.pw_gid, through_closed_folders=True)
        with machine.open_log(self._folder / "pgbouncer.log") as output:
            self._process = leash.start(
                [str(BINARY), str(settings)], ends_with=signal.SIGTERM, output=output,
                account=account if os.geteuid() == 0 else None,
            )  # fmt: skip
        until = patience.deadline(START_SECONDS)
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "pgbouncer.log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            psycopg2.connect(
                host="127.0.0.1", port=self.port, dbname="postgres", user="any", connect_timeout=2
            ).close()
        except psycopg2.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """It has ended; what it had open is closed."""
        if self._process is not None:
            leash.stop(self._process, (signal.SIGTERM, 5.0))
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
