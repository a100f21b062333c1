"""What the document promises of a value, asked of a validator that knows nothing of the product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import referencing
from referencing.jsonschema import DRAFT202012

from app.openapi import document

DOCUMENT = document.whole(*document.INSTANCE, *document.PIPELINE, *document.REFDATA)
"""That of an instance that serves everything: all but the words of a server of the pipeline alone."""

_REGISTRY = referencing.Registry().with_resource(
    "urn:headworks", referencing.Resource(contents=DOCUMENT, specification=DRAFT202012)
)


def wrongs(schema: dict[str, Any], value: Any) -> list[str]:
    """How the value breaks the schema of the document."""
    validator = jsonschema.Draft202012Validator(
        _absolute(schema), registry=_REGISTRY, format_checker=jsonschema.FormatChecker()
    )
    return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(value)]


def _absolute(value: Any) -> Any:
    """The same schema with references that lead into the document from anywhere."""
    if isinstance(value, dict):
        return {
            name: f"urn:headworks{inner}" if name == "$ref" else _absolute(inner)
            for name, inner in value.items()
        }
    return [_absolute(inner) for inner in value] if isinstance(value, list) else value


def follow(value: dict[str, Any]) -> dict[str, Any]:
    """What a reference leads to; whatever is none is itself."""
    while "$ref" in value:
        found: Any = DOCUMENT
        for name in value["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        value = found
    return value


METHODS = ("get", "put", "post", "delete", "patch")


def operations(document: dict[str, Any] = DOCUMENT) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Path, method and description of every operation, by its id."""
    return {
        operation["operationId"]: (path, method.upper(), operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    }


def is_read(path: str) -> bool:
    """Whether it is answered by the processes that read reference data, and by no application."""
    return "servers" in DOCUMENT["paths"].get(path, {})


def examples(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Schema and value of every example of a content, a parameter or a header."""
    if "example" in content:
        yield content["schema"], content["example"]
    for example in content.get("examples", {}).values():
        yield content["schema"], example["value"]
