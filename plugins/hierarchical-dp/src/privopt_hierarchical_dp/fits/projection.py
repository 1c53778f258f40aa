"""Projection onto values that add up over the tree and satisfy constraints within each region, by ADMM.

The optimality gap is proved. The projection is onto the intersection of two convex sets. Projecting onto each set
individually is cheap:

* *tree*: each region equals the sum of its children, size by size. The projection is weighted least squares.
* *rows*: the row of values of each region r, whose total is G_r, is constrained. With ``"monotone"`` (Model 2 with
  totals) it is non-decreasing along the sizes and within [0, G_r]. With ``"simplex"`` (Model 1 with totals) it is
  non-negative with sum G_r. Each row is projected separately, by pooling adjacent violators or onto a simplex.

The alternating direction method of multipliers (ADMM) alternates between the two projections. Its multipliers provide a
lower bound on the objective at any time, because both parts of the Lagrangian have closed-form minima. The tree part is
again a least-squares problem. The row part is linear over a polytope with known vertices (steps, or rows with a single
non-zero entry). For the upper bound, leaves that satisfy the row constraints are added up over the tree, which yields a
feasible point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.execution.clock import clock
from privopt.execution.compiled import jit
from privopt_hierarchical_dp.fits.isotonic import isotonic_floats
from privopt_hierarchical_dp.least_squares import NearestSums, Weights
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = ["Projection", "project_jointly", "simplex_rows"]


FIRST_PENALTY: Final = 2.0
"""The initial penalty of ADMM, as a multiple of the weights. The value suits small problems."""
UNBALANCED: Final = 1.5
"""The factor by which the primal and dual residuals of ADMM must differ for the penalty to be changed."""
LAST_BALANCE: Final = 200
"""The last step at which the penalty may change. Convergence of ADMM is only guaranteed for a constant penalty."""


@frozen(kw_only=True, eq=False)
class Projection:
    """A feasible point of the continuous problem, with a lower bound on the optimum.

    Attributes:
        leaves: (leaf regions, sizes) The leaf level of the feasible point. All other levels are sums of it.
        value: The objective at the feasible point.
        lower_bound: A lower bound on the objective of all feasible points, up to floating-point rounding errors.
        iterations: The number of ADMM steps.
    """

    leaves: Floats
    value: float
    lower_bound: float
    iterations: int

    @property
    def gap(self) -> float:
        """The relative gap between ``value`` and ``lower_bound``."""
        return (self.value - self.lower_bound) / max(abs(self.value), 1e-12)


@jit()
def _simplex_rows(values: Floats, weights: Floats, totals: Floats, projected: Floats) -> None:
    """Project each row onto a simplex, i.e. minimise sum_s w_s (x_s - v_s)^2 subject to x >= 0 and sum_s x_s = total.

    The solution is x_s = max(0, v_s + price / w_s), where the price is the multiplier of the sum constraint. It is
    found from sorted break points.

    Args:
        values: (rows, sizes) The rows v to project.
        weights: (sizes,) The positive weights w.
        totals: (rows,) The required sum of each row.
        projected: (rows, sizes) The output array.
    """
    rows, size = values.shape
    for row in range(rows):
        keys = np.empty(size, np.float64)
        for s in range(size):
            keys[s] = values[row, s] * weights[s]  # x_s > 0 if and only if the price is above -v w
        order = np.argsort(-keys)
        free, level = 0.0, 0.0
        price = 0.0
        for rank in range(size):
            s = order[rank]
            free += 1.0 / weights[s]
            level += values[row, s]
            price = (totals[row] - level) / free
            # At this price, the next entry and all entries after it are 0.
            if rank + 1 == size or keys[order[rank + 1]] + price <= 0.0:
                break
        for s in range(size):
            projected[row, s] = max(0.0, values[row, s] + price / weights[s])


def _worst_step(multiplier: Floats, totals: Floats) -> float:
    """Return the sum over regions r of the maximum of <y_r, z_r> over all non-decreasing z_r within [0, G_r].

    Args:
        multiplier: (regions, sizes) The multipliers y.
        totals: (regions,) The totals G.
    """
    # The maximum is attained at a vertex. The vertices of {0 <= z_1 <= ... <= z_S <= G} are the steps (0, ..., 0, G,
    # ..., G), for which <y, z> is either 0 or G times a suffix sum of y.
    suffix = np.cumsum(multiplier[:, ::-1], axis=1)
    return float(np.sum(np.maximum(suffix.max(axis=1), 0.0) * totals))


def _worst_entry(multiplier: Floats, totals: Floats) -> float:
    """Return the sum over regions r of the maximum of <y_r, z_r> over all non-negative z_r with sum G_r.

    The maximum is attained if z_r is G_r at the largest entry of y_r and 0 elsewhere.

    Args:
        multiplier: (regions, sizes) The multipliers y.
        totals: (regions,) The totals G.
    """
    return float(np.sum(multiplier.max(axis=1) * totals))


def _move_multipliers_down(tree: Tree, multipliers: Sequence[Floats], weights: Sequence[Floats]) -> list[Floats]:
    """Move the multipliers of levels with weight 0 down to the levels below.

    For consistent values, this does not change the Lagrangian, because each region is the sum of its children.

    Args:
        tree: The region tree.
        multipliers: For each level, a (regions, sizes) array with the multipliers.
        weights: The weight of each level, as a scalar or a (sizes,) array.

    Returns:
        For each level, a (regions, sizes) array with the new multipliers. Entries with weight 0 still contain the moved
        values and must not be used.
    """
    moved = [multipliers[0]]
    # The last level has no children, so tree.start has no entry for it.
    for level, (start, weight) in enumerate(zip(tree.start, weights, strict=False)):
        # If a level has weight 0, the tree part of the Lagrangian is unbounded below in the level's values unless their
        # multipliers are 0. As a consistent value is the sum of its children's values, its multiplier can be applied to
        # these instead.
        passed_on = np.where(weight > 0.0, 0.0, moved[level])
        moved.append(multipliers[level + 1] + np.repeat(passed_on, np.diff(start), axis=0))
    return moved


def _weighted_square(weights: Sequence[Floats], values: Sequence[Floats], targets: Sequence[Floats]) -> float:
    """Return the weighted squared distance over all levels, sum_l w_l |values_l - targets_l|^2.

    Args:
        weights: The weight w_l of each level, as a scalar or a (sizes,) array.
        values: For each level, a (regions, sizes) array.
        targets: For each level, an array of the same shape as in ``values``.
    """
    # Sum over the regions first, because a weight is a scalar or has one entry per size.
    return float(
        sum(np.sum(w * np.sum((v - t) ** 2, axis=0)) for w, v, t in zip(weights, values, targets, strict=True))
    )


def simplex_rows(values: Floats, totals: Floats) -> Floats:
    """Project each row onto the non-negative vectors with a given sum.

    Args:
        values: (rows, sizes) The rows to project.
        totals: (rows,) The required sum of each row.

    Returns:
        An array of the same shape as ``values``.
    """
    projected = np.empty_like(values)
    _simplex_rows(values, np.ones(values.shape[1]), totals, projected)
    return projected


def _prepare_penalty(
    tree: Tree, weights: Sequence[Floats], penalty: Sequence[Floats], size: int
) -> tuple[NearestSums, list[Floats]]:
    """Return the projection onto consistent values for a given penalty, and the penalty as one array per level.

    Args:
        tree: The region tree.
        weights: The weight of each level, as a scalar or a (size,) array.
        penalty: The penalty to add to the weight of each level, as a scalar or a (size,) array.
        size: The number of values per region.

    Returns:
        The projection, and a (size,) array of penalties for each level.
    """
    projection = NearestSums.of(tree, [w + p for w, p in zip(weights, penalty, strict=True)])
    return projection, [np.ascontiguousarray(np.broadcast_to(p, size)) for p in penalty]


def _balance(
    tree_values: Sequence[Floats], row_values: Sequence[Floats], previous: Sequence[Floats], penalty: Sequence[Floats]
) -> float:
    """Return the factor by which to multiply ADMM's penalty to keep the primal and dual residuals similar in size.

    The primal residual is the distance between ``tree_values`` and ``row_values``, which a larger penalty decreases.
    The dual residual is the change of ``row_values`` in one step, which a smaller penalty decreases.

    Source:
        Boyd et al., Distributed Optimization and Statistical Learning via ADMM, 2011, section 3.4.1.

    Args:
        tree_values: For each level, a (regions, sizes) array with the projection onto consistent values.
        row_values: For each level, a (regions, sizes) array with the projection onto the row constraints.
        previous: The ``row_values`` of the previous step.
        penalty: For each level, a (sizes,) array with the penalties.
    """
    primal = _weighted_square(penalty, tree_values, row_values)
    dual = _weighted_square(penalty, row_values, previous)
    if primal > UNBALANCED**2 * dual:
        return 2.0
    return 0.5 if dual > UNBALANCED**2 * primal else 1.0


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
    """Project noisy values onto the points that are consistent over the tree and satisfy all row constraints.

    The search stops when the required gap is reached, after ``iterations`` steps, or when the time limit expires.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy values.
        weights: The weight of each level, as a scalar or a (sizes,) array. Weights must be non-negative, and the weight
            of the leaves must be positive.
        totals: For each level, a (regions,) array with the total G_r of each region r.
        rows: The constraint on each region's row of values. ``"monotone"`` rows are non-decreasing within [0, G_r], and
            ``"simplex"`` rows are non-negative with sum G_r.
        gap: The relative optimality gap at which to stop.
        iterations: The maximum number of ADMM steps.

    Returns:
        The best feasible point found, with the best lower bound.
    """
    targets = [np.ascontiguousarray(values, dtype=np.float64) for values in noisy]
    weight = [np.asarray(w, dtype=np.float64) for w in weights]
    tops = [np.asarray(total, dtype=np.float64) for total in totals]
    # ADMM's penalty is proportional to the weights, but only up to a weight of 1, because a weight far above the others
    # represents a constraint. Row constraints also apply to levels with weight 0, which get the penalty of weight 1.
    penalty = [FIRST_PENALTY * np.where(w > 0.0, np.minimum(w, 1.0), 1.0) for w in weight]
    pulled_projection, penalty_by_size = _prepare_penalty(tree, weight, penalty, targets[0].shape[1])
    # The tree step of ADMM uses weights plus penalty, whereas the lower bound needs a projection with the weights
    # alone.
    tree_projection = NearestSums.of(tree, weight)
    max_product = _worst_step if rows == "monotone" else _worst_entry
    row_values = [target.copy() for target in targets]  # z: satisfies the row constraints after the first step
    dual = [np.zeros_like(target) for target in targets]  # u: scaled multipliers
    best_point: tuple[float, Floats] = (np.inf, row_values[-1])
    lower = -np.inf
    step = 0
    for step in range(1, iterations + 1):
        pulled_targets = [
            (w * t + p * (z - u)) / (w + p)
            for w, p, t, z, u in zip(weight, penalty, targets, row_values, dual, strict=True)
        ]
        tree_values = pulled_projection(pulled_targets)
        is_evaluated = step % 10 == 0 or step == iterations
        previous = [z.copy() for z in row_values] if is_evaluated else []
        for x, z, u, p, top in zip(tree_values, row_values, dual, penalty_by_size, tops, strict=True):
            u += 1.6 * x - 0.6 * z  # over-relaxation: u becomes the point to project
            if rows == "monotone":
                isotonic_floats(u, high=top, weights=p, fitted=z)
            else:
                _simplex_rows(u, p, top, z)
            u -= z
        # The value and the bound need another projection, so they are only computed at every tenth step and at the last
        # one.
        if not is_evaluated:
            continue
        # Adding up leaves that satisfy the row constraints gives a feasible point, because sums of monotone rows are
        # monotone, and the total of each parent is the sum of its children's totals.
        value = _weighted_square(weight, add_up(tree, row_values[-1]), targets)
        if value < best_point[0]:
            best_point = (value, row_values[-1].copy())
        # The minimum of the Lagrangian with multipliers y = 2 p u is a lower bound. Its tree part is smallest at the
        # projection of t - y / (2 w), and its row part at a vertex.
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
        factor = _balance(tree_values, row_values, previous, penalty_by_size)
        if factor != 1.0 and step <= LAST_BALANCE:
            # Scaling both leaves the multipliers 2 p u unchanged.
            penalty = [p * factor for p in penalty]
            dual = [u / factor for u in dual]
            pulled_projection, penalty_by_size = _prepare_penalty(tree, weight, penalty, targets[0].shape[1])
    # The objective is a sum of squares, so 0 is a lower bound too, which matters if the run was stopped early.
    return Projection(leaves=best_point[1], value=best_point[0], lower_bound=max(lower, 0.0), iterations=step)
