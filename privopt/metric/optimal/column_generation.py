"""Column generation over rays of the cone (Dantzig-Wolfe), with combinatorial pricing.

The master has one row a record and one column a ray ``z``, which costs ``min_k cost_k . z``. Pricing
all outputs takes one network simplex each (`privopt.metric.optimal.pricing`), warm from its last tree. Prices
are asked for between the best ones so far and the master's (in-out, Ben-Ameur and Neto 2007); every
pricing gives a Lagrangian bound: as a row sums to one, ``sum y + sum over anchors of min(0, values)``.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from attrs import define, field

from privopt.errors import SolverError, StoppedError
from privopt.metric.optimal.instance import Array, Instance, Progress, Solution
from privopt.metric.optimal.paths import Graph, make_graph
from privopt.metric.optimal.pricing import Trees
from privopt.metric.optimal.reduce import solve_by_component
from privopt.metric.optimal.star import GRACE, anchored_bound, kernel_of, price_all, proof, star_trees
from privopt.metric.optimal.symmetry import Symmetry, find_symmetry

__all__ = ["solve_column_generation"]

KEEP = 6
"""Columns kept, in multiples of the records, when the master is cleaned."""

SOFTER = (0.5,)
"""Shares of epsilon whose kernels are seeds beside the star's own."""


@define(eq=False)
class _Master:
    """Restricted master over the rays found so far, warm in HiGHS."""

    instance: Instance
    symmetry: Symmetry
    rays: Array
    serves: Any
    costs: Array
    solver: Any = None
    scale: float = 1.0
    rounds: int = 0
    keys: set[bytes] = field(factory=set)

    @classmethod
    def start(cls, instance: Instance, symmetry: Symmetry) -> _Master:
        import highspy

        solver = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("presolve", "off"),
            ("solver", "simplex"),
            ("simplex_strategy", 4),
            ("threads", 1),
            ("primal_feasibility_tolerance", 1e-9),
            ("dual_feasibility_tolerance", 1e-9),
        ):
            solver.setOptionValue(option, value)
        n = len(symmetry.size)
        empty_index, empty = np.zeros(0, dtype=np.int32), np.zeros(0)
        solver.addRows(n, np.ones(n), np.ones(n), 0, np.zeros(n, dtype=np.int32), empty_index, empty)
        scale = 1 / max(float(np.abs(instance.cost).max()), 1e-300)
        return cls(
            instance=instance,
            symmetry=symmetry,
            rays=np.zeros((0, instance.records)),
            serves=np.zeros(0, dtype=np.int64),
            costs=np.zeros(0),
            solver=solver,
            scale=scale,
        )

    def add(self, rays: Array) -> int:
        """Add rays ``(M, N)``, each scaled to a largest entry of one; known ones are left out."""
        rays = rays / rays.max(axis=1, keepdims=True)
        fresh = []
        for number, ray in enumerate(rays):
            key = np.round(ray, 9).tobytes()
            if key not in self.keys:
                self.keys.add(key)
                fresh.append(number)
        if not fresh:
            return 0
        rays = rays[fresh]
        table = rays @ self.instance.cost
        serves = table.argmin(axis=1)
        costs = table[np.arange(len(rays)), serves]
        rows = self.rows(rays)
        m, n = rows.shape
        self.solver.addCols(
            m,
            costs * self.scale,
            np.zeros(m),
            np.full(m, np.inf),
            m * n,
            (np.arange(m) * n).astype(np.int32),
            np.tile(np.arange(n, dtype=np.int32), m),
            rows.ravel(),
        )
        self.rays = np.concatenate([self.rays, rays])
        self.serves = np.concatenate([self.serves, serves])
        self.costs = np.concatenate([self.costs, costs])
        return len(rays)

    def rows(self, rays: Array) -> Array:
        """What rays add to each row of the master: their means over the orbits of records."""
        if self.symmetry.order == 1:
            return rays
        means = np.zeros((len(rays), len(self.symmetry.size)))
        np.add.at(means.T, self.symmetry.orbit, rays.T)
        return means / self.symmetry.size

    def run(self, limit: float | None) -> tuple[Array, Array]:
        """Solve; returns the weights of the rays and the prices."""
        import highspy

        self.solver.setOptionValue("time_limit", 1e30 if limit is None else self.solver.getRunTime() + max(limit, 0.1))
        self.solver.run()
        status = self.solver.getModelStatus()
        if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit):
            raise SolverError(f"the master problem ended as {self.solver.modelStatusToString(status)}")
        answer = self.solver.getSolution()
        self.rounds += 1
        prices = np.asarray(answer.row_dual) / self.scale / self.symmetry.size
        return np.maximum(np.asarray(answer.col_value), 0), prices[self.symmetry.orbit]

    def clean(self, prices: Array) -> None:
        """Drop the columns that price out worst once there are too many."""
        n = self.instance.records
        if len(self.rays) <= 2 * KEEP * n:
            return
        import highspy

        reduced = self.costs - self.rays @ prices
        basic = np.array([s == highspy.HighsBasisStatus.kBasic for s in self.solver.getBasis().col_status])
        reduced[basic] = -np.inf
        gone = np.sort(np.argsort(reduced)[KEEP * n :]).astype(np.int32)
        self.solver.deleteCols(len(gone), gone)
        kept = np.ones(len(self.rays), dtype=bool)
        kept[gone] = False
        self.rays, self.serves, self.costs = self.rays[kept], self.serves[kept], self.costs[kept]
        self.keys = {np.round(ray, 9).tobytes() for ray in self.rays}

    def mechanism(self, weights: Array) -> Array:
        """The matrix that weights of the rays make, rows scaled to one."""
        columns = np.zeros(self.instance.cost.shape)
        for number in np.flatnonzero(weights > 0):
            columns[:, self.serves[number]] += weights[number] * self.rays[number]
        z = self.symmetry.lift(columns)
        return np.asarray(z / z.sum(axis=1, keepdims=True))


