"""Pivots for exact combinatorial pricing, a network simplex method over trees of tight privacy rows.

Given prices ``y`` and an output ``k``, pricing minimises ``a . z`` over the cone ``{z : z_i <= exp(l_ij) z_j}``, where
``a = cost_k - y`` and ``l_ij`` is the log ratio of the pair (i, j). One record is the root, and its entry is fixed at
1. Each vertex of the resulting polyhedron corresponds to a spanning tree of the graph of required pairs in which every
edge is tight. The entry of a record is then either ``exp(l)`` times its parent's (the record is above its parent) or
``exp(-l)`` times its parent's (it is below). Let ``g_i = a_i + sum over children c of (z_c / z_i) g_c``. A tree is
optimal if ``g`` is at least 0 at records below their parents and at most 0 at records above theirs. Then ``g_root`` is
the optimum. The ``|g_i|`` give multipliers for the tight rows, which prove optimality. (The dual is a generalised flow
with losses. Flow is lost on every cycle, so only trees occur.)

The compiled functions share these arrays, all for a single output:

- ``a`` (N,): the costs minus the prices.
- ``parent``, ``entry``, ``sides`` (N,): the tree, as in :class:`privopt_metric_dp.solvers.tree_pricing.Trees`.
- ``first_child``, ``following``, ``previous`` (N,): the first child, next sibling and previous sibling of each node, or
  -1 if there is none.
- ``u`` (N,): the log-heights ``log(z_i / z_root)``.
- ``g`` (N,): the accumulated reduced costs, as above.
- ``start`` (N + 1,), ``target``, ``length`` (E,): the graph in CSR form, with the first entry of each record, and the
  neighbour and log ratio of each entry.
- ``order`` (N,): a workspace for a list of nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from privopt.execution.compiled import jit

__all__ = ["build_lists", "compute_heights", "optimize_tree"]


@jit()
def _list_subtree(root: int, first_child: Any, following: Any, order: Any) -> int:
    """Write the nodes of the subtree rooted at ``root`` to ``order`` in breadth-first order, and return their number.

    Args:
        root: The root of the subtree.
        first_child, following: Arrays of shape (N,) with the first child and next sibling of each node, or -1 if there
            is none.
        order: Array of shape (N,), to which the nodes are written, parents before their children.
    """
    # `order` serves as a queue. The children of all nodes before `position` have been listed.
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
    """Remove a node from its parent's list of children, without changing the node's ``parent``.

    Args:
        node: The node.
        parent: Array of shape (N,) with the parent of each node.
        first_child, following, previous: Arrays of shape (N,) with the first child, next sibling and previous sibling
            of each node, or -1 if there is none.
    """
    earlier, later = previous[node], following[node]
    if earlier >= 0:
        following[earlier] = later
    else:
        first_child[parent[node]] = later
    if later >= 0:
        previous[later] = earlier


@jit()
def _link_node(node: int, new_parent: int, parent: Any, first_child: Any, following: Any, previous: Any) -> None:
    """Insert a node as the first child of another node.

    Args:
        node: The node, which must not be in any list of children.
        new_parent: The other node.
        parent: Array of shape (N,) with the parent of each node.
        first_child, following, previous: Arrays of shape (N,) with the first child, next sibling and previous sibling
            of each node, or -1 if there is none.
    """
    parent[node] = new_parent
    following[node] = first_child[new_parent]
    previous[node] = -1
    if first_child[new_parent] >= 0:
        previous[first_child[new_parent]] = node
    first_child[new_parent] = node


@jit()
def build_lists(parent: Any) -> Any:
    """Build a tree's lists of children, which are needed to traverse and move subtrees.

    Args:
        parent: Array of shape (N,) with the parent of each node, which is -1 at the root.

    Returns:
        The root, and three arrays of shape (N,) with the first child, the next sibling and the previous sibling of each
        node, or -1 if there is none.
    """
    # The root has the smallest entry, -1.
    root, first_child = int(parent.argmin()), np.full(len(parent), -1, dtype=np.int32)
    following, previous = first_child.copy(), first_child.copy()
    for node in range(len(parent)):
        if node != root:
            _link_node(node, parent[node], parent, first_child, following, previous)
    return root, first_child, following, previous


@jit()
def compute_heights(
    root: int, length: Any, parent: Any, entry: Any, sides: Any, first_child: Any, following: Any, order: Any, u: Any
) -> int:
    """Compute the log-heights ``u_i = log(z_i / z_root)`` of all nodes in a tree of tight constraints.

    Args:
        root: The root, whose height is 0.
        length: Array of shape (E,) with the log ratio of each CSR entry.
        parent, entry, sides: The tree, in arrays of shape (N,): the parent of each node, the CSR entry of the edge
            between the node and its parent, and 1 if the node is above its parent or -1 if it is below.
        first_child, following: Arrays of shape (N,) with the first child and next sibling of each node, or -1 if there
            is none.
        order, u: Arrays of shape (N,), to which the nodes (parents first) and the heights are written.

    Returns:
        The number of nodes.
    """
    count: int = _list_subtree(root, first_child, following, order)
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
    """Recompute the log-heights ``u`` and accumulated reduced costs ``g`` of the whole tree.

    Pivots update ``u`` and ``g`` incrementally, so rounding errors accumulate. Recomputing the values removes them.

    Args:
        root: The root.
        a: Array of shape (N,) with the costs minus the prices.
        length: Array of shape (E,) with the log ratio of each CSR entry.
        parent, entry, sides: The tree, in arrays of shape (N,): each node's parent, the CSR entry of the edge between
            the node and its parent, and 1 if the node is above its parent or -1 if it is below.
        first_child, following: Arrays of shape (N,) with the first child and next sibling of each node, or -1 if there
            is none.
        order: A workspace of shape (N,).
        u, g: Arrays of shape (N,), to which the results are written.
    """
    n = compute_heights(root, length, parent, entry, sides, first_child, following, order, u)
    g[:] = a
    # Children come before parents. Each adds its g, times z_child / z_parent, to its parent's g.
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
    """Move a subtree up or down until a privacy constraint between it and the rest of the graph becomes tight.

    Args:
        subtree_root: The root of the subtree. The tight constraint between it and its parent leaves the tree.
        rising: Whether the subtree moves up rather than down.
        start, target, length: The graph in CSR form: the first entry of each record, of shape (N + 1,), and the
            neighbour and log ratio of each entry, of shape (E,).
        first_child, following: Arrays of shape (N,) with the first child and next sibling of each node, or -1 if there
            is none.
        order: A workspace of shape (N,).
        mark: A boolean workspace of shape (N,), whose elements are all False on entry and on return.
        u: Array of shape (N,) with the log-heights, which are modified inside the subtree.

    Returns:
        The node inside the subtree and the CSR entry of the constraint that becomes tight first.
    """
    count = _list_subtree(subtree_root, first_child, following, order)
    for position in range(count):
        mark[order[position]] = True
    best, inner_node, blocking_entry = np.inf, -1, -1
    for position in range(count):
        node = order[position]
        for e in range(start[node], start[node + 1]):
            neighbour = target[e]
            if not mark[neighbour]:
                # In logarithms, a rising node is blocked by z_node <= exp(l) z_neighbour, and a falling one by
                # z_neighbour <= exp(l) z_node.
                slack = length[e] + u[neighbour] - u[node] if rising else length[e] + u[node] - u[neighbour]
                if slack < best:
                    best, inner_node, blocking_entry = slack, node, e
    # Rounding can make the slack of a tight row slightly negative. The subtree then stays where it is.
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
    """Make another node the root of a subtree by reversing the path to it, and update ``g`` along that path.

    Args:
        subtree_root: The current root of the subtree, which has already been unlinked from its parent.
        new: The node that becomes the root of the subtree. The caller sets its parent, entry and side.
        length: Array of shape (E,) with the log ratio of each CSR entry.
        parent, entry, sides: The tree, in arrays of shape (N,), modified in place: each node's parent, the CSR entry of
            the edge between the node and its parent, and 1 if the node is above its parent or -1 if it is below.
        first_child, following, previous: Arrays of shape (N,) with the first child, next sibling and previous sibling
            of each node, modified in place.
        path: A workspace of shape (N,).
        g: Array of shape (N,) with the accumulated reduced costs, modified in place.
    """
    # path[0] to path[m] lead from the new root up to the old one.
    path[0] = new
    m = 0
    while path[m] != subtree_root:
        path[m + 1] = parent[path[m]]
        m += 1
    for q in range(m):
        _unlink_node(path[q], parent, first_child, following, previous)
    # Starting from the old root, each node loses what its child on the path contributed, because that child becomes its
    # parent.
    for q in range(m, 0, -1):
        child = path[q - 1]
        g[path[q]] -= np.exp(sides[child] * length[entry[child]]) * g[child]
    # This also starts from the old root, because a node's g must be final before it is added to its new parent's g.
    for q in range(m, 0, -1):
        node, new_parent = path[q], path[q - 1]
        entry[node], sides[node] = entry[new_parent], -sides[new_parent]
        _link_node(node, new_parent, parent, first_child, following, previous)
        g[new_parent] += np.exp(sides[node] * length[entry[node]]) * g[node]


@jit()
def _add_to_ancestors(node: int, change: float, length: Any, parent: Any, entry: Any, sides: Any, g: Any) -> None:
    """Propagate a change in a node's accumulated reduced cost ``g`` to all its ancestors, scaled along the path.

    Args:
        node: The node.
        change: The change at the node.
        length: Array of shape (E,) with the log ratio of each CSR entry.
        parent, entry, sides: The tree, in arrays of shape (N,): each node's parent, the CSR entry of the edge between
            the node and its parent, and 1 if the node is above its parent or -1 if it is below.
        g: Array of shape (N,) with the accumulated reduced costs, modified in place at the ancestors.
    """
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
    """Perform one pivot, which moves a subtree until another constraint blocks it.

    The root of the subtree is a node whose accumulated reduced cost ``g`` has the wrong sign.

    Args:
        subtree_root: The root of the subtree. The constraint between it and its parent leaves the tree, and the
            blocking constraint enters it.
        start, target, length: The graph in CSR form: the first entry of each record, of shape (N + 1,), and the
            neighbour and log ratio of each entry, of shape (E,).
        parent, entry, sides: The tree, in arrays of shape (N,), modified in place: the parent of each node, the CSR
            entry of the edge between the node and its parent, and 1 if the node is above its parent or -1 if it is
            below.
        first_child, following, previous: Arrays of shape (N,) with the first child, next sibling and previous sibling
            of each node, modified in place.
        order, mark: Workspaces of shape (N,). ``mark`` is boolean and must be all False.
        u, g: Arrays of shape (N,) with the log-heights and the accumulated reduced costs, modified in place.
    """
    # If the node is below its parent, its g is negative, and raising its subtree lowers the objective. If it is above,
    # its g is positive, and the subtree is lowered.
    rising = sides[subtree_root] < 0
    inner_node, blocking_entry = _find_blocking_row(
        subtree_root, rising, start, target, length, first_child, following, order, mark, u
    )
    _unlink_node(subtree_root, parent, first_child, following, previous)
    # The subtree's old ancestors first lose its g, and then its new ancestors gain it.
    _add_to_ancestors(subtree_root, -g[subtree_root], length, parent, entry, sides, g)
    _reroot_subtree(subtree_root, inner_node, length, parent, entry, sides, first_child, following, previous, order, g)
    # A rising node is stopped by its upper bound, so it is above its new parent. A falling node is below.
    sides[inner_node] = 1 if rising else -1
    entry[inner_node] = blocking_entry
    _link_node(inner_node, target[blocking_entry], parent, first_child, following, previous)
    _add_to_ancestors(inner_node, g[inner_node], length, parent, entry, sides, g)


@jit()
def optimize_tree(
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
    """Improve one output's tree by pivots, in place, until it is optimal or the limit on pivots is reached.

    Args:
        a: Array of shape (N,) with the costs minus the prices.
        tolerance: The largest accepted absolute value of an accumulated reduced cost ``g`` that has the wrong sign.
        max_pivots: The maximum number of pivots.
        start, target, length: The graph in CSR form: the first entry of each record, of shape (N + 1,), and the
            neighbour and log ratio of each entry, of shape (E,).
        parent, entry, sides: The tree, in arrays of shape (N,), modified in place: the parent of each node, the CSR
            entry of the edge between the node and its parent, and 1 if the node is above its parent or -1 if it is
            below.
        u, g: Arrays of shape (N,), to which the log-heights and the accumulated reduced costs are written.

    Returns:
        The number of pivots.
    """
    n = len(a)
    order, mark = np.empty(n, dtype=np.int32), np.zeros(n, dtype=np.bool_)
    root, first_child, following, previous = build_lists(parent)
    pivots, is_recomputed = 0, True
    _recompute_tree(root, a, length, parent, entry, sides, first_child, following, order, u, g)
    while True:
        worst, leaving = 0.0, -1
        for node in range(n):
            # g has the wrong sign if it is positive above the parent (side 1) or negative below it (side -1).
            if node != root and g[node] * sides[node] > tolerance:
                # The violation is measured at the root, where a change at this node counts exp(u) times. Logarithms are
                # compared because exp(u) can overflow.
                gain = np.log(g[node] * sides[node]) + u[node]
                if leaving < 0 or gain > worst:
                    worst, leaving = gain, node
        # Updates from pivot to pivot accumulate rounding errors. The tree counts as optimal only once `u` and `g` have
        # been recomputed.
        if leaving < 0 and not is_recomputed:
            _recompute_tree(root, a, length, parent, entry, sides, first_child, following, order, u, g)
            is_recomputed = True
            continue
        if leaving < 0 or pivots >= max_pivots:
            return pivots
        _pivot_subtree(
            leaving, start, target, length, parent, entry, sides, first_child, following, previous, order, mark, u, g
        )
        pivots += 1
        is_recomputed = False
