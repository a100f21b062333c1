"""Whether a secret stands in a file that is kept: in code whatever looks like one, elsewhere by its shape."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from detect_secrets.core.scan import scan_file
from detect_secrets.settings import transient_settings

from tests.audit.packages import ROOT, rules

BASELINE = Path(__file__).with_name("known_secrets.json")
"""What was looked at by a person and is no secret: file, kind and hash, never the text."""

SHAPES = (
    "AWSKeyDetector", "ArtifactoryDetector", "AzureStorageKeyDetector", "CloudantDetector",
    "DiscordBotTokenDetector", "GitHubTokenDetector", "GitLabTokenDetector", "JwtTokenDetector",
    "MailchimpDetector", "NpmDetector",
    "OpenAIDetector", "PrivateKeyDetector", "PypiTokenDetector", "SendGridDetector", "SlackDetector",
    "SquareOAuthDetector", "StripeDetector", "TelegramBotTokenDetector", "TwilioKeyDetector",
)  # fmt: skip
LOOKS: tuple[dict[str, Any], ...] = (
    {"name": "BasicAuthDetector"},
    {"name": "KeywordDetector"},
    {"name": "Base64HighEntropyString", "limit": 4.5},
    {"name": "HexHighEntropyString", "limit": 3.0},
)
FILTERS = (
    "detect_secrets.filters.heuristic.is_indirect_reference",
    "detect_secrets.filters.heuristic.is_likely_id_string",
    "detect_secrets.filters.heuristic.is_not_alphanumeric_string",
    "detect_secrets.filters.heuristic.is_potential_uuid",
    "detect_secrets.filters.heuristic.is_prefixed_with_dollar_sign",
    "detect_secrets.filters.heuristic.is_sequential_string",
    "detect_secrets.filters.heuristic.is_templated_secret",
)

Found = set[tuple[str, str, str]]
"""File, kind, hash."""


MADE = (".git", ".venv", "var", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis")
"""Folders that come about where the project is built and run."""


def kept(root: Path = ROOT) -> list[str]:
    """Every file that is under version control; where git knows nothing of the folder, every one."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):  # the files alone were copied, or are another user's
        return list(_files(root))
    return [name for name in listed.decode().split("\0") if name]


def _files(root: Path) -> Iterator[str]:
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if name not in MADE and not name.endswith(".egg-info"))
        yield from (str((Path(folder) / name).relative_to(root)) for name in sorted(names))


def scan(names: Iterable[str], root: Path = ROOT) -> dict[tuple[str, str, str], int]:
    """What looks like a secret in these files, and the line where it stands."""
    known = rules()["secrets"]
    strict, skipped = tuple(known["strict"]), tuple(known["skipped"])
    found: dict[tuple[str, str, str], int] = {}
    names = [name for name in names if not name.startswith(skipped) and (root / name).is_file()]
    for is_strict in (True, False):
        plugins = [{"name": name} for name in SHAPES] + (list(LOOKS) if is_strict else [])
        with transient_settings(
            {"plugins_used": plugins, "filters_used": [{"path": path} for path in FILTERS]}
        ):
            for name in names:
                if name.startswith(strict) == is_strict:
                    for secret in scan_file(str(root / name)):
                        found[name, secret.type, secret.secret_hash] = secret.line_number
    return found


def baseline() -> Found:
    """What is known to be no secret."""
    return {tuple(one) for one in json.loads(BASELINE.read_text())}


def renew() -> None:
    """Everything that is found now counts as no secret."""
    lines = ",\n".join(json.dumps(one) for one in sorted(scan(kept())))
    BASELINE.write_text(f"[\n{lines}\n]\n")


def check() -> list[str]:
    """What looks like a secret and is not known to be none; and what is known and is gone."""
    found, known = scan(kept()), baseline()
    wrong = [
        f"{name}:{line}: this looks like a secret ({kind})."
        for (name, kind, digest), line in sorted(found.items())
        if (name, kind, digest) not in known
    ]
    gone = sorted({(name, kind) for name, kind, _ in known - set(found)})
    return wrong + [f"{name}: a {kind} that is listed as no secret is not there." for name, kind in gone]
