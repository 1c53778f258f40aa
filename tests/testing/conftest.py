"""Mechanisms under trial, right and wrong, are importable as ``faults``, here and in worker processes."""

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)
