"""Predict errors at several budgets, from noise alone or from similar public counts, for ``privopt plan``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, Faults, InputError, number_of
from privopt.interfaces import Plan, SolveContext
from privopt_hierarchical_dp.design import CountsProblem, Design
from privopt_hierarchical_dp.groups import read_counts
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.noise_distributions import KINDS
from privopt_hierarchical_dp.problem import HierarchyProblem, Privacy
from privopt_hierarchical_dp.shares import Point, Split, as_split, best_point
from privopt_hierarchical_dp.sizes import SizesDesign
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tree import add_up

__all__ = [
    "LEAVES_ONLY",
    "STEPS",
    "choose_split",
    "describe_waste",
    "errors_on",
    "forecast_errors",
    "format_descents",
    "least_split",
    "plan",
]

STEPS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
"""The budgets at which to predict errors, as multiples of the problem's budget."""
BUDGET_TRIALS: Final = 3
"""The number of trials over which errors are averaged at each budget."""
SMALL_COUNTS: Final = 20_000
"""The maximum number of leaf counts (regions times sizes) for which a split gets :data:`BUDGET_TRIALS` trials.

With more counts, a split gets only one trial.
"""
FRESH_SEED: Final = 1000
"""The first seed for comparing the best split with the problem's own. Smaller seeds are used to find the best split."""
JUDGE_TRIALS: Final = 30
"""The number of trials for comparing the best split with the problem's own.

If there are more than :data:`SMALL_COUNTS` leaf counts, :data:`BUDGET_TRIALS` is used instead.
"""
SURE_DEVIATIONS: Final = 2.0
"""The number of standard errors by which a split must beat the problem's own split to replace it.

The standard error is computed for the paired difference between the errors of the two splits.
"""
ENOUGH_SHARE: Final = 0.995
"""The threshold for proposing another split, as a fraction of the errors with the problem's own split.

A split is only proposed if its errors are smaller than this.
"""
WASTED: Final = 1.1
"""The factor by which a file's split must increase the expected errors over the default split for ``solve`` to warn."""
SPARSE: Final = "Before cells are made non-negative: if most are empty, releases err less."
NOISE_ALONE: Final = (
    "These are errors of unbiased estimates, before counts are made non-negative: if most sizes are empty, releases "
    "err far less. Public counts like the secret ones in hierarchy.like give the method's own errors."
)
LEAVES_ONLY: Final = "leaves-only"
"""The name of the simplest baseline: spend the whole budget on the leaf regions' counts, and sum them without a fit."""

Splits = tuple[Split, Split]
"""A pair with the budget shares of the levels and the budget shares of the tables."""


