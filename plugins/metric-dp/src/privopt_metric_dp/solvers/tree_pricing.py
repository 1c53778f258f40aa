"""Exact combinatorial pricing of all outputs, and multipliers for the privacy rows, from trees of tight rows.

Each output has a spanning tree of the records. `privopt_metric_dp.solvers.tree_pivots` optimises the trees at given
prices, and its docstring defines trees, ``g`` and the arrays that the compiled functions share. This module stores the
trees, chooses their roots, and turns any tree, optimal or not, into a proof. Each pricing run starts from the trees of
the previous run.

Ties are broken by shrinking each log ratio by a random fraction of at most
`privopt_metric_dp.solvers.solver.EXPONENT_SHRINKAGE`. Rays then stay inside the true cone, and multipliers are
evaluated with the true log ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Indices
from privopt.execution.clock import slices
from privopt.execution.compiled import MAX_INTERPRETED_COSTS, jit
from privopt.execution.resources import in_threads
from privopt_metric_dp.proof.lagrangian_bound import Few, Multipliers
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.solver import Graph
from privopt_metric_dp.solvers.tree_pivots import build_lists, compute_heights, optimize_tree

__all__ = ["PricingResult", "Trees", "price_all", "tree_multipliers"]

SIGN_TOLERANCE = 1e-12
"""The largest accepted absolute value of an accumulated reduced cost that has the wrong sign, as a fraction of the
largest absolute cost or price."""

MAX_ANCHORS = 4
"""The maximum number of roots (anchors) to try for each output's tree."""

MAX_BEARER_TRIES = 50
"""The maximum number of records (bearers) over which a root's deficit is distributed. The root bears the rest."""


@frozen(kw_only=True, eq=False)
class Trees:
    """One spanning tree of records per output, in which every edge is a privacy constraint that holds with equality.

    Attributes:
        parent: Array of shape (K, N) with the parent of each record, which is -1 at the root.
        entry: Array of shape (K, N) with the index of the graph's CSR entry for the pair of each record and its parent.
            It is -1 at the root.
        side: Array of shape (K, N) that is 1 if the record is above its parent, and -1 if it is below. If ``l`` is the
            pair's log ratio, this means ``z = exp(l) z_parent`` or ``z = exp(-l) z_parent``, respectively.
    """

    parent: Indices
    entry: Indices
    side: NDArray[np.int8]

    def copy(self) -> Trees:
        """Return a copy that shares no arrays with the original, because pricing changes trees in place."""
        return Trees(parent=self.parent.copy(), entry=self.entry.copy(), side=self.side.copy())


@frozen(kw_only=True, eq=False)
class PricingResult:
    """The result of pricing all outputs of an instance.

    Attributes:
        value: Array of shape (K,) with the smallest value of ``a . z`` for each output, over the rays ``z`` with
            ``z_root = 1``. Here ``a`` is the output's costs minus the prices, and a ray is a vector that satisfies
            every privacy constraint.
        deficit: Array of shape (N,) with the amounts by which the records' prices must fall so that no ray has a
            negative value.
        ray: Array of shape (K, N) with the logarithms of the optimal rays.
        pivots: The total number of pivots.
    """

    value: Floats
    deficit: Floats
    ray: Floats
    pivots: int


