"""The paper's cost tables: the reference that the fast methods are compared with (sections 6, 7, 9.2).

A table maps every value v of a domain of consecutive integers to the least cost of the subtree (or
of the chain so far) when its top has value v. Children's tables merge by slopes (Algorithm 1,
TableMerge), or by trying every combination (M_dp^OP, which does not know that they are convex).
Cost grows with the domains: for small inputs only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, inf

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.tree import Tree

__all__ = [
    "Table",
    "chain_tables",
    "leaf_table",
    "merge_by_optimisation",
    "node_table",
    "paper_domain",
    "table_merge",
    "tree_tables",
    "weighted_objective",
]


@frozen
class Table:
    """Costs of the consecutive values first, first + 1, ...

    >>> leaf_table(3, range(0, 5)).costs
    (9, 4, 1, 0, 1)
    """

    first: int
    costs: tuple[int, ...]

    @property
    def last(self) -> int:
        """Largest value of the domain."""
        return self.first + len(self.costs) - 1

    @property
    def best(self) -> int:
        """The smallest value of least cost (v0 in the paper)."""
        return self.first + self.costs.index(min(self.costs))

    def __call__(self, value: int) -> float:
        """Cost of ``value``, infinite outside the domain."""
        if self.first <= value <= self.last:
            return self.costs[value - self.first]
        return inf


def paper_domain(noisy: int, scale: Fraction | float) -> range:
    """Return the paper's domain rule: noisy +- 3 ceil(2 lambda^2), cut at 0 (footnote 2).

    Args:
        noisy: noisy count.
        scale: lambda, the scale of the double geometric noise.

    It is a rule of thumb: the optimum of Model 1 can lie outside it, and it can leave no
    consistent solution at all (tests/test_tables.py has the cases).
    """
    reach = 3 * ceil(2 * scale * scale)
    return range(max(0, noisy - reach), max(0, noisy + reach) + 1)


def leaf_table(noisy: int, domain: range, weight: int = 1) -> Table:
    """Equation 4a at a leaf: w (v - noisy)^2 over the domain."""
    return Table(domain.start, tuple(weight * (value - noisy) ** 2 for value in domain))


def _slopes(tables: Sequence[Table], sign: int) -> list[tuple[int, int]]:
    """(slope, child) of every step away from each child's best value, cheapest first."""
    steps = []
    for child, table in enumerate(tables):
        value = table.best
        while table.first <= value + sign <= table.last:
            cost, next_cost = table.costs[value - table.first], table.costs[value + sign - table.first]
            steps.append((next_cost - cost, child))
            value += sign
    return sorted(steps, key=lambda step: step[0])


def table_merge(tables: Sequence[Table]) -> Table:
    """Return phi of Equation 4b by Algorithm 1 (TableMerge): steps in the order of their slopes.

    Exact for convex tables. The stable sort keeps one child's steps in their own order.
    """
    centre = sum(table.best for table in tables)
    min_total = sum(min(table.costs) for table in tables)
    upward_costs: list[int] = []
    down: list[int] = []
    for sign, costs in ((1, upward_costs), (-1, down)):
        cost = min_total
        for slope, _child in _slopes(tables, sign):
            cost += slope
            costs.append(cost)
    return Table(centre - len(down), (*reversed(down), min_total, *upward_costs))


def merge_by_optimisation(tables: Sequence[Table]) -> Table:
    """Return phi of Equation 4b without using convexity (M_dp^OP): every split of every value."""
    merged_table = tables[0]
    for table in tables[1:]:
        first, last = merged_table.first + table.first, merged_table.last + table.last
        costs = []
        for value in range(first, last + 1):
            splits = range(max(merged_table.first, value - table.last), min(merged_table.last, value - table.first) + 1)
            costs.append(
                min(merged_table.costs[x - merged_table.first] + table.costs[value - x - table.first] for x in splits)
            )
        merged_table = Table(first, tuple(costs))
    return merged_table


def node_table(noisy: int, domain: range, phi: Table, weight: int = 1) -> Table:
    """Equation 4: own cost plus phi, over the values that both domains hold."""
    first, last = max(domain.start, phi.first), min(domain.stop - 1, phi.last)
    if first > last:
        raise ValueError(f"no value of {domain} is a sum of the children's values {phi.first} to {phi.last}")
    return Table(
        first,
        tuple(weight * (v - noisy) ** 2 + phi.costs[v - phi.first] for v in range(first, last + 1)),
    )


