"""Errors to expect before epsilon is chosen: from public counts like the secret ones, or from the noise alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final, TypeVar

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, Faults, InputError
from privopt.interfaces import Plan, SolveContext
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.forecast import errors_of_counts, errors_of_cumulative, errors_of_leaves, shape_of
from privopt_hierarchical_dp.groups import read_counts
from privopt_hierarchical_dp.instance import read_listed
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.methods import default_shares
from privopt_hierarchical_dp.noise_distributions import KINDS
from privopt_hierarchical_dp.problem import HierarchyProblem, Privacy
from privopt_hierarchical_dp.shares import Point, Split, as_split, best_point, normed
from privopt_hierarchical_dp.structural_zeros import within
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = [
    "LEAVES_ONLY",
    "STEPS",
    "budget_of",
    "errors_on",
    "leaves_only",
    "plan",
    "weights_by_level",
    "with_budget",
]

STEPS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
"""Budgets that errors are stated for, as multiples of the problem's own."""
TRIALS: Final = 3
SMALL: Final = 20_000
"""Counts (regions times sizes) up to which each split has as many trials as each budget, not one."""
LOOKS: Final = {True: 60, False: 12}
"""Splits that are tried on public counts, by whether these are small."""
FRESH: Final = 1000
"""Seed of the trials that judge the winner, which are none of those that it won."""
JUDGES: Final = 30
"""Those trials where counts are few, and as many as each budget has where they are not."""
SURELY: Final = 2.0
"""Standard errors of the difference, trial by trial, by which another split must win."""
NOISE_ALONE: Final = (
    "These are errors of unbiased estimates, before counts are made non-negative: where most sizes are empty releases "
    "err far less. Public counts like the secret ones in hierarchy.like give the method's own errors."
)
LEAVES_ONLY: Final = "leaves-only"
"""The simplest way of all: the whole budget on the counts of the leaf regions, added up, and nothing else done."""

P = TypeVar("P", bound=Privacy)
Errors = Callable[[Design, int, int], Floats]
"""Errors (trials, L) by level of a design, from so many trials from a seed on; one row where none are drawn."""


def plan(declared: HierarchyProblem, file: str, context: SolveContext) -> Plan:
    """Tell errors by level for several budgets, and the split of the budget with the least weighted sum of them.

    The split is searched for on errors of least squares, which are smooth. Where public counts are like the secret
    ones it goes on from the best of a few with the method's own errors on these, on a few seeds. The best of them is so
    by luck too: its errors are measured again on fresh seeds, and it is proposed in place of the problem's own split
    only where it is better there by more than chance.

    Raises:
        InputError: ``hierarchy.like`` is missing or not of its form, lists have not a number a level, or what ``solve``
            refuses: what the method cannot do, noise that there is no room for.
        UsageError: an integer program is asked for a size that it cannot take.
    """
    declared.checked(file)
    method = context.method
    tree, leaves, source = _public(declared, file)
    declared.settings.check_lengths(tree.depth, file)
    weights = weights_by_level(declared.plan.errors, tree.depth, "plan.errors", file)
    shares = normed(declared.settings.budget or default_shares(method, tree.depth))
    design = Design.of(declared, method, tree, file)
    design.check()
    small = tree.regions * declared.hierarchy.classes <= SMALL
    few, judges = (TRIALS, JUDGES) if small else (1, TRIALS)
    basis = "least squares from the noisy values alone"
    errors: Errors = _analytic
    if leaves is not None:
        drawn = f"{TRIALS} trials" + (f" ({JUDGES} at the problem's own budget)" if small else "")
        basis, errors = f"mean of {drawn} on the public counts of {source}", _trials(leaves)
    name, whole = budget_of(declared.privacy)

    def designed(budget: Fraction, split: Sequence[Fraction]) -> Design | None:
        other = design.for_budget(_asked(declared, budget, split))
        try:
            other.check()
        except InputError:  # too wide a noise, as `solve` would say of it
            return None
        return other

    found, simple = {}, {}
    for step in STEPS:
        context.report("errors by budget")
        if (own := designed(step * whole, shares)) is not None:
            found[step * whole] = tuple(errors(own, TRIALS, 0).mean(axis=0).tolist())
            simple[step * whole] = leaves_only(own)
    weigh = np.array([float(weight) for weight in weights])
    context.report("splits of the budget")
    splits = _candidates(design, shares, weigh)
    if leaves is not None:
        splits = [_searched(designed, whole, splits, errors, few, weigh, LOOKS[small], context)]
    best = min(splits, key=lambda split: _cost(designed(whole, split), errors, few, weigh))
    fresh = {}
    for split in (shares, best):
        context.report("the best split again")
        own = designed(whole, split)
        assert own is not None  # checked above, or of finite cost
        fresh[split] = errors(own, judges, FRESH)
    if not _wins(fresh[best] @ weigh, fresh[shares] @ weigh):
        best = shares
    found[whole] = tuple(fresh[shares].mean(axis=0).tolist())
    return Plan(
        method=method,
        budget=name,
        unit="groups (sum of absolute errors over regions and sizes)",
        basis=basis,
        parts=tuple(f"level {level} ({width})" for level, width in enumerate(tree.widths, start=1)),
        errors=found,
        shares=shares,
        best=(best, tuple(fresh[best].mean(axis=0).tolist())),
        weights=weights,
        baselines={LEAVES_ONLY: simple},
        own=whole,
        notes=() if leaves is not None else (NOISE_ALONE,),
    )


