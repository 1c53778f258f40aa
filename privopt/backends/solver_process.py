"""The function that a solver's worker process runs. The worker imports nothing else of the project for it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def solve_problem(problem: dict[str, Any]) -> dict[str, Any]:
    """Solve a problem with ``answer(problem)`` of the module that ``problem["solver"]`` names."""
    answer: dict[str, Any] = import_module(problem["solver"]).answer(problem)
    return answer