def plan(declared: CountsProblem, file: str, context: SolveContext) -> Plan:
    """Predict errors by level and table for several budgets, and find the budget split with the smallest errors.

    The search minimises the errors of the linear fit (see :mod:`.forecast`), which are smooth functions of the split.
    If there are public counts that resemble the secret ones, the method is also run on them with a few seeds, both with
    the split found by the search and with some simple splits. The split with the smallest errors is selected.

    Because the errors of the selected split may be the smallest only by chance, they are measured again with fresh
    seeds. The selected split replaces the problem's own split only if its errors are significantly smaller.

    Args:
        declared: The contents of the problem file. No secret file is read.
        file: The name of the problem file, for error messages.
        context: The context of the run, which determines the method.

    Returns:
        A plan with the expected errors for each budget, the shares of the problem's own split and of the best split,
        and a baseline.

    Raises:
        InputError: There is no public table of regions, a table is malformed, a list does not have one number per
            level, ``solve`` would reject the problem, or ``[plan] errors`` has a weight for an unknown table or level.
        UsageError: The problem is too large for an integer program.
    """
    declared.check_keys(file)
    design, leaves, basis = _read_public_parts(declared, file, context.method)
    weights, has_few_counts = _error_weights(design), leaves is not None and leaves.size <= SMALL_COUNTS
    design.check()
    if isinstance(design, TablesDesign) and not design.problem.has_split:
        # `solve` also searches for a split if the file gives none.
        context.report("splits of the budget")
        design = design.with_searched_split(choose_split(design))
    weight_vector = np.array([float(weight) for weight in weights])
    name, total_budget = _budget_of(declared.privacy)
    errors_by_budget, leaf_errors_by_budget = {}, {}
    # Budgets whose noise would not fit into 64 bits are omitted, because `solve` would reject them.
    for number, step in enumerate(STEPS, start=1):
        context.report(f"errors by budget: {number} of {len(STEPS)}")
        if (changed_design := _allowed_design(design, design.split, step * total_budget)) is not None:
            errors_by_budget[step * total_budget] = tuple(
                _measure_errors(changed_design, leaves, BUDGET_TRIALS).mean(axis=0).tolist()
            )
            leaf_errors_by_budget[step * total_budget] = tuple(changed_design.leaves_only().tolist())
    if leaves is None:
        # Without public counts, only the errors of the linear fit can be compared.
        best = least_split(design, weights, lambda state: context.report(f"splits of the budget: {state}"))
        best_errors = forecast_errors(design.with_split(*best))
    else:
        # Any split with smaller forecast errors is good enough as a candidate, because the trials below decide.
        smooth = least_split(
            design, weights, lambda state: context.report(f"splits of the budget: {state}"), share_below=1.0
        )
        context.report("four splits on the public counts")
        best = _best_simple(design, smooth, leaves, weight_vector, BUDGET_TRIALS if has_few_counts else 1)
        judges = JUDGE_TRIALS if has_few_counts else BUDGET_TRIALS
        own_split = design.split
        context.report(f"the best split on {number_of(judges, 'fresh trial')}")
        # The split that is best in a few noisy trials may be so by chance, so it is compared with the problem's own
        # split on fresh seeds.
        fresh = {
            split: _measure_errors(design.with_split(*split), leaves, judges, FRESH_SEED) for split in (own_split, best)
        }
        best = best if _is_surely_better(fresh[best] @ weight_vector, fresh[own_split] @ weight_vector) else own_split
        # At the problem's own budget, the plan gives the errors from these trials, because there may be more of them.
        errors_by_budget[total_budget], best_errors = (
            tuple(fresh[own_split].mean(axis=0).tolist()),
            fresh[best].mean(axis=0),
        )
        judge_note = f" ({judges} at the problem's own budget)" if has_few_counts else ""
        basis = f"mean of {BUDGET_TRIALS} trials{judge_note} on {basis}"
    return Plan(
        method=context.method,
        budget=name,
        unit=f"{design.layout.noun} (sum of absolute errors over the cells of all regions)",
        basis=basis,
        parts=design.parts,
        errors=errors_by_budget,
        shares=tuple(design.budget_shares),
        best=(tuple(design.with_split(*best).budget_shares), tuple(best_errors.tolist())),
        weights=weights,
        baselines={LEAVES_ONLY: leaf_errors_by_budget},
        problem_budget=total_budget,
        notes=tuple(_format_notes(design, best)) if leaves is None else (),
    )


def _read_public_parts(declared: CountsProblem, file: str, method: str) -> tuple[Design, Ints | None, str]:
    """Read the public files that a problem file refers to.

    Args:
        declared: The contents of the problem file.
        file: The name of the problem file, for error messages.
        method: The name of the method.

    Returns:
        The design, a (leaf regions, sizes) array with the public counts (None if there are none), and a phrase that
        describes how errors are predicted.

    Raises:
        InputError: No table lists the regions, a table is malformed, or a table contains a region that is not listed.
    """
    if not isinstance(declared, HierarchyProblem):
        return TablesDesign.of(declared, file, method), None, "least squares over all tables and levels"
    table, leaves, basis = declared.hierarchy, None, "the fit of the noisy values alone"
    regions = None if table.regions is None else read_regions(table.regions)
    # Public counts, for example from an earlier census, are used in place of the secret counts.
    if table.like is not None:
        public_counts = read_counts(table.like, table.sizes, first=table.first_size, listed=regions)
        tree, leaves, basis = public_counts.tree, public_counts.leaves, f"the public counts of {table.like.name}"
    elif regions is not None:
        tree = regions.tree
    else:
        expectation = "public counts like the secret ones, level_1,...,level_L,size,groups; or hierarchy.regions"
        raise InputError([Fault(file, "hierarchy.like", "nothing", expectation)])
    declared.settings.check_lengths(tree.depth, file)
    return SizesDesign.of(declared, method, tree, file), leaves, basis


