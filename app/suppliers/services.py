"""What the suppliers' runs work with: their tree, their states, their locks, and time."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from app.adapters import database
from app.adapters.settings import Settings, SettingsError
from app.kernel.clock import Clock, SystemClock
from app.suppliers.config import DEFAULT_STABILITY_SECONDS
from app.suppliers.layout import Layout
from app.suppliers.locks import FileLocks, LeaseLocks, Locks
from app.suppliers.reading.limits import Limits
from app.suppliers.states import PosixStates, States


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a run of a supplier touches."""

    layout: Layout
    states: States
    locks: Locks
    clock: Clock
    code_commit: str
    limits: Limits = field(default_factory=Limits)
    stability_seconds: float = DEFAULT_STABILITY_SECONDS  # where the supplier has no config


def connect(settings: Settings, db: database.Database) -> Services:
    """The services of this process."""
    layout = Layout(settings.suppliers, settings.supplier_configs)
    commit = settings.code_commit or _commit_of_checkout()
    url = urlsplit(settings.suppliers_state_url)
    if not url.scheme:
        return Services(layout, PosixStates(layout.root), FileLocks(layout), SystemClock(), commit)
    if url.scheme != "s3":
        raise SettingsError("HEADWORKS_SUPPLIERS_STATE_URL is an address such as s3://bucket/prefix.")
    from app.suppliers.bucket_states import BucketStates  # boto3 is large: only where there is a bucket

    kept = BucketStates(url.netloc, url.path.strip("/"), endpoint_url=settings.storage_endpoint_url or None)
    return Services(layout, kept, LeaseLocks(db), SystemClock(), commit)


def _commit_of_checkout() -> str:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True,
            timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip()
