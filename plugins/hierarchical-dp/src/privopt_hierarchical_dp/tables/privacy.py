"""The guarantee of all tables together, and the exact sum on which it rests."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Ints
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint, UtilityLoss
from privopt.interfaces.additive import certify_noise
from privopt.numbers.noise import NoiseRecord
from privopt_hierarchical_dp.measurements import filled_from_below
from privopt_hierarchical_dp.privacy import stated_budget
from privopt_hierarchical_dp.tables.fit import Tables, squares
from privopt_hierarchical_dp.tables.instance import TablesRead
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tables.release import TablesRelease

if TYPE_CHECKING:
    from privopt.execution import Executor
else:
    Executor = Any

IMPOSSIBLE: Final = (
    " Cells that are declared impossible are public and not measured; individuals who are in them in the input all the "
    "same are promised no less, and nothing tells of them."
)
BOUNDS: Final = (
    " Bounds on numbers of individuals are public. Inputs whose exact numbers contradict them are refused, with all "
    "that are alike; numbers that are not exact are moved into them, whether or not the input is within."
)

__all__ = ["AllTables", "Distance", "difference", "draw_tables", "hides", "unmeasured_tables"]


def draw_tables(
    problem: TablesProblem, counts: Tables, *, seed: int | None, zeros: Sequence[Bools], start: Sequence[Ints]
) -> tuple[Tables, list[list[NoiseRecord | None]]]:
    """Measure every table on every level with noise: the only step that reads true counts.

    Args:
        problem: what was asked.
        counts: for each level, for each table (R_l, ...) true counts.
        seed: for experiments only.
        zeros: for each table the cells that no one can be in: they are not measured, and 0.
        start: :attr:`.tree.Tree.start`.

    Returns:
        Noisy values, those of a level that has no part of the budget the sums of the level below; and records, None
        for what was not measured.
    """
    law, delta = problem.privacy.law, problem.relation.sensitivity
    noisy: Tables = []
    records: list[list[NoiseRecord | None]] = []
    budgets = problem.budgets(len(counts))
    for level, (tables, own) in enumerate(zip(counts, budgets, strict=True)):
        drawn = [
            law.measure(
                values,
                budget,
                delta,
                where=np.broadcast_to(~zeros[number], values.shape),
                seed=None if seed is None else (seed, level, number),
            )
            for number, (values, budget) in enumerate(zip(tables, own, strict=True))
        ]
        noisy.append([values for values, _ in drawn])
        records.append([record for _, record in drawn])
    return fill_tables(noisy, budgets, start), records


def fill_tables(noisy: Tables, measured: Sequence[Sequence[object]], start: Sequence[Ints]) -> Tables:
    """Return noisy tables, those of a level of which nothing is measured the sums of the level below.

    Args:
        noisy: for each level, for each table (R_l, ...).
        measured: for each level, for each table, what is true where it was measured: its part of the budget, or scale.
        start: :attr:`.tree.Tree.start`.
    """
    known = [any(level) for level in measured]
    by_table = [filled_from_below([level[number] for level in noisy], known, start) for number in range(len(noisy[0]))]
    return [[table[level] for table in by_table] for level in range(len(noisy))]


def unmeasured_tables(noisy: Tables, measured: Sequence[Sequence[object]], start: Sequence[Ints]) -> list[int]:
    """Return the levels (from 1) that were not measured and are not the sums of the level below, as they must be."""
    right = fill_tables(noisy, measured, start)
    return [
        level
        for level, pair in enumerate(zip(noisy, right, strict=True), start=1)
        if any((own != want).any() for own, want in zip(*pair, strict=True))
    ]


def hides(problem: TablesRead) -> bool:
    """Whether a change that the relation covers can be seen in some table: else all that it shows is exact."""
    declared, domain = problem.declared, problem.declared.domain
    exact = declared.relation.exact
    if exact == 0 or (exact is not None and problem.tree.widths[-1] > exact):
        return True
    allowed = domain.allowed(problem.zeros)
    return any(int(allowed[table].sum()) > 1 for table in domain.tables)


@frozen(kw_only=True)
class AllTables(PrivacyConstraint[TablesRelease]):
    """Noise on every table and level, each for its share of the budget.

    Attributes:
        problem: what was asked.
    """

    problem: TablesProblem

    @property
    def guarantee(self) -> Guarantee:
        """The notion asked for, under the neighbour relation that the statement spells out."""
        privacy, relation = self.problem.privacy, self.problem.relation
        return Guarantee(
            kind=privacy.kind,
            epsilon=privacy.epsilon,
            unit=relation.unit,
            scope=relation.scope,
            statement=relation.statement(privacy.kind)
            + IMPOSSIBLE * any(table.impossible is not None for table in self.problem.hierarchy.tables.values())
            + BOUNDS * (self.problem.hierarchy.bounds is not None),
            extra={
                "relation": privacy.relation,
                "tables": list(self.problem.hierarchy.tables),
                **stated_budget(privacy),
            },
        )

    def measure(self, release: TablesRelease, *, executor: Executor | None = None) -> Certificate:
        """Sum over levels and tables of what their noise spends, in rationals; each keeps to its own share too."""
        problem, tree = self.problem, release.tree
        names, failures = list(problem.hierarchy.tables), []
        if not hides(release.problem):
            failures.append("no table has two cells, and numbers of individuals are exact: nothing is hidden")
        law, delta, budgets = problem.privacy.law, problem.relation.sensitivity, problem.budgets(tree.depth)
        calls, checked = [], 0
        for level, (scales, shares) in enumerate(zip(release.scales, budgets, strict=True), start=1):
            for name, scale, share, zero in zip(names, scales, shares, release.problem.zeros, strict=True):
                if scale is not None:
                    calls.append(law.call(scale, delta, share, f"table {name!r} on level {level}"))
                    checked += tree.widths[level - 1] * int((~zero).sum())
        return certify_noise(self.guarantee, calls, failures=failures, checked=checked)


@frozen(kw_only=True)
class Distance(UtilityLoss[TablesRelease]):
    """Weighted squared distance of the release from the noisy values: how far the noise had to be bent.

    sum over levels and tables of w_l w_t |x - noisy|^2: each weighs by the precision of its noise, the best 1.

    Attributes:
        problem: what was asked.
    """

    problem: TablesProblem
    unit: str = "individuals squared"

    def exactly(self, release: TablesRelease) -> Fraction:
        """Return the objective as a rational."""
        levels = self.problem.level_weights(release.tree.depth)
        return squares(self.problem.domain, levels, difference(release.counts, release.noisy))

    def evaluate(self, release: TablesRelease) -> float:
        """Return the objective, exact up to one rounding."""
        return float(self.exactly(release))


def difference(one: Sequence[Sequence[Any]], two: Sequence[Sequence[Any]]) -> Tables:
    """Tables of every level less others."""
    return [[x - y for x, y in zip(a, b, strict=True)] for a, b in zip(one, two, strict=True)]
