"""What each method measures, with which sensitivity, and how its budget is shared: the data of privacy.

Neighbours, and how far measurements change between them, are those of :mod:`.relations`. The published chain's vector
runs over all regions of a level, so one individual's move of a group (mathematics H0) touches |R_l| of its entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from attrs import frozen

from privopt.arrays import Ints
from privopt.numbers import noise
from privopt_hierarchical_dp.as_published import chain_query
from privopt_hierarchical_dp.laws import GEOMETRIC, Law
from privopt_hierarchical_dp.relations import SIZES, Relation
from privopt_hierarchical_dp.tree import Tree
from privopt_hierarchical_dp.zeros import Order, Zeros

__all__ = [
    "METHODS",
    "Method",
    "default_shares",
    "draw",
    "level_budgets",
    "measured",
    "order_of",
    "sensitivity",
    "true_sensitivity",
]

Query = Literal["counts", "cumulative", "chain"]


@frozen(kw_only=True)
class Method:
    """One of the mechanism's methods, as far as privacy and its problem file care.

    Attributes:
        query: what is measured on every level.
        totals: ``"always"`` where every region's number of groups is published exactly, ``"option"``
            where ``region_totals`` decides, ``"never"``.
        valid: whether a release is always consistent, with the exact total at the root.
        shares: ``"equal"`` or ``"leaves"``: the default split of epsilon over the levels.
        borrows: whether counts are smoothed along sizes and towards the parent's.
        zeros: whether sizes that are impossible in some regions alone stay 0.
    """

    query: Query
    totals: Literal["always", "option", "never"] = "option"
    valid: bool = True
    shares: Literal["equal", "leaves"] = "equal"
    borrows: bool = False
    zeros: bool = False


METHODS: dict[str, Method] = {
    "cumulative-smoothed": Method(query="cumulative", totals="always", shares="leaves", borrows=True),
    "cumulative-chain": Method(query="cumulative", totals="always", shares="leaves"),
    "cumulative-dp": Method(query="cumulative", zeros=True),
    "cumulative": Method(query="cumulative", zeros=True),
    "cumulative-relaxed": Method(query="cumulative", valid=False),
    "hierarchical-dp": Method(query="counts", zeros=True),
    "hierarchical": Method(query="counts", zeros=True),
    "hierarchical-relaxed": Method(query="counts", totals="never", valid=False, zeros=True),
    "top-down": Method(query="counts", zeros=True),
    "cumulative-chain-as-published": Method(query="chain", totals="never", valid=False),
}


def default_shares(method: str, depth: int) -> tuple[Fraction, ...]:
    """Shares of epsilon by level where the problem file gives none.

    ``"leaves"``: half for the leaves, the rest in the proportion 2 : 3 : 4 ... from the root down
    (1/5, 3/10, 1/2 for three levels; README has the measurements).
    """
    if depth == 1 or METHODS[method].shares == "equal":
        return (Fraction(1, depth),) * depth
    rising = range(2, depth + 1)
    return (*(Fraction(step, 2 * sum(rising)) for step in rising), Fraction(1, 2))


def sensitivity(method: str, most: int, relation: Relation = SIZES) -> int:
    """Delta that a level's noise is scaled for (see :mod:`.relations`); the published chain reckons with Q."""
    return relation.sensitivity("counts" if METHODS[method].query == "counts" else "cumulative", most)


def true_sensitivity(method: str, most: int, width: int, relation: Relation = SIZES) -> int:
    """Delta that a level's measurement really has; ``width`` is its number of regions."""
    return most * width if METHODS[method].query == "chain" else sensitivity(method, most, relation)


def level_budgets(budget: Fraction, method: str, depth: int, shares: Sequence[Fraction] | None) -> tuple[Fraction, ...]:
    """Each level's part of a budget: small-denominator rationals that add up to at most it."""
    from privopt.numbers.noise import split_budget

    return split_budget(budget, list(shares) if shares is not None else list(default_shares(method, depth)))


def measured(method: str, counts: Sequence[Ints], *, totals: bool, relation: Relation = SIZES) -> list[Ints]:
    """What noise is added to: for each level (R_l, N), or (R_l, N - 1) cumulative counts where totals are known.

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


def order_of(method: str, *, totals: bool, relation: Relation) -> Order:
    """What the columns of a level's measurements are."""
    if METHODS[method].query != "cumulative":
        return "counts"
    return "inner" if totals else "less" if relation.exact else "more"


def spent_on_a_neighbour(
    method: str, tree: Tree, budgets: Sequence[Fraction], most: int, relation: Relation = SIZES
) -> Fraction:
    """The real privacy loss between neighbours: sum over levels of true sensitivity over scale."""
    delta = sensitivity(method, most, relation)
    return sum(
        (
            budget * true_sensitivity(method, most, width, relation) / delta
            for budget, width in zip(budgets, tree.widths, strict=True)
        ),
        Fraction(0),
    )


def draw(
    method: str,
    counts: Sequence[Ints],
    budgets: Sequence[Fraction],
    *,
    totals: bool,
    most: int,
    seed: int | None,
    law: Law = GEOMETRIC,
    relation: Relation = SIZES,
    zeros: Zeros | None = None,
) -> tuple[list[Ints], list[noise.NoiseRecord]]:
    """Measure every level with noise: the only step that reads true counts.

    Args:
        method: which measurement.
        counts: for each level (R_l, N) true counts.
        budgets: for each level its part of the budget.
        totals: whether region totals are published exactly.
        most: Q.
        seed: for experiments only.
        law: of the noise.
        relation: that neighbours are in.
        zeros: what cannot be, and is not measured.
    """
    delta = sensitivity(method, most, relation)
    noisy, records = [], []
    values_of = measured(method, counts, totals=totals, relation=relation)
    for level, (values, budget) in enumerate(zip(values_of, budgets, strict=True)):
        own = None if seed is None else int(np.random.SeedSequence([seed, level]).generate_state(1, np.uint64)[0] >> 1)
        if zeros is None:
            drawn, record = law.draw(values, budget, delta, seed=own)
        else:
            order = order_of(method, totals=totals, relation=relation)
            chosen, drawn = zeros.measured(level, order), np.zeros_like(values)
            drawn[chosen], record = law.draw(values[chosen], budget, delta, seed=own)
            drawn = zeros.filled(level, order, drawn, np.asarray(counts[level]).sum(axis=1))
        noisy.append(drawn)
        records.append(record)
    return noisy, records
