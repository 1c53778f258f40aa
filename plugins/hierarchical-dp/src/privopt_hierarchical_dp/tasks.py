"""What a method is given after the noise, from the problem and what is public."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from privopt.arrays import Ints
from privopt_hierarchical_dp.bounds import limits_of
from privopt_hierarchical_dp.fitting import Task, objective_weights
from privopt_hierarchical_dp.laws import budget_of, law_of
from privopt_hierarchical_dp.methods import level_budgets, order_of, sensitivity
from privopt_hierarchical_dp.privacy import with_totals
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.relations import relation_of
from privopt_hierarchical_dp.totals import estimated_totals, noisy_totals, rising
from privopt_hierarchical_dp.tree import Tree
from privopt_hierarchical_dp.zeros import Order, Zeros

__all__ = ["task_of"]


def task_of(
    problem: HierarchyProblem,
    method: str,
    tree: Tree,
    noisy: list[Ints],
    totals: Sequence[Ints],
    *,
    gap: float = 1e-3,
    root: int | None = None,
    zeros: Zeros | None = None,
) -> Task:
    """What is to be fitted.

    Args:
        problem: what was asked.
        method: its name.
        tree: the regions.
        noisy: for each level the noisy values.
        totals: for each level (R_l,) exact numbers of groups, or the root's alone where no others are published; none
            where none is exact: they are estimated then.
        gap: relative gap to stop at.
        root: the whole hierarchy's number of groups, where it was estimated before.
        zeros: what cannot be. Sizes that no region can have are left out of what is fitted.
    """
    settings, relation, law = problem.settings, relation_of(problem), law_of(problem.privacy)
    budgets = level_budgets(budget_of(problem.privacy), method, tree.depth, settings.budget)
    delta = sensitivity(method, settings.max_quantity, relation)
    scales = [law.scale(budget, delta) for budget in budgets]
    weights = objective_weights(settings.level_weights, tree.depth)
    known, offset = with_totals(problem, method), Fraction(0)
    order, limits = order_of(method, totals=known, relation=relation), limits_of(problem.hierarchy.bounds, tree)
    bounded = limits is not None
    if not relation.exact or (bounded and not known):
        root = int(totals[0][0]) if relation.exact else root
        totals = estimated_totals(tree, noisy, law=law, scales=scales, order=order, root=root, limits=limits)
        known = order != "counts" or bounded
        if order != "counts":
            offset = _added_by_estimates(totals, noisy, order, weights)
            noisy = rising(noisy, totals) if order == "more" else [level[:, :-1] for level in noisy]
    keep = None
    if zeros is not None:
        keep, zeros = zeros.dropped()
        noisy = [level[:, keep[: len(keep) - (level.shape[1] < relation.classes)]] for level in noisy]
    return Task(
        method=method,
        tree=tree,
        noisy=noisy,
        zeros=zeros,
        keep=keep,
        sizes=relation.classes,
        estimated=not relation.exact and not bounded,
        total=int(totals[0][0]),
        totals=list(totals) if known else None,
        weights=weights,
        noise=tuple(law.moments(scale) for scale in scales),
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
