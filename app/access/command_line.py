"""Who is at the command line: it asks no key, and whatever it changes says so."""

from __future__ import annotations

import getpass


def who() -> str:
    """The name under which a change by the command line is kept."""
    try:
        return f"command line, {getpass.getuser()}"
    except (KeyError, OSError):  # a container's user may have no name
        return "command line"
