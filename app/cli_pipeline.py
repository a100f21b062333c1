"""`headworks pipeline …`: the status of the pipeline's tasks, served alone."""

from __future__ import annotations

import argparse
import os
import sys


def add_commands(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser knows these commands; none of them needs to find an instance."""
    of_pipeline = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = of_pipeline.add_parser("serve", help="serve the pipeline's API alone, from its own database")
    serve.add_argument("--bind", default="127.0.0.1:8001", help="host:port (default: 127.0.0.1:8001)")
    serve.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    serve.add_argument("--threads", type=int, default=16, help="threads of each (default: 16)")
    serve.set_defaults(run=_serve)
    return []


def _serve(options: argparse.Namespace) -> int:
    argv = [
        sys.executable, "-m", "gunicorn", "--bind", options.bind, "--worker-class", "gthread",
        "--workers", str(options.workers), "--threads", str(options.threads), "--graceful-timeout", "5",
        "--no-control-socket", "app.pipeline.serve:create_app()",
    ]  # fmt: skip
    os.execve(sys.executable, argv, {**os.environ, "HEADWORKS_BIND": options.bind})
