"""One trial of a method on known data: noise, fit, errors by level. What the experiments are made of."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from time import perf_counter
from typing import Any

from attrs import frozen

from hierarchical_dp_paper.generate import Census
from privopt.arrays import Ints
from privopt.numbers.noise import split_budget
from privopt_hierarchical_dp.fits.fit import FitInput, fit
from privopt_hierarchical_dp.methods import METHODS, default_shares, sensitivity
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC, noise_of
from privopt_hierarchical_dp.release import errors_of, violations
from privopt_hierarchical_dp.sizes import compute_query, objective_weights

__all__ = ["Trial", "judge_counts", "noisy_levels", "run_methods", "task_of"]


@frozen(kw_only=True, eq=False)
class Trial:
    """One run of one method.

    Attributes:
        method: its name.
        errors: for each level the L1 distance of the released counts from the true ones.
        moved: for each level the earth mover's distance, in groups times sizes.
        individuals: for each level by how much the numbers of individuals that counts imply are off, over regions.
        broken: subtrees that violate consistency (#CV).
        seconds: of the post-processing alone.
    """

    method: str
    errors: tuple[int, ...]
    moved: tuple[int, ...]
    individuals: tuple[int, ...]
    broken: int
    seconds: float


def task_of(
    method: str,
    data: Census,
    levels: Sequence[Ints],
    epsilon: Fraction,
    *,
    shares: Sequence[Fraction] | None = None,
    seed: int,
    known: bool = False,
    kept: dict[Any, list[Ints]] | None = None,
) -> FitInput:
    """Noise under a seed (experiments are not releases), and what the method is given after it.

    Args:
        method: its name.
        data: the truth.
        levels: counts of every level of it.
        epsilon: budget.
        shares: of the levels; None: even.
        seed: of the noise.
        known: whether region totals are published by methods that need not.
        kept: noise by what was measured: methods that measure the same are given the same.
    """
    kept = {} if kept is None else kept
    rule = METHODS[method]
    budgets = split_budget(epsilon, shares or default_shares(method, data.tree.depth))
    totals = rule.totals == "always" or (known and rule.totals == "option")
    key = (rule.query, budgets, totals)
    if key not in kept:
        kept[key] = noisy_levels(method, levels, budgets, totals=totals, seed=seed)
    tops = [level.sum(axis=1) for level in levels]
    delta = sensitivity(method, 1)
    return FitInput(
        method=method,
        tree=data.tree,
        noisy=kept[key],
        total=int(tops[0][0]),
        totals=tops if totals else None,
        weights=objective_weights(None, budgets),
        noise=tuple(noise_of(delta / budget) for budget in budgets),
        gap=1e-3,
    )


def noisy_levels(
    method: str, levels: Sequence[Ints], budgets: Sequence[Fraction], *, totals: bool, seed: int
) -> list[Ints]:
    """Return what a method measures of every level, with double geometric noise from a seed."""
    values = zip(compute_query(method, levels, totals=totals), budgets, strict=True)
    delta = sensitivity(method, 1)
    return [
        GEOMETRIC.measure(level_query, part, delta, seed=(seed, level))[0]
        for level, (level_query, part) in enumerate(values)
    ]


def run_methods(
    methods: Sequence[str],
    data: Census,
    levels: Sequence[Ints],
    epsilon: Fraction,
    *,
    shares: Sequence[Fraction] | None = None,
    seed: int,
    known: bool = False,
) -> list[Trial]:
    """One run of each method; those that measure the same share their noise; the rest as for `task_of`."""
    stored_noise: dict[Any, list[Ints]] = {}
    trials = []
    for method in methods:
        task = task_of(method, data, levels, epsilon, shares=shares, seed=seed, known=known, kept=stored_noise)
        start = perf_counter()
        fitted = fit(task)
        seconds = perf_counter() - start
        trials.append(judge_counts(method, data, levels, fitted.counts, seconds))
    return trials


def judge_counts(method: str, data: Census, levels: Sequence[Ints], counts: Sequence[Ints], seconds: float) -> Trial:
    """Compare a release's counts with the true ones."""
    errors_by_level = [errors_of(a, b) for a, b in zip(counts, levels, strict=True)]
    errors, moves, individuals = (
        tuple(level[name] for level in errors_by_level) for name in ("l1_error", "earth_movers", "individuals")
    )
    return Trial(
        method=method,
        errors=errors,
        moved=moves,
        individuals=individuals,
        broken=violations(data.tree, [list(counts)]),
        seconds=seconds,
    )
