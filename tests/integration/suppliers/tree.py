"""A tree of suppliers of one's own, and what one does with it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from app.kernel.clock import SystemClock
from app.suppliers import run as runner
from app.suppliers.layout import Layout
from app.suppliers.locks import FileLocks
from app.suppliers.reading.limits import Limits
from app.suppliers.services import Services
from app.suppliers.states import PosixStates

CONFIG: dict[str, Any] = {
    "version": 1,
    "supplier": "acme",
    "category_key": "goods",
    "currency": "RUB",
    "file_stability_window": 0,
    "columns": {
        "sku": {"from": "Code"},
        "name": {"from": "Name"},
        "price": {"from": "Price"},
        "qty": {"from": "Stock"},
    },
    "dq": {"min_fact_count": 1, "max_bad_ratio": 0.10, "allow_empty_snapshot": False},
}
HEADER = "Code;Name;Price;Stock"
A = "\n".join([HEADER, "A-1;Bolt;10.50;5", "A-2;Nut;3;0", ""]).encode()
B = "\n".join([HEADER, "A-1;Bolt;11.00;4", "A-3;Ring;7;9", ""]).encode()


class Clock(SystemClock):
    """The machine's clock, so many seconds ahead."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


def merged(config: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The config with these values instead; None takes a key away."""
    found = dict(config)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            found[key] = merged(found.get(key, {}), value)
        else:
            found[key] = value
    return found


@dataclass
class Tree:
    """One root with configs, inboxes and states."""

    services: Services
    supplier: str = "acme"

    @property
    def layout(self) -> Layout:
        return self.services.layout

    def configure(self, **patch: Any) -> None:
        """The supplier has the usual config but for these values."""
        self.write_config(merged(CONFIG, {"supplier": self.supplier, **patch}))

    def write_config(self, config: Mapping[str, Any]) -> None:
        path = self.layout.config(self.supplier)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(dict(config), allow_unicode=True), encoding="utf-8")

    def put(self, content: bytes, name: str = "price.csv", *, mtime: float | None = None) -> Path:
        """The file lies in the inbox."""
        path = self.layout.inbox(self.supplier) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return path

    def run(self) -> runner.Outcome:
        return runner.run(self.services, self.supplier)

    def published(self) -> list[dict[str, Any]] | None:
        """The facts that a reader of the current state sees; None when there is none."""
        path = self.layout.root / "state" / "current" / self.supplier / "facts.ndjson"
        if not path.exists():
            return None
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def manifest(self, run_id: str | None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.layout.manifest(str(run_id)).read_text(encoding="utf-8"))
        return found

    def files(self, folder: Path) -> list[str]:
        """The names of the files in a folder."""
        return sorted(path.name for path in folder.glob("*") if path.is_file())

    def of(self, supplier: str) -> Tree:
        """The same tree, another supplier."""
        return replace(self, supplier=supplier)


def tree(root: Path, *, limits: Limits | None = None, configs: Path | None = None) -> Tree:
    """An empty tree below this folder; a supplier without a config need not be stable."""
    layout = Layout(root / "raw_v1", configs or root / "configs")
    services = Services(
        layout, PosixStates(layout.root), FileLocks(layout), Clock(), "0" * 40, limits or Limits(),
        stability_seconds=0.0,
    )  # fmt: skip
    return Tree(services)
