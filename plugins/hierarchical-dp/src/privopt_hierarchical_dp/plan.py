"""Errors to expect before epsilon is chosen: from public counts like the secret ones, or from the noise alone."""

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
from privopt_hierarchical_dp.instance import read_listed
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.noise_distributions import KINDS
from privopt_hierarchical_dp.problem import HierarchyProblem, Privacy
from privopt_hierarchical_dp.shares import Point, Split, as_split, best_point
from privopt_hierarchical_dp.sizes import SizesDesign
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = ["LEAVES_ONLY", "STEPS", "errors_on", "expected", "least_split", "plan"]

STEPS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
"""Budgets that errors are stated for, as multiples of the problem's own."""
BUDGET_TRIALS: Final = 3
SMALL_COUNTS: Final = 20_000
"""Counts (regions times sizes) up to which each split has as many trials as each budget, not one."""
FRESH_SEED: Final = 1000
"""Seed of the trials that judge the winner, which are none of those that it won."""
JUDGE_TRIALS: Final = 30
"""Those trials where counts are few, and as many as each budget has where they are not."""
SURE_DEVIATIONS: Final = 2.0
"""Standard errors of the difference, trial by trial, by which another split must win."""
ENOUGH_SHARE: Final = 0.995
"""Of the own split's errors of the linear fit: another that saves less is not told."""
SPARSE: Final = "Before cells are made non-negative: where most are empty releases err less."
NOISE_ALONE: Final = (
    "These are errors of unbiased estimates, before counts are made non-negative: where most sizes are empty releases "
    "err far less. Public counts like the secret ones in hierarchy.like give the method's own errors."
)
LEAVES_ONLY: Final = "leaves-only"
"""The simplest way of all: the whole budget on the counts of the leaf regions, added up, and nothing else done."""

Errors = Callable[[Design, int, int], Floats]
"""Errors (trials, parts) of a design, from so many trials from a seed on; one row where none are drawn."""
Splits = tuple[Split, Split]


def plan(declared: CountsProblem, file: str, context: SolveContext) -> Plan:
    """Predict errors by level and table for several budgets, and the split with the least weighted sum of them.

    The split is searched for on errors of the linear fit (:mod:`.forecast`), which are smooth. Where public counts are
    like the secret ones the method's own errors on these, on a few seeds, choose between it and some simple ones. The
    best of them is so by luck too: its errors are measured again on fresh seeds, and it is proposed in place of the
    problem's own split only where it is better there by more than chance.

    Raises:
        InputError: ``hierarchy.like`` is missing or not of its form, lists have not a number a level, or what ``solve``
            refuses: what the method cannot do, noise too wide for 64 bits; weights of what is not there.
        UsageError: an integer program is asked for a size that it cannot take.
    """
    declared.checked(file)
    design, errors, basis, judges = _opened(declared, file, context.method)
    weights = _weights(design)
    design.check()
    weigh = np.array([float(weight) for weight in weights])
    name, whole = _budget_of(declared.privacy)
    found, simple = {}, {}
    for step in STEPS:
        context.report("errors by budget")
        if (own := _asked(design, design.split, step * whole)) is not None:
            found[step * whole] = tuple(errors(own, BUDGET_TRIALS, 0).mean(axis=0).tolist())
            simple[step * whole] = tuple(own.leaves_only().tolist())
    context.report("splits of the budget")
    if errors is expected_once:
        best = least_split(design, weights, lambda: context.report("splits of the budget"))
        told = expected(design.with_split(*best))
    else:
        assert isinstance(design, SizesDesign)  # the others have no public counts
        best = _best_simple(design, least_split(design, weights, share_below=1.0), errors, weigh, context)
        fresh = {split: errors(design.with_split(*split), judges, FRESH_SEED) for split in (design.split, best)}
        if not _wins(fresh[best] @ weigh, fresh[design.split] @ weigh):
            best = design.split
        found[whole], told = tuple(fresh[design.split].mean(axis=0).tolist()), fresh[best].mean(axis=0)
    return Plan(
        method=context.method,
        budget=name,
        unit=f"{design.layout.noun} (sum of absolute errors over the cells of all regions)",
        basis=basis,
        parts=design.parts,
        errors=found,
        shares=_by_part(design.split),
        best=(_by_part(best), tuple(told.tolist())),
        weights=weights,
        baselines={LEAVES_ONLY: simple},
        own=whole,
        notes=tuple(_notes(design, best, drawn=errors is not expected_once)),
    )


