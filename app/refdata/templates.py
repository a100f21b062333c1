"""SQL from a configuration: its `:name` parameters become bound ones, whatever stands in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.kernel import errors

PARAMETERS = {
    # name             as the statement sees it
    "tenantId":        "%(tenantId)s",
    "dictCode":        "%(dictCode)s",
    "key":             "%(key)s",
    "payload":         "(%(payload)s::jsonb)",
    "eventId":         "(%(eventId)s::uuid)",
    "occurredAt":      "(%(occurredAt)s::timestamptz)",
    "eventEpoch":      "(%(eventEpoch)s::bigint)",  # occurredAt in milliseconds since 1970
    "eventVersion":    "(%(eventVersion)s::bigint)",  # the version that the dictionary has with this command
    "sourceRevision":  "(%(sourceRevision)s::bigint)",
    "snapshotId":      "(%(snapshotId)s::uuid)",
    "chunkIndex":      "(%(chunkIndex)s::integer)",
    "snapshotJson":    "(%(snapshotJson)s::jsonb)",  # [{"key": …, "payload": …}, …]
}  # fmt: skip
"""What a template may name. Texts have no type of their own: they take that of the column they meet."""

LOAD = frozenset(("tenantId", "dictCode"))
EVENT = LOAD | {"eventId", "occurredAt", "eventEpoch", "eventVersion", "sourceRevision"}
ITEM = EVENT | {"key", "payload"}
SNAPSHOT = EVENT | {"snapshotId", "snapshotJson"}
CHUNK = SNAPSHOT | {"chunkIndex"}

_TOKEN = re.compile(
    r"""
    (?P<skipped>
        --[^\n]*                                       # a comment
      | /\*.*?(?:\*/|\Z)                                # a comment
      | [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)                 # a text with escapes
      | '(?:[^']|'')*(?:'|\Z)                           # a text
      | "(?:[^"]|"")*(?:"|\Z)                           # a name
      | \$(?P<tag>[A-Za-z_]\w*|)\$.*?(?:\$(?P=tag)\$|\Z)  # a text in dollars
      | ::                                              # a cast
      | :=
    )
  | :(?P<parameter>[A-Za-z_]\w*)
  | (?P<end>;)
  | (?P<word>[A-Za-z_][\w$]*)
    """,
    re.VERBOSE | re.DOTALL,
)
_READS = frozenset(("select", "with", "values", "table"))
_WRITES = frozenset((
    "insert", "update", "delete", "merge", "truncate", "drop", "alter", "create", "grant", "revoke", "copy",
    "call", "do", "into", "lock", "vacuum",
))  # fmt: skip


class TemplateRefused(errors.Refused):
    """SQL of a configuration that cannot be used; `line` is the line within it, from 1."""

    code = "invalid_configuration"

    def __init__(self, sentence: str, line: int = 1) -> None:
        super().__init__(sentence)
        self.line = line


@dataclass(frozen=True, slots=True)
class Template:
    """One statement, ready to be executed with the parameters that it names."""

    sql: str
    names: frozenset[str]


def compile_template(text: str, allowed: frozenset[str], *, reads: bool = False) -> Template:
    """The statement with its parameters bound; `reads`: it may only read.

    TemplateRefused for a parameter that there is not here, for a second statement, and for SQL that writes
    where it should read. That is a help for whoever configures: what holds is that such a statement runs
    in a transaction that may only read.
    """
    parts: list[str] = []
    names: set[str] = set()
    words: list[str] = []
    at = ended = 0
    for token in _TOKEN.finditer(text):
        parts.append(_literal(text[at : token.start()]))
        at = token.end()
        line = text.count("\n", 0, token.start()) + 1
        name, word = token["parameter"], token["word"]
        if ended and not _is_comment(token[0]):
            raise TemplateRefused("It has more than one statement.", line)
        if name is not None:
            if name not in allowed:
                known = ", ".join(f":{one}" for one in PARAMETERS if one in allowed)
                raise TemplateRefused(f":{name} is no parameter here; there are {known}.", line)
            names.add(name)
            parts.append(PARAMETERS[name])
            continue
        if word is not None:
            words.append(word.lower())
            if reads and (words[0] not in _READS or words[-1] in _WRITES):
                raise TemplateRefused(f"It has to be a SELECT that only reads, and has {word.upper()}.", line)
        ended += token["end"] is not None
        parts.append("" if token["end"] else _literal(token[0]))
    parts.append(_literal(text[at:]))
    if not words:
        raise TemplateRefused("It is empty.")
    return Template("".join(parts).strip(), frozenset(names))


def _is_comment(token: str) -> bool:
    return token.startswith(("--", "/*"))


def _literal(text: str) -> str:
    return text.replace("%", "%%")
