"""Exact combinatorial pricing: a network simplex over trees of tight privacy rows.

For prices ``y`` and an output ``k`` pricing minimises ``a . z`` over the cone ``{z : z_i <= exp(l_ij) z_j}``, ``a =
cost_k - y``. Anchored at ``z_root = 1`` its vertices are spanning trees of the required-pairs graph whose every edge is
tight: a record is ``exp(l)`` times its parent or that factor below it. With ``g_i = a_i + sum over children c of (z_c /
z_i) g_c`` a tree is optimal when ``g`` is at least 0 at records below their parent and at most 0 at records above;
``g_root`` is the optimum, and the ``|g_i|`` are multipliers of the tight rows. So the answer brings its own proof, and
the last tree is the next one's warm start. (The dual is a generalised flow with losses; every cycle loses, hence trees
only.)

Ties are broken by shrinking each log-ratio by a random share of at most
`privopt_metric_dp.solvers.path_graph.EXPONENT_SHRINKAGE`: rays stay inside the true cone, and
multipliers are evaluated with the true log-ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Indices
from privopt.execution.clock import slices
from privopt.execution.compiled import jit
from privopt.execution.limits import in_threads
from privopt_metric_dp.proof.multipliers import Few, Multipliers
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.path_graph import Graph

__all__ = ["PricingResult", "Trees", "price_all", "tree_multipliers"]

SIGN_TOLERANCE = 1e-12
"""Accumulated reduced costs with a wrong sign are accepted up to this share of the largest cost."""
MAX_ANCHORS, MAX_BEARER_TRIES = 4, 50


@frozen(kw_only=True, eq=False)
class Trees:
    """One tree per output: parent (-1 at the root), CSR entry that leads there, and side (1 above it, -1 below)."""

    parent: Indices
    entry: Indices
    side: NDArray[np.int8]

    def copy(self) -> Trees:
        """Return a copy, since pricing changes trees in place."""
        return Trees(parent=self.parent.copy(), entry=self.entry.copy(), side=self.side.copy())


@frozen(kw_only=True, eq=False)
class PricingResult:
    """The result of pricing.

    Attributes:
        value: ``(K,)`` least value of ``a . z`` with ``z_root = 1``.
        deficit: ``(N,)`` by how much the price of each record must fall so that no ray of the cone prices below 0.
        ray: ``(K, N)`` logarithms of the optimal rays.
        pivots: pivots in all.
    """

    value: Floats
    deficit: Floats
    ray: Floats
    pivots: int


@jit()
def _list_preorder(root: int, first_child: Any, following: Any, order: Any) -> int:
    """List the nodes of a subtree into `order`, parents first; return their number."""
    order[0] = root
    count, position = 1, 0
    while position < count:
        child = first_child[order[position]]
        while child >= 0:
            order[count] = child
            count += 1
            child = following[child]
        position += 1
    return count


@jit()
def _unlink_node(node: int, parent: Any, first_child: Any, following: Any, previous: Any) -> None:
    earlier, later = previous[node], following[node]
    if earlier >= 0:
        following[earlier] = later
    else:
        first_child[parent[node]] = later
    if later >= 0:
        previous[later] = earlier


@jit()
def _link_node(node: int, new_parent: int, parent: Any, first_child: Any, following: Any, previous: Any) -> None:
    """Insert a node as the first child of another."""
    parent[node] = new_parent
    following[node] = first_child[new_parent]
    previous[node] = -1
    if first_child[new_parent] >= 0:
        previous[first_child[new_parent]] = node
    first_child[new_parent] = node


@jit()
def _build_lists(parent: Any) -> Any:
    """Build the lists of children (first child, next and previous sibling); return the root and the lists."""
    root, first_child = int(parent.argmin()), np.full(len(parent), -1, dtype=np.int32)
    following, previous = first_child.copy(), first_child.copy()
    for node in range(len(parent)):
        if node != root:
            _link_node(node, parent[node], parent, first_child, following, previous)
    return root, first_child, following, previous


@jit()
def _compute_heights(
    root: int, length: Any, parent: Any, entry: Any, sides: Any, first_child: Any, following: Any, order: Any, u: Any
) -> int:
    """Compute the log-heights of the nodes above the root, and their preorder; return their number."""
    count: int = _list_preorder(root, first_child, following, order)
    u[root] = 0.0
    for position in range(1, count):
        node = order[position]
        u[node] = u[parent[node]] + sides[node] * length[entry[node]]
    return count


@jit()
def _recompute_tree(
    root: int,
    a: Any,
    length: Any,
    parent: Any,
    entry: Any,
    sides: Any,
    first_child: Any,
    following: Any,
    order: Any,
    u: Any,
    g: Any,
) -> None:
    """Recompute log-heights and accumulated reduced costs of the whole tree, which removes accumulated rounding."""
    n = _compute_heights(root, length, parent, entry, sides, first_child, following, order, u)
    g[:] = a
    for position in range(n - 1, 0, -1):
        node = order[position]
        g[parent[node]] += np.exp(sides[node] * length[entry[node]]) * g[node]


@jit()
def _find_blocking_row(
    subtree_root: int,
    rising: bool,
    start: Any,
    target: Any,
    length: Any,
    first_child: Any,
    following: Any,
    order: Any,
    mark: Any,
    u: Any,
) -> Any:
    """Move a subtree in logs until a row blocks it; return the blocking node and its CSR entry to the outside."""
    count = _list_preorder(subtree_root, first_child, following, order)
    for position in range(count):
        mark[order[position]] = True
    best, inner_node, blocking_entry = np.inf, -1, -1
    for position in range(count):
        node = order[position]
        for e in range(start[node], start[node + 1]):
            neighbour = target[e]
            if not mark[neighbour]:
                slack = length[e] + u[neighbour] - u[node] if rising else length[e] + u[node] - u[neighbour]
                if slack < best:
                    best, inner_node, blocking_entry = slack, node, e
    move = max(best, 0.0) if rising else -max(best, 0.0)
    for position in range(count):
        mark[order[position]] = False
        u[order[position]] += move
    return inner_node, blocking_entry


@jit()
def _reroot_subtree(
    subtree_root: int,
    new: int,
    length: Any,
    parent: Any,
    entry: Any,
    sides: Any,
    first_child: Any,
    following: Any,
    previous: Any,
    path: Any,
    g: Any,
) -> None:
    """Reverse the path from `new` to `subtree_root`, which is already unlinked, so that `new` becomes the root."""
    path[0] = new
    m = 0
    while path[m] != subtree_root:
        path[m + 1] = parent[path[m]]
        m += 1
    for q in range(m):
        _unlink_node(path[q], parent, first_child, following, previous)
    for q in range(m, 0, -1):
        child = path[q - 1]
        g[path[q]] -= np.exp(sides[child] * length[entry[child]]) * g[child]
    for q in range(m, 0, -1):
        node, new_parent = path[q], path[q - 1]
        entry[node], sides[node] = entry[new_parent], -sides[new_parent]
        _link_node(node, new_parent, parent, first_child, following, previous)
        g[new_parent] += np.exp(sides[node] * length[entry[node]]) * g[node]


@jit()
def _add_to_ancestors(node: int, change: float, length: Any, parent: Any, entry: Any, sides: Any, g: Any) -> None:
    """Add a change of a node's accumulated reduced cost to its ancestors, scaled along the path."""
    while parent[node] >= 0:
        change *= np.exp(sides[node] * length[entry[node]])
        node = parent[node]
        g[node] += change