def budget_of(privacy: Privacy) -> tuple[str, Fraction]:
    """Return the name of the key that says how much may leak, and its value."""
    name = KINDS[privacy.kind][1][0]
    return name, getattr(privacy, name)


def with_budget(privacy: P, budget: Fraction) -> P:
    """Return the same notion with another rho, or another epsilon and the same delta."""
    return evolve(privacy, rho=budget) if privacy.rho is not None else evolve(privacy, epsilon=budget)


def weights_by_level(asked: Mapping[str, Fraction] | None, depth: int, key: str, file: str) -> tuple[Fraction, ...]:
    """Return what errors of each level weigh: as asked, and 0 for levels that are not named; all 1 where none are.

    Raises:
        InputError: a name that is not a level.
    """
    names = [f"level_{level}" for level in range(1, depth + 1)]
    if asked is None:
        return (Fraction(1),) * depth
    wanted = f"levels {names[0]} to {names[-1]}"
    Faults([Fault(file, f"{key}.{name}", "no such level", wanted) for name in asked if name not in names]).check()
    return tuple(asked.get(name, Fraction(0)) for name in names)


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


def _asked(declared: HierarchyProblem, budget: Fraction, split: Sequence[Fraction]) -> HierarchyProblem:
    settings = evolve(declared.settings, budget=tuple(split))
    return evolve(declared, privacy=with_budget(declared.privacy, budget), settings=settings)


def _candidates(design: Design, own: Split, weigh: Floats) -> list[Split]:
    """Return the problem's own split, and the best by least squares; all on the leaves, and an even one."""
    total, law, depth = design.problem.privacy.budget, design.law, design.tree.depth

    def cost(point: Point) -> float:
        parts = [total * Fraction(float(share)) for share in point[0]]
        scales = [law.wide(part, design.delta) if part else None for part in parts]
        return float(_least_squares_errors(design, [law.moments(scale) for scale in scales]) @ weigh)

    needed = [[level == depth - 1 for level in range(depth)]]
    found = best_point(cost, needed, (np.array([float(share) for share in own]),))
    leaves = (*(Fraction(0) for _ in range(depth - 1)), Fraction(1))
    return list(dict.fromkeys((own, as_split(found[0]), leaves, (Fraction(1, depth),) * depth)))


