"""Errors to expect of tables before epsilon is chosen, and the split of the budget with the least of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import lcm
from typing import Final, TypeAlias

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt.errors import Fault, Faults, InputError
from privopt.interfaces import Plan, SolveContext
from privopt_hierarchical_dp.design import refuse_wide
from privopt_hierarchical_dp.forecast import errors_of_counts, errors_of_leaves, shape_of
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.noise_distributions import Scale
from privopt_hierarchical_dp.plan import LEAVES_ONLY, STEPS, budget_of, weights_by_level, with_budget
from privopt_hierarchical_dp.shares import Point, Split, as_split, best_point, normed
from privopt_hierarchical_dp.tables.fit import noise_of_margin
from privopt_hierarchical_dp.tables.instance import TablesRead
from privopt_hierarchical_dp.tables.margins import Domain
from privopt_hierarchical_dp.tables.problem import TablesProblem

__all__ = ["check_noise", "expected", "least_split", "noise_of", "plan_of", "with_split"]

Splits: TypeAlias = tuple[Split, Split]
"""Shares of the levels, and of the tables."""
ENOUGH: Final = 0.995
"""Of the own split's errors: another that saves less is not told."""
NOTE: Final = "Before cells are made non-negative: where most are empty releases err less."


def check_noise(declared: TablesProblem, depth: int, file: str) -> None:
    """Refuse noise that there is no room for.

    Raises:
        InputError: with the table and the level.
    """
    for level, budgets in enumerate(declared.budgets(depth), start=1):
        for name, budget in zip(declared.hierarchy.tables, budgets, strict=True):
            where = f"table {name!r}, level {level}"
            refuse_wide(declared.privacy, budget, declared.relation.sensitivity, where, file=file)


def noise_of(declared: TablesProblem, scales: Sequence[Sequence[Scale]]) -> list[list[Noise]]:
    """Return moments of the noise of scales, for each level of each table's cells."""
    return [list(map(declared.privacy.law.moments, level)) for level in scales]


def plan_of(problem: TablesRead, method: str, context: SolveContext) -> Plan:
    """Tell errors by table and level of least squares, from the noise alone, for several budgets, and the best split.

    Raises:
        InputError: noise that there is no room for, as ``solve`` would say; weights of what is not there.
    """
    declared, depth = problem.declared, problem.tree.depth
    tables = declared.hierarchy.tables
    weights = _weights(problem)
    name, whole = budget_of(declared.privacy)
    found, simple = {}, {}
    for step in STEPS:
        asked = evolve(declared, privacy=with_budget(declared.privacy, step * whole))
        if _has_room(problem, asked):
            found[step * whole] = tuple(expected(problem, asked))
            simple[step * whole] = tuple(_leaves_only(problem, asked))
    own = normed(declared.level_shares(depth)), normed([table.share for table in tables.values()])
    levels, shares = least_split(problem, weights, lambda: context.report("splits of the budget"))
    best = expected(problem, with_split(declared, levels, shares))
    cells = _cells(problem)
    return Plan(
        method=method,
        budget=name,
        unit="individuals (sum of absolute errors over the cells of all regions, as many as stand behind each part)",
        basis="least squares over all tables and levels",
        parts=tuple(f"{n}, level {k // len(tables) + 1} ({cells[k]})" for k, n in enumerate([*tables] * depth)),
        errors=found,
        shares=_by_part(*own),
        best=(_by_part(levels, shares), tuple(best)),
        weights=weights,
        baselines={LEAVES_ONLY: simple},
        own=whole,
        notes=(NOTE, *_written(problem, levels, shares)) if (levels, shares) != own else (NOTE,),
    )


def _weights(problem: TablesRead) -> tuple[Fraction, ...]:
    """Return what an error of each part weighs, by level and table: as ``[plan] errors`` has it, or all the same.

    Raises:
        InputError: a table or a level that is not there.
    """
    declared, depth = problem.declared, problem.tree.depth
    names, asked = list(declared.hierarchy.tables), declared.plan.errors
    if asked is None:
        return (Fraction(1),) * (depth * len(names))
    wanted = f"tables {', '.join(names)}"
    unknown = [name for name in asked if name not in names]
    Faults([Fault(problem.file, f"plan.errors.{name}", "no such table", wanted) for name in unknown]).check()
    by_table = [weights_by_level(asked.get(name, {}), depth, f"plan.errors.{name}", problem.file) for name in names]
    return tuple(own[level] for level in range(depth) for own in by_table)


