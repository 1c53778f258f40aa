"""The compiled kernels: a KD-tree whose nodes know the least cost and the least rank below them.

One layout serves planar points and the sphere. ``boxed`` holds the coordinates that boxes are drawn around (x, y in
the plane; the unit vector on the sphere), ``exact`` those that a pair's distance is computed from (x, y, 0; latitude,
longitude in radians and the cosine of the latitude), so that pruning may be loose and never changes an answer:

* plane: box distance and point distance go through the same correctly rounded, monotone operations, so the bound of a
  node never exceeds the computed value of a point in it;
* sphere: the chord of the box is shortened by more than its rounding error before it becomes an arc.

A tree is the tuple ``(boxed, exact, cost, rank, index, low, high, least_cost, least_rank)`` in tree order; node ``k``
has the children ``2k + 1`` and ``2k + 2`` and its points are found by halving, as they were laid down. Building costs
O(n log n) time, O(n) memory.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit
from privopt.numbers.distances import EARTH_RADIUS_KM

LEAF = 8

Tree = tuple[Floats, Floats, Floats, Ints, Ints, Floats, Floats, Floats, Ints, Ints, Ints]
"""What :func:`build` returns, and the others search."""


@jit()
def pair_distance(sphere: bool, exact_a: Floats, a: int, exact_b: Floats, b: int) -> float:
    """The distance of one pair: Euclidean, or haversine in km."""
    if sphere:
        north = math.sin((exact_a[a, 0] - exact_b[b, 0]) / 2.0)
        east = math.sin((exact_a[a, 1] - exact_b[b, 1]) / 2.0)
        half = north * north + exact_a[a, 2] * exact_b[b, 2] * (east * east)
        return 2.0 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(half)))
    dx = exact_a[a, 0] - exact_b[b, 0]
    dy = exact_a[a, 1] - exact_b[b, 1]
    return math.sqrt(dx * dx + dy * dy)


@jit()
def box_distance(sphere: bool, low: Floats, high: Floats, node: int, boxed: Floats, b: int) -> float:
    """A lower bound on the distance between a point and everything in a node's box."""
    total = 0.0
    for axis in range(boxed.shape[1]):
        gap = max(low[node, axis] - boxed[b, axis], boxed[b, axis] - high[node, axis], 0.0)
        total += gap * gap
    chord = math.sqrt(total)
    if not sphere:
        return chord
    chord -= 1e-14
    if chord <= 0.0:
        return 0.0
    arc = 2.0 * math.asin(min(1.0, chord / 2.0)) * (1.0 - 1e-14)
    if chord > 1.9:  # the haversine itself is loose near the antipode
        arc -= 1e-6
    return EARTH_RADIUS_KM * arc


@jit()
def box_reach(sphere: bool, low: Floats, high: Floats, node: int, boxed: Floats, b: int) -> float:
    """An upper bound on the distance between a point and everything in a node's box."""
    total = 0.0
    for axis in range(boxed.shape[1]):
        gap = max(high[node, axis] - boxed[b, axis], boxed[b, axis] - low[node, axis])
        total += gap * gap
    chord = math.sqrt(total)
    if not sphere:
        return chord
    if chord > 1.9:
        return math.inf
    return EARTH_RADIUS_KM * (2.0 * math.asin((chord + 1e-14) / 2.0) * (1.0 + 1e-14))