@jit()
def _absorb_deficit(parent: Any, sides: Any, u: Any, g: Any, deficit: Any) -> None:
    """Compute price reductions that together cover a tree's deficit (a negative ``g`` at the root).

    Reducing the price of a record of height ``u`` by ``x`` raises ``g_root`` by ``x exp(u)``, so the highest records
    come first. Each price is reduced as far as the flows on the record's path to the root allow. The reduction of the
    root's own price covers the rest.

    Args:
        parent: Array of shape (N,) with the parent of each node, which is -1 at the root.
        sides: Array of shape (N,) that is 1 if the node is above its parent, and -1 if it is below.
        u: Array of shape (N,) with the log-heights.
        g: Array of shape (N,) with the accumulated reduced costs, which flow towards the root and are updated in place.
        deficit: Array of shape (N,) with the amounts by which prices must fall, to which the reductions are added.
    """
    root, tries = parent.argmin(), 0
    is_tried = np.zeros(len(g), dtype=np.bool_)
    while g[root] < 0:
        # The bearer is the highest record that has not been tried. After many tries, the root itself takes the rest,
        # which ends the loop.
        bearer = root
        for node in range(len(g) if tries < MAX_BEARER_TRIES else 0):
            if not is_tried[node] and u[node] > u[bearer]:
                bearer = node
        tries += 1
        # Each g on the path rises by its part of `amount`, and must not change sign. Only records above their parents
        # can have a negative g, so only these limit the amount.
        amount, node = -g[root], bearer
        while node != root:
            if sides[node] > 0:
                amount = min(amount, max(-g[node], 0.0) * np.exp(u[node] - u[root]))
            node = parent[node]
        is_tried[bearer] = True
        deficit[bearer] += amount * np.exp(u[root] - u[bearer])
        node = bearer
        while node != root:
            g[node] += amount * np.exp(u[root] - u[node])
            node = parent[node]
        g[root] += amount
        # Rounding must not leave a negative remainder, or the loop would not end.
        if bearer == root:
            g[root] = 0.0


@jit()
def _settle_flows(
    a: Any, length: Any, parent: Any, entry: Any, sides: Any, order: Any, u: Any, g: Any, lacks: Any
) -> int:
    """Turn any tree, optimal or not, into a proof by passing reduced costs of the right sign towards the root.

    Args:
        a: Array of shape (N,) with the costs minus the prices.
        length: Array of shape (E,) with the log ratio of each CSR entry.
        parent, entry, sides: Arrays of shape (N,) with the parent, entry and side of each node, as in :class:`Trees`.
        order: Array of shape (N,), to which the nodes are written, parents first.
        u, g: Arrays of shape (N,), to which the log-heights and the flows towards the root are written.
        lacks: Array of shape (N,), to which the deficits are written. These are the amounts by which the records'
            prices must fall for the tree to be a proof.

    Returns:
        The number of nodes in ``order``.
    """
    root, first_child, following, _ = build_lists(parent)
    count: int = compute_heights(root, length, parent, entry, sides, first_child, following, order, u)
    g[:] = a
    lacks[:] = 0.0
    for position in range(count - 1, 0, -1):
        node = order[position]
        # At a record below its parent, only a positive g has a multiplier. A negative g is a deficit in the record's
        # price.
        if sides[node] < 0 and g[node] < 0:
            lacks[node] -= g[node]
            g[node] = 0.0
        # The rest flows to the parent: a non-negative g from below it, and a negative g from above it.
        if sides[node] < 0 or g[node] < 0:
            g[parent[node]] += np.exp(sides[node] * length[entry[node]]) * g[node]
    _absorb_deficit(parent, sides, u, g, lacks)
    return count


@jit()
def _make_root(new: int, parent: Any, entry: Any, sides: Any) -> None:
    """Make a node the root of its tree by reversing the path from the node to the old root.

    Args:
        new: The node.
        parent, entry, sides: Arrays of shape (N,) with the parent, entry and side of each node, as in :class:`Trees`.
            They are modified in place.
    """
    node, next_node, e, s = new, parent[new], entry[new], sides[new]
    parent[new], entry[new], sides[new] = -1, -1, -1  # the side of a root is never read
    while next_node >= 0:
        next_above, next_entry, next_side = parent[next_node], entry[next_node], sides[next_node]
        # A reversed edge keeps its CSR entry. If the old child was above its parent, the new child is below its new
        # parent.
        parent[next_node], entry[next_node], sides[next_node] = node, e, -s
        node, next_node, e, s = next_node, next_above, next_entry, next_side


