"""``privopt plan``: expected errors for several budgets, from public counts like the secret ones or the noise alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, Faults, InputError
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

__all__ = ["LEAVES_ONLY", "STEPS", "errors_on", "forecast_errors", "least_split", "plan"]

STEPS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
"""Budgets for which errors are stated, as multiples of the problem's own budget."""
BUDGET_TRIALS: Final = 3
SMALL_COUNTS: Final = 20_000
"""Number of counts (regions times sizes) up to which each split gets as many trials as each budget, instead of one."""
FRESH_SEED: Final = 1000
"""First seed of the trials that judge the winner; they differ from the trials in which it won."""
JUDGE_TRIALS: Final = 30
"""Number of these trials if there are few counts; else it is `BUDGET_TRIALS`."""
SURE_DEVIATIONS: Final = 2.0
"""Number of standard errors of the paired difference by which another split must win."""
ENOUGH_SHARE: Final = 0.995
"""Another split is proposed only if its errors are below this share of those of the problem's own split."""
SPARSE: Final = "Before cells are made non-negative: where most are empty releases err less."
NOISE_ALONE: Final = (
    "These are errors of unbiased estimates, before counts are made non-negative: where most sizes are empty releases "
    "err far less. Public counts like the secret ones in hierarchy.like give the method's own errors."
)
LEAVES_ONLY: Final = "leaves-only"
"""The simplest baseline: the leaf regions' counts have the whole budget and are added up, without any fit."""

Splits = tuple[Split, Split]


def plan(declared: CountsProblem, file: str, context: SolveContext) -> Plan:
    """Predict errors by level and table for several budgets, and the split with the least weighted sum of them.

    The split is searched for on errors of the linear fit (:mod:`.forecast`), which are smooth. Where public counts are
    like the secret ones the method's own errors on these, on a few seeds, choose between it and some simple ones. The
    best of them is so by luck too: its errors are measured again on fresh seeds, and it is proposed in place of the
    problem's own split only where it is better there by more than chance.

    Raises:
        InputError: public regions are missing, a table is not of its form, or lists have not a number a level. Likewise
            what ``solve`` refuses (what the method cannot do, noise too wide for 64 bits), and weights of what is not
            there.
        UsageError: an integer program is asked for a size that it cannot take.
    """
    declared.check_keys(file)
    design, leaves, basis = _read_public_parts(declared, file, context.method)
    weights, has_few_counts = _error_weights(design), leaves is not None and leaves.size <= SMALL_COUNTS
    design.check()
    weight_vector = np.array([float(weight) for weight in weights])
    name, total_budget = _budget_of(declared.privacy)
    errors_by_budget, leaf_errors_by_budget = {}, {}
    # A budget whose noise would be too wide for 64 bits is omitted, as solve would refuse it.
    for step in STEPS:
        context.report("errors by budget")
        if (changed_design := _allowed_design(design, design.split, step * total_budget)) is not None:
            errors_by_budget[step * total_budget] = tuple(
                _measure_errors(changed_design, leaves, BUDGET_TRIALS).mean(axis=0).tolist()
            )
            leaf_errors_by_budget[step * total_budget] = tuple(changed_design.leaves_only().tolist())
    if leaves is None:
        best = least_split(design, weights, lambda: context.report("splits of the budget"))
        best_errors = forecast_errors(design.with_split(*best))
    else:
        smooth = least_split(design, weights, share_below=1.0)
        best = _best_simple(design, smooth, leaves, weight_vector, BUDGET_TRIALS if has_few_counts else 1)
        judges = JUDGE_TRIALS if has_few_counts else BUDGET_TRIALS
        own_split = design.split
        # The winner of a few noisy trials is partly lucky. Fresh seeds decide whether it beats the problem's own split.
        fresh = {
            split: _measure_errors(design.with_split(*split), leaves, judges, FRESH_SEED) for split in (own_split, best)
        }
        best = best if _is_surely_better(fresh[best] @ weight_vector, fresh[own_split] @ weight_vector) else own_split
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
        shares=_by_part(design.split),
        best=(_by_part(best), tuple(best_errors.tolist())),
        weights=weights,
        baselines={LEAVES_ONLY: leaf_errors_by_budget},
        own=total_budget,
        notes=tuple(_format_notes(design, best)) if leaves is None else (),
    )


def _read_public_parts(declared: CountsProblem, file: str, method: str) -> tuple[Design, Ints | None, str]:
    """Read the public files of a problem.

    Returns:
        The design, public counts (R_L, N) if there are any, and a phrase that says what the errors rest on.

    Raises:
        InputError: No table has the regions, or one is malformed or has regions that another one lacks.
    """
    if not isinstance(declared, HierarchyProblem):
        return TablesDesign.of(declared, file, method), None, "least squares over all tables and levels"
    table, leaves, basis = declared.hierarchy, None, "the fit of the noisy values alone"
    regions = None if table.regions is None else read_regions(table.regions)
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
    if isinstance(design, SizesDesign):
        yield NOISE_ALONE
        return
    yield SPARSE
    if best != design.split:  # lines for the problem file, in whole numbers: shares are relative
        integer_splits = [
            [int(part * lcm(*(fraction.denominator for fraction in split))) for part in split] for split in best
        ]
        yield f"best split, for the file: hierarchy.budget = {integer_splits[0]}"
        for form, part in zip(design.layout.forms, integer_splits[1], strict=True):
            yield f"  [hierarchy.tables.{form.name}] share = {part}"