def _format_notes(design: Design, best: Splits) -> Iterator[str]:
    """Yield notes on the predicted errors and the budget split.

    The first note is a caveat about the predicted errors. For hierarchical-tables, the other notes give the best split
    as lines for the problem file, unless it is the design's own split.
    """
    if isinstance(design, SizesDesign):
        yield NOISE_ALONE
        return
    yield SPARSE
    # Shares are relative, so they can be multiplied by their common denominator to give integers.
    if best != design.split:
        integer_splits = [
            [int(part * lcm(*(fraction.denominator for fraction in split))) for part in split] for split in best
        ]
        yield f"best split, for the file: hierarchy.budget = {integer_splits[0]}"
        for form, part in zip(design.layout.forms, integer_splits[1], strict=True):
            yield f"  [hierarchy.tables.{form.name}] share = {part}"


def _budget_of(privacy: Privacy) -> tuple[str, Fraction]:
    """Return the name of the budget key, ``epsilon`` or ``rho``, and its value."""
    name = KINDS[privacy.kind][1][0]
    return name, getattr(privacy, name)


def _allowed_design(design: Design, split: Splits, budget: Fraction | None = None) -> Design | None:
    """Return a copy of a design with the given split and budget, or None if ``solve`` would reject it.

    Args:
        design: The design to change.
        split: The budget shares of the levels and of the tables.
        budget: The budget, as epsilon or rho. If None, the problem's own budget is kept.
    """
    changed = design.with_split(*split)
    if budget is not None:
        privacy = changed.problem.privacy
        # The budget is rho for zCDP, and epsilon for the other notions.
        changed_privacy = evolve(privacy, rho=budget) if privacy.rho is not None else evolve(privacy, epsilon=budget)
        changed = evolve(changed, problem=evolve(changed.problem, privacy=changed_privacy))
    try:
        changed.check()
    except InputError:
        return None
    return changed


def _error_weights(design: Design) -> tuple[Fraction, ...]:
    """Return the weights of the errors, as given by ``[plan] errors``. If this key is missing, all weights are equal.

    There is one weight for each combination of a level and a table, ordered by level and then by table. Combinations
    that the key does not list have weight 0.

    Raises:
        InputError: A weight is given for an unknown table or level.
    """
    given_weights, depth, file = design.problem.plan.errors, design.tree.depth, design.file
    names = [form.name for form in design.layout.forms]
    if given_weights is None:
        return (Fraction(1),) * (depth * len(names))
    # hierarchical-dp has a single table without a name, so its weights are given by level only.
    by_name: Mapping[str, Mapping[str, Fraction]] = {"": given_weights} if names == [""] else given_weights
    levels, faults = [f"level_{level}" for level in range(1, depth + 1)], Faults()
    for name, by_level in by_name.items():
        key = f"plan.errors.{name}".removesuffix(".")
        if name not in names:
            faults.add(file, key, "no such table", f"tables {', '.join(names)}")
            continue
        for level in by_level:
            if level not in levels:
                faults.add(file, f"{key}.{level}", "no such level", f"levels {levels[0]} to {levels[-1]}")
    faults.check()
    # Parts that are not listed have a weight of 0.
    return tuple(by_name.get(name, {}).get(level, Fraction(0)) for level in levels for name in names)


def forecast_errors(design: Design) -> Floats:
    """Return the expected sum of absolute errors of the linear fit, for each level and table.

    The sums are ordered by level and then by table.
    """
    return design.forecast(design.noise_of(design.scales), [float(table_share) for table_share in design.split[1]])


