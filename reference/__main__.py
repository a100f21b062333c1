"""Every page of the reference is written as the code is now: `python -m reference`."""

from __future__ import annotations

from pathlib import Path

from reference import codes, commands, events, machines, routes, settings

PAGES = {
    "settings.md": settings.settings,
    "commands.md": commands.commands,
    "http.md": routes.http,
    "events.md": events.told,
    "states.md": machines.states,
    "codes.md": codes.codes,
}
FOLDER = Path(__file__).parent.parent / "docs" / "reference"


def main() -> None:
    """The files of docs/reference are as the code says."""
    for name, made in PAGES.items():
        (FOLDER / name).write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
