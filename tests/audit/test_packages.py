"""What the audit of packages finds, and that this checkout has none of it."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.audit import advisories, packages

PINS = """
# a comment
flask==3.1.3
atheris==3.0.0; python_version < "3.12"  # another for each
atheris==3.1.0; python_version >= "3.12"
"""


def test_every_pin_of_this_checkout_is_exact() -> None:
    found, wrong = packages.pins((packages.ROOT / "constraints.txt").read_text())
    assert wrong == [] and len(found) > 100


def test_every_requirement_of_this_checkout_is_pinned() -> None:
    found, _ = packages.pins((packages.ROOT / "constraints.txt").read_text())
    wanted = packages.wanted((packages.ROOT / "setup.cfg").read_text())
    assert list(packages.unpinned(wanted, packages.by_name(found))) == [] and len(wanted) > 40


def test_no_pin_of_this_checkout_is_known_to_be_bad() -> None:
    found, _ = packages.pins((packages.ROOT / "constraints.txt").read_text())
    assert list(packages.bad(packages.by_name(found), packages.rules()["bad_versions"])) == []


def test_every_package_here_has_a_licence_that_is_allowed() -> None:
    known = packages.rules()
    told = {name: packages.licence_of(one) for name, one in packages.installed().items()}
    assert list(packages.unlicensed(told, known["licences"], known["licence_of"])) == []


def test_a_pin_is_for_one_interpreter_or_for_all() -> None:
    found, wrong = packages.pins(PINS)
    assert wrong == [] and packages.by_name(found)["atheris"] in ("3.0.0", "3.1.0")


@pytest.mark.parametrize(
    "line",
    ["flask", "flask>=3", "flask==3.*", "flask~=3.1", "flask==3.1,!=3.2", "flask @ https://x/y", "???"],
)
def test_what_is_no_exact_version_is_found(line: str) -> None:
    assert len(packages.pins(line)[1]) == 1


def test_a_package_that_is_pinned_twice_is_found() -> None:
    assert packages.pins("Flask==3.1.3\nflask==3.1.2")[1] == ["constraints.txt: flask is pinned twice."]


@pytest.mark.parametrize(
    ("wanted", "pinned", "findings"),
    [
        ("flask>=3", {"flask": "3.1.3"}, 0),
        ("flask>=4", {"flask": "3.1.3"}, 1),
        ("other", {"flask": "3.1.3"}, 1),
    ],
)
def test_what_no_pin_decides_is_found(wanted: str, pinned: dict[str, str], findings: int) -> None:
    assert len(list(packages.unpinned([Requirement(wanted)], pinned))) == findings


@pytest.mark.parametrize(
    ("here", "findings"),
    [({"flask": "3.1.3", "pip": "1"}, 0), ({"flask": "3.1.2"}, 1), ({"flask": "3.1.3", "miner": "1.0"}, 1)],
)
def test_a_stranger_among_the_installed_is_found(here: dict[str, str], findings: int) -> None:
    assert len(list(packages.strangers(here, {"flask": "3.1.3"}))) == findings


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True), ("mit", True), ("Apache-2.0 OR GPL-3.0", True), ("MIT AND GPL-3.0", False),
        ("GPL-3.0", False),
        ("", False), ("Apache Software License; MIT License", True), ("AGPL-3.0-only", False),
    ],
)  # fmt: skip
def test_a_licence_that_is_not_allowed_is_found(licence: str, allowed: bool) -> None:
    found = list(packages.unlicensed({"x": licence}, packages.rules()["licences"], {}))
    assert (found == []) is allowed


def test_a_bad_version_is_found() -> None:
    (found,) = packages.bad({"celery": "5.7.0", "h11": "0.16.0"}, packages.rules()["bad_versions"])
    assert found.startswith("celery 5.7.0 is bad")


VULNERABLE = {"name": "h11", "version": "0.14.0", "vulns": [{"id": "CVE-1", "fix_versions": ["0.16.0"]}]}
FINE = {"name": "flask", "version": "3.1.3", "vulns": []}
SKIPPED = {"name": "flask", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (None, advisories.NOT_DONE),
        ({"dependencies": []}, advisories.NOT_DONE),
        ({"dependencies": [SKIPPED, {**VULNERABLE, "vulns": []}]}, advisories.NOT_DONE),
        ({"dependencies": [FINE, {**VULNERABLE, "vulns": []}]}, advisories.CLEAN),
        ({"dependencies": [FINE, VULNERABLE]}, advisories.VULNERABLE),
        ({"dependencies": [SKIPPED, VULNERABLE]}, advisories.VULNERABLE),
    ],
)
def test_a_package_that_nobody_looked_up_is_no_package_without_findings(said: Any, code: int) -> None:
    assert advisories.verdict(said, {"flask": "3.1.3", "h11": "0.14.0"})[0] == code
