"""A file that a process touches in each round of its work: by its age others see whether it goes on."""

from __future__ import annotations

from pathlib import Path

from app.adapters import logs

log = logs.get(__name__)


class Heart:
    """What a process without an address shows to its supervisor."""

    def __init__(self, path: str) -> None:
        """No path: nobody wants to know."""
        self._path = Path(path) if path else None
        self._is_well = True

    def beat(self) -> None:
        """The file is as old as this call. Where it cannot be written the log says so, once; work goes on."""
        if self._path is None:
            return
        try:
            self._path.touch()
            self._is_well = True
        except OSError as error:
            if self._is_well:
                log.warning("alive_file_not_written", reason=error.strerror)
            self._is_well = False
