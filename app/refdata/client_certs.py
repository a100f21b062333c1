"""Whom a proxy saw at the other end of mutual TLS: the header X-Forwarded-Client-Cert of Envoy and Istio.

    value   = element *( "," element )      one a proxy, the nearest to us last
    element = pair *( ";" pair )
    pair    = key "=" ( bare / quoted )     keys in either case, some several times
    bare    = characters but , ; and "      Envoy leaves `=` in them, as in a URI with a query
    quoted  = DQUOTE *( character / "\\" character ) DQUOTE

The whole header is read from its beginning, and nothing of it counts when any part breaks the
grammar: the first elements are the client's own words, and a quote left open there would otherwise
swallow what our proxy has written behind it.
"""

from __future__ import annotations

import re

MOST_CHARACTERS = 32 * 1024
"""Four certificates as text, which is what Chain may hold; Envoy takes 60 KiB of headers in all."""

_PAIR = re.compile(r'[ \t]*([A-Za-z][A-Za-z0-9_-]*)=(?:"((?:[^"\\]|\\.)*)"|([^",;]*))[ \t]*', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\])')

Element = tuple[tuple[str, str], ...]
"""What one proxy wrote: (key in lower case, value), in its order."""


class Malformed(ValueError):
    """The header is not of the grammar."""


def elements(value: str) -> tuple[Element, ...]:
    """What each proxy wrote, the nearest last; Malformed when any part of the header is."""
    if len(value) > MOST_CHARACTERS:
        raise Malformed
    found: list[Element] = []
    pairs: list[tuple[str, str]] = []
    at = 0
    while True:
        pair = _PAIR.match(value, at)
        if pair is None:
            raise Malformed
        key, quoted, bare = pair.groups()
        pairs.append((key.lower(), bare.rstrip(" \t") if quoted is None else _ESCAPED.sub(r"\1", quoted)))
        at = pair.end() + 1
        if pair.end() == len(value):
            return (*found, tuple(pairs))
        if value[pair.end()] == ",":
            found.append(tuple(pairs))
            pairs = []
        elif value[pair.end()] != ";":
            raise Malformed


def all_of(element: Element, key: str) -> tuple[str, ...]:
    """Every value of a key, such as `uri`, that the proxy wrote."""
    return tuple(value for name, value in element if name == key)
