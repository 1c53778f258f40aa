"""The program extracted from docs/proof, where ``make formal`` has built it."""

import subprocess
from pathlib import Path

import pytest

from privopt.errors import UsageError
from privopt.run.kernel import find_kernel

PROOF = Path(__file__).parents[2] / "docs" / "proof"


def built() -> bool:
    try:
        find_kernel()
    except UsageError:
        return False
    return True


needs_kernel = pytest.mark.skipif(not built(), reason="privopt-kernel is not built: make formal")


def run_kernel(folder: Path) -> tuple[int, str]:
    """Return the program's exit code for a folder, and what it prints."""
    completed = subprocess.run([find_kernel(), folder], capture_output=True, text=True, check=False, timeout=600)
    assert completed.stderr == ""
    return completed.returncode, completed.stdout