def _seeds(instance: Instance, symmetry: Symmetry, kernel: Array) -> Array:
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
    y: Array
    trees: Trees
    z: Array

    def raise_bound(self, bound: float, y: Array, trees: Trees) -> bool:
        if bound <= self.lower:
            return False
        self.lower, self.y = bound, y
        self.trees = Trees(parent=trees.parent.copy(), entry=trees.entry.copy(), side=trees.side.copy())
        return True


def _generate(
    master: _Master,
    graph: Graph,
    whole: Instance,
    best: _Best,
    trees: Trees,
    gap: float,
    deadline: float | None,
    progress: Progress | None,
) -> tuple[str, list[tuple[float, float, float]]]:
    instance, began = master.instance, time.monotonic()
    trajectory: list[tuple[float, float, float]] = []
    pull = 0.5
    for _ in range(1000):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return "stopped", trajectory
        weights, y_master = master.run(left)
        loss = float(weights @ master.costs)
        if np.abs(master.rows(weights[None] @ master.rays) - 1).max() < 1e-6 and loss < best.upper:
            best.z = master.mechanism(weights)
            best.upper = whole.loss(best.z)
        added, better = 0, False
        for share in (pull, 0.0) if np.isfinite(best.lower) else (0.0,):
            y = best.y + (1 - share) * (y_master - best.y) if share else y_master
            try:
                priced = price_all(graph, instance, y, trees, deadline=deadline)
            except StoppedError:
                return "stopped", trajectory
            better = best.raise_bound(anchored_bound(master.symmetry, y, priced), y, trees) or better
            log_rays = priced.ray[priced.value < -1e-13 / master.scale]
            added += master.add(np.exp(log_rays - log_rays.max(axis=1, keepdims=True))) if len(log_rays) else 0
            if added:
                pull = min(0.8, pull + 0.1) if better and share else max(0.3, pull - 0.2)
                break
        trajectory.append((time.monotonic() - began, best.lower, best.upper))
        if progress is not None:
            progress(best.lower, best.upper, master.rounds, "column generation")
        if whole.reached(best.upper, best.lower, gap):
            return "optimal", trajectory
        if not added and not better:
            return "feasible", trajectory
        master.clean(y_master)
    return "feasible", trajectory


def _solve_connected(instance: Instance, gap: float, deadline: float | None, progress: Progress | None) -> Solution:
    graph, symmetry = make_graph(instance), find_symmetry(instance)
    few, kernel = symmetry.reduced(instance), kernel_of(graph, symmetry)
    trees = star_trees(graph, (kernel @ few.cost).argmin(axis=0))
    master = _Master.start(few, symmetry)
    master.add(_seeds(instance, symmetry, kernel))
    uniform = np.zeros_like(instance.cost)
    uniform[:, int(instance.cost.sum(axis=0).argmin())] = 1
    best = _Best(lower=-np.inf, upper=instance.loss(uniform), y=np.zeros(instance.records), trees=trees, z=uniform)
    trajectory: list[tuple[float, float, float]] = []
    try:
        status, trajectory = _generate(master, graph, instance, best, trees, gap, deadline, progress)
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
        iterations=master.rounds,
        trajectory=tuple(trajectory),
        status=status,
        details={"columns": len(master.rays), "symmetries": symmetry.order},
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
    return solve_by_component(instance, lambda part: _solve_connected(part, gap, deadline, progress))
