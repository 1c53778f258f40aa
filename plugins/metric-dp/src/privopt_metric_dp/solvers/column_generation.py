"""Column generation over rays of the cone (Dantzig-Wolfe), with combinatorial pricing.

The master has one row a record and one column a ray ``z``, which costs ``min_k cost_k . z``. Pricing
all outputs takes one network simplex each (`privopt_metric_dp.solvers.tree_pricing`), warm from its last tree. Prices
are asked for between the best ones so far and the master's (in-out, Ben-Ameur and Neto 2007); every
pricing gives a Lagrangian bound: as a row sums to one, ``sum y + sum over anchors of min(0, values)``.
"""

from __future__ import annotations

import time

import numpy as np
from attrs import define

from privopt.arrays import Floats
from privopt.errors import StoppedError
from privopt.interfaces import Progress
from privopt_metric_dp.solvers.components import solve_by_component
from privopt_metric_dp.solvers.instance import Instance, Solution, one_output
from privopt_metric_dp.solvers.path_graph import Graph, make_graph
from privopt_metric_dp.solvers.restricted_master import Mixture
from privopt_metric_dp.solvers.star import (
    GRACE,
    anchored_bound,
    kernel_of,
    price_all,
    proof,
    star_trees,
)
from privopt_metric_dp.solvers.symmetry import Symmetry, find_symmetry
from privopt_metric_dp.solvers.tree_pricing import Trees

__all__ = ["solve_column_generation"]

SOFTER = (0.5,)
"""Shares of epsilon whose kernels are seeds beside the star's own."""


def _seeds(instance: Instance, symmetry: Symmetry, kernel: Floats) -> Floats:
    """The star's rays moved to where they serve a representative output, softer ones, and the flat ray."""
    few = kernel[np.unique(symmetry.records.min(axis=0))]
    serves = (few @ instance.cost).argmin(axis=1)
    _, member = symmetry.origin()
    placed = np.take_along_axis(few, symmetry.records[member[serves]], axis=1)
    return np.concatenate([placed, *(placed**share for share in SOFTER), np.ones((1, instance.records))])


@define(eq=False)
class _Best:
    """Best bound with its prices and trees, best loss with its mechanism."""

    lower: float
    upper: float
    y: Floats
    trees: Trees
    z: Floats

    def raise_bound(self, bound: float, y: Floats, trees: Trees) -> bool:
        if bound <= self.lower:
            return False
        self.lower, self.y = bound, y
        self.trees = Trees(parent=trees.parent.copy(), entry=trees.entry.copy(), side=trees.side.copy())
        return True


def _generate(
    mixture: Mixture,
    graph: Graph,
    whole: Instance,
    best: _Best,
    trees: Trees,
    gap: float,
    deadline: float | None,
    progress: Progress | None,
) -> tuple[str, list[tuple[float, float, float]]]:
    began = time.monotonic()
    trajectory: list[tuple[float, float, float]] = []
    pull = 0.5
    for _ in range(1000):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return "stopped", trajectory
        try:
            z, loss, y_master = mixture.solve(left)
        except StoppedError:
            return "stopped", trajectory
        if z is not None and loss < best.upper:
            best.z, best.upper = z, whole.loss(z)
        added, better = 0, False
        for share in (pull, 0.0) if np.isfinite(best.lower) else (0.0,):
            y = best.y + (1 - share) * (y_master - best.y) if share else y_master
            try:
                priced = price_all(graph, mixture.instance, y, trees, deadline=deadline)
            except StoppedError:
                return "stopped", trajectory
            better = best.raise_bound(anchored_bound(mixture.symmetry, y, priced), y, trees) or better
            added += mixture.add_priced(priced.ray, priced.value)
            if added:
                pull = min(0.8, pull + 0.1) if better and share else max(0.3, pull - 0.2)
                break
        trajectory.append((time.monotonic() - began, best.lower, best.upper))
        if progress is not None:
            progress("column generation", mixture.solves, best.lower, best.upper)
        if whole.reached(best.upper, best.lower, gap):
            return "optimal", trajectory
        if not added and not better:
            return "feasible", trajectory
        mixture.clean(y_master)
    return "feasible", trajectory


def _solve_connected(instance: Instance, gap: float, deadline: float | None, progress: Progress | None) -> Solution:
    graph, symmetry = make_graph(instance), find_symmetry(instance, deadline=deadline)
    few, kernel = symmetry.reduced(instance), kernel_of(graph, symmetry)
    trees = star_trees(graph, (kernel @ few.cost).argmin(axis=0))
    mixture = Mixture(few, symmetry, _seeds(instance, symmetry, kernel))
    uniform = one_output(instance, "constant").z
    best = _Best(lower=-np.inf, upper=instance.loss(uniform), y=np.zeros(instance.records), trees=trees, z=uniform)
    trajectory: list[tuple[float, float, float]] = []
    try:
        status, trajectory = _generate(mixture, graph, instance, best, trees, gap, deadline, progress)
    except KeyboardInterrupt:
        status = "stopped"
    until = None if status != "stopped" else time.monotonic() + GRACE
    multipliers = proof(instance, symmetry, best.y, best.trees, deadline=until)
    return Solution(
        z=best.z,
        objective=best.upper,
        lower_bound=best.lower,
        multipliers=multipliers,
        method="column-generation",
        iterations=mixture.solves,
        trajectory=tuple(trajectory),
        status=status,
        details={"columns": len(mixture.rays), "symmetries": symmetry.order},
    )


def solve_column_generation(
    instance: Instance, *, gap: float = 1e-6, deadline: float | None = None, progress: Progress | None = None
) -> Solution:
    """Solve by column generation from the star's rays.

    Args:
        instance: the problem.
        gap: relative gap to stop at.
        deadline: `time.monotonic` value at which the best mechanism so far is returned.
        progress: called with lower bound, loss, round and phase.

    Raises:
        SolverError: the master problem failed.
    """
    return solve_by_component(
        instance, lambda part: _solve_connected(part, gap, deadline, progress), gap, deadline=deadline
    )
