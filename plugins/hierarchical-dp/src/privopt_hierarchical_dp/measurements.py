"""What noise is added to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Ints
from privopt_hierarchical_dp.fits.as_published import chain_query
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.relations import SIZES, Relation

__all__ = ["measured"]


def measured(method: str, counts: Sequence[Ints], *, totals: bool, relation: Relation = SIZES) -> list[Ints]:
    """Return what noise is added to: for each level (R_l, N), or (R_l, N - 1) cumulative counts where totals are known.

    Cumulative counts are those of size s or less; where no number of groups is public, those of size s or more.

    Args:
        method: its name.
        counts: for each level (R_l, N) true counts.
        totals: whether region totals are published exactly, so that size N needs no noise.
        relation: that neighbours are in.
    """
    query = METHODS[method].query
    if query == "counts":
        return [np.asarray(level, dtype=np.int64) for level in counts]
    if query == "chain":
        return chain_query(counts)
    if not relation.exact:
        return [np.cumsum(np.asarray(level)[:, ::-1], axis=1, dtype=np.int64)[:, ::-1].copy() for level in counts]
    cumulative = [np.cumsum(level, axis=1, dtype=np.int64) for level in counts]
    return [np.ascontiguousarray(level[:, :-1]) for level in cumulative] if totals else cumulative