@jit(few=lambda cost, *_: bool(cost.size <= MAX_INTERPRETED_COSTS))
def _price_outputs(
    cost: Any,
    y: Any,
    tolerance: float,
    max_pivots: int,
    start: Any,
    target: Any,
    length: Any,
    parent: Any,
    entry: Any,
    sides: Any,
    value: Any,
    ray: Any,
    deficit: Any,
) -> int:
    """Optimise the trees of a block of outputs, and compute their values, rays and deficits.

    Args:
        cost: Array of shape (N, B) with the costs of the block's outputs, times the prior.
        y: Array of shape (N,) with the prices.
        tolerance: The largest accepted absolute value of a ``g`` that has the wrong sign.
        max_pivots: The maximum number of pivots per tree.
        start, target, length: The graph in CSR form: the first entry of each record, of shape (N + 1,), and the
            neighbour and log ratio of each entry, of shape (E,).
        parent, entry, sides: Arrays of shape (B, N) with the trees, modified in place.
        value: Array of shape (B,), to which the outputs' values are written, as in `PricingResult`.
        ray: Array of shape (B, N), to which the logarithms of the optimal rays are written.
        deficit: Array of shape (N,) with the largest deficit of each record over the outputs so far, modified in place.

    Returns:
        The total number of pivots.
    """
    n, columns = cost.shape
    total = 0
    g, lacks, order = np.empty(n), np.empty(n), np.empty(n, dtype=np.int32)
    for k in range(columns):
        a = cost[:, k] - y
        min_lack, deficit_k = np.inf, np.zeros(n)
        tree = (parent[k], entry[k], sides[k], ray[k])  # heights `u` are the logarithms of the ray
        # The deficit depends on which record is the root. The record at which the ray is largest is tried next, and the
        # root with the smallest total deficit is used.
        for attempt in range(MAX_ANCHORS):
            total += optimize_tree(
                a, tolerance, max_pivots, start, target, length, tree[0], tree[1], tree[2], tree[3], g
            )
            anchored = g[tree[0].argmin()]  # g at the root, which is the optimum
            _settle_flows(a, length, tree[0], tree[1], tree[2], order, tree[3], g, lacks)
            if lacks.sum() < min_lack:
                min_lack, value[k] = lacks.sum(), anchored
                deficit_k = lacks.copy()
                # The first attempt works on the given arrays themselves, and later ones on copies.
                if attempt > 0:
                    parent[k, :], entry[k, :], sides[k, :], ray[k, :] = tree
            highest = tree[3].argmax()
            # The root has height 0. If no record is clearly higher, no other root is worth trying.
            if tree[3][highest] <= 1e-6:
                break
            tree = (tree[0].copy(), tree[1].copy(), tree[2].copy(), tree[3].copy())
            _make_root(highest, tree[0], tree[1], tree[2])
        deficit[:] = np.maximum(deficit, deficit_k)
    return total


def price_all(
    graph: Graph, instance: Instance, y: Floats, trees: Trees, *, max_pivots: int = 1_000_000
) -> PricingResult:
    """Price every output of an instance exactly, using threads and starting from the given trees.

    Args:
        graph: The graph from `make_graph`.
        instance: The instance whose outputs are priced.
        y: Array of shape (N,) with the prices.
        trees: One tree per output, which is optimised in place up to the limit on pivots.
        max_pivots: The maximum number of pivots per tree.

    Raises:
        OutOfTime: The time limit expired before all outputs were priced. Some trees may have changed, but all remain
            usable.
    """
    outputs = instance.outputs
    value, ray = np.empty(outputs), np.empty((outputs, graph.records))
    scale = max(float(np.abs(instance.cost).max()), float(np.abs(y).max()), 1e-300)
    limits, rows = (SIGN_TOLERANCE * scale, max_pivots), (graph.start, graph.other, graph.length)

    def price_some(start: int, end: int) -> tuple[Floats, int]:
        """Price outputs ``start`` to ``end - 1``, block by block.

        Returns:
            Array of shape (N,) with the largest deficits over these outputs, and the number of pivots.
        """
        deficit, pivots = np.zeros(graph.records), 0
        for a, b in slices(end - start):
            block = slice(start + a, start + b)
            block_arrays = trees.parent[block], trees.entry[block], trees.side[block], value[block], ray[block], deficit
            # Copies are contiguous and writable, unlike the instance's arrays, so the code is compiled for only one
            # kind of array.
            pivots += _price_outputs(np.array(instance.cost[:, block]), np.array(y), *limits, *rows, *block_arrays)
        return deficit, pivots

    deficits, pivots = zip(*in_threads(price_some, outputs), strict=True)
    return PricingResult(value=value, deficit=np.max(deficits, axis=0), ray=ray, pivots=int(sum(pivots)))


