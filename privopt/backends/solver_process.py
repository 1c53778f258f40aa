"""The function that a solver's worker process runs.

It has a module of its own, because a worker that imports it must not load the rest of the backends with NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def solve_problem(problem: dict[str, Any]) -> dict[str, Any]:
    """Solve a problem with ``answer(problem)`` of the module that ``problem["solver"]`` names."""
    answer: dict[str, Any] = import_module(problem["solver"]).answer(problem)
    return answer
