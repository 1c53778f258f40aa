"""Joint projection onto tree consistency and constraints on each region, by ADMM with a proved gap.

The projection is onto the intersection of two convex sets. Projecting onto either one is cheap:

* *tree*: a region equals the sum of its children, size by size: weighted least squares.
* *rows*: each region is non-decreasing along sizes within [0, G_r] (``"monotone"``, Model 2 with totals). Or it is
  non-negative with sum G_r (``"simplex"``, Model 1 with totals). PAVA, or a projection on a simplex, solves each row.

ADMM alternates between the two projections. The multipliers give a lower bound on the objective at any time, because
both parts of the Lagrangian can be minimised in closed form. The tree part is again a least-squares problem. The row
part is linear over a polytope with known vertices (steps, or one full entry). Leaves that satisfy the row constraints,
added up over the tree, are feasible and give the upper bound.
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
"""ADMM's penalty in the first steps, as a multiple of the weights. The value suits small problems."""
UNBALANCED: Final = 1.5
"""The ratio of ADMM's two residuals from which the penalty is changed."""
LAST_BALANCE: Final = 200
"""The last step at which the penalty may change. ADMM is certain to converge once the penalty is constant."""


@frozen(kw_only=True, eq=False)
class Projection:
    """A feasible point of the continuous problem, with a lower bound on the optimum.

    Attributes:
        leaves: (R_L, S) The values of the leaf regions. They satisfy the row constraints.
        value: The objective of the point whose other levels are sums of the leaves.
        lower_bound: A lower bound on the objective of all feasible points, up to rounding errors of doubles.
        iterations: The number of ADMM steps.
    """

    leaves: Floats
    value: float
    lower_bound: float
    iterations: int

    @property
    def gap(self) -> float:
        """The relative gap between value and lower bound."""
        return (self.value - self.lower_bound) / max(abs(self.value), 1e-12)


@jit()
def _simplex_rows(values: Floats, weights: Floats, totals: Floats, projected: Floats) -> None:
    """Project each row onto a simplex: minimise sum_s w_s (x_s - v_s)^2 with x >= 0 and sum x = total.

    The solution is x_s = max(0, v_s + price / w_s), where sorted break points determine the price, the multiplier of
    the sum.

    Args:
        values: (R, S) The values v.
        weights: (S,) Positive weights w.
        totals: (R,) The sum of each row.
        projected: (R, S) Receives the result.
    """
    rows, size = values.shape
    for row in range(rows):
        keys = np.empty(size, np.float64)
        for s in range(size):
            keys[s] = values[row, s] * weights[s]  # x_s > 0 if the price is above -v w
        order = np.argsort(-keys)
        free, level = 0.0, 0.0
        price = 0.0
        for rank in range(size):
            s = order[rank]
            free += 1.0 / weights[s]
            level += values[row, s]
            price = (totals[row] - level) / free
            # With this price the next entry, and so all later ones, are 0.
            if rank + 1 == size or keys[order[rank + 1]] + price <= 0.0:
                break
        for s in range(size):
            projected[row, s] = max(0.0, values[row, s] + price / weights[s])


def _worst_step(multiplier: Floats, totals: Floats) -> float:
    """Return the sum over rows of the largest inner product <y, z> for a non-decreasing z in [0, G_r].

    Args:
        multiplier: (R, S) y.
        totals: (R,) G_r.
    """
    # The maximum is at a vertex. The vertices of {0 <= z_1 <= ... <= z_S <= G} are steps (0, ..., 0, G, ..., G), so
    # <y, z> is G times a suffix sum of y, or 0.
    suffix = np.cumsum(multiplier[:, ::-1], axis=1)
    return float(np.sum(np.maximum(suffix.max(axis=1), 0.0) * totals))


def _worst_entry(multiplier: Floats, totals: Floats) -> float:
    """Return the sum over rows of the largest inner product <y, z> for a non-negative z whose sum is G_r.

    At the maximum, z is G_r at the largest entry of y and 0 elsewhere.

    Args:
        multiplier: (R, S) y.
        totals: (R,) G_r.
    """
    return float(np.sum(multiplier.max(axis=1) * totals))


def _move_multipliers_down(tree: Tree, multipliers: Sequence[Floats], weights: Sequence[Floats]) -> list[Floats]:
    """Add the multipliers of levels of weight 0 to those of their children, without changing the Lagrangian.

    The Lagrangian is unchanged at consistent values, at which every region is the sum of its children.

    Args:
        tree: The hierarchy.
        multipliers: The (R_l, S) multipliers on each level.
        weights: The weight of each level, a number or (S,).

    Returns:
        The (R_l, S) multipliers on each level. Entries with weight 0 have been passed on, and must not be used.
    """
    moved = [multipliers[0]]
    # The leaves have no children, so tree.start has no entry for them.
    for level, (start, weight) in enumerate(zip(tree.start, weights, strict=False)):
        # Without a weight the tree part is unbounded below in that level's values, unless its multiplier is 0. A
        # consistent value is the sum of its children's, so they can carry the multiplier instead.
        passed_on = np.where(weight > 0.0, 0.0, moved[level])
        moved.append(multipliers[level + 1] + np.repeat(passed_on, np.diff(start), axis=0))
    return moved


