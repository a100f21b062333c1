"""The published states: immutable, whole, and one of them current for each supplier (ETL CANON §12)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from app.suppliers import durable
from app.suppliers.failures import SupplierFailure

META = "_meta.json"
FACTS = "facts.ndjson"


@dataclass(frozen=True, slots=True)
class Published:
    """A state: what its facts are and which input they came from."""

    supplier: str
    run_id: str
    path: str  # of the facts, within the tree or the bucket
    facts_sha256: str
    fact_count: int
    sku_count: int
    content_sha256: str
    input_sha256: str
    input_filename: str
    input_mtime_ns: int
    published_at: str

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Published:
        return cls(**{name: found[name] for name in cls.__dataclass_fields__})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class States(Protocol):
    """Where states are kept and read. Writing needs the supplier's lock."""

    def current(self, supplier: str) -> Published | None:
        """The state that readers see; None before the first one."""

    def store(self, state: Published, facts: Path) -> None:
        """The state stands, whole and for good; nobody reads it yet. Twice is as good as once."""

    def switch(self, state: Published, *, instead_of: Published | None) -> None:
        """Readers see this state from here on, at once and whole.

        SupplierFailure PUBLISH_CONFLICT when another one than `instead_of` is current by now.
        """

    def facts(self, state: Published) -> AbstractContextManager[Path]:
        """The facts of a state as a file, for reading."""

    def stored(self, supplier: str) -> list[str]:
        """The runs whose states stand, in no order."""

    def drop(self, supplier: str, run_id: str) -> None:
        """The state of this run is gone; never the current one."""


class PosixStates:
    """States as folders; the current one is where a symbolic link leads."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _folder(self, supplier: str, run_id: str) -> Path:
        return self._root / "state_store" / supplier / run_id

    def _link(self, supplier: str) -> Path:
        return self._root / "state" / "current" / supplier

    def current(self, supplier: str) -> Published | None:
        found = durable.read_json(self._link(supplier) / META)
        return Published.from_json(found) if found else None

    def store(self, state: Published, facts: Path) -> None:
        folder = self._folder(state.supplier, state.run_id)
        if folder.is_dir():
            return
        aside = folder.with_name(f".{state.run_id}")
        durable.make_folder(folder.parent)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        facts.chmod(0o444)  # the two names are one file
        (aside / FACTS).hardlink_to(facts)
        durable.write_json(aside / META, state.as_json())
        (aside / META).chmod(0o444)
        durable.sync_file(aside / FACTS)
        durable.sync_folder(aside)
        aside.rename(folder)
        durable.sync_folder(folder.parent)

    def switch(self, state: Published, *, instead_of: Published | None) -> None:
        seen = self.current(state.supplier)
        if (seen and seen.run_id) != (instead_of and instead_of.run_id):
            raise SupplierFailure("PUBLISH_CONFLICT", stage="publish")
        link = self._link(state.supplier)
        durable.make_folder(link.parent)
        aside = link.with_name(f".{link.name}.next")
        aside.unlink(missing_ok=True)
        aside.symlink_to(os.path.relpath(self._folder(state.supplier, state.run_id), link.parent))
        aside.replace(link)
        durable.sync_folder(link.parent)

    @contextmanager
    def facts(self, state: Published) -> Iterator[Path]:
        yield self._root / state.path

    def stored(self, supplier: str) -> list[str]:
        return [path.name for path in (self._root / "state_store" / supplier).glob(f"{supplier}_*")]

    def drop(self, supplier: str, run_id: str) -> None:
        folder = self._folder(supplier, run_id)
        gone = folder.with_name(f".{run_id}")
        if folder.is_dir():
            folder.rename(gone)  # at once: a reader finds all of it or nothing
        shutil.rmtree(gone, ignore_errors=True)


def path_of(supplier: str, run_id: str) -> str:
    """Where the facts of a run's state are, below the root of the tree or of the bucket."""
    return f"state_store/{supplier}/{run_id}/{FACTS}"