@jit()
def _pivot_subtree(
    subtree_root: int,
    start: Any,
    target: Any,
    length: Any,
    parent: Any,
    entry: Any,
    sides: Any,
    first_child: Any,
    following: Any,
    previous: Any,
    order: Any,
    mark: Any,
    u: Any,
    g: Any,
) -> None:
    """Do one pivot: move the subtree of a node with a wrong sign until a row blocks it, and attach it there."""
    rising = sides[subtree_root] < 0
    inner_node, blocking_entry = _find_blocking_row(
        subtree_root, rising, start, target, length, first_child, following, order, mark, u
    )
    _unlink_node(subtree_root, parent, first_child, following, previous)
    _add_to_ancestors(subtree_root, -g[subtree_root], length, parent, entry, sides, g)
    _reroot_subtree(subtree_root, inner_node, length, parent, entry, sides, first_child, following, previous, order, g)
    sides[inner_node] = 1 if rising else -1
    entry[inner_node] = blocking_entry
    _link_node(inner_node, target[blocking_entry], parent, first_child, following, previous)
    _add_to_ancestors(inner_node, g[inner_node], length, parent, entry, sides, g)


@jit()
def _optimize_tree(
    a: Any,
    tolerance: float,
    max_pivots: int,
    start: Any,
    target: Any,
    length: Any,
    parent: Any,
    entry: Any,
    sides: Any,
    u: Any,
    g: Any,
) -> int:
    """Optimise one tree in place, to `tolerance` or `max_pivots` pivots; return the number of pivots."""
    n = len(a)
    order, mark = np.empty(n, dtype=np.int32), np.zeros(n, dtype=np.bool_)
    root, first_child, following, previous = _build_lists(parent)
    pivots, fresh = 0, True
    _recompute_tree(root, a, length, parent, entry, sides, first_child, following, order, u, g)
    while True:
        worst, leaving = 0.0, -1
        for node in range(n):
            if node != root and g[node] * sides[node] > tolerance:
                gain = np.log(g[node] * sides[node]) + u[node]
                if leaving < 0 or gain > worst:
                    worst, leaving = gain, node
        if leaving < 0 and not fresh:
            _recompute_tree(root, a, length, parent, entry, sides, first_child, following, order, u, g)
            fresh = True
            continue
        if leaving < 0 or pivots >= max_pivots:
            return pivots
        _pivot_subtree(
            leaving, start, target, length, parent, entry, sides, first_child, following, previous, order, mark, u, g
        )
        pivots += 1
        fresh = False


