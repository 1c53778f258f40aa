"""Errors to expect of tables before epsilon is chosen, and the split of the budget with the least of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from math import lcm
from typing import Any, Final

import numpy as np
from attrs import evolve

from privopt.errors import InputError
from privopt.interfaces import Plan, SolveContext
from privopt_hierarchical_dp.least_squares import Noise, least_squares, mean_absolute
from privopt_hierarchical_dp.planning import STEPS
from privopt_hierarchical_dp.refusals import refuse_wide
from privopt_hierarchical_dp.several.fit import noise_of_margin
from privopt_hierarchical_dp.several.problem import TablesProblem
from privopt_hierarchical_dp.several.read import TablesRead

__all__ = ["check_noise", "least_split", "noise_of", "plan_of"]

Split = tuple[Fraction, ...]
PARTS: Final = 20
"""Shares that are tried are multiples of one of so many parts, or of one in four to each where that is more."""
ROUNDS: Final = 6
"""Turns of levels and tables; errors are all but a product of what each of the two does."""
ENOUGH: Final = 0.995
"""Of the own split's errors: another that saves less is not told."""
NOTES: Final = (
    "Before cells are made non-negative: where most are empty releases err less.",
    "The least sum favours the leaves, where most cells are: read it beside the errors of the parts that matter.",
)


def check_noise(declared: TablesProblem, depth: int) -> None:
    """Refuse noise that there is no room for.

    Raises:
        InputError: with the table and the level.
    """
    for level, budgets in enumerate(declared.budgets(depth), start=1):
        for name, budget in zip(declared.hierarchy.tables, budgets, strict=True):
            where = f"table {name!r}, level {level}"
            refuse_wide(declared.privacy, budget, declared.relation.sensitivity, where)


def noise_of(declared: TablesProblem, scales: Sequence[Sequence[Fraction]]) -> list[list[Noise]]:
    """Moments of the noise of scales, for each level of each table's cells."""
    law = declared.privacy.law
    return [[law.moments(scale) for scale in level] for level in scales]


def plan_of(problem: TablesRead, method: str, context: SolveContext) -> Plan:
    """Errors by table and level of least squares, from the noise alone, for several budgets, and the best split.

    Raises:
        InputError: noise that there is no room for, as ``solve`` would say.
    """
    declared, depth = problem.declared, problem.tree.depth
    privacy, tables = declared.privacy, declared.hierarchy.tables
    check_noise(declared, depth)
    key = "epsilon" if privacy.rho is None else "rho"
    whole: Fraction = getattr(privacy, key)
    cells, found = _cells(problem), {}
    for step in STEPS:
        part = step * whole
        asked = evolve(privacy, rho=part) if key == "rho" else evolve(privacy, epsilon=part)
        errors = _expected(problem, evolve(declared, privacy=asked), cells)
        if errors is not None:
            found[part] = errors
    levels, own = least_split(problem, lambda: context.report("splits of the budget"))
    best = _expected(problem, _asked(declared, levels, own), cells)
    assert best is not None  # the problem's own split is among those tried
    shares = _by_part(declared.level_shares(depth), [table.share for table in tables.values()])
    other = _by_part(levels, own)
    return Plan(
        method=method,
        budget=key,
        unit="individuals (sum of absolute errors over the cells of all regions, as many as stand behind each part)",
        basis="least squares over all tables and levels",
        parts=tuple(f"{name}, level {n // len(tables) + 1} ({cells[n]})" for n, name in enumerate([*tables] * depth)),
        errors=found,
        shares=shares,
        best=(other, best),
        notes=NOTES if other == shares else (*NOTES, *_written(levels, tables, own)),
    )


