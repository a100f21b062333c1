"""`python -m app.probe TARGET`: whether a process works, asked by whoever runs its container.

TARGET is an address that answers 200, or the file of HEADWORKS_ALIVE_FILE. It is asked every few seconds, so
nothing is imported here that takes time.
"""

from __future__ import annotations

import http.client
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from app.kernel.clock import SystemClock

ANSWER_SECONDS = 4.0
LONGEST_SILENCE_SECONDS = 90.0
"""A round takes a second or two, and as long as a statement may (60 s) where a database does not answer."""


def main(argv: Sequence[str]) -> int:
    """0: it works; 1: it does not, and stderr says how that was seen; 2: no target was given."""
    if len(argv) != 1:
        print("Name one target: an http:// address, or the file that a process touches.", file=sys.stderr)
        return 2
    wrong = _asked(argv[0]) if argv[0].startswith("http://") else _looked_at(Path(argv[0]))
    if wrong:
        print(wrong, file=sys.stderr)
    return int(bool(wrong))


def _asked(url: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", parts.path or "/")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"{url}: {type(error).__name__}"
    finally:
        connection.close()
    return "" if status == 200 else f"{url} answers {status}"


def _looked_at(path: Path) -> str:
    try:
        touched = path.stat().st_mtime
    except OSError as error:
        return f"{path}: {error.strerror}"
    seconds = SystemClock().now().timestamp() - touched
    return f"{path} was touched {seconds:.0f} s ago" if seconds > LONGEST_SILENCE_SECONDS else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
