"""Errors to expect before epsilon is chosen: from public counts like the secret ones, or from the noise alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt.interfaces import Plan, SolveContext
from privopt_hierarchical_dp.counts import read_counts
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.expected import errors_on
from privopt_hierarchical_dp.fitting import refuse_size
from privopt_hierarchical_dp.laws import KINDS
from privopt_hierarchical_dp.least_squares import exactly, increments, least_squares, mean_absolute
from privopt_hierarchical_dp.methods import default_shares
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.public_tables import read_regions
from privopt_hierarchical_dp.reading import limited
from privopt_hierarchical_dp.refusals import check_asked, check_hidden, check_noise
from privopt_hierarchical_dp.tree import Tree

__all__ = ["plan"]

STEPS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
"""Budgets that errors are stated for, as multiples of the problem's own."""
TRIALS: Final = 3
SMALL: Final = 20_000
"""Counts (regions times sizes) up to which each split has as many trials as each budget, not one."""
FRESH: Final = 1000
"""Seed of the trials that judge the winner, which are none of those that it won."""
JUDGES: Final = 30
"""Those trials where counts are few, and as many as each budget has where they are not."""
SURELY: Final = 2.0
"""Standard errors of the difference, trial by trial, by which another split must win."""
PARTS: Final = 10
"""Shares that are tried are multiples of one of so many parts, or of one a level where that is more."""
MOST_SPLITS: Final = 40
"""Splits that are tried."""
NOISE_ALONE: Final = (
    "These are errors of unbiased estimates, before counts are made non-negative: where most sizes are empty releases "
    "err far less. Public counts like the secret ones in hierarchy.like give the method's own errors."
)

Errors = Callable[[Design, int, int], Floats]
"""Errors (trials, L) by level of a design, from so many trials from a seed on; one row where none are drawn."""


def plan(declared: HierarchyProblem, file: str, context: SolveContext) -> Plan:
    """Errors by level for several epsilons, and the split of the budget with the least sum of them.

    Splits are tried on a few seeds. The best of them is so by luck too: its errors are measured again on fresh seeds,
    and it is proposed in place of the problem's own split only where it is better there by more than chance.

    Raises:
        InputError: ``hierarchy.like`` is missing or not of its form, lists have not a number a level, or what ``solve``
            refuses: what the method cannot do, noise that there is no room for.
        UsageError: an integer program is asked for a size that it cannot take.
    """
    declared.checked(file)
    method = context.method
    tree, leaves, source = _public(declared, file)
    shares, design = _decided(declared, file, method, tree)
    small = tree.regions * declared.hierarchy.classes <= SMALL
    basis = "least squares from the noisy values alone"
    errors: Errors = _analytic
    if leaves is not None:
        refuse_size(method, tree, declared.hierarchy.classes)
        drawn = f"{TRIALS} trials" + (f" ({JUDGES} at the problem's own budget)" if small else "")
        basis, errors = f"mean of {drawn} on the public counts of {source}", _trials(leaves)

    def expected(phase: str, budget: Fraction, split: Sequence[Fraction], trials: int, seed: int = 0) -> Floats:
        context.report(phase)
        return errors(design.for_budget(_asked(declared, budget, split)), trials, seed)

    name = KINDS[declared.privacy.kind][1][0]
    whole: Fraction = getattr(declared.privacy, name)

    def fits(budget: Fraction, split: Sequence[Fraction]) -> bool:
        try:
            check_noise(design.for_budget(_asked(declared, budget, split)))
        except InputError:  # too wide a noise, as `solve` would say of it
            return False
        return True

    few, judges = (TRIALS, JUDGES) if small else (1, TRIALS)
    found = {
        step * whole: _mean(expected("errors by budget", step * whole, shares, TRIALS))
        for step in STEPS
        if fits(step * whole, shares)
    }
    tried = {
        split: float(expected("splits of the budget", whole, split, few).sum(axis=1).mean())
        for split in (shares, *_splits(tree.depth))
        if fits(whole, split)
    }
    best = min(tried, key=tried.__getitem__)
    fresh = {split: expected("the best split again", whole, split, judges, FRESH) for split in (shares, best)}
    if not _wins(fresh[best], fresh[shares]):
        best = shares
    found[whole] = _mean(fresh[shares])
    return Plan(
        method=method,
        budget=name,
        unit="groups (sum of absolute errors over regions and sizes)",
        basis=basis,
        parts=tuple(f"level {level} ({width})" for level, width in enumerate(tree.widths, start=1)),
        errors=found,
        shares=shares,
        best=(best, _mean(fresh[best])),
        notes=() if leaves is not None else (NOISE_ALONE,),
    )


