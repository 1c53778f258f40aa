"""The elimination order and fill pattern shared by the matrices for all outputs of a connected component.

The matrix for output ``r`` is ``H_r = A' diag(w_r) A``, where the rows of ``A`` are the privacy constraints and ``w_r``
are their weights. It has the sparsity of the graph of required pairs. SuperLU orders the records by minimum degree (Liu
1985). They are then sorted in postorder of the elimination tree, so that columns with the same pattern are adjacent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from privopt.arrays import Indices, Ints
from privopt_metric_dp.solvers.instance import Instance

__all__ = ["Elimination", "eliminate"]


class Elimination(NamedTuple):
    """The elimination order and the sparsity pattern of the factors ``L D L'``.

    All stored entries of ``L`` are below the diagonal, and all diagonal entries are 1. Rows and columns are positions
    in the elimination order.

    Attributes:
        order: Array of shape (N,) with the record at each position in the elimination order.
        start: Array of shape (N + 1,) with the first entry of each column of ``L``.
        row: Array of shape (E,) with the row of each entry, in ascending order within a column.
        across: Array of shape (N + 1,) with the offset in ``entry`` at which each row starts.
        entry: Array of shape (E,) with the indices of the entries row by row, in ascending order of columns within a
            row.
        column: Array of shape (E,) with the column of each entry.
        pair: Array of shape (P,) with the index of the entry for each required pair.
        place: Array of shape (N,) with the position of each record in the elimination order.
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
        """The number of entries below the diagonal."""
        return len(self.row)


def _fill_pattern(instance: Instance) -> tuple[Ints, Ints, Ints]:
    """Choose an elimination order, and determine which entries of the factor can be nonzero.

    If more than half of all pairs are required, the factor is treated as dense and the records keep their order.

    Args:
        instance: A connected instance with N records.

    Returns:
        Three arrays. The first, of shape (N,), contains the record at each position of the order. The other two, of
        shape (E,), contain the columns and the rows of the entries below the diagonal, sorted by column and then by
        row.
    """
    n = instance.records
    # N (N - 1) / 2 pairs are possible in total.
    if 4 * len(instance.pairs) > n * (n - 1):
        return np.arange(n), *np.triu_indices(n, 1)
    from scipy.sparse import csc_array, csr_array
    from scipy.sparse.csgraph import depth_first_order
    from scipy.sparse.linalg import splu

    i, j = instance.pairs.T
    k = np.arange(n)
    # A matrix with the right sparsity is factored, and its nonzero entries give the pattern. The matrix is an M-matrix,
    # so no entry becomes 0 by cancellation. The diagonal exceeds the degrees only slightly, because with an excess of
    # 1, products along a ring of 775 records would underflow to 0.
    degree = np.bincount(instance.pairs.ravel(), minlength=n) + 1e-6
    values = np.concatenate([-np.ones(2 * len(i)), degree])
    matrix = csc_array((values, (np.concatenate([i, j, k]), np.concatenate([j, i, k]))), shape=(n, n))
    factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    row, column = factors.L.nonzero()
    row, column = row[row > column], column[row > column]
    # SuperLU does not compute the postorder of symmetric patterns. Without it, summing the inverses takes 1.5 times as
    # long.
    parent = np.full(n, n)
    np.minimum.at(parent, column, row)
    # In the elimination tree, the parent of a column is the row of its first entry below the diagonal. Roots are
    # children of an extra node n.
    tree = csr_array((np.ones(n), (parent, k)), shape=(n + 1, n + 1))
    # A reversed depth-first preorder, without its first node n, has children before parents.
    postorder = depth_first_order(tree, n, return_predecessors=False)[:0:-1]
    position = np.argsort(postorder)
    row, column = position[row], position[column]
    by_column = np.lexsort((row, column))
    # `perm_c` is the position of each record, and its inverse is the record at each position.
    return np.argsort(factors.perm_c)[postorder], column[by_column], row[by_column]


def eliminate(instance: Instance) -> Elimination:
    """Order the records of a connected instance and compute the pattern of the factors, shared by all outputs."""
    n = instance.records
    order, column, row = _fill_pattern(instance)
    position, bounds = np.argsort(order), np.arange(n + 1)
    pairs = np.sort(position[instance.pairs], axis=1)
    # The sort is stable, so columns stay in order within a row.
    entry = np.argsort(row, kind="stable")
    narrow = np.int32  # compiled functions take 32-bit indices
    return Elimination(
        order=order,
        start=np.searchsorted(column, bounds).astype(narrow),
        row=row.astype(narrow),
        across=np.searchsorted(row[entry], bounds).astype(narrow),
        entry=entry.astype(narrow),
        column=column.astype(narrow),
        # Entries are sorted by column and row. Every pair is one of them, because elimination only adds entries.
        pair=np.searchsorted(column * n + row, pairs @ [n, 1]).astype(narrow),
        place=position.astype(narrow),
    )
