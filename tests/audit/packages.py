"""Which packages may be here: pinned exactly, of a known licence, of no version that is known to be bad."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
TOOLS = frozenset(("headworks", "pip", "setuptools", "wheel"))
"""The product itself, and what an environment is made with."""


def rules() -> dict[str, Any]:
    """What the data file says."""
    found: dict[str, Any] = yaml.safe_load((Path(__file__).with_name("rules.yaml")).read_text())
    return found


def pins(text: str) -> tuple[list[Requirement], list[str]]:
    """The pins of a constraints file, and what is wrong with it: a line that is no exact version."""
    found, wrong = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        try:
            one = Requirement(line)
        except InvalidRequirement:
            wrong.append(f"constraints.txt, line {number}: {line} is no requirement.")
            continue
        exact = [spec for spec in one.specifier if spec.operator == "==" and "*" not in spec.version]
        if len(exact) != 1 or len(one.specifier) != 1 or one.url or one.extras:
            wrong.append(f"constraints.txt, line {number}: {line} is no exact version.")
        else:
            found.append(one)
    names = [(canonicalize_name(one.name), str(one.marker)) for one in found]
    wrong += [
        f"constraints.txt: {name} is pinned twice." for name, _ in {n for n in names if names.count(n) > 1}
    ]
    return found, wrong


def by_name(found: list[Requirement]) -> dict[str, str]:
    """The pinned version of each package, for this interpreter."""
    return {
        canonicalize_name(one.name): next(iter(one.specifier)).version
        for one in found
        if one.marker is None or one.marker.evaluate()
    }


def unpinned(wanted: list[Requirement], pinned: Mapping[str, str]) -> Iterator[str]:
    """What the product asks for and no pin decides, or a pin that it does not take."""
    for one in wanted:
        version = pinned.get(canonicalize_name(one.name))
        if version is None:
            if one.marker is None or one.marker.evaluate():
                yield f"setup.cfg asks for {one.name}, which constraints.txt does not pin."
        elif version not in one.specifier:
            yield f"setup.cfg asks for {one}, and constraints.txt pins {version}."


def wanted(text: str) -> list[Requirement]:
    """Every requirement of the setup.cfg, those of its extras too."""
    parser = ConfigParser()
    parser.read_string(text)
    lists = [parser["options"]["install_requires"], *parser["options.extras_require"].values()]
    lines = [line.strip() for some in lists for line in some.splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def installed() -> dict[str, importlib.metadata.Distribution]:
    """Every package of this environment."""
    return {canonicalize_name(one.name): one for one in importlib.metadata.distributions()}


def strangers(here: Mapping[str, str], pinned: Mapping[str, str]) -> Iterator[str]:
    """Packages that are installed and not pinned, or not as they are pinned."""
    for name, version in sorted(here.items()):
        if name in TOOLS:
            continue
        if name not in pinned:
            yield f"{name} {version} is installed and not in constraints.txt: pin it, or build .venv anew."
        elif Version(version) != Version(pinned[name]):
            yield f"{name} {version} is installed, and constraints.txt pins {pinned[name]}: build .venv anew."


def licence_of(one: importlib.metadata.Distribution) -> str:
    """What a package says of its licence."""
    told = one.metadata.get_all("Classifier") or []
    classified = [line.rpartition(" :: ")[2] for line in told if line.startswith("License ::")]
    plain = (one.metadata.get("License") or "").strip().splitlines()
    return one.metadata.get("License-Expression") or "; ".join(classified) or (plain[0][:60] if plain else "")


def unlicensed(told: Mapping[str, str], allowed: list[str], excused: Mapping[str, str]) -> Iterator[str]:
    """Packages whose licence is not allowed: of several that one may choose from, one has to be."""
    known = {name.lower() for name in allowed}
    for name, licence in sorted(told.items()):
        if name in excused or name in TOOLS:
            continue
        choices = re.split(r"\s+OR\s+|;", licence.replace("(Apache-2.0 OR MIT)", "MIT"))
        if not any(
            all(part.strip().lower() in known for part in re.split(r"\s+AND\s+", one)) for one in choices
        ):
            yield f"{name} has the licence {licence or '(none told)'}, which rules.yaml does not allow."


def bad(found: Mapping[str, str], listed: list[list[Any]]) -> Iterator[str]:
    """Pinned versions that are known to be bad."""
    for name, versions, since, why in listed:
        version = found.get(canonicalize_name(name))
        if version is not None and version in Requirement(f"{name}{versions}").specifier:
            yield f"{name} {version} is bad ({versions}, known since {since}): {why}."


def check() -> list[str]:
    """Everything that is wrong with the packages of this checkout and of this environment."""
    known = rules()
    found, wrong = pins((ROOT / "constraints.txt").read_text())
    pinned = by_name(found)
    here = installed()
    wrong += unpinned(wanted((ROOT / "setup.cfg").read_text()), pinned)
    wrong += strangers({name: one.version for name, one in here.items()}, pinned)
    told = {name: licence_of(one) for name, one in here.items()}
    wrong += unlicensed(told, known["licences"], known["licence_of"])
    wrong += bad(pinned, known["bad_versions"])
    return wrong
