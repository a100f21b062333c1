"""A whole Headworks on one machine that has neither a database nor a broker.

`Postgres` and `Valkey` come from wheels, each in one folder of its own; `Fleet` runs the Procfile.
They listen on 127.0.0.1 alone, ask for a password, and end when the process that started them ends.
"""

from app.adapters.embedded.machine import FolderInUse, FolderLock, free_port
from app.adapters.embedded.postgres import Postgres
from app.adapters.embedded.procfile import Fleet
from app.adapters.embedded.server import EmbeddedError
from app.adapters.embedded.valkey import Valkey

__all__ = [
    "EmbeddedError",
    "Fleet",
    "FolderInUse",
    "FolderLock",
    "Postgres",
    "Valkey",
    "free_port",
]
