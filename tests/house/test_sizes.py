"""Sizes that tell whether the core stays simple: methods of the base classes, files that the smallest solve enters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from privopt_metric_dp.mechanisms.base import MetricMechanism

MAX_METHODS = 20
MAX_FILES = 70
"""Files that the smallest solve enters; the number may only fall."""


def test_base_of_metric_mechanisms_stays_small():
    methods = [
        name for name, member in vars(MetricMechanism).items() if callable(member) and not isinstance(member, type)
    ]
    assert len(methods) <= MAX_METHODS, methods


def test_smallest_solve_enters_few_files():
    """In a process of its own: what this one has imported and cached would not be entered again."""
    script = Path(__file__).with_name("count_files.py")
    completed = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=600)
    *files, count = completed.stdout.splitlines()
    assert len(files) == int(count.split()[0]) <= MAX_FILES, files