@jit()
def _absorb_deficit(parent: Any, sides: Any, u: Any, g: Any, deficit: Any) -> None:
    """Distribute a tree's deficit at its root to high records, as far as the flows towards the root can shrink.

    A price that falls by ``x`` at a record of height ``u`` has the effect ``x exp(u)`` at the root. Each record, from
    the highest down, takes as much of a negative ``g_root`` as the flows on its path to the root allow. ``g`` becomes
    the remainder, and ``deficit`` grows by the amount of each record.
    """
    root, tries = parent.argmin(), 0
    borne = np.zeros(len(g), dtype=np.bool_)
    while g[root] < 0:
        bearer = root
        for node in range(len(g) if tries < MAX_BEARER_TRIES else 0):
            if not borne[node] and u[node] > u[bearer]:
                bearer = node
        tries += 1
        amount, node = -g[root], bearer
        while node != root:
            if sides[node] > 0:
                amount = min(amount, max(-g[node], 0.0) * np.exp(u[node] - u[root]))
            node = parent[node]
        borne[bearer] = True
        deficit[bearer] += amount * np.exp(u[root] - u[bearer])
        node = bearer
        while node != root:
            g[node] += amount * np.exp(u[root] - u[node])
            node = parent[node]
        g[root] += amount
        if bearer == root:
            g[root] = 0.0


@jit()
def _settle_flows(
    a: Any, length: Any, parent: Any, entry: Any, sides: Any, order: Any, u: Any, g: Any, lacks: Any
) -> int:
    """Turn any tree, optimal or not, into a proof: let reduced costs of the right sign flow to the root.

    ``u`` becomes the log-heights, ``g`` the flows, and ``lacks`` the amounts by which the price of each record must
    fall for the tree to be a proof. Returns the number of nodes in `order`, parents first.
    """
    root, first_child, following, _ = _build_lists(parent)
    count: int = _compute_heights(root, length, parent, entry, sides, first_child, following, order, u)
    g[:] = a
    lacks[:] = 0.0
    for position in range(count - 1, 0, -1):
        node = order[position]
        if sides[node] < 0 and g[node] < 0:
            lacks[node] -= g[node]
            g[node] = 0.0
        if sides[node] < 0 or g[node] < 0:
            g[parent[node]] += np.exp(sides[node] * length[entry[node]]) * g[node]
    _absorb_deficit(parent, sides, u, g, lacks)
    return count