def _cost(design: Design | None, errors: Errors, trials: int, weigh: Floats) -> float:
    return np.inf if design is None else float((errors(design, trials, 0) @ weigh).mean())


def _searched(
    designed: Callable[[Fraction, Sequence[Fraction]], Design | None],
    whole: Fraction,
    splits: Sequence[Split],
    errors: Errors,
    trials: int,
    weigh: Floats,
    looks: int,
    context: SolveContext,
) -> Split:
    """Return the best split on public counts: from the best of those given by the method of Nelder and Mead."""
    from scipy.optimize import minimize

    tried: dict[Split, float] = {}

    def value(split: Split) -> float:
        if split not in tried:
            context.report("splits of the budget", len(tried))
            tried[split] = _cost(designed(whole, split), errors, trials, weigh)
        return tried[split]

    start = min(splits, key=value)
    support = np.flatnonzero(np.array(start, dtype=float))

    def split_of(logs: Floats) -> Split:
        shares = np.zeros(len(start))
        raised = np.exp(np.append(logs, 0.0) - max(logs.max(), 0.0))
        shares[support] = raised / raised.sum()
        return as_split(shares)

    if len(support) > 1:
        own = np.log(np.array(start, dtype=float)[support])
        options = {"maxfev": looks, "xatol": 0.02, "fatol": 0.0}
        minimize(lambda logs: value(split_of(logs)), own[:-1] - own[-1], method="Nelder-Mead", options=options)
    return min(tried, key=tried.__getitem__)


def _wins(other: Floats, own: Floats) -> bool:
    """Return whether errors (trials,) are less by more than chance makes them; the same seeds are paired."""
    less = own - other
    doubt = less.std(ddof=1) / np.sqrt(len(less)) if len(less) > 1 else 0.0
    return bool(less.mean() > SURELY * doubt)


def _trials(leaves: Ints) -> Errors:
    def errors(design: Design, trials: int, seed: int) -> Floats:
        return errors_on([leaves] * trials, design, seed=seed)

    return errors


def _analytic(design: Design, trials: int, seed: int) -> Floats:
    return _least_squares_errors(design, design.noise)[None, :]


def _possible(design: Design) -> int:
    """Return how many sizes some region can have."""
    zeros = design.zeros
    return design.problem.hierarchy.classes - (0 if zeros is None else int(zeros.everywhere.sum()))


def _least_squares_errors(design: Design, noise: Sequence[Noise]) -> Floats:
    """Return mean absolute errors (L,) of least squares, by level summed over regions and sizes."""
    shape, size = shape_of(design.tree), _possible(design)
    if design.rule.query == "cumulative":
        return errors_of_cumulative(shape, noise, size, totals=design.totals)
    return size * errors_of_counts(shape, noise)


def leaves_only(design: Design) -> tuple[float, ...]:
    """Return errors by level of counts of the leaves with all of the budget, added up."""
    delta = design.relation.sensitivity("counts", design.problem.settings.max_quantity)
    noise = design.law.moments(design.law.wide(design.problem.privacy.budget, delta))
    return tuple((_possible(design) * errors_of_leaves(shape_of(design.tree), noise)).tolist())


def errors_on(leaves: Sequence[Ints], design: Design, *, seed: int = 0) -> Floats:
    """Return the (trials, L) L1 errors by level on known counts (R_L, N), a trial each; nothing drawn is released."""
    errors = []
    for trial, known in enumerate(leaves, start=seed):
        levels = add_up(design.tree, known if design.zeros is None else within(design.zeros, known))
        tops = [level.sum(axis=1) for level in levels]
        exact = tops[: len(tops) if design.totals else int(design.relation.exact)]
        noisy, _ = design.draw(levels, seed=trial)
        found = design.fit(noisy, exact)
        errors.append([float(np.abs(a - b).sum()) for a, b in zip(found.counts, levels, strict=True)])
    return np.array(errors)
