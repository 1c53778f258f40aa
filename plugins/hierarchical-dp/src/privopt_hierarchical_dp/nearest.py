"""The nearest consistent numbers within public bounds: totals, and counts of releases, whatever method made them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import InfeasibleError, SolverError, StoppedError, UsageError
from privopt.execution.limits import seconds_left
from privopt_hierarchical_dp.bounds import UNBOUNDED, Limits, Range
from privopt_hierarchical_dp.tree import Tree, add_up

if TYPE_CHECKING:
    from scipy.sparse import csr_array
else:
    csr_array = Any

__all__ = ["check_room", "least_moved", "moved_within", "nearest_within"]

MOST_CELLS: Final = 200_000
"""Counts of leaf regions up to which bounds on sizes are kept together with numbers of groups."""
WITHIN: Final = "the nearest numbers within bounds were found"


def nearest_within(tree: Tree, totals: Sequence[Ints], ends: Range) -> list[Ints]:
    """Consistent totals within bounds, near consistent ones: from the root down, each region's children the nearest.

    The root's is moved into its bounds; those of children (integers within their bounds that add up to the parent's)
    have the least sum of squared distances, by one shift for all that is cut off at the bounds; what is left over goes
    to the first.
    """
    root = np.clip(totals[0], ends.least[0], ends.most[0])[:, None]
    columns = [[side[:, None] for side in sides] for sides in (totals, ends.least, ends.most)]
    return [level[:, 0] for level in _down(tree, root, *columns)]


def _down(tree: Tree, root: Ints, near: Sequence[Ints], least: Sequence[Ints], most: Sequence[Ints]) -> list[Ints]:
    """From the root's numbers (1, N) down, those of each region's children (K, N) that add up to its own."""
    found = [root]
    for level, start in enumerate(tree.start):
        below = near[level + 1].copy()
        low, high = least[level + 1], most[level + 1]
        right = np.add.reduceat(below, start[:-1], axis=0) == found[level]
        right &= np.logical_and.reduceat((below >= low) & (below <= high), start[:-1], axis=0)
        for place, (first, last) in enumerate(pairwise(start.tolist())):
            columns = np.flatnonzero(~right[place])
            if len(columns):
                own = np.s_[first:last, columns]
                below[own] = _shifted(below[own], low[own], high[own], found[level][place, columns])
        found.append(below)
    return found


def _shifted(near: Ints, least: Ints, most: Ints, totals: Ints) -> Ints:
    """Integers (K, S) within bounds whose columns have the sums (S,), the nearest to those given."""
    low, high = (least - near).min(axis=0) - 1, (most - near).max(axis=0) + 1
    while (high - low > 1).any():  # sums reach the totals at high, not at low
        middle = (low + high) // 2
        reached = np.clip(near + middle, least, most).sum(axis=0, dtype=np.float64)  # exact below 2^53: enough
        enough = reached >= totals
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    found, less = np.clip(near + high, least, most), np.clip(near + low, least, most)
    over = found > less
    later = np.cumsum(over[::-1], axis=0)[::-1]
    return np.asarray(found - (over & (later <= found.sum(axis=0) - totals)))


def moved_within(tree: Tree, counts: Sequence[Ints], limits: Limits, exact: Sequence[Ints]) -> list[Ints]:
    """Consistent counts within bounds, near those of a release; those of it where they are within.

    Where no numbers of groups have to be kept, the root's counts are the nearest with its total, and from there down
    those of each region's children, size by size. Else leaves move by as few groups as they can in all: two families of
    sums over a tree, each region's and each region's of a size, make a flow, whose vertices are integers.

    Args:
        tree: the hierarchy.
        counts: for each level (R_l, N), consistent and not negative.
        limits: the bounds, with some on single sizes.
        exact: for each level (R_l,) numbers of groups, or the root's alone, that stay since they are exact; none where
            none is.

    Raises:
        UsageError: more counts than `MOST_CELLS` where numbers of groups have to be kept.
        InfeasibleError: nothing keeps these totals and bounds.
    """
    if not limits.broken(counts):
        return list(counts)
    assert limits.sizes is not None
    if _joined(limits, exact):
        return add_up(tree, _flow(tree, counts[-1], limits, exact))
    least, most = limits.sizes.least, limits.sizes.most
    whole = np.array([int(counts[0].sum())])
    near, low, high = (level[0].reshape(-1, 1) for level in (counts, least, most))
    top = _shifted(near, low, high, np.clip(whole, *limits.root)).T
    return _down(tree, top, counts, least, most)


def _joined(limits: Limits, exact: Sequence[Ints]) -> bool:
    """Whether regions' numbers of groups are held too, beside those of sizes."""
    return limits.on_totals or len(exact) > 1


def check_room(tree: Tree, limits: Limits, exact: Sequence[Ints]) -> None:
    """Whether there are counts within bounds with exact, public numbers of groups.

    Raises:
        UsageError: there are more than `MOST_CELLS` to look through.
        InfeasibleError: there are none.
    """
    if limits.sizes is not None and _joined(limits, exact):
        _flow(tree, np.zeros_like(limits.sizes.least[-1]), limits, exact)


