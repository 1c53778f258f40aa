"""Projection on tree consistency and per-region constraints at once, by ADMM with a rigorous gap.

Two convex sets, each cheap on its own:

* *tree*: a region equals the sum of its children, size by size: weighted least squares.
* *rows*: each region is non-decreasing along sizes within [0, G_r] (``"monotone"``, Model 2 with totals). Or it is
  non-negative with sum G_r (``"simplex"``, Model 1 with totals). PAVA, or a projection on a simplex, solves each row.

ADMM alternates them. The multipliers give a lower bound on the objective at any moment, since both
parts of the Lagrangian have a closed minimum. The tree part is least squares again, and the row
part is linear over a polytope with known vertices (steps, or one full entry). The leaves of the row
part added up are feasible, which gives the upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.execution.clock import clock
from privopt.execution.compiled import jit
from privopt_hierarchical_dp.fits.isotonic import isotonic_floats
from privopt_hierarchical_dp.least_squares import NearestSums, Weights
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = ["Projection", "project_jointly", "simplex_rows"]


@frozen(kw_only=True, eq=False)
class Projection:
    """A feasible point of the continuous problem, with a lower bound on the optimum.

    Attributes:
        leaves: (R_L, S) The values of the leaf regions, which satisfy the row constraints.
        value: The objective of the point, whose other levels are sums of the leaves.
        lower_bound: A lower bound on the objective of all feasible points, up to the rounding of doubles.
        iterations: The number of ADMM steps.
    """

    leaves: Floats
    value: float
    lower_bound: float
    iterations: int

    @property
    def gap(self) -> float:
        """The relative distance between value and bound."""
        return (self.value - self.lower_bound) / max(abs(self.value), 1e-12)


@jit()
def _simplex_rows(values: Floats, weights: Floats, totals: Floats, projected: Floats) -> None:
    """Compute argmin sum_s w_s (x_s - v_s)^2 with x >= 0 and sum x = total, row by row (sorted break points)."""
    rows, size = values.shape
    for row in range(rows):
        keys = np.empty(size, np.float64)
        for s in range(size):
            keys[s] = values[row, s] * weights[s]  # x_s > 0 while the price stays above -v w
        order = np.argsort(-keys)
        free, level = 0.0, 0.0
        price = 0.0
        for rank in range(size):
            s = order[rank]
            free += 1.0 / weights[s]
            level += values[row, s]
            price = (totals[row] - level) / free
            if rank + 1 == size or keys[order[rank + 1]] + price <= 0.0:
                break
        for s in range(size):
            projected[row, s] = max(0.0, values[row, s] + price / weights[s])


def _worst_step(multiplier: Floats, totals: Floats) -> float:
    """Return the max over non-decreasing z in [0, G_r] of <y, z>: a step of height G_r at the best place, or none."""
    suffix = np.cumsum(multiplier[:, ::-1], axis=1)
    return float(np.sum(np.maximum(suffix.max(axis=1), 0.0) * totals))


def _worst_entry(multiplier: Floats, totals: Floats) -> float:
    """Return the max over non-negative z with sum G_r of <y, z>: all on the largest entry."""
    return float(np.sum(multiplier.max(axis=1) * totals))


def _move_multipliers_down(tree: Tree, multipliers: Sequence[Floats], weights: Sequence[Floats]) -> list[Floats]:
    """Move the multipliers of levels of weight 0 to their children, which keeps their sum over consistent values."""
    moved = [multipliers[0]]
    for level, (start, weight) in enumerate(zip(tree.start, weights, strict=False)):
        passed_on = np.where(weight > 0.0, 0.0, moved[level])
        moved.append(multipliers[level + 1] + np.repeat(passed_on, np.diff(start), axis=0))
    return moved


def _weighted_square(weights: Sequence[Floats], values: Sequence[Floats], targets: Sequence[Floats]) -> float:
    return float(
        sum(np.sum(w * np.sum((v - t) ** 2, axis=0)) for w, v, t in zip(weights, values, targets, strict=True))
    )


def simplex_rows(values: Floats, totals: Floats) -> Floats:
    """Return the nearest rows (R, S) with non-negative entries and the sums ``totals``."""
    projected = np.empty_like(values)
    _simplex_rows(values, np.ones(values.shape[1]), totals, projected)
    return projected


def project_jointly(
    tree: Tree,
    noisy: Sequence[Ints] | Sequence[Floats],
    *,
    weights: Weights,
    totals: Sequence[Ints],
    rows: str = "monotone",
    gap: float = 1e-3,
    iterations: int = 400,
) -> Projection:
    """Find the nearest point to the noisy values that is consistent over the tree and obeys every row.

    Args:
        tree: the hierarchy.
        noisy: for each level (R_l, S) noisy values.
        weights: for each level a weight, or (S,), of at least 0; the leaves' above 0.
        totals: for each level (R_l,) totals G_r.
        rows: ``"monotone"`` or ``"simplex"``.
        gap: relative gap to stop at.
        iterations: the most ADMM steps.
    """
    targets = [np.ascontiguousarray(values, dtype=np.float64) for values in noisy]
    weight = [np.asarray(w, dtype=np.float64) for w in weights]
    tops = [np.asarray(total, dtype=np.float64) for total in totals]
    # a weight far above the others is a constraint, not a scale; rows bind a level of weight 0 all the same
    penalty = [np.where(w > 0.0, np.minimum(w, 1.0), 1.0) for w in weight]
    # ADMM adds its penalty to the weights of the tree part; the lower bound needs the weights alone.
    pulled_projection = NearestSums.of(tree, [w + p for w, p in zip(weight, penalty, strict=True)])
    tree_projection = NearestSums.of(tree, weight)
    of_sizes = [np.ascontiguousarray(np.broadcast_to(p, targets[0].shape[1])) for p in penalty]
    max_product = _worst_step if rows == "monotone" else _worst_entry
    row_values = [target.copy() for target in targets]  # z: obeys the rows
    dual = [np.zeros_like(target) for target in targets]  # u: scaled multipliers
    best_point: tuple[float, Floats] = (np.inf, row_values[-1])
    lower = -np.inf
    step = 0
    for step in range(1, iterations + 1):
        pulled = [
            (w * t + p * (z - u)) / (w + p)
            for w, p, t, z, u in zip(weight, penalty, targets, row_values, dual, strict=True)
        ]
        middle = pulled_projection(pulled)
        for x, z, u, p, top in zip(middle, row_values, dual, of_sizes, tops, strict=True):
            u += 1.6 * x - 0.6 * z  # over-relaxation; u now holds the point to project
            if rows == "monotone":
                isotonic_floats(u, high=top, weights=p, fitted=z)
            else:
                _simplex_rows(u, p, top, z)
            u -= z
        if step % 10 and step != iterations:
            continue
        value = _weighted_square(weight, add_up(tree, row_values[-1]), targets)
        if value < best_point[0]:
            best_point = (value, row_values[-1].copy())
        # Lagrangian with multipliers y = 2 p u: tree part at t - y / 2 w, row part at its worst vertex
        multipliers = [2.0 * p * u for p, u in zip(penalty, dual, strict=True)]
        shifted = [
            t - np.divide(y, 2.0 * w, out=np.zeros_like(y), where=w > 0.0)
            for t, y, w in zip(targets, _move_multipliers_down(tree, multipliers, weight), weight, strict=True)
        ]
        tree_minimum = tree_projection(shifted)
        rows_part = sum(
            float(np.sum(y * x)) - max_product(y, top)
            for x, y, top in zip(tree_minimum, multipliers, tops, strict=True)
        )
        lower = max(lower, _weighted_square(weight, tree_minimum, targets) + rows_part)
        if best_point[0] - lower <= gap * max(best_point[0], 1e-12) or not clock().left:
            break
    return Projection(leaves=best_point[1], value=best_point[0], lower_bound=max(lower, 0.0), iterations=step)