@jit(few=lambda a, *_: len(a) <= 32)  # calls with few records are interpreted
def _tight_rows(
    a: Any, length: Any, lower_record: Any, pair: Any, parents: Any, entries: Any, sides: Any, pairs: Any, values: Any
) -> int:
    """Compute the multipliers of the tight constraints in an output's best tree, using the true log ratios.

    Args:
        a: Array of shape (N,) with the costs minus the prices.
        length: Array of shape (E,) with the true log ratio of each CSR entry.
        lower_record: Array of shape (P,) with the first record of each pair, i.e. the one with the lower index.
        pair: Array of shape (E,) with the index of each CSR entry's pair.
        parents, entries, sides: Arrays of shape (T, N) with candidate trees for the output. The tree with the smallest
            deficit is used.
        pairs, values: Arrays of shape (N,), to which the indices of pairs and the multipliers are written. As in
            :class:`Multipliers`, a multiplier is negative if it belongs to the constraint ``z_j <= exp(l) z_i`` of a
            pair (i, j).

    Returns:
        The number of multipliers.
    """
    n = len(a)
    order = np.empty(n, dtype=np.int32)
    u, g, lacks = np.empty(n), np.empty(n), np.empty(n)
    best, min_lack = 0, np.inf
    for t in range(len(parents)):
        _settle_flows(a, length, parents[t], entries[t], sides[t], order, u, g, lacks)
        if lacks.sum() < min_lack:
            best, min_lack = t, lacks.sum()
    count = _settle_flows(a, length, parents[best], entries[best], sides[best], order, u, g, lacks)
    for position in range(1, count):
        node = order[position]
        p = pair[entries[best, node]]
        is_above = sides[best, node] > 0
        # If the node is above its parent, the row z_node <= exp(l) z_parent has the multiplier -g. If it is below, the
        # row z_parent <= exp(l) z_node has the multiplier g exp(-l), because g is in units of z_node and the row's
        # bound is exp(l) z_node.
        f = max(-g[node], 0.0) if is_above else max(g[node], 0.0) * np.exp(-length[entries[best, node]])
        pairs[position - 1] = p
        # The row belongs to the node if the node is above its parent, and otherwise to the parent. The multiplier is
        # positive if the row belongs to the pair's lower record.
        values[position - 1] = f if (lower_record[p] == node) == is_above else -f
    return count - 1


def tree_multipliers(instance: Instance, graph: Graph, y: Floats, candidates: Sequence[Trees]) -> Multipliers:
    """Return the multipliers for all outputs, each derived from the output's best tree.

    Multipliers are computed lazily, output by output, during iteration.

    Args:
        instance: The problem, with one output per tree.
        graph: The problem's graph. Its log ratios may be shrunk, because multipliers are computed with the log ratios
            of ``instance``.
        y: Array of shape (N,) with the prices.
        candidates: Sets of trees. For each output, the tree with the smallest deficit is used.
    """

    def list_rows() -> Iterator[Few]:
        """Yield each output's index, the indices of its pairs, and their multipliers."""
        lower_record, lengths = np.array(instance.pairs[:, 0]), np.array(instance.lengths)[graph.pair]
        pairs, values = np.empty(instance.records, dtype=np.int64), np.empty(instance.records)
        for k in range(instance.outputs):
            parents = np.stack([trees.parent[k] for trees in candidates])
            entries = np.stack([trees.entry[k] for trees in candidates])
            sides = np.stack([trees.side[k] for trees in candidates])
            cost = instance.cost[:, k] - y
            count = _tight_rows(cost, lengths, lower_record, graph.pair, parents, entries, sides, pairs, values)
            yield k, pairs[:count].copy(), values[:count].copy()

    return Multipliers(rows=list_rows)
