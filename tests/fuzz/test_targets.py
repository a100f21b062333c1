"""A short look for inputs that break a parser's promise; `./scripts/fuzz` looks for as long as you like."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.target import NAMES, ROOT, Target, load

SECONDS = 1.0
"""Of made-up inputs for one target, after its examples."""

INPUT_SECONDS = 5.0
MOST_INPUTS = 300


def mutated(seeds: list[bytes], words: tuple[bytes, ...], chance: random.Random) -> Iterator[bytes]:
    """Examples that are cut, joined, repeated, and changed in a few places; the same ones in every run."""
    while True:
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 6)):
            at = chance.randint(0, len(data))
            match chance.randrange(6):
                case 0:
                    data[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    data[at:at] = chance.choice(words)
                case 2:
                    del data[at : at + chance.randint(1, 40)]
                case 3:
                    data[at:at] = data[at : at + chance.randint(1, 40)] * chance.randint(1, 30)
                case 4:
                    other = chance.choice(seeds)
                    data[at:] = other[chance.randint(0, len(other)) :]
                case _:
                    data[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x00", b" " * 200, b"9" * 50))
        yield bytes(data)


def look(target: Target, *, seconds: float, most: int) -> int:
    """How many inputs were looked at; what breaks the promise is raised."""
    chance = random.Random(17)
    seeds = list(target.seeds())
    looked_at = 0
    for data in (*seeds, *_for_a_while(mutated(seeds, target.words, chance), seconds, most)):
        before = time.process_time()
        try:
            target.check(data[: target.most_bytes])
        except BaseException as error:
            error.add_note(f"of {data!r}")
            raise
        assert time.process_time() - before < INPUT_SECONDS, f"{data[:200]!r} takes too long"
        looked_at += 1
    return looked_at


def _for_a_while(inputs: Iterator[bytes], seconds: float, most: int) -> Iterator[bytes]:
    end = time.monotonic() + seconds
    for _, data in zip(range(most), inputs, strict=False):
        if time.monotonic() > end:
            return
        yield data


@pytest.mark.filterwarnings("ignore:Unclosed file <tempfile:ResourceWarning")  # of a form that is cut off
@pytest.mark.parametrize("name", NAMES)
def test_no_input_breaks_the_promise_of_a_parser(name: str) -> None:
    assert look(load(name), seconds=SECONDS, most=MOST_INPUTS) > 5


def test_every_target_has_a_name_and_examples() -> None:
    modules = {path.stem for path in (Path(__file__).parent / "targets").glob("[a-z]*.py")}
    assert modules == set(NAMES)
    for name in NAMES:
        target = load(name)
        assert (
            all(isinstance(seed, bytes) for seed in target.seeds()) and target.words and target.check.__doc__
        )


def test_a_promise_that_is_broken_is_found() -> None:
    def check(data: bytes) -> None:
        """No blank stands twice."""
        assert b"  " not in data

    with pytest.raises(AssertionError):
        look(Target(check, lambda: [b"a b", b"c"], words=(b" ", b"x")), seconds=5, most=2000)


def test_an_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "INPUT_SECONDS", 0.01)

    def check(data: bytes) -> None:
        """It is quick."""
        sum(range(2_000_000 if b"x" in data else 0))

    with pytest.raises(AssertionError, match="takes too long"):
        look(Target(check, lambda: [b"a", b"b"], words=(b"x",)), seconds=5, most=200)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not for this machine")
def test_the_long_look_begins_and_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run", "canonical", "--seconds", "1", "--corpus",
         str(tmp_path / "c")],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, "DONE" in done.stderr) == (0, True), done.stderr[-2000:]
    assert (tmp_path / "c" / "seed-000").is_file()
