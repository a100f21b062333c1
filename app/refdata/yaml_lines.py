"""YAML, and in which line each of its values stands: what a refusal of a configuration names."""

from __future__ import annotations

from typing import Any

import yaml

from app.kernel import errors


class BadConfig(errors.Fatal):
    """The configuration of the reference data cannot be used."""

    code = "invalid_configuration"


Path = tuple[str | int, ...]
Lines = dict[Path, yaml.Node]


def read(text: str) -> tuple[Any, Lines]:
    """What the YAML says, and the node of every value. BadConfig for a key that stands there twice."""
    lines: Lines = {}
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1
                raise BadConfig(f"Line {line}: the configuration has an alias (*name). Write the value out.")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            _note(root, (), lines)
        return yaml.safe_load(text), lines
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        raise BadConfig(f"Line {where.line + 1 if where else 1}: it is no YAML.") from None


def _note(node: yaml.Node, path: Path, lines: Lines) -> None:
    lines[path] = node
    if isinstance(node, yaml.SequenceNode):
        for index, one in enumerate(node.value):
            _note(one, (*path, index), lines)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = str(key.value)
            if (*path, name) in lines:
                raise BadConfig(f"Line {key.start_mark.line + 1}: {name} stands there twice.")
            _note(value, (*path, name), lines)


def line_of(lines: Lines, path: Path) -> int:
    """The line of the value, or of the nearest one around it that there is."""
    while path and path not in lines:
        path = path[:-1]
    return int(lines[path].start_mark.line) + 1 if path in lines else 1


def lines_before(lines: Lines, path: Path) -> int:
    """The text of a block begins in the line behind its sign."""
    return 1 if getattr(lines.get(path), "style", None) in ("|", ">") else 0


def dotted(path: Path) -> str:
    """The path of a value as a person reads it."""
    return ".".join(map(str, path)) or "the whole"
