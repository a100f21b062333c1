"""Asks the advisory database about every pinned package, by pip-audit. That needs the network.

    python -m tests.audit.advisories

Exit code 0: every package was looked up and none has a known vulnerability; 1: some has; 3: it was not
done, since the database cannot be reached or does not know a package. Nothing is passed over in silence.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.audit import packages

CLEAN, VULNERABLE, NOT_DONE = 0, 1, 3
SECONDS = 600


def asked(pinned: Mapping[str, str]) -> dict[str, Any] | None:
    """What pip-audit says of these packages; None when it says nothing that can be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pins.txt"
        path.write_text("".join(f"{name}=={version}\n" for name, version in sorted(pinned.items())))
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", "--requirement", str(path), "--no-deps", "--disable-pip",
             "--progress-spinner", "off", "--format", "json"],
            capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return None
    return found


def verdict(said: Mapping[str, Any] | None, pinned: Mapping[str, str]) -> tuple[int, list[str]]:
    """The exit code, and what is told."""
    if said is None:
        return NOT_DONE, ["The advisory database does not answer."]
    looked_at = {one["name"]: one for one in said.get("dependencies", ())}
    lines, missing = [], []
    for name in sorted(pinned):
        one = looked_at.get(name)
        if one is None or "skip_reason" in one:
            missing.append(name)
        for found in (one or {}).get("vulns", ()):
            mended = ", ".join(found.get("fix_versions", ())) or "no version"
            lines.append(f"{name} {pinned[name]}: {found['id']}, mended in {mended}.")
    if missing:
        lines.append(f"NOT looked up: {', '.join(missing[:10])}{' …' if len(missing) > 10 else ''}.")
    return VULNERABLE if len(lines) > bool(missing) else NOT_DONE if missing else CLEAN, lines


def main() -> None:
    """The command line."""
    found, _ = packages.pins((packages.ROOT / "constraints.txt").read_text())
    pinned = packages.by_name(found)
    first = dict(sorted(pinned.items())[:1])
    code, lines = verdict(asked(first), first)  # one question, before so many
    if code != NOT_DONE:
        code, lines = verdict(asked(pinned), pinned)
    for line in lines:
        print(line)
    if code == NOT_DONE:
        print("THE ADVISORIES WERE NOT ASKED, and nothing is known of vulnerabilities. It needs a network.")
    elif code == CLEAN:
        print(f"{len(pinned)} packages looked up, no known vulnerability.")
    sys.exit(code)


if __name__ == "__main__":
    main()
