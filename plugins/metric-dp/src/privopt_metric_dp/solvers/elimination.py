"""One elimination order and fill pattern for the matrices of all outputs of a connected component.

The matrix of output ``r`` is ``H_r = A' diag(w_r) A``, with the sparsity of the required-pairs graph. Records are
eliminated by minimum degree (Liu 1985, as in SuperLU), then in postorder of the elimination tree, so that columns of
one pattern are adjacent.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from privopt.arrays import Indices, Ints
from privopt_metric_dp.solvers.instance import Instance

__all__ = ["Elimination", "eliminate"]


@frozen(kw_only=True, eq=False)
class Elimination:
    """Pattern of the factor ``L D L'``, ``L`` with a diagonal of ones that is not stored.

    Attributes:
        order: ``(N,)`` record at each place.
        start: ``(N + 1,)`` first entry of each column of ``L``.
        row: ``(E,)`` row (place) of each entry, rising within a column.
        across: ``(N + 1,)`` first of each row in ``entry``.
        entry: ``(E,)`` the entries by rows, columns rising.
        column: ``(E,)`` column of each entry.
        pair: ``(P,)`` entry of each required pair.
        place: ``(N,)`` place of each record.
    """

    order: Ints
    start: Indices
    row: Indices
    across: Indices
    entry: Indices
    column: Indices
    pair: Indices
    place: Indices

    @property
    def entries(self) -> int:
        """Entries below the diagonal."""
        return len(self.row)


def _minimum_degree(instance: Instance) -> Ints:
    """Record at each place, by minimum degree; as given where nearly all pairs are required."""
    n = instance.records
    if len(instance.pairs) > n * (n - 1) // 4:
        return np.arange(n)
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    i, j = instance.pairs.T
    k = np.arange(n)
    degree = np.bincount(instance.pairs.ravel(), minlength=n) + 1.0
    values = np.concatenate([-np.ones(2 * len(i)), degree])
    matrix = csc_array((values, (np.concatenate([i, j, k]), np.concatenate([j, i, k]))), shape=(n, n))
    factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    return np.argsort(factor.perm_c).astype(np.int64)


def _patterns(instance: Instance, place: Ints) -> list[Ints]:
    """Rows of each column of the factor under an order."""
    n = instance.records
    ends = np.sort(place[instance.pairs], axis=1)
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    bounds = np.searchsorted(ends[:, 0], np.arange(n + 1))
    children: list[list[Ints]] = [[] for _ in range(n)]
    result: list[Ints] = []
    for k in range(n):
        below = np.unique(np.concatenate([ends[bounds[k] : bounds[k + 1], 1], *children[k]]))
        result.append(below)
        if len(below):
            children[below[0]].append(below[1:])
        children[k] = []
    return result


def _postorder(patterns: list[Ints]) -> Ints:
    """Return an order of places in which each subtree of the elimination tree is contiguous."""
    n = len(patterns)
    children: list[list[int]] = [[] for _ in range(n)]
    roots: list[int] = []
    for k, below in enumerate(patterns):
        (children[int(below[0])] if len(below) else roots).append(k)
    stack, reverse = roots, list[int]()
    while stack:
        k = stack.pop()
        reverse.append(k)
        stack.extend(children[k])
    return np.array(reverse[::-1], dtype=np.int64)


def eliminate(instance: Instance) -> Elimination:
    """Order the records of a connected instance and find the pattern of the factors."""
    n = instance.records
    order = _minimum_degree(instance)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    order = order[_postorder(_patterns(instance, place))]
    place[order] = np.arange(n)
    patterns = _patterns(instance, place)
    start = np.concatenate([[0], np.cumsum([len(below) for below in patterns])])
    row = np.concatenate(patterns)
    column = np.repeat(np.arange(n), np.diff(start))
    entry = np.argsort(row, kind="stable")
    ends = np.sort(place[instance.pairs], axis=1)
    pair = np.searchsorted(column * n + row, ends[:, 0] * n + ends[:, 1])
    narrow = np.int32
    return Elimination(
        order=order,
        start=start.astype(narrow),
        row=row.astype(narrow),
        across=np.searchsorted(row[entry], np.arange(n + 1)).astype(narrow),
        entry=entry.astype(narrow),
        column=column.astype(narrow),
        pair=pair.astype(narrow),
        place=place.astype(narrow),
    )
