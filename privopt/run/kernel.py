"""The interface to the formally verified checker, which ``make formal`` extracts from the proof in docs/proof.

The checker is a separate OCaml program that reads a release folder on its own and shares no code with this package.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from privopt.errors import DoesNotHoldError, UsageError

KERNEL = "privopt-kernel"
"""The file name of the checker's executable."""

PROVED, NOT_PROVED = 0, 1
"""The checker's exit codes. Any other code means that it could not read the folder or does not support this kind of
folder."""


def find_kernel() -> Path:
    """Return the path of the formally verified checker.

    The checker is searched for next to the Python interpreter and then on ``PATH``.

    Raises:
        UsageError: The checker is not installed.
    """
    # Prefer the checker next to the interpreter, because one on PATH may be of another version.
    next_to_python = Path(sys.executable).with_name(KERNEL)
    program = str(next_to_python) if next_to_python.exists() else shutil.which(KERNEL)
    if program is None:
        raise UsageError(f"--kernel: {KERNEL} must be installed, found none; `make formal` builds it where Coq is")
    return Path(program)


def prove(folder: Path) -> str:
    """Run the formally verified checker on a release folder, and return the statement it proved.

    Args:
        folder: The folder of a metric release.

    Raises:
        UsageError: The checker is not installed, cannot read the folder, or does not support this kind of folder.
        DoesNotHoldError: The checker could not prove a claim in the folder. The message contains the checker's output.
    """
    program = find_kernel()
    completed = subprocess.run([program, folder], capture_output=True, text=True, check=False)
    output = completed.stdout.strip() or completed.stderr.strip() or f"ended with {completed.returncode}"
    if completed.returncode == PROVED:
        return output.removeprefix("proved: ")
    if completed.returncode == NOT_PROVED:
        raise DoesNotHoldError(f"{folder}: {KERNEL}: {output}")
    raise UsageError(f"{folder}: {KERNEL}: {output}; docs/proof/README.md says which folders it covers")