def _weighted_square(weights: Sequence[Floats], values: Sequence[Floats], targets: Sequence[Floats]) -> float:
    """Return the weighted sum of squared distances over all levels, sum_l w_l |values_l - targets_l|^2.

    Args:
        weights: The weight w_l of each level, a number or (S,).
        values, targets: Arrays (R_l, S) of each level.
    """
    # Weights are (S,) or a scalar: regions are summed first, then sizes are weighed.
    return float(
        sum(np.sum(w * np.sum((v - t) ** 2, axis=0)) for w, v, t in zip(weights, values, targets, strict=True))
    )


def simplex_rows(values: Floats, totals: Floats) -> Floats:
    """Return the (R, S) nearest rows that have non-negative entries and the sums ``totals``."""
    projected = np.empty_like(values)
    _simplex_rows(values, np.ones(values.shape[1]), totals, projected)
    return projected


def _prepare_penalty(
    tree: Tree, weights: Sequence[Floats], penalty: Sequence[Floats], size: int
) -> tuple[NearestSums, list[Floats]]:
    """Return the projection onto consistent values for a penalty, and the penalty of each value.

    Args:
        tree: The hierarchy.
        weights: The weight of each level, a number or (S,).
        penalty: The penalty of each level, a number or (S,), which is added to the weights.
        size: The number S of values of a region.

    Returns:
        The projection, and the penalty (S,) of each level.
    """
    projection = NearestSums.of(tree, [w + p for w, p in zip(weights, penalty, strict=True)])
    return projection, [np.ascontiguousarray(np.broadcast_to(p, size)) for p in penalty]


def _balance(
    tree_values: Sequence[Floats], row_values: Sequence[Floats], previous: Sequence[Floats], penalty: Sequence[Floats]
) -> float:
    """Return the factor by which ADMM's penalty changes, to keep its two residuals of similar size.

    The primal residual is the distance between the two projections, which a larger penalty reduces. The dual residual
    is the change of the second projection in one step, which a smaller penalty reduces.

    Source:
        Boyd et al., Distributed Optimization and Statistical Learning via ADMM, 2011, section 3.4.1.

    Args:
        tree_values: The (R_l, S) projection of each level onto consistent values.
        row_values: The (R_l, S) projection of each level onto the constraints of the rows.
        previous: The values of ``row_values`` before this step.
        penalty: The penalty (S,) of each level.
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
    """Find the point nearest to the noisy values that is consistent and satisfies the constraints of all rows.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, S) noisy values on each level.
        weights: The weight of each level, a number or (S,), at least 0. Weights of the leaves must be above 0.
        totals: The totals G_r (R_l,) of each level.
        rows: ``"monotone"``: rows are non-decreasing within [0, G_r]; or ``"simplex"``: rows are non-negative with the
            sum G_r.
        gap: The relative gap at which to stop.
        iterations: The largest number of ADMM steps.
    """
    targets = [np.ascontiguousarray(values, dtype=np.float64) for values in noisy]
    weight = [np.asarray(w, dtype=np.float64) for w in weights]
    tops = [np.asarray(total, dtype=np.float64) for total in totals]
    # ADMM's penalty follows the weights, up to 1, because a weight far above the others represents a constraint. The
    # row constraints apply to a level of weight 0 as well, so its penalty is that of weight 1.
    penalty = [FIRST_PENALTY * np.where(w > 0.0, np.minimum(w, 1.0), 1.0) for w in weight]
    pulled_projection, penalty_by_size = _prepare_penalty(tree, weight, penalty, targets[0].shape[1])
    # ADMM adds its penalty to the weights of the tree part; the lower bound needs the weights alone.
    tree_projection = NearestSums.of(tree, weight)
    max_product = _worst_step if rows == "monotone" else _worst_entry
    row_values = [target.copy() for target in targets]  # z: obeys the rows
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
            u += 1.6 * x - 0.6 * z  # over-relaxation; u is now the point to project
            if rows == "monotone":
                isotonic_floats(u, high=top, weights=p, fitted=z)
            else:
                _simplex_rows(u, p, top, z)
            u -= z
        # Value and bound cost a projection of their own, so they are computed at every tenth step and at the last.
        if not is_evaluated:
            continue
        # Leaves that satisfy their rows are feasible once added up: sums of monotone rows are monotone, and so are
        # totals sums of totals.
        value = _weighted_square(weight, add_up(tree, row_values[-1]), targets)
        if value < best_point[0]:
            best_point = (value, row_values[-1].copy())
        # The Lagrangian with multipliers y = 2 p u bounds the optimum. Its tree part is smallest at the projection of
        # t - y / (2 w), its row part at a vertex.
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
            # The multipliers 2 p u stay as they are.
            penalty = [p * factor for p in penalty]
            dual = [u / factor for u in dual]
            pulled_projection, penalty_by_size = _prepare_penalty(tree, weight, penalty, targets[0].shape[1])
    # A sum of squares is never negative, which improves the bound of a run that was stopped early.
    return Projection(leaves=best_point[1], value=best_point[0], lower_bound=max(lower, 0.0), iterations=step)
