"""The function run by a solver's worker process.

It has its own module so that workers can import it without loading NumPy and the other backend modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def solve_problem(problem: dict[str, Any]) -> dict[str, Any]:
    """Solve a problem by calling ``answer(problem)`` in the module named by ``problem["solver"]``."""
    answer: dict[str, Any] = import_module(problem["solver"]).answer(problem)
    return answer
