"""Exact solvers for the optimal mechanism of metric differential privacy."""

from __future__ import annotations

from privopt.optimal.auto import solve
from privopt.optimal.instance import Array, Instance, Multipliers, Progress, Solution, dual_bound

__all__ = ["Array", "Instance", "Multipliers", "Progress", "Solution", "dual_bound", "solve"]
