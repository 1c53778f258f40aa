"""Turn mutants on, and keep which test reaches which place: mutants.py copies this beside the installed packages."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

MUTANT = int(os.environ.get("MUTANT", "-1"))
REACHED = os.environ.get("MUTANTS_REACHED", "")
seen: set[tuple[int, str]] = set()
took: dict[str, list[Any]] = {}


def on(number: int) -> bool:
    """Return whether a mutant is on; where tests are only to be listed, add the one that runs to its file."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0] if REACHED else ""
    if test and (number, test) not in seen:
        seen.add((number, test))
        with (Path(REACHED) / str(number)).open("a") as file:
            file.write(f"{test}\n")
    return number == MUTANT


def pytest_runtest_logreport(report: Any) -> None:
    """Add up how long a test took, and how it ended."""
    before, outcome = took.get(report.nodeid, (0.0, "passed"))
    seconds = report.duration if report.when == "call" else 0.0
    took[report.nodeid] = [before + seconds, report.outcome if outcome == "passed" else outcome]


def pytest_sessionfinish() -> None:
    """Write that down, once, for all workers."""
    if REACHED and "PYTEST_XDIST_WORKER" not in os.environ:
        (Path(REACHED) / "times.json").write_text(json.dumps(took))