@jit()
def _make_root(new: int, parent: Any, entry: Any, sides: Any) -> None:
    """Make `new` the root of a tree."""
    node, next_node, e, s = new, parent[new], entry[new], sides[new]
    parent[new], entry[new], sides[new] = -1, -1, -1
    while next_node >= 0:
        next_above, next_entry, next_side = parent[next_node], entry[next_node], sides[next_node]
        parent[next_node], entry[next_node], sides[next_node] = node, e, -s
        node, next_node, e, s = next_node, next_above, next_entry, next_side


@jit(few=lambda cost, *_: bool(cost.size <= 200))
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
    n, columns = cost.shape
    total = 0
    g, lacks, order = np.empty(n), np.empty(n), np.empty(n, dtype=np.int32)
    for k in range(columns):
        a = cost[:, k] - y
        min_lack, deficit_k = np.inf, np.zeros(n)
        tree = (parent[k], entry[k], sides[k], ray[k])
        for attempt in range(MAX_ANCHORS):
            total += _optimize_tree(
                a, tolerance, max_pivots, start, target, length, tree[0], tree[1], tree[2], tree[3], g
            )
            anchored = g[tree[0].argmin()]
            _settle_flows(a, length, tree[0], tree[1], tree[2], order, tree[3], g, lacks)
            if lacks.sum() < min_lack:  # the first time all is in place already
                min_lack, value[k] = lacks.sum(), anchored
                deficit_k = lacks.copy()
                if attempt > 0:
                    parent[k, :], entry[k, :], sides[k, :], ray[k, :] = tree
            highest = tree[3].argmax()
            if tree[3][highest] <= 1e-6:
                break
            tree = (tree[0].copy(), tree[1].copy(), tree[2].copy(), tree[3].copy())
            _make_root(highest, tree[0], tree[1], tree[2])  # anchored at the largest entry values are best scaled
        deficit[:] = np.maximum(deficit, deficit_k)
    return total


def price_all(
    graph: Graph, instance: Instance, y: Floats, trees: Trees, *, max_pivots: int = 1_000_000
) -> PricingResult:
    """Price every output of an instance exactly, in threads, starting from given trees.

    Args:
        graph: The graph from `make_graph`.
        instance: The instance whose outputs are priced.
        y: ``(N,)`` prices.
        trees: A tree for each output, which becomes the optimal one in place.
        max_pivots: Largest number of pivots for one output.

    Raises:
        OutOfTime: The time limit came before all outputs were priced. The trees have then advanced by some pivots.
    """
    outputs = instance.outputs
    value, ray = np.empty(outputs), np.empty((outputs, graph.records))
    scale = max(float(np.abs(instance.cost).max()), float(np.abs(y).max()), 1e-300)
    limits, rows = (SIGN_TOLERANCE * scale, max_pivots), (graph.start, graph.other, graph.length)

    def price_some(start: int, end: int) -> tuple[Floats, int]:
        deficit, pivots = np.zeros(graph.records), 0
        for a, b in slices(end - start):
            block = slice(start + a, start + b)
            block_arrays = trees.parent[block], trees.entry[block], trees.side[block], value[block], ray[block], deficit
            pivots += _price_outputs(np.array(instance.cost[:, block]), np.array(y), *limits, *rows, *block_arrays)
        return deficit, pivots

    deficits, pivots = zip(*in_threads(price_some, outputs), strict=True)
    return PricingResult(value=value, deficit=np.max(deficits, axis=0), ray=ray, pivots=int(sum(pivots)))


@jit(few=lambda a, *_: len(a) <= 32)
def _tight_rows(
    a: Any, length: Any, lower_record: Any, pair: Any, parents: Any, entries: Any, sides: Any, pairs: Any, values: Any
) -> int:
    """Compute the multipliers of tight rows of an output's best tree at the true log-ratios; return their number."""
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
        # node <= exp(l) parent, multiplier -g; or parent <= exp(l) node, multiplier g exp(-l)
        f = max(-g[node], 0.0) if is_above else max(g[node], 0.0) * np.exp(-length[entries[best, node]])
        pairs[position - 1] = p
        values[position - 1] = f if (lower_record[p] == node) == is_above else -f
    return count - 1


def tree_multipliers(instance: Instance, graph: Graph, y: Floats, candidates: Sequence[Trees]) -> Multipliers:
    """Return multipliers of all outputs from the best of their trees, computed output by output on request."""

    def list_rows() -> Iterator[Few]:
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
