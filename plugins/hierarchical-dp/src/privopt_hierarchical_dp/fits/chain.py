"""Model 2 with region totals, exactly on small inputs and with a stated gap on large ones (mathematics H2).

This is what the paper's chain mechanism wants to solve, on noisy values that are really private:
cumulative counts of each region by itself (sensitivity 1), every region's total known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import StoppedError
from privopt_hierarchical_dp.fits.projection import project_jointly
from privopt_hierarchical_dp.fits.qip import MOST_NODES, Fit, solve_exactly
from privopt_hierarchical_dp.fits.rounding import deal_down
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = ["Fit", "fit_with_totals"]

FARTHEST = 1 << 24
"""Distance of a noisy value from a count up to which integer programs are asked."""


def _round_root(course: Floats, total: int) -> Ints:
    steps = np.floor(np.clip(np.maximum.accumulate(course), 0, total) + 0.5).astype(np.int64)
    steps[-1] = total
    return np.diff(steps, prepend=0)


def fit_with_totals(
    tree: Tree,
    noisy: Sequence[Ints] | Sequence[Floats],
    *,
    totals: Sequence[Ints],
    weights: Sequence[float],
    cumulative: bool,
    gap: float = 1e-3,
    exact_up_to: int = MOST_NODES,
    backend: str = "highs",
) -> Fit:
    """Find the nearest integers to noisy values that add up over the tree, every region's total known.

    Model 2: cumulative counts, rising in every region. Model 1: non-negative counts, a convex-cost flow from sizes
    through the tree into leaf regions of known demand.

    Args:
        tree: the hierarchy.
        noisy: for each level noisy counts (R_l, N), or cumulative counts (R_l, N - 1); size N's are the totals.
        totals: for each level (R_l,) exact totals.
        weights: for each level its weight, above 0.
        cumulative: Model 2.
        gap: relative gap of the continuous projection to stop at.
        exact_up_to: number of values up to which the integer program is solved to optimality; 0 where noisy values are
            estimates and no integers.
        backend: of that program.
    """
    tops = [np.asarray(total, dtype=np.int64) for total in totals]
    size = noisy[0].shape[1]
    if size == 0:
        return Fit(counts=[total[:, None] for total in tops], lower_bound=0.0, iterations=0, solver="none", proved=True)
    factor = max(weights)  # taken out: solvers' tolerances are absolute
    scaled = [float(weight) / factor for weight in weights]
    spread = [np.full(size, weight) for weight in scaled]
    rows = "monotone" if cumulative else "simplex"
    found = project_jointly(tree, noisy, weights=spread, totals=tops, rows=rows, gap=gap)
    if cumulative:
        courses = add_up(tree, np.concatenate([found.leaves, tops[-1][:, None].astype(np.float64)], axis=1))
        noisy = [np.concatenate([level, total[:, None]], axis=1) for level, total in zip(noisy, tops, strict=True)]
    else:
        courses = [np.cumsum(level, axis=1) for level in add_up(tree, found.leaves)]
    counts = deal_down(tree, _round_root(courses[0][0], int(tops[0][0])), courses, tops)
    start = [np.cumsum(level, axis=1) for level in counts] if cumulative else counts
    bound = found.lower_bound * factor
    whole = cast("Sequence[Ints]", noisy)
    dealt = Fit(counts=counts, lower_bound=bound, iterations=found.iterations, solver="ADMM and error diffusion")
    if tree.regions * noisy[0].shape[1] > exact_up_to or _far(whole, start):
        return dealt
    try:
        solved = solve_exactly(
            tree,
            whole,
            start=start,
            total=int(tops[0][0]),
            totals=tops,
            cumulative=cumulative,
            relax_first=True,
            weights=scaled,
            backend=backend,
        )
    except StoppedError:  # what was dealt is a release all the same
        return dealt
    counts = [np.diff(level, axis=1, prepend=0) for level in solved.counts] if cumulative else solved.counts
    return evolve(solved, counts=counts, lower_bound=max(bound, (solved.lower_bound or 0.0) * factor))


def _far(noisy: Sequence[Ints], start: Sequence[Ints]) -> bool:
    """Check whether squared distances pass what an integer program's doubles can distinguish."""
    return any(int(np.abs(a - b).max(initial=0)) > FARTHEST for a, b in zip(noisy, start, strict=True))