def least_split(
    problem: TablesRead, weights: Sequence[Fraction], progress: Callable[[], None] = lambda: None
) -> Splits:
    """Return shares of levels and tables with the least weighted errors of least squares; the own where that is.

    A level may have none, for it is the sum of the one below; a table may where another one holds it.
    """
    declared, depth, domain = problem.declared, problem.tree.depth, problem.declared.domain
    law, delta, total = declared.privacy.law, declared.relation.sensitivity, declared.privacy.budget
    weigh = np.array([float(weight) for weight in weights])
    own = normed(declared.level_shares(depth)), normed([table.share for table in declared.hierarchy.tables.values()])

    def cost(point: Point) -> float:
        progress()
        levels, tables = point
        if not all(tables[number] or _held(problem, number, tables) for number in range(len(tables))):
            return np.inf
        parts = [[total * Fraction(float(level * table)) for table in tables] for level in levels]
        scales = [[law.wide(part, delta) if part else None for part in level] for level in parts]
        other = evolve(domain, weights=declared.weights_of([Fraction(float(table)) for table in tables]))
        return float(_errors(problem, other, noise_of(declared, scales)) @ weigh)

    every = np.ones(len(domain.tables))
    needed = (
        [level == depth - 1 for level in range(depth)],
        [not _held(problem, number, every) for number in range(len(domain.tables))],
    )
    start = tuple(np.array([float(share) for share in block]) for block in own)
    levels, tables = map(as_split, best_point(cost, needed, start))
    declared_best = with_split(declared, levels, tables)
    if not _has_room(problem, declared_best):
        return own
    better = expected(problem, declared_best) @ weigh < ENOUGH * (expected(problem, declared) @ weigh)
    return (levels, tables) if better else own


def _held(problem: TablesRead, number: int, measured: Sequence[float] | Floats) -> bool:
    """Return whether another table that is measured has all attributes of one: it is a sum of that one's cells."""
    tables = problem.declared.domain.tables
    others = ((other, table) for other, table in enumerate(tables) if other != number and measured[other])
    return any(set(tables[number]) < set(table) for _, table in others)


def with_split(declared: TablesProblem, levels: Split, tables: Split) -> TablesProblem:
    """Return the same problem with another split."""
    own = {
        name: evolve(table, share=share)
        for (name, table), share in zip(declared.hierarchy.tables.items(), tables, strict=True)
    }
    return evolve(declared, hierarchy=evolve(declared.hierarchy, budget=levels, tables=own))


def _has_room(problem: TablesRead, declared: TablesProblem) -> bool:
    try:
        check_noise(declared, problem.tree.depth, problem.file)
    except InputError:
        return False
    return True


def _cells(problem: TablesRead) -> list[int]:
    """Return cells that somebody can be in of all regions, by level and table."""
    domain = problem.declared.domain
    able = domain.allowed(problem.zeros)
    return [width * int(able[table].sum()) for width in problem.tree.widths for table in domain.tables]


def expected(problem: TablesRead, declared: TablesProblem) -> Floats:
    """Return sums of absolute errors of least squares by level and table.

    Args:
        problem: the regions.
        declared: what is asked of them.
    """
    law, delta, depth = declared.privacy.law, declared.relation.sensitivity, problem.tree.depth
    scales = [[law.scale(own, delta) for own in level] for level in declared.budgets(depth)]
    return _errors(problem, declared.domain, noise_of(declared, scales))


def _errors(problem: TablesRead, domain: Domain, noise: Sequence[Sequence[Noise]]) -> Floats:
    shape, able = shape_of(problem.tree), domain.allowed(problem.zeros)
    by_table = [
        int(able[table].sum()) * errors_of_counts(shape, [noise_of_margin(domain, table, level) for level in noise])
        for table in domain.tables
    ]
    return np.ravel(by_table, order="F")


def _leaves_only(problem: TablesRead, declared: TablesProblem) -> Floats:
    """Return errors where the leaves' tables have all of the budget, by the tables' shares, and are added up.

    A table without a share is added up from the smallest that holds it.
    """
    law, domain = declared.privacy.law, declared.domain
    able = domain.allowed(problem.zeros)
    shares = normed([table.share for table in declared.hierarchy.tables.values()])
    scales = [law.scale(declared.privacy.budget * share, declared.relation.sensitivity) for share in shares]
    by_table = []
    for table in domain.tables:
        holding = [n for n, own in enumerate(domain.tables) if scales[n] is not None and set(table) <= set(own)]
        source = min(holding, key=lambda number: domain.cells(domain.tables[number]))
        times = domain.cells(domain.tables[source]) // domain.cells(table)
        noise = law.moments(scales[source])
        summed = Noise(variance=times * noise.variance, fourth=times * noise.fourth)
        by_table.append(int(able[table].sum()) * errors_of_leaves(shape_of(problem.tree), summed))
    return np.ravel(by_table, order="F")


def _by_part(levels: Split, tables: Split) -> Split:
    return tuple(a * b for a in levels for b in tables)


def _written(problem: TablesRead, levels: Split, tables: Split) -> Iterator[str]:
    """Yield lines for the problem file, in whole numbers: shares are relative."""
    whole = [[int(share * lcm(*(own.denominator for own in split))) for share in split] for split in (levels, tables)]
    yield f"best split, for the file: hierarchy.budget = {whole[0]}"
    for name, share in zip(problem.declared.hierarchy.tables, whole[1], strict=True):
        yield f"  [hierarchy.tables.{name}] share = {share}"