@jit()
def build(boxed: Floats, exact: Floats, cost: Floats, rank: Ints) -> Tree:
    """Build the tree over all points given; at least one.

    Parameters: ``boxed`` (n, 2 or 3), ``exact`` (n, 3), ``cost`` (n,) float64, ``rank`` (n,) int64.
    """
    n, dimensions = boxed.shape
    depth = 0
    while (n >> depth) > LEAF:
        depth += 1
    nodes = (1 << (depth + 1)) - 1
    low = np.full((nodes, dimensions), np.inf)
    high = np.full((nodes, dimensions), -np.inf)
    least_cost = np.full(nodes, np.inf)
    least_rank = np.full(nodes, np.int64(2**62))
    start = np.zeros(nodes, np.int64)
    end = np.zeros(nodes, np.int64)
    end[0] = n
    index = np.arange(n)
    columns = [np.ascontiguousarray(boxed[:, axis]) for axis in range(dimensions)]
    for node in range(nodes):
        for place in range(start[node], end[node]):
            point = index[place]
            for axis in range(dimensions):
                low[node, axis] = min(low[node, axis], boxed[point, axis])
                high[node, axis] = max(high[node, axis], boxed[point, axis])
            least_cost[node] = min(least_cost[node], cost[point])
            least_rank[node] = min(least_rank[node], rank[point])
        if 2 * node + 2 < nodes:
            widest = 0
            for axis in range(1, dimensions):
                if high[node, axis] - low[node, axis] > high[node, widest] - low[node, widest]:
                    widest = axis
            middle = (start[node] + end[node]) // 2
            here = index[start[node] : end[node]]
            index[start[node] : end[node]] = here[np.argpartition(columns[widest][here], middle - start[node])]
            start[2 * node + 1], end[2 * node + 1] = start[node], middle
            start[2 * node + 2], end[2 * node + 2] = middle, end[node]
    return boxed[index], exact[index], cost[index], rank[index], index, low, high, least_cost, least_rank, start, end


@jit()
def cheapest(sphere: bool, tree: Tree, boxed: Floats, exact: Floats, order: Ints) -> Ints:
    """For each query the point of the tree with the least cost + distance; ties go to the least rank.

    ``order`` is the order in which the queries are answered: neighbours should follow each other, since each search
    starts from its predecessor's answer. Returns indices of the points as they were given to `build`.
    """
    _, t_exact, t_cost, t_rank, t_index, low, high, least_cost, least_rank, start, end = tree
    nodes = len(least_cost)
    answer = np.empty(len(order), np.int64)
    stack = np.empty(128, np.int64)
    bounds = np.empty(128)
    best = 0
    for query in order:
        value = t_cost[best] + pair_distance(sphere, t_exact, best, exact, query)
        stack[0] = 0
        bounds[0] = least_cost[0] + box_distance(sphere, low, high, 0, boxed, query)
        top = 1
        while top > 0:
            top -= 1
            node = stack[top]
            if bounds[top] > value or (bounds[top] == value and least_rank[node] >= t_rank[best]):
                continue
            left = 2 * node + 1
            if left < nodes:
                b_left = least_cost[left] + box_distance(sphere, low, high, left, boxed, query)
                b_right = least_cost[left + 1] + box_distance(sphere, low, high, left + 1, boxed, query)
                if b_left <= b_right:
                    stack[top], bounds[top] = left + 1, b_right
                    stack[top + 1], bounds[top + 1] = left, b_left
                else:
                    stack[top], bounds[top] = left, b_left
                    stack[top + 1], bounds[top + 1] = left + 1, b_right
                top += 2
                continue
            for place in range(start[node], end[node]):
                other = t_cost[place] + pair_distance(sphere, t_exact, place, exact, query)
                if other < value or (other == value and t_rank[place] < t_rank[best]):
                    value = other
                    best = place
        answer[query] = t_index[best]
    return answer


@jit()
def independent(sphere: bool, tree: Tree, boxed: Floats, exact: Floats, order: Ints, reach: float) -> Ints:
    """Greedily, in ``order``, the points none of which lies within ``reach`` of an earlier one.

    The tree must be over the same points. Each point is met by the few chosen ones around it only, so the cost is
    about linear in their number.
    """
    _, t_exact, _, _, t_index, low, high, _, _, start, end = tree
    nodes = len(start)
    blocked = np.zeros(len(order), np.bool_)
    chosen = np.empty(len(order), np.int64)
    count = 0
    stack = np.empty(128, np.int64)
    for point in order:
        if blocked[point]:
            continue
        chosen[count] = point
        count += 1
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            node = stack[top]
            if box_distance(sphere, low, high, node, boxed, point) > reach:
                continue
            if 2 * node + 2 < nodes:
                stack[top] = 2 * node + 1
                stack[top + 1] = 2 * node + 2
                top += 2
                continue
            for place in range(start[node], end[node]):
                if pair_distance(sphere, t_exact, place, exact, point) <= reach:
                    blocked[t_index[place]] = True
    return chosen[:count]


