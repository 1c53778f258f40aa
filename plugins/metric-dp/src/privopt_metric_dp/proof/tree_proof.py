"""A lower bound whose multipliers are derived from a price for each record and a forest of trees for each output.

Let k be an output, c_ik its cost times the prior for record i, and z_i its probability for record i. Given prices y,
record i starts with the amount ``a_i = c_ik - y_i``. The privacy constraint between i and its parent p transfers part
of i's amount to p, and the remainder, ``left_ik``, stays at i. Let F >= 1 be the factor in that constraint, and let
``g_i`` be the sum of ``a_i`` and all amounts transferred to i. From the leaves up::

    i below p (z_p <= F z_i):  f = max(0, g_i) / F is added to g_p, and min(0, g_i) is left at i
    i above p (z_i <= F z_p):  f = max(0, -g_i), F f is subtracted from g_p, and max(0, g_i) is left at i

A root keeps its g. All these f are non-negative, so they are multipliers that prove the lower bound
``sum_i y_i + sum_i min_k left_ik`` (:mod:`privopt_metric_dp.proof.lagrangian_bound`).

Take any multipliers f' >= 0 on the same constraints, and let the price of each record be its smallest reduced cost
under f' over all outputs. Then the bound from the trees is at least as high as the bound from f'. To see this, note
that no record is left with a negative amount under f', and let g'_i be the counterpart of g_i under f'. By induction
from the leaves, g_i is at least g'_i. For i below p, f is at least f', so at least as much is added to g_p. For i above
p, f is at most f', so at most as much is subtracted from g_p.

For multipliers that form trees, it is therefore enough to store the prices and the trees. An entry of a tree takes up 2
bytes before compression, or 4 bytes if there are more than 32,768 records. The multipliers are derived without
rounding, so every evaluation encloses the same real number.
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
"""The limit on the factors exp(eps d), slightly less than exp(45). Factors that reach it are treated as infinite."""


@jit(inline="always")
def _round_down(x: float) -> float:
    """Return a number below every real number that rounds to x."""
    return x - (abs(x) * 2.0**-52 + 1e-300)


@jit(inline="always")
def _round_up(x: float) -> float:
    """Return a number above every real number that rounds to x."""
    return x + (abs(x) * 2.0**-52 + 1e-300)


@jit()
def _order_leaves_first(parent: Any, waiting: Any, order: Any) -> bool:
    """Sort the records of one output's trees so that children precede their parents.

    Args:
        parent: Array of shape (N,) with the parent of each record. A root is its own parent.
        waiting: A workspace of shape (N,), used to count the children of each record that have not been sorted yet.
        order: Array of shape (N,) that receives the sorted records.

    Returns:
        True on success, or False if the parents form a cycle.
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
    # Records on a cycle always have a child that is not in the order yet, so they never enter it.
    return count == n