def format_descents(done: int, count: int, seconds: float) -> str:
    """Describe the progress of a search, with an estimate of the remaining time.

    Args:
        done: The number of completed descents.
        count: The total number of descents.
        seconds: The time in seconds since the search began.

    >>> format_descents(0, 14, 0.2), format_descents(3, 14, 30.0)
    ('search 1 of 14', 'search 4 of 14, about 110 s left')
    """
    # All descents take about equally long, so the mean time so far predicts the remaining time.
    remaining = f", about {(count - done) * seconds / done:.0f} s left" if done else ""
    return f"search {done + 1} of {count}{remaining}"


def least_split(
    design: Design,
    weights: Sequence[Fraction],
    progress: Callable[[str], None] = lambda state: None,
    *,
    share_below: float = ENOUGH_SHARE,
) -> Splits:
    """Search for the budget shares of levels and tables that minimise the weighted errors of the linear fit.

    A level may get a share of 0, because its counts are sums of counts at the level below. A table may get a share of 0
    if another measured table contains all of its attributes.

    Args:
        design: The design, with the problem's own split.
        weights: The weight of each part's error. There is one part for each combination of a level and a table.
        progress: A function that is called before each evaluation with a string that describes the progress of the
            search.
        share_below: The threshold for accepting another split. Its errors must be below this fraction of the errors
            with the problem's own split.

    Returns:
        The best split, or the problem's own split if no other split is sufficiently better.
    """
    weight_vector = np.array([float(weight) for weight in weights])
    begin, state = time.monotonic(), "searching"

    def note_descents(done: int, count: int) -> None:
        """Update the string that describes the progress of the search."""
        nonlocal state
        state = format_descents(done, count, time.monotonic() - begin)

    def cost(points: Sequence[Point]) -> Floats:
        """Return the weighted errors for several splits. The error of an infeasible split is infinite."""
        # A search takes long, so the caller shows this string to the user.
        progress(state)
        costs = np.full(len(points), np.inf)
        possible = [number for number, (levels, tables) in enumerate(points) if can_measure(levels, tables)]
        if possible:
            levels, tables = (np.array([points[number][block] for number in possible]) for block in (0, 1))
            costs[possible] = design.forecast_splits(levels, tables) @ weight_vector
        return costs

    def can_measure(levels: Floats, tables: Floats) -> bool:
        """Return whether every level and table with a share of 0 can be computed from others with a positive share."""
        # The leaves cannot be computed from another level, nor can some tables from another table.
        return bool(levels[-1]) and all(
            bool(table_share) or not is_needed
            for is_needed, table_share in zip(design.need_shares(tables), tables, strict=True)
        )

    # The search works in doubles. Its result is converted to exact fractions for `solve`.
    start = tuple(np.array([float(fraction) for fraction in block]) for block in design.split)
    levels, tables = map(as_split, best_point(cost, start, note_descents))
    best = _allowed_design(design, (levels, tables))
    is_better = best is not None and forecast_errors(best) @ weight_vector < share_below * (
        forecast_errors(design) @ weight_vector
    )
    return (levels, tables) if is_better else design.split


def choose_split(design: Design) -> Splits:
    """Return the split with the smallest expected errors, which ``solve`` uses if the problem file specifies no split.

    The result depends only on public files.
    """
    return least_split(design, _error_weights(design))


def describe_waste(design: Design) -> list[str]:
    """Return a warning if the problem file's split is expected to give much larger errors than the default split.

    With several tables, the default is the best split for the linear fit. With groups by size, it is the method's own
    split, because the best split for the linear fit would give the whole budget to the leaves. If most sizes are empty,
    which public files do not show, errors at the levels above would then be far larger than forecast. For results, see
    plugins/hierarchical-dp/README.md.

    Args:
        design: The design, with the split from the problem file.

    Returns:
        A list with the warning, or an empty list.
    """
    weights = _error_weights(design)
    is_of_sizes = isinstance(design, SizesDesign)
    default = design.default_split if isinstance(design, SizesDesign) else least_split(design, weights)
    weight_vector = np.array([float(weight) for weight in weights])
    errors, default_errors = (
        float(forecast_errors(split_design) @ weight_vector) for split_design in (design, design.with_split(*default))
    )
    if errors <= WASTED * default_errors:
        return []
    name = "the method's own split" if is_of_sizes else "the best split"
    advice = (
        "without hierarchical-dp.budget that"
        if is_of_sizes
        else "privopt plan shows it, and without budget and shares it"
    )
    return [
        f"the file's split of the budget wastes a part of it: errors of {errors:.4g} are expected, where {name} has "
        f"{default_errors:.4g} ({100 * (errors / default_errors - 1):.0f} % more); {advice} is the default"
    ]


