"""Celery beat, which shows that its clock goes on."""

from __future__ import annotations

from typing import Any

from celery.beat import PersistentScheduler

from app.adapters.alive import Heart
from app.adapters.settings import Settings


class Scheduler(PersistentScheduler):  # type: ignore[misc]  # celery has no types
    """The schedule in its file, looked at at least every `beat_max_loop_interval`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._heart = Heart(Settings.from_env(needs=()).alive_file)
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """What is due was sent; so many seconds until something is due again."""
        self._heart.beat()
        return float(super().tick(*args, **kwargs))
