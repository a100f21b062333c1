"""A secret that is put into a file is found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.audit import secrets

# Put together here, so that no secret stands in this file.
PLANTED = {
    # kind: what is written, and where
    "AWS Access Key": ("tests/x.py", "key = '" + "AKIA" + "QWERTYUIOPASDFGH'"),
    "Private Key": ("docs/x.md", "-----BEGIN " + "RSA PRIVATE KEY-----"),
    "GitHub Token": ("README.md", "ghp" + "_" + "a1B2" * 9),
    "JSON Web Token": (
        "tests/y.json",
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJ4eXoifQ." + "c2lnbmF0dXJlLXh4eHg",
    ),
    "Slack Token": ("tests/z.yaml", "token: xoxb" + "-123456789012-abcdefABCDEF"),
    "Secret Keyword": ("app/x.py", "pass" + "word = 'correct-horse-9-battery'"),
    "Basic Auth Credentials": ("deploy/x.yaml", "url: postgresql://us" + "er:Zp7Kq2Lm@db/x"),
    "Hex High Entropy String": ("app/y.py", "KEY = '" + "9f86d081884c7d65" + "9a2feaa0c55ad015'"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_secret_is_found(kind: str, tmp_path: Path) -> None:
    name, text = PLANTED[kind]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"# a file\n{text}\n")
    found = {(where, what, line) for (where, what, _), line in secrets.scan([name], tmp_path).items()}
    assert (name, kind, 2) in found


def test_what_is_no_secret_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "x.py").write_text("password = settings.password\nname = 'upload_claimed'\n")
    assert secrets.scan(["app/x.py"], tmp_path) == {}


def test_every_kept_file_is_looked_at_and_no_other(tmp_path: Path) -> None:
    for command in (["init", "-q"], ["add", "kept é.py"]):
        (tmp_path / "kept é.py").write_text("")
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "other.py").write_text("")
    assert secrets.kept(tmp_path) == ["kept é.py"]


def test_without_version_control_every_file_is_looked_at_that_was_not_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in ("app/a.py", ".ci/run", "app/__pycache__/a.pyc", ".venv/b.py", "var/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert secrets.kept(tmp_path) == [".ci/run", "app/a.py"]


def test_a_new_secret_and_one_that_is_gone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "scan", lambda _names: {("app/a.py", "Private Key", "1"): 7})
    monkeypatch.setattr(secrets, "baseline", lambda: {("app/b.py", "Slack Token", "2")})
    assert secrets.check() == [
        "app/a.py:7: this looks like a secret (Private Key).",
        "app/b.py: a Slack Token that is listed as no secret is not there.",
    ]


def test_what_is_known_is_known_without_its_text() -> None:
    known = secrets.baseline()
    assert known and all(len(digest) == 40 for _, _, digest in known)
