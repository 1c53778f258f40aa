"""A run of the suite whose worker dies ends, fails and names the test."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import os, signal
import pytest

@pytest.mark.parametrize("number", range(40))
def test_number(number):
    if number == 20:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("workers", "ending"), [(1, "1 failed, 20 passed"), pytest.param(2, "2 failed, 40 passed", marks=pytest.mark.slow)]
)
def test_dead_worker_ends_the_run_and_names_the_test(tmp_path, workers, ending):
    """No worker takes a dead one's place: it would die of the same test."""
    pytest.importorskip("xdist")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for number in range(2):
        (tmp_path / f"test_dies_{number}.py").write_text(SUITE)
    options = ("-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "xdist.plugin", "-n", str(workers))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "."],
        cwd=tmp_path,
        # Hypothesis's plugin takes longer than all the rest; conftest.py imports the helpers of the suite
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert completed.returncode == 1, completed.stdout + completed.stderr
    assert "FAILED test_dies_0.py::test_number[20] - worker" in completed.stdout
    assert ending in completed.stdout
