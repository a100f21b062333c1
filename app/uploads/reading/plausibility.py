"""How much a text looks like writing, and how much like bytes read in the wrong encoding."""

from __future__ import annotations

import re

_ACCENTED = "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
_CYRILLIC = "\u0400-\u052f"
_EASTERN = "\u2e80-\uff60\uffe0-\uffff"
_LETTER = f"A-Za-z{_ACCENTED}{_CYRILLIC}"

# What hardly any language writes, and legacy encodings make of each other's letters.
_ODD = tuple(
    re.compile(pattern)
    for pattern in (
        "[\u0080-\u009f\ue000-\uf8ff]",  # control characters and private ones
        "[\uff61-\uff9f]",  # half-width katakana: nearly any byte is one in cp932
        f"[{_CYRILLIC}](?=[A-Za-z{_ACCENTED}{_EASTERN}])|[A-Za-z{_ACCENTED}{_EASTERN}](?=[{_CYRILLIC}])",
        f"[{_ACCENTED}](?=[{_EASTERN}])|[{_EASTERN}](?=[{_ACCENTED}])",
        "[\u4e00-\u9fff](?=[\uac00-\ud7a3])|[\uac00-\ud7a3](?=[\u4e00-\u9fff])",  # Chinese in Korean
        f"[A-Za-z](?=[{_EASTERN}][A-Za-z])",  # one sign of the East within a word
        f"[{_ACCENTED}](?=[{_ACCENTED}]{{2}})",  # three accents in a row
        "[à-öø-ÿ](?=[À-ÖØ-Þ])|[а-яё](?=[А-ЯЁ])",  # a capital within a word
        f"[{_LETTER}](?=[¡-¿×÷€‰†‡™])|[¢-¾×÷†‡](?=[{_LETTER}])",  # a sign grown into a word
    )
)


def oddities(text: str) -> int:
    """How often the text has what hardly any language writes: of two readings, fewer is right."""
    return 0 if text.isascii() else sum(len(pattern.findall(text)) for pattern in _ODD)
