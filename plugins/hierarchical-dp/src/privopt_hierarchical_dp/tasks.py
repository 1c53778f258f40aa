"""From noisy values to the task that a method is given: numbers of groups that nobody knows are estimated before."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from privopt.arrays import Ints
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.fitting import Task
from privopt_hierarchical_dp.totals import estimated_totals, noisy_totals, rising
from privopt_hierarchical_dp.zeros import Order

__all__ = ["task_of"]


def task_of(
    design: Design, noisy: list[Ints], totals: Sequence[Ints], *, gap: float = 1e-3, root: int | None = None
) -> Task:
    """What is to be fitted.

    Args:
        design: what was decided. Sizes that no region can have are left out of what is fitted.
        noisy: for each level the noisy values.
        totals: for each level (R_l,) exact numbers of groups, or the root's alone where no others are published; none
            where none is exact: they are estimated then.
        gap: relative gap to stop at.
        root: the whole hierarchy's number of groups, where it was estimated before.
    """
    tree, relation, order, limits = design.tree, design.relation, design.order, design.limits
    known, offset = design.totals, Fraction(0)
    bounded = limits is not None
    if not relation.exact or (bounded and not known):
        root = int(totals[0][0]) if relation.exact else root
        totals = estimated_totals(
            tree, noisy, law=design.law, scales=design.scales, order=order, root=root, limits=limits
        )
        known = order != "counts" or bounded
        if order != "counts":
            offset = _added_by_estimates(totals, noisy, order, design.weights)
            noisy = rising(noisy, totals) if order == "more" else [level[:, :-1] for level in noisy]
    keep, zeros = None, design.zeros
    if zeros is not None:
        keep, zeros = zeros.dropped()
        noisy = [level[:, keep[: len(keep) - (level.shape[1] < relation.classes)]] for level in noisy]
    return Task(
        method=design.method,
        tree=tree,
        noisy=noisy,
        zeros=zeros,
        keep=keep,
        sizes=relation.classes,
        estimated=not relation.exact and not bounded,
        total=int(totals[0][0]),
        totals=list(totals) if known else None,
        weights=design.weights,
        noise=design.noise,
        offset=offset,
        gap=gap,
    )


def _added_by_estimates(
    totals: Sequence[Ints], noisy: Sequence[Ints], order: Order, weights: Sequence[Fraction]
) -> Fraction:
    """What estimated totals cost themselves in the objective, whatever is fitted."""
    largest, added = max(weights), Fraction(0)
    for weight, total, seen in zip(weights, totals, noisy_totals(noisy, order), strict=True):
        added += weight / largest * sum(int(value) ** 2 for value in total - seen[:, 0])
    return added
