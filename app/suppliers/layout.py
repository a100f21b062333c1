"""Where everything of the suppliers stands: one tree of folders (ETL CANON §3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app.kernel import errors

SUPPLIER = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
RUN_ID = re.compile(r"(?P<supplier>.+)_(?P<at>\d{8}T\d{6}Z)_(?P<rand>[0-9a-f]{6})")


def check_supplier(name: str) -> str:
    """The name; Refused when it is none: a supplier is named in paths, keys and addresses."""
    if not SUPPLIER.fullmatch(name):
        raise errors.Refused(
            "A supplier's name has small letters, digits, hyphens and underscores, at most 64.",
            code="invalid_supplier",
        )
    return name


@dataclass(frozen=True, slots=True, order=True)
class RunId:
    """A run by supplier and second; read from the right, since a supplier's name may look like one."""

    supplier: str
    at: datetime
    rand: str

    def __str__(self) -> str:
        return f"{self.supplier}_{self.at:%Y%m%dT%H%M%SZ}_{self.rand}"

    @classmethod
    def parse(cls, text: str) -> RunId:
        """The id in this text; NotFound when it is none."""
        match = RUN_ID.fullmatch(text)
        if not match or not SUPPLIER.fullmatch(match["supplier"]):
            raise errors.NotFound("There is no such run.")
        try:
            at = datetime.strptime(match["at"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise errors.NotFound("There is no such run.") from None
        return cls(match["supplier"], at, match["rand"])


@dataclass(frozen=True, slots=True)
class Layout:
    """The tree below one root, and the folder with the suppliers' configs."""

    root: Path
    configs: Path

    def config(self, supplier: str) -> Path:
        return self.configs / f"{supplier}.yaml"

    def inbox(self, supplier: str) -> Path:
        return self.root / "inbox" / supplier

    def duplicates(self, supplier: str) -> Path:
        return self.root / "quarantine" / supplier / "duplicates"

    def broken(self, supplier: str) -> Path:
        return self.root / "quarantine" / supplier / "broken"

    def archive(self, supplier: str) -> Path:
        return self.root / "archive" / supplier

    def obsolete(self, supplier: str) -> Path:
        return self.archive(supplier) / "obsolete"

    def accepted(self, supplier: str, sha256: str) -> Path:
        return self.root / "accepted_runs" / supplier / sha256[:2] / f"{sha256}.json"

    def run(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def input(self, run_id: str) -> Path:
        """The folder that holds the file which the run reads, for as long as it reads."""
        return self.run(run_id) / "input"

    def manifest(self, run_id: str) -> Path:
        return self.run(run_id) / "manifest.json"

    def journal(self, supplier: str) -> Path:
        return self.root / "journal" / f"{supplier}.ndjson"

    def lock(self, supplier: str) -> Path:
        return self.root / "locks" / f"{supplier}.lock"

    def suppliers(self) -> list[str]:
        """Who has a config or an inbox, by name."""
        configs = {path.stem for path in self.configs.glob("*.yaml")}
        inboxes = {path.name for path in (self.root / "inbox").glob("*") if path.is_dir()}
        return sorted(name for name in configs | inboxes if SUPPLIER.fullmatch(name))

    def runs(self, supplier: str) -> Iterator[str]:
        """The ids of a supplier's runs, newest first."""
        found = []
        for path in (self.root / "runs").glob(f"{supplier}_*"):
            try:
                run_id = RunId.parse(path.name)
            except errors.NotFound:
                continue
            if run_id.supplier == supplier:
                found.append(run_id)
        return (str(run_id) for run_id in sorted(found, reverse=True))