def _by_part(split: Splits) -> Split:
    levels, tables = split
    return tuple(a * b for a in levels for b in tables)


def _budget_of(privacy: Privacy) -> tuple[str, Fraction]:
    """Return the name of the key of the budget, and its value."""
    name = KINDS[privacy.kind][1][0]
    return name, getattr(privacy, name)


def _allowed_design(design: Design, split: Splits, budget: Fraction | None = None) -> Design | None:
    """Return the design with another split and budget; None if ``solve`` would refuse it, because of wide noise."""
    changed = design.with_split(*split)
    if budget is not None:
        privacy = changed.problem.privacy
        changed_privacy = evolve(privacy, rho=budget) if privacy.rho is not None else evolve(privacy, epsilon=budget)
        changed = evolve(changed, problem=evolve(changed.problem, privacy=changed_privacy))
    try:
        changed.check()
    except InputError:
        return None
    return changed


def _error_weights(design: Design) -> tuple[Fraction, ...]:
    """Return the weight of each part's errors: as ``[plan] errors`` says, or equal weights.

    Raises:
        InputError: A weight of an unknown table or level.
    """
    given_weights, depth, file = design.problem.plan.errors, design.tree.depth, design.file
    names = [form.name for form in design.layout.forms]
    if given_weights is None:
        return (Fraction(1),) * (depth * len(names))
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
    return tuple(by_name.get(name, {}).get(level, Fraction(0)) for level in levels for name in names)


def forecast_errors(design: Design) -> Floats:
    """Return the expected sums of absolute errors of the linear fit, for each level every table's."""
    return design.forecast(design.noise_of(design.scales), [float(table_share) for table_share in design.split[1]])


def least_split(
    design: Design,
    weights: Sequence[Fraction],
    progress: Callable[[], None] = lambda: None,
    *,
    share_below: float = ENOUGH_SHARE,
) -> Splits:
    """Search the shares of levels and tables with the least weighted errors of the linear fit.

    A level may have no share, because it is the sum of the level below. A table may have none if another measured table
    has all of its attributes.

    Args:
        design: The design with the problem's own shares.
        weights: The weight of each part's errors.
        progress: Called before each evaluation.
        share_below: Share of the own split's errors below which another split must be.

    Returns:
        The best split, or the problem's own one if no other is sufficiently better.
    """
    law, total = design.law, design.problem.privacy.budget
    weight_vector = np.array([float(weight) for weight in weights])

    def cost(point: Point) -> float:
        progress()
        levels, tables = point
        # The leaves cannot be added up from another level, and some tables not from another table.
        if not levels[-1] or any(
            is_needed and not table_share
            for is_needed, table_share in zip(design.need_shares(tables), tables, strict=True)
        ):
            return np.inf
        parts = [[total * Fraction(float(level * table)) for level in levels] for table in tables]
        scales = [
            [law.ideal_scale(part, design.delta) if part else None for part in table_parts] for table_parts in parts
        ]
        return float(design.forecast(design.noise_of(scales), tables) @ weight_vector)

    start = tuple(np.array([float(fraction) for fraction in block]) for block in design.split)
    levels, tables = map(as_split, best_point(cost, start))
    best = _allowed_design(design, (levels, tables))
    is_better = best is not None and forecast_errors(best) @ weight_vector < share_below * (
        forecast_errors(design) @ weight_vector
    )
    return (levels, tables) if is_better else design.split


def _best_simple(design: Design, smooth: Splits, leaves: Ints, weigh: Floats, trials: int) -> Splits:
    """Return the best of four splits on public counts: the own, the linear fit's, all on the leaves, or an even one."""
    depth = design.tree.depth

    def value(split: Split) -> float:
        changed_design = _allowed_design(design, (split, (Fraction(1),)))
        return (
            np.inf
            if changed_design is None
            else float((_measure_errors(changed_design, leaves, trials) @ weigh).mean())
        )

    leaves_split = (*(Fraction(0) for _ in range(depth - 1)), Fraction(1))
    candidates = dict.fromkeys((design.split[0], smooth[0], leaves_split, (Fraction(1, depth),) * depth))
    return min(candidates, key=value), (Fraction(1),)


def _is_surely_better(challenger: Floats, current: Floats) -> bool:
    """Return whether a challenger's errors (trials,) are smaller by more than chance; trials are paired by seed."""
    savings = current - challenger
    # Paired by seed: the noise that both splits share cancels in the difference.
    standard_error = savings.std(ddof=1) / np.sqrt(len(savings)) if len(savings) > 1 else 0.0
    return bool(savings.mean() > SURE_DEVIATIONS * standard_error)


def _measure_errors(design: Design, leaves: Ints | None, trials: int, seed: int = 0) -> Floats:
    """Measure errors (trials, parts) on public counts; without public counts, forecast those of the linear fit."""
    return forecast_errors(design)[None, :] if leaves is None else errors_on([leaves] * trials, design, seed=seed)


def errors_on(leaves: Sequence[Ints], design: Design, *, seed: int = 0) -> Floats:
    """Measure the L1 errors (trials, L) by level on known counts (R_L, N)."""
    errors = []
    for trial, leaf_counts in enumerate(leaves, start=seed):
        levels = add_up(design.tree, leaf_counts)
        noisy, _ = design.draw([levels], seed=trial)
        fitted = design.fit(noisy, [level.sum(axis=1) for level in levels[: design.exact]])
        errors.append([float(np.abs(a - b).sum()) for a, b in zip(fitted.counts[0], levels, strict=True)])
    return np.array(errors)
