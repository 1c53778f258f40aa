"""Model 2 with region totals, exactly on small inputs and with a stated gap on large ones (mathematics H2).

This is what the paper's chain mechanism wants to solve, on noisy values that are really private:
cumulative counts of each region by itself (sensitivity 1), every region's total known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.projection import project_jointly, sum_up
from privopt_hierarchical_dp.qip import MOST_NODES, Fit, solve_exactly
from privopt_hierarchical_dp.rounding import deal_down
from privopt_hierarchical_dp.tree import Tree

__all__ = ["Fit", "fit_counts", "fit_cumulative"]

FARTHEST = 1 << 24
"""Distance of a noisy value from a count up to which integer programs are asked."""


def _round_root(course: Floats, total: int) -> Ints:
    steps = np.floor(np.clip(np.maximum.accumulate(course), 0, total) + 0.5).astype(np.int64)
    steps[-1] = total
    return np.diff(steps, prepend=0)


def fit_cumulative(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    totals: Sequence[Ints],
    weights: Sequence[Floats],
    gap: float = 1e-3,
    exact_up_to: int = MOST_NODES,
    backend: str = "highs",
    time_limit: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Fit:
    """Nearest integers to noisy cumulative counts: rising in every region, adding up over the tree.

    Args:
        tree: the hierarchy.
        noisy: for each level (R_l, N - 1) noisy cumulative counts; size N's are the totals.
        totals: for each level (R_l,) exact totals.
        weights: for each level (N - 1,) positive weights.
        gap: relative gap of the continuous projection to stop at.
        exact_up_to: number of values up to which the integer program is solved to optimality.
        backend, time_limit: for that program.
        stopped: asked now and then; True ends the projection at the point reached.
    """
    tops = [np.asarray(total, dtype=np.int64) for total in totals]
    size = noisy[0].shape[1]
    if size == 0:
        return Fit(counts=[total[:, None] for total in tops], lower_bound=0.0, iterations=0, solver="none", proved=True)
    scaled = _scaled(weights)
    found = project_jointly(tree, noisy, weights=scaled[0], totals=tops, gap=gap, stopped=stopped)
    leaves = np.concatenate([found.leaves, tops[-1][:, None].astype(np.float64)], axis=1)
    courses = sum_up(tree, leaves)
    counts = deal_down(tree, _round_root(courses[0][0], int(tops[0][0])), courses, tops)
    bound = found.lower_bound * scaled[1]
    start = [np.cumsum(level, axis=1) for level in counts]
    padded = [np.concatenate([level, total[:, None]], axis=1) for level, total in zip(noisy, tops, strict=True)]
    if tree.regions * (size + 1) > exact_up_to or _far(padded, start):
        return Fit(counts=counts, lower_bound=bound, iterations=found.iterations, solver="ADMM and error diffusion")
    solved = solve_exactly(
        tree, padded, start=start, total=int(tops[0][0]), totals=tops, cumulative=True, relax_first=True,
        weights=[np.append(weight, 1.0) for weight in scaled[0]], backend=backend, time_limit=time_limit,
    )  # fmt: skip
    return _proved(solved, [np.diff(level, axis=1, prepend=0) for level in solved.counts], bound, scaled[1])


def _far(noisy: Sequence[Ints], start: Sequence[Ints]) -> bool:
    """Whether squared distances pass what an integer program's doubles can tell apart."""
    return any(int(np.abs(a - b).max(initial=0)) > FARTHEST for a, b in zip(noisy, start, strict=True))


def _proved(solved: Fit, counts: list[Ints], bound: float, factor: float) -> Fit:
    """What the integer program found, with the better of its bound (in scaled weights) and the projection's."""
    return evolve(solved, counts=counts, lower_bound=max(bound, (solved.lower_bound or 0.0) * factor))


def _scaled(weights: Sequence[Floats]) -> tuple[list[Floats], float]:
    """Weights with largest 1, and the factor taken out: solvers' tolerances are absolute."""
    top = max(float(weight.max()) for weight in weights)
    return [np.asarray(weight, dtype=np.float64) / top for weight in weights], top


def fit_counts(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    totals: Sequence[Ints],
    weights: Sequence[float],
    gap: float = 1e-3,
    exact_up_to: int = MOST_NODES,
    backend: str = "highs",
    time_limit: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Fit:
    """Model 1 with region totals: nearest non-negative integers with every region's total and consistent sums.

    A convex-cost flow from sizes through the tree into leaf regions of known demand; arguments as
    `fit_cumulative`, on counts (R_l, N).
    """
    tops = [np.asarray(total, dtype=np.int64) for total in totals]
    size = noisy[0].shape[1]
    spread = [np.full(size, float(weight)) for weight in weights]
    scaled, factor = _scaled(spread)
    found = project_jointly(tree, noisy, weights=scaled, totals=tops, rows="simplex", gap=gap, stopped=stopped)
    courses = [np.cumsum(level, axis=1) for level in sum_up(tree, found.leaves)]
    counts = deal_down(tree, _round_root(courses[0][0], int(tops[0][0])), courses, tops)
    bound = found.lower_bound * factor
    if tree.regions * size > exact_up_to or _far(noisy, counts):
        return Fit(counts=counts, lower_bound=bound, iterations=found.iterations, solver="ADMM and error diffusion")
    solved = solve_exactly(
        tree, noisy, start=counts, total=int(tops[0][0]), totals=tops, relax_first=True,
        weights=[float(w[0]) for w in scaled], backend=backend, time_limit=time_limit,
    )  # fmt: skip
    return _proved(solved, solved.counts, bound, factor)
