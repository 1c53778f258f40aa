"""Mechanisms under trial, right and wrong, are importable as ``faults``, here and in worker processes."""

import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)


@pytest.fixture(scope="session")
def quick():
    """Effort that finds every planted fault: more examples than ci, no long search for the smallest."""
    from privopt.testing.efforts import Effort

    return Effort(name="quick", examples=60, seconds=1500.0, shrinking=2.0, draws=8_000)
