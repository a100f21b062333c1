"""What a process needs to serve the pipeline: its own database, brought to this release's tables."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from importlib import resources

from app.access import exposure
from app.adapters.database import Database
from app.adapters.settings import Settings
from app.kernel.clock import Clock, SystemClock
from app.pipeline.store import Pipeline

TOKEN_CHARACTERS = 20


@dataclass(frozen=True, slots=True)
class Services:
    """The pipeline of this process, and who may use it."""

    pipeline: Pipeline
    clock: Clock
    tokens: tuple[str, ...]  # any of them opens it
    open_here: bool  # whether whoever sits at this machine needs none

    def admits(self, token: str) -> bool:
        """Whether the token is one of them."""
        return any(hmac.compare_digest(token.encode(), own.encode()) for own in self.tokens)


def tokens_of(settings: Settings) -> tuple[str, ...]:
    """What opens the pipeline: HEADWORKS_PIPELINE_TOKENS and the instance's own key."""
    return tuple(filter(None, map(str.strip, (*settings.pipeline_tokens.split(","), settings.api_key))))


def connect(settings: Settings, *, open_here: bool) -> Services:
    """The pipeline behind HEADWORKS_PIPELINE_DATABASE_URL, its tables as this release has them."""
    tokens = tokens_of(settings)
    for token in tokens:
        if token != settings.api_key and len(token) < TOKEN_CHARACTERS:
            raise exposure.NotSafeToStart(
                f"HEADWORKS_PIPELINE_TOKENS has a token of fewer than {TOKEN_CHARACTERS} characters."
            )
    db = Database(settings.pipeline_database_url, name="headworks pipeline", pool_size=16)
    apply_ddl(db)
    clock = SystemClock()
    return Services(Pipeline(db, clock), clock, tokens, open_here)


def apply_ddl(db: Database) -> None:
    """The tables are there; of several servers that start at once one makes them, and the others wait."""
    text = resources.files("sql").joinpath("pipeline_ddl.sql").read_text(encoding="utf-8")
    with db.transaction(None) as conn, conn.cursor() as cursor:
        cursor.execute(text)
