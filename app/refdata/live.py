"""The configuration of a running process: read anew when its file changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.adapters import logs
from app.refdata.config import Config, parse
from app.refdata.yaml_lines import BadConfig

log = logs.get(__name__)

LOOK_SECONDS = 1.0


class Live:
    """The configuration of a running process: a changed file is taken, a bad one is not."""

    def __init__(self, path: Path, *, monotonic: Callable[[], float]) -> None:
        """The configuration at this path. BadConfig when it cannot be used to begin with."""
        self._path = path
        self._monotonic = monotonic
        self._looked = monotonic()
        self._seen = self._stamp()
        self.current = _read(path)
        self.refused: str | None = None
        """What is wrong with the file that is there now; None: it is the one in use."""

    def look(self) -> bool:
        """Whether another configuration is in use than before; looked for once a second at most."""
        if self._monotonic() < self._looked + LOOK_SECONDS:
            return False
        self._looked = self._monotonic()
        stamp = self._stamp()
        return stamp != self._seen and self.reload(stamp)

    def reload(self, stamp: Any = None) -> bool:
        """The file is read now; whether it is in use. A bad one is logged, and the one before stays."""
        self._seen = stamp or self._stamp()
        try:
            found = _read(self._path)
        except BadConfig as error:
            self.refused = error.sentence
            log.error("refdata_config_refused", reason=error.sentence)
            return False
        self.refused = None
        changed = found.refdata != self.current.refdata
        self.current = found
        log.info("refdata_config_taken", dictionaries=len(found.dictionaries), changed=changed)
        return True

    def _stamp(self) -> Any:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> Config:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfig(f"The configuration {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadConfig(f"The configuration {path} is not in UTF-8.") from None
