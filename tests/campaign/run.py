"""The whole campaign: bad inputs, tampered and forged folders, kills, full disks, dying solvers, odd places.

``python tests/campaign/run.py`` takes some minutes of processor time and prints one row a part, then every finding;
``--only PART``, ``--share 0.1`` and ``--seed N`` make it shorter or other. It ends with code 1 where something was
found.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forge import forged
from shocks import dead_solvers, full_disks, kills, odd_places
from spoil import bad_inputs, tamper_with_folders
from trials import Tally

PARTS: dict[str, tuple[Callable[[Path, random.Random, Any], Tally], int]] = {
    "bad-inputs": (bad_inputs, 5000),
    "tampered": (tamper_with_folders, 2000),
    "forged": (forged, 3000),
    "kills": (kills, 24),
    "full-disks": (full_disks, 24),
    "dead-solvers": (dead_solvers, 8),
    "odd-places": (odd_places, 40),
}
"""Parts, and how many trials each has at most where all are asked for."""

MEMORY = 12 << 30
"""Bytes that this process may address: a problem that asks for more is refused, not served by the whole machine."""


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(PARTS), action="append", help="parts to run; all where left out")
    parser.add_argument("--share", type=float, default=1.0, help="of the trials")
    parser.add_argument("--seed", type=int, default=0, help="of what is left to chance")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    print("| part | tried | exit codes | findings |\n| --- | --- | --- | --- |", flush=True)
    findings: list[str] = []
    for name in options.only or PARTS:
        part, case_count = PARTS[name]
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="privopt-campaign-") as folder:
            tally = part(
                Path(folder), random.Random(f"{options.seed} {name}"), max(1, round(case_count * options.share))
            )
        findings += tally.findings
        print(tally.line(), flush=True)
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    for finding in findings:
        print(finding)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
