"""What is promised of all tables together, and the exact sum that it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint, UtilityLoss
from privopt.numbers.noise import NoiseRecord
from privopt_hierarchical_dp.privacy import certified, stated_budget
from privopt_hierarchical_dp.several.fit import Tables, squares
from privopt_hierarchical_dp.several.problem import TablesProblem
from privopt_hierarchical_dp.several.read import TablesRead
from privopt_hierarchical_dp.several.release import TablesRelease

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

__all__ = ["AllTables", "Distance", "draw_tables", "hides"]


def draw_tables(
    problem: TablesProblem, counts: Tables, *, seed: int | None, zeros: Sequence[Bools]
) -> tuple[Tables, list[list[NoiseRecord]]]:
    """Measure every table on every level with noise: the only step that reads true counts.

    Args:
        problem: what was asked.
        counts: for each level, for each table (R_l, ...) true counts.
        seed: for experiments only.
        zeros: for each table the cells that nobody can be in: they are not measured, and 0.
    """
    law, delta = problem.privacy.law, problem.relation.sensitivity
    noisy: Tables = []
    records: list[list[NoiseRecord]] = []
    for level, (tables, budgets) in enumerate(zip(counts, problem.budgets(len(counts)), strict=True)):
        drawn = []
        for number, (values, budget) in enumerate(zip(tables, budgets, strict=True)):
            own = None
            if seed is not None:
                own = int(np.random.SeedSequence([seed, level, number]).generate_state(1, np.uint64)[0] >> 1)
            able, whole = ~zeros[number], np.zeros_like(values)
            whole[:, able], record = law.draw(values[:, able], budget, delta, seed=own)
            drawn.append((whole, record))
        noisy.append([values for values, _ in drawn])
        records.append([record for _, record in drawn])
    return noisy, records


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
        privacy, relation = self.problem.privacy, self.problem.relation
        law, budget = privacy.law, privacy.budget
        names, budgets = list(self.problem.hierarchy.tables), self.problem.budgets(release.tree.depth)
        losses = [[law.spent(scale, relation.sensitivity) for scale in level] for level in release.scales]
        spent = sum((sum(level, Fraction(0)) for level in losses), Fraction(0))
        failures = [
            f"table {names[number]!r} on level {level} spends {loss}, its share of {law.budget} is {shares[number]}"
            for level, (own, shares) in enumerate(zip(losses, budgets, strict=True), start=1)
            for number, loss in enumerate(own)
            if loss > shares[number]
        ]
        if not hides(release.problem):
            failures.append("no table has two cells, and numbers of individuals are exact: nothing is hidden")
        if spent > budget:
            failures.append(f"all tables and levels spend {spent}, {law.budget} is {budget}")
        stated = [[str(scale) for scale in level] for level in release.scales]
        sums = f"exact rationals: sum over levels and tables of {law.sum}"
        return certified(
            privacy,
            spent,
            failures,
            checked=release.tree.regions * sum(int((~zero).sum()) for zero in release.problem.zeros),
            arithmetic=sums,
            notes={"sensitivity": relation.sensitivity, law.stated: stated},
        )


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
        """The objective as a rational."""
        levels = self.problem.level_weights(release.tree.depth)
        return squares(self.problem.domain, levels, difference(release.counts, release.noisy))

    def evaluate(self, release: TablesRelease) -> float:
        """The objective, exact up to one rounding."""
        return float(self.exactly(release))


def difference(one: Sequence[Sequence[Any]], two: Sequence[Sequence[Any]]) -> Tables:
    """Tables of every level less others."""
    return [[x - y for x, y in zip(a, b, strict=True)] for a, b in zip(one, two, strict=True)]
