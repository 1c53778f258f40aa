"""The compiled search for the cheapest facility: a KD-tree whose nodes know the least cost and index below them.

SciPy's tree finds the nearest point, not the one with the least cost + distance, nor the first id among equals. What
needs distances alone (balls, independent sets) goes through SciPy's (`metric`).

One layout serves planar points and the sphere. ``boxed`` holds the coordinates that boxes are drawn around: x, y in the
plane, the unit vector on the sphere. ``exact`` holds those that a pair's distance is computed from: x, y, 0, or
latitude, longitude in radians and the cosine of the latitude. So pruning may be loose and never changes an answer:

* plane: box distance and point distance go through the same correctly rounded, monotone operations, so the bound of a
  node never exceeds the computed value of a point in it;
* sphere: the chord of the box is shortened by more than its rounding error before it becomes an arc.

A tree is the tuple ``(boxed, exact, cost, index, low, high, least_cost, least_index)`` in tree order; node ``k``
has the children ``2k + 1`` and ``2k + 2`` and its points are found by halving, as they were laid down. Building costs
O(n log n) time, O(n) memory.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.execution.compiled import jit
from privopt.numbers.distances import EARTH_RADIUS_KM

LEAF_POINTS = 8

Tree = tuple[Floats, Floats, Floats, Ints, Floats, Floats, Floats, Ints, Ints, Ints]
"""What :func:`build` returns, and the others search."""


@jit()
def pair_distance(sphere: bool, exact_a: Floats, a: int, exact_b: Floats, b: int) -> float:
    """Return the distance of one pair: Euclidean, or haversine in km."""
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
    """Return a lower bound on the distance between a point and everything in a node's box."""
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
def build(boxed: Floats, exact: Floats, cost: Floats) -> Tree:
    """Build the tree over all points given; at least one.

    Parameters: ``boxed`` (n, 2 or 3), ``exact`` (n, 3), ``cost`` (n,) float64.
    """
    n, dimensions = boxed.shape
    depth = 0
    while (n >> depth) > LEAF_POINTS:
        depth += 1
    nodes = (1 << (depth + 1)) - 1
    low = np.full((nodes, dimensions), np.inf)
    high = np.full((nodes, dimensions), -np.inf)
    least_cost = np.full(nodes, np.inf)
    least_index = np.full(nodes, np.int64(2**62))
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
            least_index[node] = min(least_index[node], point)
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
    return boxed[index], exact[index], cost[index], index, low, high, least_cost, least_index, start, end


@jit()
def cheapest(sphere: bool, tree: Tree, boxed: Floats, exact: Floats, order: Ints) -> Ints:
    """Return for each query the point of the tree with the least cost + distance; ties go to the first given.

    ``order`` is the order in which the queries are answered: neighbours should follow each other, since each search
    starts from its predecessor's answer. Returns indices of the points as they were given to `build`.
    """
    _, t_exact, t_cost, t_index, low, high, least_cost, least_index, start, end = tree
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
            if bounds[top] > value or (bounds[top] == value and least_index[node] >= t_index[best]):
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
                if other < value or (other == value and t_index[place] < t_index[best]):
                    value = other
                    best = place
        answer[query] = t_index[best]
    return answer


@jit()
def pair_distances(sphere: bool, exact_a: Floats, exact_b: Floats) -> Floats:
    """Return the distances of the pairs (a[i], b[i])."""
    out = np.empty(len(exact_a))
    for i in range(len(exact_a)):
        out[i] = pair_distance(sphere, exact_a, i, exact_b, i)
    return out
