"""Exact solvers for the optimal mechanism under metric differential privacy."""

from __future__ import annotations

from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers.auto import solve
from privopt_metric_dp.solvers.instance import Instance, Solution, dual_bound

__all__ = ["Instance", "Multipliers", "Solution", "dual_bound", "solve"]