def _opened(declared: CountsProblem, file: str, method: str) -> tuple[Design, Errors, str, int]:
    """Return the design, its errors, what they rest on, and how many trials judge a split."""
    if not isinstance(declared, HierarchyProblem):
        return TablesDesign.of(declared, file, method), expected_once, "least squares over all tables and levels", 1
    tree, leaves, source = _public(declared, file)
    declared.settings.check_lengths(tree.depth, file)
    design = SizesDesign.of(declared, method, tree, file)
    if leaves is None:
        return design, expected_once, "the fit of the noisy values alone", 1
    small = _small(design)
    drawn = f"{BUDGET_TRIALS} trials" + (f" ({JUDGE_TRIALS} at the problem's own budget)" if small else "")
    basis = f"mean of {drawn} on the public counts of {source}"
    return design, _trials(leaves), basis, JUDGE_TRIALS if small else BUDGET_TRIALS


def _small(design: Design) -> bool:
    return design.tree.regions * sum(int(np.prod(form.shape)) for form in design.layout.forms) <= SMALL_COUNTS


def _notes(design: Design, best: Splits, *, drawn: bool) -> Iterator[str]:
    if isinstance(design, SizesDesign):
        yield from () if drawn else (NOISE_ALONE,)
        return
    yield SPARSE
    if best != design.split:  # lines for the problem file, in whole numbers: shares are relative
        whole = [[int(share * lcm(*(own.denominator for own in split))) for share in split] for split in best]
        yield f"best split, for the file: hierarchy.budget = {whole[0]}"
        for form, share in zip(design.layout.forms, whole[1], strict=True):
            yield f"  [hierarchy.tables.{form.name}] share = {share}"


def _by_part(split: Splits) -> Split:
    levels, tables = split
    return tuple(a * b for a in levels for b in tables)


def _budget_of(privacy: Privacy) -> tuple[str, Fraction]:
    """Return the name of the key that says how much may leak, and its value."""
    name = KINDS[privacy.kind][1][0]
    return name, getattr(privacy, name)


def _asked(design: Design, split: Splits, budget: Fraction | None = None) -> Design | None:
    """Return the design with another split and budget; None where its noise is too wide, as ``solve`` would say."""
    other = design.with_split(*split)
    if budget is not None:
        privacy = other.problem.privacy
        more = evolve(privacy, rho=budget) if privacy.rho is not None else evolve(privacy, epsilon=budget)
        other = evolve(other, problem=evolve(other.problem, privacy=more))
    try:
        other.check()
    except InputError:
        return None
    return other


def _weights(design: Design) -> tuple[Fraction, ...]:
    """Return what an error of each part weighs: as ``[plan] errors`` has it, or all the same.

    Raises:
        InputError: a table or a level that is not there.
    """
    asked, depth, file = design.problem.plan.errors, design.tree.depth, design.file
    names = [form.name for form in design.layout.forms]
    if asked is None:
        return (Fraction(1),) * (depth * len(names))
    by_name: Mapping[str, Mapping[str, Fraction]] = {"": asked} if names == [""] else asked
    unknown = [name for name in by_name if name not in names]
    wanted = f"tables {', '.join(names)}"
    Faults([Fault(file, f"plan.errors.{name}", "no such table", wanted) for name in unknown]).check()
    levels = [f"level_{level}" for level in range(1, depth + 1)]
    Faults(
        [
            Fault(
                file,
                ".".join(filter(None, ("plan.errors", name, own))),
                "no such level",
                f"levels {levels[0]} to {levels[-1]}",
            )
            for name, by_level in by_name.items()
            for own in by_level
            if own not in levels
        ]
    ).check()
    return tuple(by_name.get(name, {}).get(level, Fraction(0)) for level in levels for name in names)


