"""When two names are the same name: of headers, sheets, words."""

from __future__ import annotations

import unicodedata


def squeezed(text: str) -> str:
    """The text in NFC, trimmed, with single blanks for any white space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def folded(text: str) -> str:
    """The form in which names are compared: NFKC, case folded, single blanks for any white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
