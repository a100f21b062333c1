"""docs/reference/commands.md: every command and option, from the command line's own parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from app import cli
from reference.page import code, fence, page, table

ABOUT = """
`headworks COMMAND --help` says the same. Data goes to stdout, progress and errors to stderr. A command
finds its
instance by the environment (`HEADWORKS_URL`, `HEADWORKS_DATABASE_URL`), or by the folder `--data` of one
that runs there.
"""
WAYS = {
    "done": "done",
    "failed": "the upload failed, a check found something wrong, or the command could not be carried out",
    "usage": "the command line is not understood",
    "unreachable": "no instance answers",
    "refused": "the instance refuses the request",
    "partial": "the upload is partial: some rows failed promotion",
}
OTHERS = {3: "of `catalog run`, `net` and `reapply`: nothing to do", 130: "stopped by Ctrl-C"}


def commands() -> str:
    """The page."""
    codes = [*((cli.EXIT_CODES[way], meaning) for way, meaning in WAYS.items()), *OTHERS.items()]
    parts = [ABOUT, "## Exit codes", table(("code", "meaning"), sorted(codes))]
    for path, told, parser in walk(cli.command_line()):
        parts += [f"## {path}", f"{told[:1].upper()}{told[1:]}.", fence("text", _usage(parser))]
        if rows := list(_arguments(parser)):
            parts.append(table(("argument", "meaning", "default"), rows))
    return page("Commands", *parts)


def walk(
    parser: argparse.ArgumentParser, told: str = ""
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Every command that does something: how it is called, what it does, and its parser."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser.prog, told, parser
    for action in below:
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, child in action.choices.items():
            yield from walk(child, helps.get(name, ""))


def _usage(parser: argparse.ArgumentParser) -> str:
    # One line, however wide the terminal is.
    return " ".join(parser.format_usage().removeprefix("usage: ").split())


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        names = ", ".join(code(name) for name in action.option_strings) or code(action.metavar or action.dest)
        told = [action.help or ""]
        if action.choices and action.metavar is None:
            told.append(f"one of {', '.join(code(choice) for choice in action.choices)}")
        if action.required and action.option_strings:
            told.append("required")
        yield names, "; ".join(filter(None, told)), _default(action)


def _default(action: argparse.Action) -> str:
    if action.default in (None, "", []) or isinstance(action.default, bool):
        return ""
    return code(action.default)
