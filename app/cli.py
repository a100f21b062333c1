"""The command line: `headworks …`. Data goes to stdout, progress and errors to stderr."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.adapters.settings import Settings
from app.client import TERMINAL, Client, RequestRefused, Unreachable
from app.kernel import errors

# Whatever else a command needs is imported once it is called: a person waits at the terminal, and
# everything together takes a second.
if TYPE_CHECKING:
    from app.adapters import database

EXIT_CODES = {
    # how it ended                     code
    "done": 0,
    "failed": 1,  # the upload failed, or the command could not be carried out
    "usage": 2,
    "unreachable": 3,  # no instance answers
    "refused": 4,  # the instance refuses the request
    "partial": 5,  # the upload is partial: some rows failed promotion
}
OF_STATUS = {"completed": "done", "partial": "partial", "failed": "failed"}

POLL_SECONDS = 0.3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = command_line(words[0] if words else "").parse_args(words)
    from app.adapters import logs  # no earlier: `--help` has ended by now

    logs.configure("cli", level="WARNING")  # what a command has to say, it says itself
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        code = run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # as under `head`: whoever reads has had enough
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # for what the interpreter flushes at its end
        return 128 + signal.SIGPIPE
    except Unreachable as error:
        return _end("unreachable", error)
    except RequestRefused as error:
        return _end("refused", error)
    except (errors.HeadworksError, OSError) as error:
        return _end("failed", error)
    except KeyboardInterrupt:
        return 130


def _end(how: str, error: Exception) -> int:
    print(error, file=sys.stderr)
    return EXIT_CODES[how]


def command_line(called: str | None = None) -> argparse.ArgumentParser:
    """Everything that can be typed after `headworks`, each command with what runs it as `run`.

    `called`: the first word, if one is known; then the parts of other names have no arguments, and are
    not imported.
    """
    parser = argparse.ArgumentParser(prog="headworks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start a whole instance and keep it running")
    up.add_argument("--port", type=int, default=8000, help="of the web, on 127.0.0.1")
    up.add_argument("--data", type=Path, default=Path("var"), help="folder where everything is kept")
    up.add_argument("--no-samples", dest="samples", action="store_false", help="hand in no sample reports")
    up.set_defaults(run=_up)

    migrate = commands.add_parser("migrate", help="bring the database to this release's schema")
    migrate.set_defaults(run=_migrate)

    env = commands.add_parser("env", help="print the settings of the running instance")
    env.add_argument("--data", type=Path, default=Path("var"), help="folder of the local instance")
    env.add_argument("--export", action="store_true", help='as a shell takes them: eval "$(… --export)"')
    env.set_defaults(run=_env)

    upload = commands.add_parser("upload", help="hand in a report and watch it to its end")
    upload.add_argument("file", type=Path, help="the report, as the platform exports it")
    upload.add_argument("--workspace", required=True, metavar="UUID", help="whose it is")
    upload.add_argument(
        "--platform", required=True, choices=("meta", "google", "tiktok"), help="whose report it is"
    )
    upload.add_argument("--client", metavar="UUID", help="of which client of the workspace")
    upload.add_argument("--currency", metavar="CODE", help="of a file that does not say it: USD")
    upload.add_argument("--date-order", choices=("dmy", "mdy"), help="of dates such as 03/04/2025")
    upload.add_argument("--decimal-mark", choices=(".", ","), help="of numbers such as 1.234")
    upload.add_argument("--force-partial", action="store_true", help="take the valid rows, however few")
    upload.add_argument("--no-wait", dest="wait", action="store_false", help="print the id and end at once")
    upload.set_defaults(run=_upload)

    uploads = commands.add_parser("uploads", help="look at uploads")
    of_uploads = uploads.add_subparsers(required=True, metavar="COMMAND")
    listed = of_uploads.add_parser("list", help="newest first")
    listed.add_argument("--workspace", required=True, metavar="UUID", help="whose uploads")
    listed.add_argument("--status", help="only those in this state")
    listed.add_argument("--platform", help="only those of this platform")
    listed.set_defaults(run=_list)
    show = of_uploads.add_parser("show", help="everything about one upload, as JSON")
    show.add_argument("upload_id", help="as `upload` and `uploads list` print it")
    show.set_defaults(run=_show)
    bad = of_uploads.add_parser("errors", help="the rejected rows as CSV, ready to be mended")
    bad.add_argument("upload_id", help="as `upload` and `uploads list` print it")
    bad.set_defaults(run=_errors)

    watch = of_uploads.add_parser("watch", help="follow one upload to its end")
    watch.add_argument("upload_id", help="as `upload` and `uploads list` print it")
    watch.set_defaults(run=_follow)

    of_parts: list[argparse.ArgumentParser] = []
    for name, (about, add_arguments) in PARTS.items():
        part = commands.add_parser(name, help=about)
        if called in (None, name):
            of_parts += add_arguments(part)

    for command in (upload, listed, show, bad, watch, *of_parts):
        command.add_argument("--data", type=Path, default=Path("var"), help="folder of the local instance")
    return parser


# -- the parts: each adds its commands, and returns those that need to find an instance


def _keys(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    from app import cli_keys

    return cli_keys.add_commands(parser, _database)


def _doctor(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    from app import cli_operations

    return cli_operations.add_doctor(parser, _settings)


def _cleanup(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    from app import cli_operations

    return cli_operations.add_cleanup(parser, _settings)


def _requeue(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    from app import cli_operations

    return cli_operations.add_requeue(parser, _client)


def _webhooks(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    from app import cli_operations

    return cli_operations.add_webhooks(parser, _client)


def _supplier(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    from app import cli_suppliers

    return cli_suppliers.add_commands(parser, _settings)


def _catalog(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    from app import cli_catalog

    return cli_catalog.add_commands(parser, _settings)


def _pipeline(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    from app import cli_pipeline

    return cli_pipeline.add_commands(parser)


def _refdata(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    from app import cli_refdata

    return cli_refdata.add_commands(parser, _settings)


PARTS = {
    # command    what it is for, and what adds its arguments
    "keys": ("who may use the instance", _keys),
    "doctor": ("look at every part of the instance and say what to do", _doctor),
    "cleanup": ("staging that has expired", _cleanup),
    "requeue": ("try failed or partial uploads again", _requeue),
    "webhooks": ("what subscribers are told", _webhooks),
    "supplier": ("suppliers' full price lists", _supplier),
    "catalog": ("a marketplace's catalog", _catalog),
    "pipeline": ("the status of a sharded pipeline", _pipeline),
    "refdata": ("reference data: dictionaries and their changes", _refdata),
}


# -- commands of no part


def _up(options: argparse.Namespace) -> int:
    from app import up  # starts servers: only this command needs it

    return up.up(port=options.port, data=options.data, samples=options.samples)


def _migrate(_options: argparse.Namespace) -> int:
    from app.adapters import migrations

    revision = migrations.migrate(Settings.from_env().database_url)
    print(f"The database is at revision {revision}.", file=sys.stderr)
    return EXIT_CODES["done"]


def _env(options: argparse.Namespace) -> int:
    found = _instance_file(options.data)
    if options.export:  # a folder may have a blank in its name
        pairs = (line.split("=", 1) for line in found.splitlines() if "=" in line)
        found = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in pairs)
    print(found, end="")
    return EXIT_CODES["done"]


def _instance_file(data: Path) -> str:
    path = data / "instance.env"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Unreachable(
            f"No instance runs in {data}: start one with ./scripts/up, or give --data."
        ) from None


# -- uploads


def _upload(options: argparse.Namespace) -> int:
    api = _client(options)
    fields = {
        "workspace_id": options.workspace,
        "platform": options.platform,
        "source": "manual",
        "client_id": options.client,
        "currency": options.currency,
        "date_order": options.date_order,
        "decimal_mark": options.decimal_mark,
        "force_partial": "true" if options.force_partial else None,
    }
    upload_id = api.upload(options.file, fields)["upload_id"]
    print(f"upload {upload_id} is taken in", file=sys.stderr)
    if not options.wait:
        print(upload_id)
        return EXIT_CODES["done"]
    return _report(_watch(api, upload_id))


def _follow(options: argparse.Namespace) -> int:
    return _report(_watch(_client(options), options.upload_id))


def _report(upload: dict[str, Any]) -> int:
    """What the upload came to, on stdout; returns the exit code for its state."""
    print(json.dumps(_brief(upload), indent=1, ensure_ascii=False))
    if upload["status"] != "completed":
        print(upload["error_text"], file=sys.stderr)
    return EXIT_CODES[OF_STATUS[upload["status"]]]


def _watch(api: Client, upload_id: str) -> dict[str, Any]:
    shown = None
    while True:
        upload: dict[str, Any] = api.get(f"/v1/uploads/{upload_id}")
        line = f"{upload['status']}: {upload['staged_rows']} rows staged, {upload['promoted_rows']} promoted"
        if line != shown:
            print(line, file=sys.stderr)
            shown = line
        if upload["status"] in TERMINAL:
            return upload
        time.sleep(POLL_SECONDS)


def _brief(upload: dict[str, Any]) -> dict[str, Any]:
    kept = (
        "upload_id", "status", "error_code", "rows", "promoted_rows", "failed_rows", "reject_codes",
        "first_reject", "upserted", "affected_dates", "duplicate_of",
    )  # fmt: skip
    return {name: upload[name] for name in kept}


def _list(options: argparse.Namespace) -> int:
    api = _client(options)
    wanted = {
        "workspace_id": options.workspace,
        "status": options.status,
        "platform": options.platform,
    }
    query = {name: value for name, value in wanted.items() if value}
    while True:
        page = api.get(f"/v1/uploads?{urllib.parse.urlencode(query)}")
        for upload in page["uploads"]:
            print(
                upload["upload_id"], upload["created_at"], upload["platform"], upload["status"],
                upload["promoted_rows"], upload["filename"] or "-", sep="\t",
            )  # fmt: skip
        if not page["cursor"]:
            return EXIT_CODES["done"]
        query["cursor"] = page["cursor"]


def _show(options: argparse.Namespace) -> int:
    upload = _client(options).get(f"/v1/uploads/{options.upload_id}")
    print(json.dumps(upload, indent=1, ensure_ascii=False))
    return EXIT_CODES["done"]


def _errors(options: argparse.Namespace) -> int:
    sys.stdout.write(_client(options).text(f"/v1/uploads/{options.upload_id}/errors.csv"))
    return EXIT_CODES["done"]


def _client(options: argparse.Namespace) -> Client:
    """A client of the instance that the environment, or the local data folder, names."""
    found = _settings_with("HEADWORKS_URL", options.data)
    return Client(found["HEADWORKS_URL"], found.get("HEADWORKS_API_KEY", ""))


def _database(options: argparse.Namespace) -> database.Database:
    """The database of that instance, which has this release's schema."""
    from app.adapters import database, migrations

    url = _settings_with("HEADWORKS_DATABASE_URL", options.data)["HEADWORKS_DATABASE_URL"]
    migrations.check(url)
    return database.Database(url, name="headworks cli")


def _settings(options: argparse.Namespace) -> Settings:
    """All settings of that instance; a configuration that names a variable finds it, too."""
    os.environ.update(_settings_with("HEADWORKS_DATABASE_URL", options.data))
    return Settings.from_env()


def _settings_with(variable: str, data: Path) -> dict[str, str]:
    """The environment; and the settings of the local instance, unless it has this variable."""
    found = dict(os.environ)
    if not found.get(variable):
        lines = _instance_file(data).splitlines()
        found |= dict(line.split("=", 1) for line in lines if "=" in line)
    return found


if __name__ == "__main__":
    sys.exit(main())
