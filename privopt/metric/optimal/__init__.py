"""Exact solvers for the optimal mechanism of metric differential privacy."""

from __future__ import annotations

from privopt.exact.multipliers import Multipliers
from privopt.metric.optimal.auto import solve
from privopt.metric.optimal.instance import Instance, Solution, dual_bound

__all__ = ["Instance", "Multipliers", "Solution", "dual_bound", "solve"]
