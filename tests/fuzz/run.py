"""Looks for bytes that break the promise of one parser, led by what the code does with them.

    python -m tests.fuzz.run NAME --seconds N [--corpus DIR]

What was found worth keeping stays in the corpus folder (var/fuzz/NAME unless named), and so does the
input of a finding (`finding-…`), which `--again FILE` runs alone. Exit code 0: nothing was found in that
time; else that of libFuzzer. A finding is any exception, an input of more than 10 s, or more than 2 GB.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.fuzz.target import NAMES, ROOT, Target, load

INPUT_SECONDS = 10
MEMORY_MEGABYTES = 2048
FOLLOWED = ("xlrd", "zipfile", "html", "jwt", "yaml", "werkzeug.sansio", "werkzeug.formparser")
"""Libraries in Python whose ways lead on, beside our own."""


def _corpus(target: Target, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(target.seeds()):
        (folder / f"seed-{number:03d}").write_bytes(content)


def _dictionary(target: Target, path: Path) -> None:
    lines = ["".join(f"\\x{byte:02x}" for byte in word) for word in target.words]
    path.write_text("".join(f'"{line}"\n' for line in lines))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzzes one parser.")
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="where inputs are kept; default var/fuzz/NAME")
    parser.add_argument("--again", type=Path, help="run this one input and nothing else")
    parser.add_argument("--seed", type=int, default=0, help="of chance; 0 is another one each time")
    parser.add_argument("--input-seconds", type=int, default=INPUT_SECONDS, help="that one input may take")
    given = parser.parse_args()

    os.environ["RUST_BACKTRACE"] = "0"  # a panic of a library is one line, and not sixty
    import atheris

    with atheris.instrument_imports(include=["app", *FOLLOWED]):
        target = load(given.name)
    corpus: Path = (given.corpus or ROOT / "var" / "fuzz" / given.name).resolve()
    _corpus(target, corpus)
    _dictionary(target, corpus.with_suffix(".dict"))
    options = [
        f"-max_total_time={given.seconds}", f"-timeout={given.input_seconds}",
        f"-rss_limit_mb={MEMORY_MEGABYTES}",
        f"-max_len={target.most_bytes}", f"-dict={corpus.with_suffix('.dict')}", f"-seed={given.seed}",
        f"-artifact_prefix={corpus}/finding-", "-print_final_stats=1", "-len_control=20",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(given.again or corpus)], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
