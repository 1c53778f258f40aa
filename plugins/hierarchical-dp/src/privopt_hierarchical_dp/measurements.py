"""Measuring with noise: the only step that reads true counts."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privopt.arrays import Ints
from privopt.numbers.noise import NoiseRecord
from privopt_hierarchical_dp.fits.as_published import chain_query
from privopt_hierarchical_dp.methods import METHODS, order_of, sensitivity
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC, NoiseDistribution
from privopt_hierarchical_dp.relations import SIZES, Relation
from privopt_hierarchical_dp.structural_zeros import Zeros

__all__ = ["draw", "filled_from_below", "measured", "unmeasured_faults"]


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


def draw(
    method: str,
    counts: Sequence[Ints],
    budgets: Sequence[Fraction],
    *,
    totals: bool,
    most: int,
    seed: int | None,
    law: NoiseDistribution = GEOMETRIC,
    relation: Relation = SIZES,
    zeros: Zeros | None = None,
    start: Sequence[Ints] = (),
) -> tuple[list[Ints], list[NoiseRecord | None]]:
    """Measure every level whose part of the budget is above 0 with noise; the others are sums of the level below.

    Args:
        method: which measurement.
        counts: for each level (R_l, N) true counts.
        budgets: for each level its part of the budget; the leaves' is above 0.
        totals: whether region totals are published exactly.
        most: Q.
        seed: for experiments only.
        law: of the noise.
        relation: that neighbours are in.
        zeros: what cannot be, and is not measured.
        start: :attr:`.tree.Tree.start`; needed where a part is 0.
    """
    delta = sensitivity(method, most, relation)
    noisy, records = [], []
    values_of = measured(method, counts, totals=totals, relation=relation)
    for level, (values, budget) in enumerate(zip(values_of, budgets, strict=True)):
        words = None if seed is None else (seed, level)
        if zeros is None:
            drawn, record = law.measure(values, budget, delta, seed=words)
        else:
            order = order_of(method, totals=totals, relation=relation)
            drawn, record = law.measure(values, budget, delta, where=zeros.measured(level, order), seed=words)
            drawn = zeros.filled(level, order, drawn, np.asarray(counts[level]).sum(axis=1))
        noisy.append(drawn)
        records.append(record)
    return filled_from_below(noisy, [bool(budget) for budget in budgets], start), records


def filled_from_below(noisy: Sequence[Ints], known: Sequence[bool], start: Sequence[Ints]) -> list[Ints]:
    """Return noisy values of each level, those of a level that is not measured the sums of the level below.

    Args:
        noisy: for each level (R_l, ...).
        known: whether it was measured; the last was.
        start: :attr:`.tree.Tree.start`.
    """
    found = list(noisy)
    for level in reversed(range(len(found) - 1)):
        if not known[level]:
            found[level] = np.add.reduceat(found[level + 1], start[level][:-1], axis=0)
    return found


def unmeasured_faults(noisy: Sequence[Ints], known: Sequence[bool], start: Sequence[Ints]) -> list[int]:
    """Return the levels (from 1) that were not measured and are not the sums of the level below, as they must be."""
    right = filled_from_below(noisy, known, start)
    return [level for level, (own, want) in enumerate(zip(noisy, right, strict=True), 1) if (own != want).any()]
