"""Run the program extracted from a proof (docs/proof), if ``make formal`` has built it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from privopt.errors import DoesNotHoldError, UsageError

KERNEL = "privopt-kernel"
"""Name of the program."""

PROVED, NOT_PROVED = 0, 1


def find_kernel() -> Path:
    """Return where the program lies: next to this Python, or on the path.

    Raises:
        UsageError: it is not there.
    """
    beside = Path(sys.executable).with_name(KERNEL)
    found = str(beside) if beside.exists() else shutil.which(KERNEL)
    if found is None:
        raise UsageError(f"--kernel: {KERNEL} must be installed, found none; `make formal` builds it where Coq is")
    return Path(found)


def prove(folder: Path) -> str:
    """Return what the program says of a folder that it proves.

    Args:
        folder: DIR of a metric release.

    Raises:
        UsageError: the program is not there, or its proof does not speak of such a folder.
        DoesNotHoldError: it does not prove a claim, which it names.
    """
    program = find_kernel()
    done = subprocess.run([program, folder], capture_output=True, text=True, check=False)
    said = done.stdout.strip() or done.stderr.strip() or f"ended with {done.returncode}"
    if done.returncode == PROVED:
        return said.removeprefix("proved: ")
    if done.returncode == NOT_PROVED:
        raise DoesNotHoldError(f"{folder}: {KERNEL}: {said}")
    raise UsageError(f"{folder}: {KERNEL}: {said}; docs/proof/README.md says which folders it speaks of")
