"""`python -m app.catalog.replay [--port N]`: the recorded API, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys

from app.catalog.replay import demo


def main() -> None:
    """The API was served until it was stopped."""
    parser = argparse.ArgumentParser(prog="python -m app.catalog.replay", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (default: any that is free)")
    parser.add_argument(
        "--items", type=int, default=0, help="so many invented items beside the recorded ones"
    )
    options = parser.parse_args()
    try:
        demo.serve(options.port, items=options.items)
    except (OSError, OverflowError) as error:
        sys.exit(f"The port cannot be used ({error}). Name another one, or none for any that is free.")


if __name__ == "__main__":
    main()