@jit(few=lambda cost, *_: bool(cost.size <= MAX_INTERPRETED_COSTS))
def _enclose_left(  # type: ignore[no-untyped-def]
    cost, max_cost, excess, relative_error, prices, parents, is_above, edges, growth, lower, smallest, greatest
):
    """Compute lower and upper bounds on min_k left_ik for each record i.

    Here, left_ik is the amount left at record i for output k by the recursion in the module docstring. This amount
    increases with the costs and decreases with the factors, so lower bounds are computed from upper bounds on the
    factors, and vice versa.

    Args:
        cost, max_cost: Arrays of shape (N, K) with the costs times the prior. Up to rounding, the exact costs lie in
            [cost - excess, max_cost].
        excess: Array of shape (N,) with the largest amount by which each record's entries of ``cost`` may exceed the
            exact costs.
        relative_error: The relative rounding error of ``cost`` and ``max_cost``.
        prices: Array of shape (N,) with the prices y.
        parents: Array of shape (K, N) with the parent of each record for each output. A root is its own parent.
        is_above: Boolean array of shape (K, N) that is True for records above their parent.
        edges: Array of shape (K, N) with the index of the pair formed by each record and its parent.
        growth, lower: Arrays of shape (E + 1,) with upper and lower bounds on each pair's factor.
        smallest, greatest: Arrays of shape (N,) filled with infinity, which receive the lower and upper bounds.

    Returns:
        The index of an output whose parents form a cycle, or -1 if there is no such output.
    """
    n = cost.shape[0]
    waiting, order = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    lower_sums, upper_sums = np.empty(n), np.empty(n)
    for k in range(cost.shape[1]):
        if not _order_leaves_first(parents[k], waiting, order):
            return k
        for i in range(n):
            # Bounds on a_i, the cost minus the price, which cover the errors of the costs and the rounding errors of
            # this computation.
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
            # This is the recursion in the module docstring. A root, which is its own parent, keeps its whole amount.
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
    """Traverse a tree from its root and set the parent and the height of each record.

    Args:
        root: The record at which the traversal starts.
        group, neighbour: The graph in CSR form: an array of shape (N + 1,) with the offset of each record's first
            neighbour, and the concatenated lists of neighbours.
        height: Array of shape (N,) that receives the heights. A height is the sum of the logarithms of the factors on
            the path from the root, positive for upward steps and negative for downward steps.
        length: The logarithm of the factor for each element of ``neighbour``.
        is_upward: Whether each element of ``neighbour`` lies above the record whose list contains it.
        parents: Array of shape (N,) that receives the parents. It must be -1 for all records in the tree.
        order: Array of shape (N,) that receives the records in the tree, parents before children.

    Returns:
        The number of records in the tree, or -1 if the edges form a cycle.
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
            # The record has already been reached on another path, so the edges form a cycle.
            if parents[j] >= 0:
                return -1
            parents[j], height[j] = i, height[i] + (length[e] if is_upward[e] else -length[e])
            order[count] = j
            count += 1
    return count


@jit(few=lambda *arguments: bool(arguments[-1].size <= MAX_INTERPRETED_COSTS))
def _plant_trees(starts, rows, tails, heads, length, codes):  # type: ignore[no-untyped-def]
    """Encode the trees formed by each output's constraints. The highest record of each tree becomes its root.

    Args:
        starts, rows: The constraints with nonzero multipliers for each output, as in :class:`SparseMultipliers`.
        tails, heads: Arrays of shape (P,) with the records i and j of each constraint ``z_ik <= F z_jk``.
        length: Array of shape (P,) with the logarithm of each constraint's factor F.
        codes: Array of shape (K, N) that receives the codes, as in :attr:`Trees.trees`.

    Returns:
        Whether every output's constraints form trees. If not, the constraints of some output form a cycle, and the
        codes are incomplete.
    """
    n = codes.shape[1]
    # The offset of each record's first entry in the arrays below, and the offset of the next entry to fill.
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
        # The output's graph is built in CSR form: each record's entries are first counted and then filled in.
        group[:] = 0
        for m in range(starts[k], starts[k + 1]):
            group[tails[rows[m]] + 1] += 1
            group[heads[rows[m]] + 1] += 1
        for i in range(n):
            group[i + 1] += group[i]
            fill[i] = group[i]
        for m in range(starts[k], starts[k + 1]):
            i, j = tails[rows[m]], heads[rows[m]]  # the constraint is tight, z_i = F z_j, so i is above j
            neighbour[fill[i]], edge_length[fill[i]], is_upward[fill[i]] = j, length[rows[m]], False
            neighbour[fill[j]], edge_length[fill[j]], is_upward[fill[j]] = i, length[rows[m]], True
            fill[i] += 1
            fill[j] += 1
        # From here on, `fill` contains each record's final parent, or -1 if no tree has reached the record yet.
        fill[:], parent[:] = -1, -1
        for start in range(n):
            if fill[start] >= 0:
                continue
            count = _walk_tree(start, group, neighbour, height, edge_length, is_upward, parent, order)
            if count < 0:
                return False
            root = start
            for step in range(count):
                # The first traversal only measures heights. The second starts from the highest record.
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
            # The code is twice the difference from the record to its parent, modulo N, plus one bit for the direction.
            codes[k, i] = 2 * ((p - i) % n) + is_above
    return True


@frozen(kw_only=True, eq=False)
class Trees(Proof):
    """A proof that consists of a price per record and trees for each output, which together determine the multipliers.

    In an output's tree, each record except the root lies either above or below its parent. Let d be the distance
    between the record and its parent. The output's probability at the record is exp(eps d) times its probability at the
    parent if the record lies above, and exp(-eps d) times that probability if the record lies below.

    Attributes:
        prices: Array of shape (N,) and type float64 with the prices of the records, all finite.
        trees: Array of shape (K, N) and type uint16 or uint32 with a code for each record's parent. Let m be the
            parent's index minus the record's index, modulo N. The code is 2 m, plus 1 if the record is above its
            parent. The code of a root is 0.
    """

    VERSION: ClassVar = 3
    KINDS: ClassVar = {"prices": ("f8",), "trees": ("u2", "u4")}

    prices: Floats
    trees: NDArray[np.unsignedinteger[Any]]

    @classmethod
    def of(cls, multipliers: SparseMultipliers, cost: Floats) -> Self | None:
        """Return a proof that stores the trees formed by the given multipliers, or None if they do not form trees.

        Also returns None if a sum overflows or a factor is too large, because no bound would be proved.

        Args:
            multipliers: The nonzero multipliers, output by output.
            cost: Array of shape (N, K) with the finite costs times the prior.
        """
        n, outputs = cost.shape
        # The smallest reduced costs are used as prices (see the module docstring).
        lower, wild = multipliers.min_bounds(cost)
        # A forest has fewer than n edges, so the last condition finds outputs that have too many constraints to form
        # one.
        if wild.any() or not (multipliers.growth < MAX_FACTOR).all() or (np.diff(multipliers.starts) >= n).any():
            return None
        codes = np.zeros((outputs, n), dtype=np.uint16 if 2 * n <= 1 << 16 else np.uint32)
        tails, heads = (np.ascontiguousarray(multipliers.pairs[:, end]) for end in (0, 1))
        is_forest = _plant_trees(multipliers.starts, multipliers.rows, tails, heads, np.log(multipliers.growth), codes)
        return cls(prices=lower, trees=codes) if is_forest else None

    @property
    def parents(self) -> Ints:
        """Array of shape (K, N) with the parent of each record in each output's trees. A root is its own parent."""
        n = self.trees.shape[1]
        return np.asarray((np.arange(n) + self.trees // 2) % n, dtype=np.int64)

    def edges(self) -> tuple[Ints, Ints]:
        """Return the distinct pairs formed by a record and its parent.

        Returns:
            An array of shape (E, 2) with the pairs, each with the smaller record index first, and an array of
            shape (K, N) with the pair index for each output and record. For a root, this index is E.
        """
        n, parents = self.trees.shape[1], self.parents
        records = np.arange(n)
        # Each pair is encoded as an integer. Roots get n * n, which exceeds the code of every pair and is therefore the
        # last key.
        number = np.where(parents == records, n * n, np.minimum(records, parents) * n + np.maximum(records, parents))
        # n * n is also appended so that it is among the keys even if there is no root.
        keys, positions = np.unique(np.append(number.ravel(), n * n), return_inverse=True)
        pairs = np.column_stack(np.divmod(keys[:-1], n)).astype(np.int64)
        return pairs, positions[:-1].reshape(number.shape)

    def enclose_with(
        self, cost: Floats, max_cost: Floats, error: float, under: Floats, places: Ints, growth: tuple[Floats, Floats]
    ) -> tuple[float, float]:
        """Return two doubles that enclose the exact bound proved by the trees.

        Args:
            cost, max_cost: Arrays of shape (N, K) with finite costs times the prior. Up to ``error``, the exact costs
                lie between ``cost - under`` and ``max_cost``.
            error: The relative error of ``cost`` and ``max_cost``.
            under: Array of shape (N,) with upper bounds on how far each record's entries of ``cost`` exceed the exact
                costs.
            places: Array of shape (K, N) with the pair indices returned by :meth:`edges`.
            growth: Two arrays of shape (E,) with lower and upper bounds on exp(eps d) for each pair.

        Returns:
            The lower and upper ends of the enclosure. They are minus and plus infinity if a sum overflows, or if a
            factor is :data:`MAX_FACTOR` or larger.

        Raises:
            CertificationError: The parents form a cycle.
        """
        # Roots have the pair index E. The appended factor 1 makes this index valid, but a root's factor is never used.
        lower, upper = (np.append(bounds, 1.0) for bounds in growth)
        if not (upper < MAX_FACTOR).all():
            return -math.inf, math.inf
        min_left, max_left = np.full(len(cost), np.inf), np.full(len(cost), np.inf)
        is_above = (self.trees & 1).astype(np.bool_)
        trees = self.parents, is_above, places
        # The function returns the index of an output with a cycle, or -1.
        if _enclose_left(cost, max_cost, under, error, self.prices, *trees, upper, lower, min_left, max_left) >= 0:
            raise CertificationError(f"{PROOF}: trees: records form a cycle")
        if not (np.isfinite(min_left).all() and np.isfinite(max_left).all()):
            return -math.inf, math.inf
        return sum_down(np.append(self.prices, min_left)), -sum_down(-np.append(self.prices, max_left))

    def enclose_bound(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """Return two doubles that enclose the bound proved by the trees (see :meth:`Proof.enclose_bound`)."""
        pairs, places = self.edges()
        return self.enclose_with(
            weighted, weighted + data.shortfall(), OFF, data.excess, places, growth_of(pairs, data)
        )

    @classmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the expected shapes of the arrays for a problem with N records and K outputs."""
        return {"prices": shape[:1], "trees": shape[::-1]}

    @classmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """Yield the only condition on the arrays' values: all prices are finite (see :meth:`Proof.numbers`)."""
        # Every code is valid because differences are taken modulo N. Cycles are detected when the bound is evaluated.
        yield "prices", bool(np.isfinite(parts["prices"]).all()), "finite numbers"