def _best_simple(design: Design, smooth: Splits, leaves: Ints, error_weights: Floats, trials: int) -> Splits:
    """Measure the errors of four candidate splits on public counts, and return the split with the smallest errors.

    The candidates are the problem's own split, the best split for the linear fit, the whole budget on the leaves, and
    equal shares for all levels.

    Args:
        design: The design, with the problem's own split.
        smooth: The best split for the linear fit.
        leaves: (leaf regions, sizes) The public counts.
        error_weights: The weight of each level's errors.
        trials: The number of trials for each split.
    """
    depth = design.tree.depth

    def value(split: Split) -> float:
        """Return the mean weighted error measured with a split of the levels.

        The result is infinite if ``solve`` would reject the split.
        """
        changed_design = _allowed_design(design, (split, (Fraction(1),)))
        return (
            np.inf
            if changed_design is None
            else float((_measure_errors(changed_design, leaves, trials) @ error_weights).mean())
        )

    leaves_split = (*(Fraction(0) for _ in range(depth - 1)), Fraction(1))
    # Identical splits are tried once. The problem's own split comes first, so that `min` prefers it in a tie.
    candidates = dict.fromkeys((design.split[0], smooth[0], leaves_split, (Fraction(1, depth),) * depth))
    return min(candidates, key=value), (Fraction(1),)


def _is_surely_better(challenger: Floats, current: Floats) -> bool:
    """Return whether another split's errors are smaller by more than :data:`SURE_DEVIATIONS` standard errors.

    Args:
        challenger: (trials,) The weighted errors of the other split.
        current: (trials,) The weighted errors of the current split, from the same seeds.
    """
    savings = current - challenger
    # The trials are paired by seed, so noise that both splits have in common cancels in the difference.
    standard_error = savings.std(ddof=1) / np.sqrt(len(savings)) if len(savings) > 1 else 0.0
    return bool(savings.mean() > SURE_DEVIATIONS * standard_error)


def _measure_errors(design: Design, leaves: Ints | None, trials: int, seed: int = 0) -> Floats:
    """Return the errors measured on public counts or, if there are none, the errors predicted for the linear fit.

    Args:
        design: The design.
        leaves: (leaf regions, sizes) The public counts, or None if there are none.
        trials: The number of trials.
        seed: The seed of the first trial.

    Returns:
        A (trials, parts) array, or (1, parts) for predicted errors. There is one part per level or, if there are
        several tables, one per combination of table and level.
    """
    return forecast_errors(design)[None, :] if leaves is None else errors_on([leaves] * trials, design, seed=seed)


def errors_on(leaves: Sequence[Ints], design: Design, *, seed: int = 0) -> Floats:
    """Run a design's method on known counts, and return the sum of absolute errors for each trial and level.

    Args:
        leaves: For each trial, a (leaf regions, sizes) array with the counts.
        design: The design.
        seed: The seed of the first trial. Later trials use consecutive seeds.

    Returns:
        A (trials, levels) array.
    """
    errors = []
    for trial, leaf_counts in enumerate(leaves, start=seed):
        levels = add_up(design.tree, leaf_counts)
        # Every design uses the same seeds, so that two splits can be compared trial by trial.
        noisy, _ = design.draw([levels], seed=trial)
        # The fit is given the true totals of the levels whose totals are published exactly.
        fitted = design.fit(noisy, [level.sum(axis=1) for level in levels[: design.exact]])
        errors.append([float(np.abs(a - b).sum()) for a, b in zip(fitted.counts[0], levels, strict=True)])
    return np.array(errors)