@jit()
def balls(sphere: bool, tree: Tree, boxed: Floats, exact: Floats, centres: Ints, rank: Ints, radius: float) -> Ints:
    """For each point of the tree the centre within ``radius`` of it, -1 where there is none.

    Should balls overlap (they do not where the centres are farther apart than twice the radius), the nearer centre
    wins, then the lower rank. ``centres`` are positions in ``boxed``, ``exact`` and ``rank``.
    """
    _, t_exact, _, _, t_index, low, high, _, _, start, end = tree
    nodes = len(start)
    owner = np.full(len(t_index), -1)
    nearest = np.full(len(t_index), np.inf)
    stack = np.empty(128, np.int64)
    for centre in centres:
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            node = stack[top]
            if box_distance(sphere, low, high, node, boxed, centre) > radius:
                continue
            if 2 * node + 2 < nodes:
                stack[top] = 2 * node + 1
                stack[top + 1] = 2 * node + 2
                top += 2
                continue
            for place in range(start[node], end[node]):
                distance = pair_distance(sphere, t_exact, place, exact, centre)
                point = t_index[place]
                if distance <= radius and (
                    owner[point] < 0
                    or distance < nearest[point]
                    or (distance == nearest[point] and rank[centre] < rank[owner[point]])
                ):
                    nearest[point] = distance
                    owner[point] = centre
    return owner


@jit()
def crowded(sphere: bool, tree: Tree, boxed: Floats, exact: Floats, radius: float, wanted: float) -> Bools:
    """For each point of the tree whether at least ``wanted`` of its points lie within ``radius`` of it.

    A node whose box is no wider than the radius and that holds enough answers for all its points at once.
    """
    _, t_exact, _, _, t_index, low, high, _, _, start, end = tree
    nodes = len(start)
    answer = np.zeros(len(boxed), np.bool_)
    for node in range(nodes):
        if end[node] - start[node] >= wanted and box_reach(sphere, low, high, node, low, node) <= radius:
            answer[t_index[start[node] : end[node]]] = True
    stack = np.empty(128, np.int64)
    for query in t_index:
        if answer[query]:
            continue
        found = 0
        stack[0] = 0
        top = 1
        while top > 0 and found < wanted:
            top -= 1
            node = stack[top]
            if box_distance(sphere, low, high, node, boxed, query) > radius:
                continue
            if box_reach(sphere, low, high, node, boxed, query) <= radius:
                found += end[node] - start[node]
                continue
            left = 2 * node + 1
            if left < nodes:
                near = box_distance(sphere, low, high, left, boxed, query)
                far = box_distance(sphere, low, high, left + 1, boxed, query)
                stack[top], stack[top + 1] = (left + 1, left) if near <= far else (left, left + 1)
                top += 2
                continue
            for place in range(start[node], end[node]):
                if pair_distance(sphere, t_exact, place, exact, query) <= radius:
                    found += 1
        answer[query] = found >= wanted
    return answer


@jit()
def pair_distances(sphere: bool, exact_a: Floats, exact_b: Floats) -> Floats:
    """The distances of the pairs (a[i], b[i])."""
    out = np.empty(len(exact_a))
    for i in range(len(exact_a)):
        out[i] = pair_distance(sphere, exact_a, i, exact_b, i)
    return out


@jit()
def triangle_excess(matrix: Floats, first: Ints, second: Ints, third: Ints) -> float:
    """The largest d(a, c) - (d(a, b) + d(b, c)) over the triples given, at least 0."""
    worst = 0.0
    for i in range(len(first)):
        a, b, c = first[i], second[i], third[i]
        worst = max(worst, matrix[a, c] - (matrix[a, b] + matrix[b, c]))
    return worst