def _flow(tree: Tree, leaves: Ints, limits: Limits, exact: Sequence[Ints]) -> Ints:
    """The nearest leaves (R_L, N) in L1 within bounds: more and less of each than given."""
    assert limits.sizes is not None
    shape, cells = leaves.shape, leaves.size
    if cells > MOST_CELLS:
        found = f"{shape[0]:,} leaf regions x {shape[1]:,} sizes = {cells:,} counts"
        raise UsageError(
            f"bounds on sizes beside numbers of groups that are kept: found {found}, at most {MOST_CELLS:,} are taken; "
            "wanted fewer, or bounds on sizes alone and a method without exact region totals (hierarchical-dp)"
        )
    least, most = (side[-1].ravel() for side in (limits.sizes.least, limits.sizes.most))
    moved = least_moved(leaves.ravel(), *_sums(tree, limits, exact), least, most)
    if moved is None:
        raise InfeasibleError(
            "hierarchy.bounds: no counts keep its bounds on sizes together with the numbers of groups"
        )
    return moved.reshape(shape)


def least_moved(
    given: Ints, sums: csr_array, low: Ints, high: Ints, least: Ints, most: Ints, *, costs: Floats | None = None
) -> Ints | None:
    """The whole numbers nearest to given ones (n,) in L1 that keep bounds, and bounds on sums of them; None if none do.

    As a linear program, whose vertices are whole where sums are of two trees; where one is not, as an integer one.

    Args:
        given: whole numbers.
        sums: (m, n) what is added up.
        low, high: (m,) bounds on the sums.
        least, most: (n,) on the numbers themselves; what is `UNBOUNDED` away is none.
        costs: (n,) of moving each by one; left out: 1.

    Raises:
        StoppedError: the time limit came first.
    """
    from scipy import sparse

    from privopt.backends import Outcome, get
    from privopt.dsl.form import StandardForm

    cells, away = given.size, sums @ given
    form = StandardForm(
        c=np.ones(2 * cells) if costs is None else np.concatenate([costs, costs]),
        A=sparse.hstack([sums, -sums]).tocsr(),
        row_lower=low - away,
        row_upper=_free(high) - away,
        col_lower=np.concatenate([np.maximum(least - given, 0), np.maximum(given - most, 0)]).astype(np.float64),
        col_upper=np.concatenate([np.maximum(_free(most) - given, 0), _free(np.maximum(given - least, 0))]),
        integrality=np.zeros(2 * cells),
    )
    for whole in (0.0, 1.0):
        left = seconds_left(WITHIN)
        solved = get("highs").solve(evolve(form, integrality=np.full(2 * cells, whole)), gap=0.0, time_limit=left)
        if solved.outcome is Outcome.INFEASIBLE:
            return None
        if left is not None and solved.outcome in (Outcome.STOPPED, Outcome.FEASIBLE):
            raise StoppedError(f"the time limit came before {WITHIN}; nothing written")
        if solved.outcome is not Outcome.OPTIMAL or solved.x is None:
            raise SolverError(f"bounds: HiGHS says {solved.outcome.value}; this is a fault")
        more, less = np.rint(solved.x).astype(np.int64).reshape(2, cells)
        moved = np.asarray(given + more - less)
        kept = sums @ moved
        if not (((moved < least) | (moved > most)).any() or ((kept < low) | (kept > high)).any()):
            return moved
    raise SolverError("bounds: HiGHS's answer does not keep them; this is a fault")


def _free(most: Ints) -> Floats:
    """Upper bounds as a solver wants them."""
    return np.where(most >= UNBOUNDED, np.inf, most.astype(np.float64))


def _sums(tree: Tree, limits: Limits, exact: Sequence[Ints]) -> tuple[csr_array, Ints, Ints]:
    """Sums over leaves' counts that have bounds of their own, and these: each region's, and each region's of a size."""
    from scipy import sparse

    assert limits.sizes is not None
    size = limits.sizes.least[-1].shape[1]
    within = sparse.eye_array(tree.widths[-1], format="csr")
    rows, low, high = [], [], []
    for level in reversed(range(tree.depth)):
        if level < tree.depth - 1:
            start = tree.start[level]
            parent = np.repeat(np.arange(tree.widths[level]), np.diff(start))
            up = sparse.csr_array((np.ones(len(parent)), (parent, np.arange(len(parent)))))
            within = (up @ within).tocsr()
            held = np.flatnonzero((limits.sizes.least[level] > 0) | (limits.sizes.most[level] < UNBOUNDED))
            rows.append(sparse.kron(within, sparse.eye_array(size), format="csr")[held])
            low.append(limits.sizes.least[level].ravel()[held])
            high.append(limits.sizes.most[level].ravel()[held])
        known = level < len(exact)
        rows.append(sparse.kron(within, np.ones((1, size)), format="csr"))
        low.append(exact[level] if known else limits.totals.least[level])
        high.append(exact[level] if known else limits.totals.most[level])
    return sparse.vstack(rows).tocsr(), np.concatenate(low), np.concatenate(high)
