"""Flower, which shows the fleet and can stop it: never without a password."""

from __future__ import annotations

import os
import sys

from workers.fleet import app


def main() -> None:
    """Flower serves until it is stopped; it does not start when nobody would be asked for a password."""
    if ":" not in os.environ.get("FLOWER_BASIC_AUTH", ""):
        sys.exit("FLOWER_BASIC_AUTH is not set: give Flower a user and a password, as user:password.")
    app.start(["flower", *sys.argv[1:]])


if __name__ == "__main__":
    main()