def _split(tables: Sequence[Table], value: int) -> list[int]:
    """Children's values of least total cost that add up to ``value`` (Equation 7)."""
    values = [table.best for table in tables]
    short = value - sum(values)
    for _slope, child in _slopes(tables, 1 if short > 0 else -1)[: abs(short)]:
        values[child] += 1 if short > 0 else -1
    return values


def tree_tables(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    total: int,
    weights: Sequence[int] | None = None,
    domain: Callable[[int, int], range] | None = None,
    merge: Callable[[Sequence[Table]], Table] = table_merge,
) -> list[Ints]:
    """M_H^dp's post-processing as the paper does it: tables up, values down, one tree for all sizes.

    Args:
        tree: the hierarchy.
        noisy: for each level (R_l, N) noisy counts.
        total: G.
        weights: integer weights of the levels; default: all 1.
        domain: (level, noisy) -> domain of a node; default: 0 to G, which loses nothing.
        merge: `table_merge` or `merge_by_optimisation`.
    """
    weight = [1] * tree.depth if weights is None else list(map(int, weights))
    domain_of = domain or (lambda _level, _noisy: range(total + 1))
    sizes = noisy[0].shape[1]
    tables_by_level: list[list[list[Table]]] = []  # [size][level][region]
    for s in range(sizes):
        levels: list[list[Table]] = [[] for _ in range(tree.depth)]
        for level in reversed(range(tree.depth)):
            for region in range(tree.widths[level]):
                value = int(noisy[level][region, s])
                allowed_values = domain_of(level, value)
                if level == tree.depth - 1:
                    levels[level].append(leaf_table(value, allowed_values, weight[level]))
                else:
                    lo, hi = tree.start[level][region : region + 2]
                    phi = merge(levels[level + 1][lo:hi])
                    levels[level].append(node_table(value, allowed_values, phi, weight[level]))
        tables_by_level.append(levels)
    result = [np.zeros((width, sizes), np.int64) for width in tree.widths]
    result[0][0] = _split([levels[0][0] for levels in tables_by_level], total)
    for s in range(sizes):
        for level in range(tree.depth - 1):
            for region in range(tree.widths[level]):
                lo, hi = tree.start[level][region : region + 2]
                result[level + 1][lo:hi, s] = _split(
                    tables_by_level[s][level + 1][lo:hi], int(result[level][region, s])
                )
    return result


def chain_tables(noisy: Sequence[int], equal_next: Sequence[bool], *, total: int) -> tuple[list[Table], list[int]]:
    """Recurrence (8): the chain's tables from head to tail, and the values chosen from tail to head.

    Args:
        noisy: noisy cumulative counts along the chain.
        equal_next: whether element i must equal element i + 1 (the level of the region rises to
            its parent); otherwise it must not exceed it. The last entry is ignored.
        total: G, the value of the tail; domains are 0 to G.
    """
    tables: list[Table] = []
    for index, value in enumerate(noisy):
        node_table = leaf_table(int(value), range(total + 1))
        if index == 0:
            tables.append(node_table)
            continue
        previous_costs = tables[-1].costs
        if not equal_next[index - 1]:
            previous_costs = tuple(np.minimum.accumulate(np.array(previous_costs, dtype=object)))
        tables.append(Table(0, tuple(int(a + b) for a, b in zip(node_table.costs, previous_costs, strict=True))))
    values = [total]
    for index in range(len(noisy) - 2, -1, -1):
        ceiling = values[-1]
        if equal_next[index]:
            values.append(ceiling)
        else:
            costs = tables[index].costs[: ceiling + 1]
            values.append(costs.index(min(costs)))
    return tables, values[::-1]


def weighted_objective(values: Sequence[Ints], noisy: Sequence[Ints], weights: Sequence[Floats]) -> float:
    """Sum over levels, regions and sizes of w_l(s) (value - noisy)^2, in doubles."""
    total = 0.0
    for value, target, weight in zip(values, noisy, weights, strict=True):
        difference = (np.asarray(value) - np.asarray(target)).astype(np.float64)
        total += float(np.sum(weight * np.einsum("rs,rs->s", difference, difference)))
    return total
