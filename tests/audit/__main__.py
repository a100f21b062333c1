"""Packages and secrets, without the network: what is wrong is told, and the exit code is 1.

python -m tests.audit             checks
python -m tests.audit --renew     what looks like a secret now counts as none; read the diff first
"""

from __future__ import annotations

import sys

from tests.audit import packages, secrets


def main() -> None:
    """The command line."""
    if sys.argv[1:] == ["--renew"]:
        secrets.renew()
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    wrong = [*packages.check(), *secrets.check()]
    for line in wrong:
        print(line)
    print(
        f"{len(packages.installed())} packages and {len(secrets.kept())} files: {len(wrong)} findings."
        f" Advisories were last looked at on {packages.rules()['looked_at']}; `./scripts/audit` asks anew."
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