def _decided(declared: HierarchyProblem, file: str, method: str, tree: Tree) -> tuple[tuple[Fraction, ...], Design]:
    """The problem's own split of the budget over the levels, its sum 1; and what else is decided.

    Raises:
        InputError: it has not a number a level, or what ``solve`` refuses.
    """
    shares = declared.settings.budget or default_shares(method, tree.depth)
    if len(shares) != tree.depth:
        wanted = f"{tree.depth}, one for each level"
        raise InputError([Fault(file, "hierarchical-dp.budget", f"{len(shares)} numbers", wanted)])
    design = Design.of(declared, method, tree)
    check_hidden(declared, design.zeros, file)
    check_asked(design)
    check_noise(design)
    return tuple(share / sum(shares) for share in shares), design


def _public(declared: HierarchyProblem, file: str) -> tuple[Tree, Ints | None, str]:
    """The regions, public counts (R_L, N) where there are any, and the name of their file.

    Raises:
        InputError: neither table is there, one is not of its form, or ``like`` has regions that ``regions`` lacks.
    """
    table = declared.hierarchy
    listed = None if table.regions is None else read_regions(table.regions)[0]
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
        limited(listed.unlisted(regions.leaves, table.like.name), table.like.name)
    return (listed or regions).tree, None, ""


def _asked(declared: HierarchyProblem, budget: Fraction, split: Sequence[Fraction]) -> HierarchyProblem:
    """The same problem with another split, and another rho, or another epsilon and the same delta."""
    privacy = declared.privacy
    privacy = evolve(privacy, rho=budget) if privacy.rho is not None else evolve(privacy, epsilon=budget)
    return evolve(declared, privacy=privacy, settings=evolve(declared.settings, budget=tuple(split)))


def _mean(errors: Floats) -> tuple[float, ...]:
    return tuple(errors.mean(axis=0).tolist())


def _wins(other: Floats, own: Floats) -> bool:
    """Whether errors (trials, L) are less in all by more than chance makes them; the same seeds are paired."""
    less = own.sum(axis=1) - other.sum(axis=1)
    doubt = less.std(ddof=1) / np.sqrt(len(less)) if len(less) > 1 else 0.0
    return bool(less.mean() > SURELY * doubt)


def _trials(leaves: Ints) -> Errors:
    def errors(design: Design, trials: int, seed: int) -> Floats:
        return errors_on([leaves] * trials, design, seed=seed)

    return errors


def _analytic(design: Design, trials: int, seed: int) -> Floats:
    """Mean absolute errors of least squares."""
    tree, size = design.tree, design.problem.hierarchy.classes
    if design.zeros is not None:
        size -= int(design.zeros.everywhere.sum())
    blank = [np.zeros((width, 1), np.int64) for width in tree.widths]
    sums = []
    for level, width in zip(least_squares(tree, blank, design.noise), tree.widths, strict=True):
        own = level
        if design.rule.query == "cumulative":
            known = exactly(np.zeros(width, np.int64))
            course = evolve(level, mean=np.zeros((width, size - 1)))
            own = increments(course, known if design.totals else evolve(known, variance=level.variance))
        sums.append(size / own.variance.shape[1] * float(mean_absolute(own).sum()))
    return np.array([sums])


def _splits(depth: int) -> Iterator[tuple[Fraction, ...]]:
    """Splits over the levels to try: all in tenths where they are few, else geometric ones and some in between."""
    every = list(_compositions(max(PARTS, depth), depth))
    if len(every) <= MOST_SPLITS:
        yield from every
        return
    for ratio in (Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(2), Fraction(3), Fraction(5)):
        parts = [ratio**level for level in range(depth)]
        yield tuple(part / sum(parts) for part in parts)
    for last in (Fraction(1, 2), Fraction(7, 10), Fraction(9, 10)):
        yield (*((1 - last) / (depth - 1) for _ in range(depth - 1)), last)


def _compositions(parts: int, depth: int) -> Iterator[tuple[Fraction, ...]]:
    """All ways to deal so many equal parts to the levels, at least one to each."""
    from itertools import combinations

    for cuts in combinations(range(1, parts), depth - 1):
        edges = (0, *cuts, parts)
        yield tuple(Fraction(edges[level + 1] - edges[level], parts) for level in range(depth))
