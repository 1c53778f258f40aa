"""A lower bound from trees: an output's multipliers follow from prices and from the parent of each record.

For prices y let ``a_i = c_ik - y_i``. A row between record i and its parent p carries a part of i's amount to p, and
the remainder is left at i. Let F >= 1 be the factor of the row, and ``g_i`` the sum of ``a_i`` and all amounts carried
to i. From the leaves up::

    i below p (z_p <= F z_i):  f = max(0, g_i) / F is added to g_p, and min(0, g_i) is left at i
    i above p (z_i <= F z_p):  f = max(0, -g_i), F f is subtracted from g_p, and max(0, g_i) is left at i

A root keeps its g. These f are at least 0, so ``sum_i y_i + sum_i min_k left_ik`` is a lower bound
(:mod:`privopt_metric_dp.proof.lagrangian_bound`).

The bound is at least that of any multipliers f' >= 0 of the same rows whose smallest reduced costs ``min_k g'_ik`` are
the prices. With these f', at least 0 is left everywhere. By induction from the leaves, g_i is at least g'_i: for i
below p at least 0 is left, so f >= f' and at least as much is added; for i above p likewise f <= f' and at most as much
is subtracted.

For multipliers that form trees, it is therefore enough to store prices and trees, in 2 bytes per entry (4 for more than
32,768 records) before compression. The multipliers that follow are never rounded, so every evaluation encloses the same
real number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import CertificationError
from privopt.execution.compiled import MAX_INTERPRETED_COSTS, jit
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.lagrangian_bound import SparseMultipliers, sum_down
from privopt_metric_dp.proof.proof_file import OFF, PROOF, Proof, growth_of

__all__ = ["Trees"]

MAX_FACTOR = 3e19
"""Factors must be below this, which is a little less than exp(45). Larger factors count as infinite."""


@jit(inline="always")
def _round_down(x: float) -> float:
    """Return a number below every number that rounds to x."""
    return x - (abs(x) * 2.0**-52 + 1e-300)


@jit(inline="always")
def _round_up(x: float) -> float:
    """Return a number above every number that rounds to x."""
    return x + (abs(x) * 2.0**-52 + 1e-300)


@jit()
def _order_leaves_first(parent: Any, waiting: Any, order: Any) -> bool:
    """Order the records of one output's trees, leaves first, and return whether they are trees (have no cycles).

    Args:
        parent: (N,) parent of each record; a root is its own parent.
        waiting: (N,) workspace: number of each record's children that are not in the order yet.
        order: (N,) result.
    """
    n = len(parent)
    waiting[:] = 0
    for i in range(n):
        if parent[i] != i:
            waiting[parent[i]] += 1
    count = 0
    for i in range(n):
        if waiting[i] == 0:
            order[count] = i
            count += 1
    position = 0
    while position < count:
        p = parent[order[position]]
        if p != order[position]:
            waiting[p] -= 1
            if waiting[p] == 0:
                order[count] = p
                count += 1
        position += 1
    # Records on a cycle wait for one another and never enter the order.
    return count == n


@jit(few=lambda cost, *_: bool(cost.size <= MAX_INTERPRETED_COSTS))
def _enclose_left(  # type: ignore[no-untyped-def]
    cost, max_cost, excess, relative_error, prices, parents, is_above, edges, growth, lower, smallest, greatest
):
    """Reduce smallest[i] and greatest[i] to min_k of bounds on left_ik, the amounts that are left at records.

    left_ik rises with costs and falls with factors, so each of its bounds uses the opposite bounds of the factors.

    Args:
        cost, max_cost: (N, K) costs, prior included. But for rounding, exact costs lie in [cost - excess, max_cost].
        excess: (N,) amount by which a record's ``cost`` may exceed the exact costs.
        relative_error: Relative rounding error of both arrays.
        prices: (N,) prices y.
        parents: (K, N) parents; a root is its own parent.
        is_above: (K, N) whether a record is above its parent.
        edges: (K, N) number of the pair of a record and its parent.
        growth, lower: (E + 1,) upper and lower bounds on each pair's factor.
        smallest, greatest: (N,) lower and upper bounds, the results. The caller fills them with infinity.

    Returns:
        An output whose trees have a cycle; -1 if there is none.
    """
    n = cost.shape[0]
    waiting, order = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    lower_sums, upper_sums = np.empty(n), np.empty(n)
    for k in range(cost.shape[1]):
        if not _order_leaves_first(parents[k], waiting, order):
            return k
        for i in range(n):
            # Bounds of a_i: the cost with its errors, rounding of these lines included, less the price.
            doubt = relative_error * max(abs(cost[i, k]), abs(max_cost[i, k]))
            min_left, max_left = cost[i, k] - (doubt + excess[i]), max_cost[i, k] + doubt
            rounding = 2.0**-51 * (abs(min_left) + abs(max_left) + doubt + excess[i])
            lower_sums[i], upper_sums[i] = (
                _round_down(min_left - rounding - prices[i]),
                _round_up(max_left + rounding - prices[i]),
            )
        for step in range(n):
            i = order[step]
            p, e, min_left, max_left = parents[k, i], edges[k, i], lower_sums[i], upper_sums[i]
            # The recursion of the module's docstring; a root, which is its own parent, keeps what it has.
            if p != i and is_above[k, i]:
                lower_sums[p] = _round_down(lower_sums[p] + _round_down(min(min_left, 0.0) * growth[e]))
                upper_sums[p] = _round_up(upper_sums[p] + _round_up(min(max_left, 0.0) * lower[e]))
                min_left, max_left = max(min_left, 0.0), max(max_left, 0.0)
            elif p != i:
                lower_sums[p] = _round_down(lower_sums[p] + _round_down(max(min_left, 0.0) / growth[e]))
                upper_sums[p] = _round_up(upper_sums[p] + _round_up(max(max_left, 0.0) / lower[e]))
                min_left, max_left = min(min_left, 0.0), min(max_left, 0.0)
            smallest[i], greatest[i] = min(smallest[i], min_left), min(greatest[i], max_left)
    return -1


@jit()
def _walk_tree(root, group, neighbour, height, length, is_upward, parents, order):  # type: ignore[no-untyped-def]
    """Walk a tree from its root, set the parent and height of each record, and return its size, or -1 for a cycle.

    Args:
        root: The root.
        group, neighbour: (N + 1,) first entry of each record, and (2 M,) neighbours.
        height: (N,) result: sum of the logarithms of the factors on the path from the root, upward positive.
        length: (2 M,) logarithm of each entry's factor.
        is_upward: (2 M,) whether an entry leads to a record above.
        parents: (N,) result; -1 before for all records of the tree.
        order: (N,) result: the records of the tree, parents first.
    """
    order[0], height[root], parents[root] = root, 0.0, root
    count, position = 1, 0
    while position < count:
        i = order[position]
        position += 1
        for e in range(group[i], group[i + 1]):
            j = neighbour[e]
            if j == parents[i]:
                continue
            # A record that was reached on another path: the rows form a cycle.
            if parents[j] >= 0:
                return -1
            parents[j], height[j] = i, height[i] + (length[e] if is_upward[e] else -length[e])
            order[count] = j
            count += 1
    return count


@jit(few=lambda *arguments: bool(arguments[-1].size <= MAX_INTERPRETED_COSTS))
def _plant_trees(starts, rows, tails, heads, length, codes):  # type: ignore[no-untyped-def]
    """Encode the trees that each output's rows form, rooted at their highest records.

    Return False if the rows of some output have a cycle, and True otherwise.

    Args:
        starts, rows: Rows of each output, as in :class:`SparseMultipliers`.
        tails, heads: (P,) records i and j of each row ``z_ik <= F z_jk``.
        length: (P,) logarithm of each row's factor F.
        codes: (K, N) result, as in :attr:`Trees.trees`.
    """
    n = codes.shape[1]
    # First entry of each record, and the next entry to fill in.
    group, fill = np.zeros(n + 1, dtype=np.int64), np.empty(n, dtype=np.int64)
    neighbour, edge_length, is_upward = (
        np.empty(2 * n, dtype=np.int64),
        np.empty(2 * n),
        np.empty(2 * n, dtype=np.bool_),
    )
    parent, order, height = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n)
    for k in range(len(starts) - 1):
        if starts[k + 1] - starts[k] >= n:  # a forest on n records has fewer than n edges
            return False
        # The output's graph in CSR form: count the entries of each record, then fill them in.
        group[:] = 0
        for m in range(starts[k], starts[k + 1]):
            group[tails[rows[m]] + 1] += 1
            group[heads[rows[m]] + 1] += 1
        for i in range(n):
            group[i + 1] += group[i]
            fill[i] = group[i]
        for m in range(starts[k], starts[k + 1]):
            i, j = tails[rows[m]], heads[rows[m]]  # a tight row is z_i = F z_j: i is above j
            neighbour[fill[i]], edge_length[fill[i]], is_upward[fill[i]] = j, length[rows[m]], False
            neighbour[fill[j]], edge_length[fill[j]], is_upward[fill[j]] = i, length[rows[m]], True
            fill[i] += 1
            fill[j] += 1
        # From here on `fill` is the final parent of each record, -1 for those that no tree has reached yet.
        fill[:], parent[:] = -1, -1
        for start in range(n):
            if fill[start] >= 0:
                continue
            count = _walk_tree(start, group, neighbour, height, edge_length, is_upward, parent, order)
            if count < 0:
                return False
            root = start
            for step in range(count):
                # The first walk only measures heights; the second starts from the highest record.
                if height[order[step]] > height[root]:
                    root = order[step]
            for step in range(count):
                parent[order[step]] = -1
            _walk_tree(root, group, neighbour, height, edge_length, is_upward, parent, order)
            for step in range(count):
                fill[order[step]] = parent[order[step]]
                parent[order[step]] = -1
        for i in range(n):
            p = fill[i]
            is_above = False
            for e in range(group[i], group[i + 1]):
                is_above |= neighbour[e] == p and not is_upward[e]
            # Steps to the parent modulo N, doubled, and one bit for the direction.
            codes[k, i] = 2 * ((p - i) % n) + is_above
    return True


@frozen(kw_only=True, eq=False)
class Trees(Proof):
    """A proof by a price of each record and by trees for each output, from which the multipliers follow.

    A record that is above its parent has a probability of exp(eps d) times its parent's; one below has exp(-eps d)
    times it.

    Attributes:
        prices: (N,) prices of the records, finite float64.
        trees: (K, N) uint16 or uint32 codes: twice the difference, modulo N, from a record to its parent, plus 1 if the
            record is above its parent; 0 for a root.
    """

    VERSION: ClassVar = 3
    KINDS: ClassVar = {"prices": ("f8",), "trees": ("u2", "u4")}

    prices: Floats
    trees: NDArray[np.unsignedinteger[Any]]

    @classmethod
    def of(cls, multipliers: SparseMultipliers, cost: Floats) -> Self | None:
        """Return the trees that multipliers form, or None if they do not form trees.

        Args:
            multipliers: The nonzero multipliers, output by output.
            cost: (N, K) finite costs, prior included.
        """
        n, outputs = cost.shape
        # The smallest reduced costs become the prices (see the module docstring).
        lower, wild = multipliers.min_bounds(cost)
        # No bound is proved if a sum overflows or a factor is too large; and a forest has fewer than n edges.
        if wild.any() or not (multipliers.growth < MAX_FACTOR).all() or (np.diff(multipliers.starts) >= n).any():
            return None
        codes = np.zeros((outputs, n), dtype=np.uint16 if 2 * n <= 1 << 16 else np.uint32)
        tails, heads = (np.ascontiguousarray(multipliers.pairs[:, end]) for end in (0, 1))
        is_forest = _plant_trees(multipliers.starts, multipliers.rows, tails, heads, np.log(multipliers.growth), codes)
        return cls(prices=lower, trees=codes) if is_forest else None

    @property
    def parents(self) -> Ints:
        """(K, N) the parent of each record. A root is its own parent."""
        n = self.trees.shape[1]
        return np.asarray((np.arange(n) + self.trees // 2) % n, dtype=np.int64)

    def edges(self) -> tuple[Ints, Ints]:
        """Return the distinct pairs (E, 2), i < p, that the trees join, and (K, N) the number of each record's pair.

        The number of a root is E.
        """
        n, parents = self.trees.shape[1], self.parents
        records = np.arange(n)
        # A pair as one number. Roots get n * n, which exceeds the number of every pair and so is the last of the keys.
        number = np.where(parents == records, n * n, np.minimum(records, parents) * n + np.maximum(records, parents))
        # It is appended once more, so that it is among the keys even if there were no root.
        keys, positions = np.unique(np.append(number.ravel(), n * n), return_inverse=True)
        pairs = np.column_stack(np.divmod(keys[:-1], n)).astype(np.int64)
        return pairs, positions[:-1].reshape(number.shape)

    def enclose_with(
        self, cost: Floats, max_cost: Floats, error: float, under: Floats, places: Ints, growth: tuple[Floats, Floats]
    ) -> tuple[float, float]:
        """Return two numbers that enclose the bound of the trees with exact costs and exponentials.

        Args:
            cost, max_cost: (N, K) finite numbers, prior included. Exact costs lie between them, up to ``error``.
            error: Relative error of ``cost`` and ``max_cost``.
            under: (N,) upper bound on the amount by which each record's ``cost`` exceeds the exact costs.
            places: (K, N) number of the pair of each record and its parent, from :meth:`edges`.
            growth: (E,) lower bounds and (E,) upper bounds on exp(eps d) of each pair.

        Returns:
            The two numbers; both are infinite if a sum overflows or a factor exceeds :data:`MAX_FACTOR`.

        Raises:
            CertificationError: The trees have a cycle.
        """
        # Roots have the pair number E: a factor of 1 keeps the arrays complete and changes nothing.
        lower, upper = (np.append(bounds, 1.0) for bounds in growth)
        if not (upper < MAX_FACTOR).all():
            return -math.inf, math.inf
        min_left, max_left = np.full(len(cost), np.inf), np.full(len(cost), np.inf)
        is_above = (self.trees & 1).astype(np.bool_)
        trees = self.parents, is_above, places
        # The result is the number of an output with a cycle, or -1.
        if _enclose_left(cost, max_cost, under, error, self.prices, *trees, upper, lower, min_left, max_left) >= 0:
            raise CertificationError(f"{PROOF}: trees: records form a cycle")
        if not (np.isfinite(min_left).all() and np.isfinite(max_left).all()):
            return -math.inf, math.inf
        return sum_down(np.append(self.prices, min_left)), -sum_down(-np.append(self.prices, max_left))

    def enclose_bound(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """Return two numbers that enclose the bound of prices and trees, as :meth:`Proof.enclose_bound` says."""
        pairs, places = self.edges()
        return self.enclose_with(
            weighted, weighted + data.shortfall(), OFF, data.excess, places, growth_of(pairs, data)
        )

    @classmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes for a problem (N, K): a price for each record, and a code for each output and record."""
        return {"prices": shape[:1], "trees": shape[::-1]}

    @classmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """Yield the conditions on the arrays, as `Proof.numbers` does: prices must be finite."""
        # Every code is a valid one: steps are taken modulo N. Cycles are found when the bound is evaluated.
        yield "prices", bool(np.isfinite(parts["prices"]).all()), "finite numbers"
