"""The files of Swagger UI, as this site may show them: everything from here, and nothing inline."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from urllib.parse import unquote_to_bytes

SCRIPT, STYLE = "swagger-ui-bundle.js", "swagger-ui.css"

_IMAGE = re.compile(r"""url\((["']?)data:image/(svg\+xml|png|jpeg)((?:;[\w=-]+)*),(.*?)\1\)""", re.DOTALL)
"""An image that stands within a style sheet."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the viewer."""

    content_type: str
    content: bytes

    @property
    def digest(self) -> str:
        """Changes with the content."""
        return hashlib.sha256(self.content).hexdigest()[:12]


@cache
def files() -> dict[str, File]:
    """Every file by its name.

    The style sheet of Swagger UI carries its icons within it as `data:` addresses, which the site's
    policy forbids. They are made files of their own, so that the policy need not be loosened.
    """
    folder = resources.files("flask_swagger_ui") / "dist"
    style, images = without_inline_images((folder / STYLE).read_text(encoding="utf-8"))
    return {
        SCRIPT: File("text/javascript; charset=utf-8", (folder / SCRIPT).read_bytes()),
        STYLE: File("text/css; charset=utf-8", style.encode()),
        **images,
    }


def without_inline_images(style: str) -> tuple[str, dict[str, File]]:
    """The style sheet with addresses beside it in place of its images, and the images by name."""
    images: dict[str, File] = {}

    def move(found: re.Match[str]) -> str:
        _, kind, parameters, text = found.groups()
        # Within quotation marks a style sheet escapes them with a backslash.
        plain = text.replace('\\"', '"').replace("\\'", "'")
        content = base64.b64decode(plain) if ";base64" in parameters else unquote_to_bytes(plain)
        file = File(f"image/{kind}", content)
        name = f"{file.digest}.{kind.partition('+')[0]}"
        images[name] = file
        return f"url({name})"

    return _IMAGE.sub(move, style), images
