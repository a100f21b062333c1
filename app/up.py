"""`headworks up`: everything on this machine, from nothing, until Ctrl-C.

stderr tells what happens, stdout shows the numbers of the samples, and each process of the fleet
writes to its own file in `DATA/logs`.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from app import samples as sample_reports
from app.access import exposure
from app.adapters import embedded
from app.adapters.embedded import Fleet, machine
from app.adapters.embedded.procfile import STOP_SECONDS
from app.adapters.settings import REDIS_SCHEMES
from app.client import Client, ClientError

ROOT = Path(__file__).parent.parent
HOST = "127.0.0.1"
# Flower and the reads of reference data have their own defaults beside the web's; any other instance gets
# free ports for them, since two that start at once would both find those free.
PORT, FLOWER_PORT, REFDATA_PORT = 8000, 5555, 8093
READY_SECONDS = 60.0
POLL_SECONDS = 0.2
PIPELINE_DATABASE, REFDATA_DATABASE = "pipeline_db", "refdata_db"
Service = embedded.Postgres | embedded.Valkey
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class UpError(RuntimeError):
    """Headworks cannot be brought up; the message is a sentence for the person who tried."""


# Each says in a sentence what happened and the way out.
FAILURES = (
    UpError,
    exposure.NotSafeToStart,
    embedded.EmbeddedError,
    embedded.FolderInUse,
    sample_reports.SampleError,
    ClientError,
    OSError,
)


@dataclass(frozen=True)
class Instance:
    """Where one running Headworks is found; what `headworks env` prints."""

    url: str
    database_url: str
    pipeline_database_url: str
    refdata_database_url: str
    refdata_config: str
    refdata_bind: str
    broker_url: str
    redis_url: str
    data_dir: Path
    api_key: str

    def settings(self) -> dict[str, str]:
        """As environment variables."""
        return {
            "HEADWORKS_URL": self.url,
            "HEADWORKS_DATABASE_URL": self.database_url,
            "HEADWORKS_PIPELINE_DATABASE_URL": self.pipeline_database_url,
            "HEADWORKS_REFDATA_DATABASE_URL": self.refdata_database_url,
            "HEADWORKS_REFDATA_CONFIG": self.refdata_config,
            "HEADWORKS_REFDATA_BIND": self.refdata_bind,
            "HEADWORKS_BROKER_URL": self.broker_url,
            "HEADWORKS_REDIS_URL": self.redis_url or self.broker_url,
            "HEADWORKS_DATA_DIR": str(self.data_dir),
            "HEADWORKS_API_KEY": self.api_key,
        }


def up(*, port: int, data: Path, samples: bool) -> int:
    """Headworks ran until it was asked to stop, and has stopped: 0. After a failure: 1."""
    for signum in STOP_SIGNALS:
        # SIGHUP is ignored under nohup, and stays so. SIGINT is ignored in a script's background,
        # but there it only comes when somebody means it.
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, _interrupt)
    code = 0
    with contextlib.ExitStack() as running:
        try:
            _run(running, port=port, data=data.resolve(), samples=samples)
        except KeyboardInterrupt:
            _say("stopping …")
        except FAILURES as error:
            _say(f"failed: {error}")
            code = 1
        finally:
            # Stopping takes seconds and must not be cut short by an impatient second Ctrl-C.
            for signum in STOP_SIGNALS:
                signal.signal(signum, signal.SIG_IGN)
    if code == 0:
        _say("stopped")
    return code


def _run(running: contextlib.ExitStack, *, port: int, data: Path, samples: bool) -> None:
    """Each step registers with `running` what undoes it; they are undone in reverse order."""
    began = time.monotonic()
    killed_before = _take_data_folder(running, data)
    _wait_for_port(port, STOP_SECONDS if killed_before else 0)
    services, instance = _start_services(running, port, data)
    env = _environment(instance, port)
    _migrate(env, data)
    fleet = _start_fleet(running, env, data)
    _wait_until_ready(instance, lambda: _check(fleet))
    _publish(running, instance)
    _say(f"ready after {time.monotonic() - began:.1f} s: {', '.join(fleet.names)}")
    if samples:
        _ingest_samples(instance, lambda: _check(fleet))
    _show_addresses(instance, env)
    _serve(fleet, services)


def _take_data_folder(running: contextlib.ExitStack, data: Path) -> bool:
    """This process has the folder. Whether the one before was killed, and may be ending still."""
    # As root the servers' user has to get through here to its own folder.
    lock = embedded.FolderLock(data)
    try:
        data.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise UpError(f"cannot use {data}: {error.strerror}. Choose another --data.") from error
    running.callback(lock.release)
    killed_before = _instance_file(data).exists()
    _instance_file(data).unlink(missing_ok=True)
    return killed_before


def _wait_for_port(port: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not machine.port_is_free(port, HOST):
        if time.monotonic() >= deadline:
            raise UpError(f"port {port} is taken: choose another one with --port.")
        time.sleep(POLL_SECONDS)


def _start_services(running: contextlib.ExitStack, port: int, data: Path) -> tuple[list[Service], Instance]:
    """What the environment does not name is started here."""
    services: list[Service] = []
    postgres, valkey = embedded.Postgres(data / "postgres"), embedded.Valkey(data / "valkey")
    instance = Instance(
        url=f"http://{HOST}:{port}",
        database_url=_foreign("HEADWORKS_DATABASE_URL", postgres),
        pipeline_database_url=_foreign("HEADWORKS_PIPELINE_DATABASE_URL", postgres),
        refdata_database_url=_foreign("HEADWORKS_REFDATA_DATABASE_URL", postgres),
        refdata_config=os.environ.get("HEADWORKS_REFDATA_CONFIG", ""),
        refdata_bind=f"{HOST}:{_refdata_port(port, data)}",
        broker_url=_foreign("HEADWORKS_BROKER_URL", valkey),
        redis_url=_foreign("HEADWORKS_REDIS_URL", valkey),
        data_dir=data,
        api_key=os.environ.get("HEADWORKS_API_KEY") or _local_key(data),
    )
    _check_secret(instance)
    if not instance.database_url:
        services.append(running.enter_context(postgres))
        instance = replace(
            instance,
            database_url=postgres.dsn,
            pipeline_database_url=instance.pipeline_database_url or postgres.dsn_of(PIPELINE_DATABASE),
            refdata_database_url=instance.refdata_database_url or postgres.dsn_of(REFDATA_DATABASE),
            refdata_config=instance.refdata_config or _own_refdata(data),
        )
    if not instance.redis_url and not instance.broker_url.startswith(REDIS_SCHEMES):
        services.append(running.enter_context(valkey))
        broker_url = instance.broker_url or valkey.url
        instance = replace(instance, broker_url=broker_url, redis_url=valkey.url)
    for service in services:
        _say(f"{service.title} listens on {HOST}:{service.port}")
    return services, instance


def _check_secret(instance: Instance) -> None:
    """The web would refuse to start, but only after everything else has."""
    own = [
        f"HEADWORKS_{name.upper()}_URL names a {name.replace('_', ' ')} of your own"
        for name in ("database", "pipeline_database", "refdata_database", "broker")
        if getattr(instance, f"{name}_url")
    ]
    exposure.check_secret(os.environ.get("HEADWORKS_SECRET", ""), reason=own[0] if own else None)
    exposure.check_own_key(instance.api_key)


def _foreign(variable: str, own: Service) -> str:
    """The address that the environment names, unless it is our own server's of an earlier start.

    A shell that has asked `headworks env` still knows that one.
    """
    url = os.environ.get(variable, "")
    return "" if own.is_named_by(url) else url


def _local_key(data: Path) -> str:
    """The key of this data folder, made at the first start."""
    path = data / "api-key"
    if not path.exists():
        machine.write_private(path, secrets.token_urlsafe(24) + "\n")
    return path.read_text(encoding="ascii").strip()


def _own_refdata(data: Path) -> str:
    """The configuration of the reference data in this data folder, made at the first start, to be changed."""
    path = data / "refdata.yaml"
    if not path.exists():
        shutil.copyfile(ROOT / "app" / "refdata" / "first.yaml", path)
    return str(path)


def _refdata_port(port: int, data: Path) -> int:
    """Where reads of reference data are answered: as at the last start, if that is free."""
    path = data / "refdata-port"
    last = machine.read_number(path) or (REFDATA_PORT if port == PORT else None)
    found = last if last is not None and machine.port_is_free(last, HOST) else machine.free_port()
    machine.write_private(path, f"{found}\n")
    return found


def _environment(instance: Instance, port: int) -> dict[str, str]:
    """What the processes of the fleet find in theirs."""
    usual = port == PORT and machine.port_is_free(FLOWER_PORT, HOST)
    return {
        **os.environ,
        **instance.settings(),
        "HEADWORKS_BIND": f"{HOST}:{port}",
        "HEADWORKS_FLOWER_ADDRESS": HOST,
        "HEADWORKS_FLOWER_PORT": str(FLOWER_PORT if usual else machine.free_port()),
        # Flower reads this one by itself; on its command line everybody could read the password.
        "FLOWER_BASIC_AUTH": f"headworks:{instance.api_key}",
        "PROMETHEUS_MULTIPROC_DIR": str(_fresh_metrics(instance.data_dir)),
        "REMAP_SIGTERM": "SIGQUIT",  # A stopped worker hands its work back, see celeryconfig.
        "PYTHONUNBUFFERED": "1",
    }


def _fresh_metrics(data: Path) -> Path:
    """A folder for the counters of every process: they begin anew with the instance."""
    folder = data / "metrics"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder


def _migrate(env: dict[str, str], data: Path) -> None:
    log = data / "logs" / "migrate.log"
    log.parent.mkdir(mode=0o700, exist_ok=True)
    log.unlink(missing_ok=True)
    with machine.open_log(log) as output:
        done = subprocess.run(
            [sys.executable, "-m", "app.cli", "migrate"],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise UpError(f"the migrations ended with {done.returncode}:\n{machine.tail(log)}")
    _say("database is up to date")


def _start_fleet(running: contextlib.ExitStack, env: dict[str, str], data: Path) -> Fleet:
    try:
        fleet = Fleet(ROOT / "Procfile", env=env, logs=data / "logs")
    except ValueError as error:
        raise UpError(str(error)) from error
    running.callback(fleet.stop)
    fleet.start()
    return fleet


def _check(fleet: Fleet) -> None:
    """Raises `UpError` when a process of the fleet has ended."""
    ended = fleet.first_ended()
    if ended is not None:
        name, how = ended
        log = fleet.log(name)
        raise UpError(f"{name} ended with {how}; the end of {log}:\n{machine.tail(log)}")


def _wait_until_ready(instance: Instance, check: Callable[[], None]) -> None:
    # Without the proxies of the environment: the address is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + READY_SECONDS
    said = "nothing"
    while time.monotonic() < deadline:
        check()
        try:
            with opener.open(f"{instance.url}/readyz", timeout=5):
                return
        except urllib.error.HTTPError as error:
            said = error.read(500).decode("utf-8", "replace")
        except OSError as error:
            said = str(error)
        time.sleep(POLL_SECONDS)
    raise UpError(f"{instance.url}/readyz was not ready after {READY_SECONDS:.0f} s, it said: {said}")


def _publish(running: contextlib.ExitStack, instance: Instance) -> None:
    """`headworks env` finds this instance for as long as it runs."""
    lines = [f"{key}={value}\n" for key, value in instance.settings().items()]
    machine.write_private(_instance_file(instance.data_dir), "".join(lines))
    running.callback(_instance_file(instance.data_dir).unlink, missing_ok=True)


def _instance_file(data: Path) -> Path:
    return data / "instance.env"


def _ingest_samples(instance: Instance, check: Callable[[], None]) -> None:
    client = Client(instance.url, instance.api_key)
    began = time.monotonic()
    uploads = sample_reports.ingest(client, check)
    _say(f"{len(uploads)} sample reports are in after {time.monotonic() - began:.1f} s")
    print(f"\n{sample_reports.uploads_table(uploads)}", end="\n\n")
    print(sample_reports.performance_table(client), end="\n\n", flush=True)


def _show_addresses(instance: Instance, env: dict[str, str]) -> None:
    flower = f"http://{HOST}:{env['HEADWORKS_FLOWER_PORT']}"
    _say(f"web     {instance.url}")
    _say(f"reads   http://{instance.refdata_bind}  (reference data)")
    _say(f"flower  {flower}  (user headworks, password: the API key)")
    _say(f"API key in {instance.data_dir / 'api-key'}, logs in {instance.data_dir / 'logs'}")
    _say("Ctrl-C stops everything")


def _serve(fleet: Fleet, services: list[Service]) -> None:
    """Until a signal comes: whatever ended is started again."""
    while True:
        for service in services:
            if service.pid is None:
                _say(f"{service.title} ended and is started again")
                service.stop()
                port = service.port
                service.start()
                if service.port != port:
                    raise UpError(f"{service.title} ended, and its port {port} is taken now.")
        fleet.tend(_say)
        time.sleep(POLL_SECONDS)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"headworks: {text}", file=sys.stderr, flush=True)