def least_split(problem: TablesRead, progress: Callable[[], None] = lambda: None) -> tuple[Split, Split]:
    """Shares of levels and of tables whose errors add up to least, by least squares alone; the own ones where that is.

    Levels are divided for given tables, tables for given levels, in turn. Each division is left for the best of those
    that move a part from one share to another, from the own one, an even one, and ones with nearly all on one: under
    pure DP errors are not convex in the shares, and what one table tells best may be worth all of the budget.
    """
    declared, depth = problem.declared, problem.tree.depth
    own = [table.share for table in declared.hierarchy.tables.values()]
    cells, known = _cells(problem), dict[tuple[Split, Split], float]()

    def cost(levels: Split, tables: Split) -> float:
        if (levels, tables) not in known:
            progress()
            errors = _expected(problem, _asked(declared, levels, tables), cells)
            known[levels, tables] = np.inf if errors is None else sum(errors)
        return known[levels, tables]

    first = best = _whole(declared.level_shares(depth)), _whole(own)
    for _ in range(ROUNDS):
        before = best
        levels = _descended(best[0], partial(cost, tables=best[1]))
        best = levels, _descended(best[1], partial(cost, levels))
        if best == before:
            break
    return best if cost(*best) < ENOUGH * cost(*first) else first


def _descended(own: Split, cost: Callable[[Split], float]) -> Split:
    """The best of shares that moves of one part reach from several starts; the one given where none is better."""
    count = len(own)
    parts = max(PARTS, 4 * count)
    corners = [[1 + (parts - count) * (at == k) for at in range(count)] for k in range(count)]
    even = [parts // count + (at < parts % count) for at in range(count)]
    best = own
    for start in (even, *corners):
        at = tuple(Fraction(part, parts) for part in start)
        while (near := min(_moves(at, parts), key=cost, default=at)) and cost(near) < cost(at):
            at = near
        best = min(best, at, key=cost)
    return best


def _moves(shares: Split, parts: int) -> Iterator[Split]:
    """All shares that differ by one part that one has less and another more."""
    part = Fraction(1, parts)
    for less in (k for k, share in enumerate(shares) if share > part):
        for more in (k for k in range(len(shares)) if k != less):
            yield tuple(share + part * ((k == more) - (k == less)) for k, share in enumerate(shares))


def _asked(declared: TablesProblem, levels: Split, tables: Split) -> TablesProblem:
    """The same problem with another split."""
    own = {
        name: evolve(table, share=share)
        for (name, table), share in zip(declared.hierarchy.tables.items(), tables, strict=True)
    }
    return evolve(declared, hierarchy=evolve(declared.hierarchy, budget=levels, tables=own))


def _cells(problem: TablesRead) -> list[int]:
    """Cells that somebody can be in of all regions, by level and table."""
    domain = problem.declared.domain
    able = domain.allowed(problem.zeros)
    return [width * int(able[table].sum()) for width in problem.tree.widths for table in domain.tables]


def _expected(problem: TablesRead, declared: TablesProblem, cells: Sequence[int]) -> tuple[float, ...] | None:
    """Sums of absolute errors by level and table; None where noise would be refused as too wide.

    Args:
        problem: the regions.
        declared: what is asked of them.
        cells: how many are added up, by level and table.
    """
    tree, domain = problem.tree, declared.domain
    try:
        check_noise(declared, tree.depth)
    except InputError:
        return None
    law, delta = declared.privacy.law, declared.relation.sensitivity
    noise = noise_of(declared, [[law.scale(own, delta) for own in level] for level in declared.budgets(tree.depth)])
    blank = [np.zeros((width, 1), np.int64) for width in tree.widths]
    spreads: list[Any] = []
    for table in domain.tables:
        levels = least_squares(tree, blank, [noise_of_margin(domain, table, level) for level in noise])
        spreads.append([float(mean_absolute(level).mean()) for level in levels])
    means = [spreads[number][level] for level in range(tree.depth) for number in range(len(spreads))]
    return tuple(number * mean for number, mean in zip(cells, means, strict=True))


def _whole(shares: Sequence[Fraction]) -> Split:
    return tuple(share / sum(shares) for share in shares)


def _by_part(levels: Sequence[Fraction], tables: Sequence[Fraction]) -> Split:
    return tuple(a * b for a in _whole(levels) for b in _whole(tables))


def _written(levels: Split, names: Iterable[str], tables: Split) -> Iterator[str]:
    """A line for the problem file, in whole numbers: shares are relative."""
    whole = [[int(share * lcm(*(own.denominator for own in split))) for share in split] for split in (levels, tables)]
    shares = "".join(f", share = {share} in {name}" for name, share in zip(names, whole[1], strict=True))
    yield f"Least of the splits tried: hierarchy.budget = {whole[0]}{shares}"
