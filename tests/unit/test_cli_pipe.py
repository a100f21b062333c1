"""A command whose reader has had enough ends without a word, as under `head`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests import patience

PROGRAM = """
import argparse, sys
from app import cli

def say(options):
    for number in range(int(sys.argv[1])):
        print("a line", number)
    return 0

cli.command_line = lambda *_: argparse.ArgumentParser()
argparse.ArgumentParser.parse_args = lambda self, given: argparse.Namespace(run=say)
sys.exit(cli.main([]))
"""


@pytest.mark.parametrize("lines", [1, 200_000])  # written at the end, or on the way
def test_nobody_reads_on(lines: int) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as nowhere:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(lines)],
            stdout=nowhere, stderr=subprocess.PIPE, text=True, timeout=60 * patience.PATIENCE, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
