"""`recordings.zip` is built from a folder of recordings, to the same bytes each time.

`python -m app.catalog.replay.packing FOLDER ARCHIVE`, where FOLDER has a `MANIFEST.json` that names every
file with its SHA-256. Needed only when there are new recordings.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NOTICE = "NOTICE"
MANIFEST = "manifest.json"
KEPT = (
    *("path", "entity", "status", "uri", "date"),
    *("source", "licence", "real", "format_version", "sha256"),
)


def pack(folder: Path) -> bytes:
    """An archive of all files that the folder's manifest names, with the manifest and the notices.

    Raises ValueError when a file is not the one that the manifest means.
    """
    entries = json.loads((folder / "MANIFEST.json").read_text(encoding="utf-8"))
    kept = sorted((_kept(entry) for entry in entries), key=lambda entry: str(entry["path"]))
    notice = Path(__file__).with_name(NOTICE).read_bytes()
    manifest = json.dumps(kept, ensure_ascii=False, indent=1).encode()
    bodies = [(str(entry["path"]), _body(folder, entry)) for entry in kept]
    return archive([(NOTICE, notice), (MANIFEST, manifest), *bodies])


def archive(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A deflated archive in which nothing depends on when or where it was made."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, content in members:
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))  # the first that a zip can tell
            info.create_system = 3  # Unix, wherever it is built
            info.external_attr = 0o644 << 16
            file.writestr(info, content, zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def _kept(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {key: entry.get(key) for key in KEPT}
    # An address that nobody can open says nothing.
    if not str(kept["source"]).startswith("https://"):
        kept["source"] = "public reports"
    return kept


def _body(folder: Path, entry: dict[str, Any]) -> bytes:
    body = (folder / str(entry["path"])).read_bytes()
    if hashlib.sha256(body).hexdigest() != entry["sha256"]:
        raise ValueError(f"{entry['path']} is not the file that the manifest means")
    return body


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(pack(Path(sys.argv[1])))