def _public(declared: HierarchyProblem, file: str) -> tuple[Tree, Ints | None, str]:
    """Return the regions, public counts (R_L, N) where there are any, and the name of their file.

    Raises:
        InputError: neither table is there, one is not of its form, or ``like`` has regions that ``regions`` lacks.
    """
    table = declared.hierarchy
    listed = read_listed(declared)
    if table.like is None:
        if listed is not None:
            return listed.tree, None, ""
        wanted = "a public table of the regions, level_1,...,level_L, with size,groups of counts like the secret ones"
        raise InputError([Fault(file, "hierarchy.like", "nothing", wanted)])
    regions, counted = read_regions(table.like)
    if counted:
        groups = read_counts(table.like, table.sizes, first=table.first_size, listed=listed)
        return groups.tree, groups.leaves, table.like.name
    if listed is not None:
        Faults(listed.unlisted(regions.leaves, table.like.name)).check()
    return (listed or regions).tree, None, ""


def expected(design: Design) -> Floats:
    """Return sums of absolute errors of the linear fit, level by level each table's."""
    return design.forecast(design.noise_of(design.scales), [float(share) for share in design.split[1]])


def expected_once(design: Design, trials: int, seed: int) -> Floats:
    """Return them as one trial."""
    return expected(design)[None, :]


def least_split(
    design: Design,
    weights: Sequence[Fraction],
    progress: Callable[[], None] = lambda: None,
    *,
    share_below: float = ENOUGH_SHARE,
) -> Splits:
    """Return shares of levels and tables with the least weighted errors of the linear fit; the own where that is.

    A level may have none, for it is the sum of the one below; a table may where another one holds it.

    Args:
        design: what is asked.
        weights: what errors of each part weigh.
        progress: called before each split is looked at.
        share_below: share of the own split's errors that another one has to stay below.
    """
    law, total, depth = design.law, design.problem.privacy.budget, design.tree.depth
    weigh = np.array([float(weight) for weight in weights])

    def cost(point: Point) -> float:
        progress()
        levels, tables = point
        if any(must and not share for must, share in zip(design.needed(tables), tables, strict=True)):
            return np.inf
        parts = [[total * Fraction(float(level * table)) for level in levels] for table in tables]
        scales = [[law.wide(part, design.delta) if part else None for part in own] for own in parts]
        return float(design.forecast(design.noise_of(scales), tables) @ weigh)

    every = np.ones(len(design.layout.forms))
    needed = [level == depth - 1 for level in range(depth)], design.needed(every)
    start = tuple(np.array([float(share) for share in block]) for block in design.split)
    levels, tables = map(as_split, best_point(cost, needed, start))
    best = _asked(design, (levels, tables))
    better = best is not None and expected(best) @ weigh < share_below * (expected(design) @ weigh)
    return (levels, tables) if better else design.split


def _best_simple(design: SizesDesign, smooth: Splits, errors: Errors, weigh: Floats, context: SolveContext) -> Splits:
    """Return the best split on public counts: the own, the linear fit's, the leaves alone, or an even one."""
    depth, trials = design.tree.depth, BUDGET_TRIALS if _small(design) else 1

    def value(split: Split) -> float:
        context.report("splits of the budget")
        own = _asked(design, (split, (Fraction(1),)))
        return np.inf if own is None else float((errors(own, trials, 0) @ weigh).mean())

    leaves = (*(Fraction(0) for _ in range(depth - 1)), Fraction(1))
    few = dict.fromkeys((design.split[0], smooth[0], leaves, (Fraction(1, depth),) * depth))
    return min(few, key=value), (Fraction(1),)


def _wins(other: Floats, current: Floats) -> bool:
    """Return whether errors (trials,) are less by more than chance makes them; the same seeds are paired."""
    less = current - other
    doubt = less.std(ddof=1) / np.sqrt(len(less)) if len(less) > 1 else 0.0
    return bool(less.mean() > SURE_DEVIATIONS * doubt)


def _trials(leaves: Ints) -> Errors:
    def errors(design: Design, trials: int, seed: int) -> Floats:
        assert isinstance(design, SizesDesign)  # others have no public counts
        return errors_on([leaves] * trials, design, seed=seed)

    return errors


def errors_on(leaves: Sequence[Ints], design: SizesDesign, *, seed: int = 0) -> Floats:
    """Return (trials, L) the L1 errors by level on known counts (R_L, N)."""
    errors = []
    for trial, known in enumerate(leaves, start=seed):
        levels = add_up(design.tree, known)
        noisy, _ = design.draw([levels], seed=trial)
        found = design.fit(noisy, [level.sum(axis=1) for level in levels[: design.exact]])
        errors.append([float(np.abs(a - b).sum()) for a, b in zip(found.counts[0], levels, strict=True)])
    return np.array(errors)
