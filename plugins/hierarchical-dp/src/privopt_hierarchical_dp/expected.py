"""Errors of a method on counts that are known: noise is drawn and fitted as for a release, and compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.fitting import fit
from privopt_hierarchical_dp.laws import budget_of, law_of
from privopt_hierarchical_dp.methods import draw, level_budgets
from privopt_hierarchical_dp.privacy import with_totals
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.relations import relation_of
from privopt_hierarchical_dp.tasks import task_of
from privopt_hierarchical_dp.tree import Tree, add_up
from privopt_hierarchical_dp.zeros import within, zeros_of

__all__ = ["errors_on"]


def errors_on(leaves: Sequence[Ints], tree: Tree, problem: HierarchyProblem, method: str, *, seed: int = 0) -> Floats:
    """Return the (trials, L) L1 errors by level on known counts (R_L, N), a trial each; nothing drawn is released."""
    settings = problem.settings
    law = law_of(problem.privacy)
    budgets = level_budgets(budget_of(problem.privacy), method, tree.depth, settings.budget)
    totals, relation, zeros = with_totals(problem, method), relation_of(problem), zeros_of(problem, tree)
    errors = []
    for trial, known in enumerate(leaves, start=seed):
        levels = add_up(tree, known if zeros is None else within(zeros, known))
        tops = [level.sum(axis=1) for level in levels]
        exact = tops[: len(tops) if totals else int(relation.exact)]
        most = settings.max_quantity
        noisy, _ = draw(
            method, levels, budgets, totals=totals, most=most, seed=trial, law=law, relation=relation, zeros=zeros
        )
        task = task_of(problem, method, tree, noisy, exact, zeros=zeros)
        found, _ = fit(task)
        errors.append([float(np.abs(a - b).sum()) for a, b in zip(found.counts, levels, strict=True)])
    return np.array(errors)
