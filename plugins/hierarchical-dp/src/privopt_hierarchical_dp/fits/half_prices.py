"""Model 1 solved exactly by half-prices and integer tie filling (docs/papers/hierarchical-dp.md, "Corrections").

The problem has one tree for each group size. Find integers x >= 0 on the leaves, with the sums of their children on all
other nodes, such that the roots add up to G and the sum over all nodes of w_level (x - noisy)^2 is least.

Raising a node from v - 1 to v has a *marginal* cost: w (2 (v - noisy) - 1) for the node itself, plus the marginal of
the child that is raised. All weights and noisy values are integers, so marginals are integers too. They increase in v,
because each node's cost is convex (the paper's Lemma 5). Hence a *price* p, a Lagrange multiplier, determines each
node's value: the largest one whose marginal is at most p. The price for a node's children is p less the node's own
share of the marginal, which a search over integers finds; this is the half-price. Directly above the leaves, sorted
break points give it in closed form. The price at the top is the smallest one at which the roots reach G. If several
nodes have a marginal exactly equal to it, units are spread evenly among them.

The cost is O(|R| N log), with a few searches for each level between the root and the parents of leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.errors import UsageError
from privopt.execution.compiled import jit
from privopt_hierarchical_dp.tree import Tree, sum_squares

__all__ = ["integer_weights", "largest_weight", "objective", "project_counts", "relax_counts"]

_RELAXED_GRID = 1024
"""Number of grid points per group in the relaxed method."""


@jit()
def _sum_above_leaves(first: int, last: int, tick: int, ranked: Ints, prefix: Ints) -> Any:
    """Return the sum of max(0, noisy + tick) over the leaves first..last-1, by binary search.

    Args:
        first, last: The range of the leaves.
        tick: The amount to add to every leaf.
        ranked: Noisy values, in decreasing order within the range.
        prefix: Running sums of ``ranked``: entry i is the sum before i.
    """
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if ranked[middle] + tick > 0:
            low = middle + 1
        else:
            high = middle
    # The leaves before `low` are positive: their noisy values, and one tick each.
    return prefix[low] - prefix[first] + (low - first) * tick


@jit()
def _value_above_leaves(
    first: int, last: int, noisy: int, own_weight: int, leaf: int, price: int, ranked: Ints, prefix: Ints
) -> Any:
    """Return the largest value of a node directly above leaves whose marginal is at most the price.

    Args:
        first, last: The range of the leaves.
        noisy: The node's noisy value.
        own_weight: The weight of the node's level.
        leaf: The weight of the leaves' level.
        price: The price.
        ranked: The leaves' noisy values, in decreasing order within the range.
        prefix: Running sums of ``ranked``.
    """
    # Without a weight of its own, the node passes the whole price to its children.
    if own_weight == 0:
        return _sum_above_leaves(first, last, (price + leaf) // (2 * leaf), ranked, prefix)
    # A leaf y has the marginal leaf * (2 (y - noisy) - 1), so at the price leaf * (2 tick - 1) each leaf is
    # max(0, noisy + tick): all positive leaves move by the same tick. With T(tick) their sum, the node can afford a
    # tick if own_weight * (2 (T - noisy) - 1) + leaf * (2 tick - 1) <= price, which is
    # 2 own_weight T + 2 leaf tick <= budget.
    budget = price + own_weight + leaf + 2 * own_weight * noisy
    # Even the largest leaf is 0 at every tick that the budget reaches.
    if 2 * leaf * -ranked[first] > budget:
        return 0
    # Leaf i starts to grow at the break point tick = -ranked[i]. Search the last one that the budget reaches.
    low, high = first, last - 1
    while low < high:
        middle = (low + high + 1) // 2
        tick = -ranked[middle]
        total = prefix[middle] - prefix[first] + (middle - first) * tick
        if 2 * own_weight * total + 2 * leaf * tick <= budget:
            low = middle
        else:
            high = middle - 1
    # Up to the next break point T grows by one for each active leaf and tick, so the last tick is a
    # division, rounded down.
    active = low + 1 - first
    base = prefix[low + 1] - prefix[first]
    tick = (budget - 2 * own_weight * base) // (2 * own_weight * active + 2 * leaf)
    reached = base + active * tick
    # Units between T(tick) and T(tick + 1) are ties at the children's price leaf * (2 tick + 1).
    # The node takes as many as its own marginal allows at that price.
    bound = noisy + (price - leaf * (2 * tick + 1) + own_weight) // (2 * own_weight)
    return max(reached, bound)


@jit()
def _low_value_at_price(
    node: int, price: int, noisy: Ints, child: Ints, level: Ints, weight: Ints, ranked: Ints, prefix: Ints
) -> Any:
    """Return the largest value of a leaf, or of a node directly above leaves, whose marginal is at most a price.

    Args:
        node: The node.
        price: The price.
        noisy: The noisy value of each node.
        child: (nodes, 2) The range of each node's children; empty for leaves.
        level: The level of each node.
        weight: The weight of each level.
        ranked: The leaves' noisy values, in decreasing order for each parent.
        prefix: Running sums of ``ranked``.
    """
    own_weight = weight[level[node]]
    first, last = child[node, 0], child[node, 1]
    if first == last:
        return max(0, noisy[node] + (price + own_weight) // (2 * own_weight))
    return _value_above_leaves(first, last, noisy[node], own_weight, weight[level[first]], price, ranked, prefix)


@jit()
def _probe(low: int, high: int, has_low: bool, has_high: bool, step: int) -> Any:
    """Return the next value to probe in a search over integers, which doubles its steps to find bounds, then bisects.

    Args:
        low, high: The bounds so far.
        has_low, has_high: Whether each bound is known. An unknown bound has no meaning; one of them must be known.
        step: The length of the next step if a bound is unknown.
    """
    if not has_high:
        return low + step
    return (low + high) // 2 if has_low else high - step


# The columns of a frame, which has the state of the search at one node: the node and its price; the probed share and
# the next step; the bounds of the share, with the children's sum at the lower one, and whether they are known; the next
# child to count, and the sum of those counted at the probe.
_NODE, _PRICE, _PROBE, _STEP, _LOW, _LOW_COUNT, _HIGH, _HAS_LOW, _HAS_HIGH, _NEXT, _COUNT = range(11)


@jit()
def _narrow_search(frame: Ints, own_weight: int, noisy: int) -> Any:
    """Narrow a node's search using its children's sum at the probe, and return whether the search is finished.

    Args:
        frame: The state of the search, which is changed in place.
        own_weight: The weight of the node's level.
        noisy: The node's noisy value.
    """
    # The children can have the share PROBE if the node's own marginal is at most the rest of the price.
    if 2 * own_weight * frame[_COUNT] + frame[_PROBE] <= frame[_PRICE] + own_weight + 2 * own_weight * noisy:
        frame[_LOW] = frame[_PROBE]
        frame[_LOW_COUNT] = frame[_COUNT]
        frame[_HAS_LOW] = 1
    else:
        frame[_HIGH] = frame[_PROBE]
        frame[_HAS_HIGH] = 1
    frame[_PROBE] = _probe(frame[_LOW], frame[_HIGH], frame[_HAS_LOW], frame[_HAS_HIGH], frame[_STEP])
    frame[_STEP] *= 2
    return frame[_HAS_LOW] == 1 and frame[_HAS_HIGH] == 1 and frame[_HIGH] - frame[_LOW] == 1


@jit()
def _value_at_price(node: int, price: int, tables: Any) -> Any:
    """Return the largest value of ``node`` whose marginal is at most ``price``.

    A node whose children are not leaves searches for the largest share q of the price that it can leave to its
    children: 2 w (count(q) - noisy) + q <= price + w, where count(q) is the children's sum at the price q, and the left
    side increases in q. The search begins at the last answer. Nested searches are kept on ``stack``, with one frame for
    each level, because compiled recursion cannot be cached.

    Args:
        node: The node.
        price: The price.
        tables: The arrays of the search: noisy value, range of children and level of each node; weight of each level;
            ranked leaves and their running sums; the last share found at each node; and the stack.
    """
    noisy, child, level, weight, ranked, prefix, guess, stack = tables
    # 1 for leaves, 2 for nodes directly above them: these have closed forms.
    height = len(weight) - level[node]
    if height <= 2:
        return _low_value_at_price(node, price, noisy, child, level, weight, ranked, prefix)
    stack_index = 0
    entering = True
    stack[0, _NODE] = node
    stack[0, _PRICE] = price
    while True:
        frame = stack[stack_index]
        own_weight = weight[level[frame[_NODE]]]
        first, last = child[frame[_NODE], 0], child[frame[_NODE], 1]
        if entering:
            # Searches for neighbouring prices end at neighbouring shares, so the last answer is a
            # good first probe. A node without a weight passes the whole price on and needs no
            # search.
            frame[_PROBE] = guess[frame[_NODE]] if own_weight else frame[_PRICE]
            frame[_STEP] = 1
            frame[_HAS_LOW] = 0
            frame[_HAS_HIGH] = 0
            frame[_NEXT] = first
            frame[_COUNT] = 0
            entering = False
        # Children with closed forms are counted here; others are pushed onto the stack, one after another.
        if len(weight) - level[first] <= 2:
            while frame[_NEXT] < last:
                frame[_COUNT] += _low_value_at_price(
                    frame[_NEXT], frame[_PROBE], noisy, child, level, weight, ranked, prefix
                )
                frame[_NEXT] += 1
        elif frame[_NEXT] < last:
            stack_index += 1
            stack[stack_index, _NODE] = frame[_NEXT]
            stack[stack_index, _PRICE] = frame[_PROBE]
            entering = True
            continue
        # All children are counted at the probe.
        is_done = own_weight == 0
        result = frame[_COUNT]
        if own_weight:
            is_done = _narrow_search(frame, own_weight, noisy[frame[_NODE]])
            if is_done:
                guess[frame[_NODE]] = frame[_LOW]
                # As above the leaves: units beyond the count at LOW are ties at the share LOW + 1,
                # limited by the node's own marginal.
                bound = noisy[frame[_NODE]] + (frame[_PRICE] - frame[_LOW] - 1 + own_weight) // (2 * own_weight)
                result = max(frame[_LOW_COUNT], bound)
        if not is_done:
            frame[_NEXT] = first
            frame[_COUNT] = 0
        elif stack_index == 0:
            return result
        else:
            stack_index -= 1
            # Hand the answer to the parent's search, and go on with its next child.
            stack[stack_index, _COUNT] += result
            stack[stack_index, _NEXT] += 1


@jit()
def _rank_leaves(noisy: Ints, child: Ints, first_leaf: int, ranked: Ints, prefix: Ints) -> None:
    """Sort the leaves of each parent by decreasing noisy value, and compute their running sums.

    Args:
        noisy: The noisy value of each node.
        child: (nodes, 2) The range of each node's children.
        first_leaf: The number of the first leaf.
        ranked: Receives the sorted values, in the leaves' positions.
        prefix: Receives the running sums: entry i is the sum of the leaves before i.
    """
    for node in range(first_leaf):
        first, last = child[node, 0], child[node, 1]
        if first >= first_leaf:
            # Sorted by parent, not overall: a price search looks at the leaves of one parent at a time.
            ranked[first:last] = np.sort(noisy[first:last])[::-1]
    prefix[first_leaf] = 0
    for leaf in range(first_leaf, len(noisy)):
        prefix[leaf + 1] = prefix[leaf] + ranked[leaf]


@jit()
def _sum_children_at_price(node: int, price: int, tables: Any, first_leaf: int) -> Any:
    """Return the sum of the values of a node's children at a price.

    Args:
        node: The node, not a leaf.
        price: The price that reaches the children.
        tables: The arrays of the search, as in :func:`_value_at_price`.
        first_leaf: The number of the first leaf.
    """
    # Noisy values, ranges of children, levels, weights, ranked leaves, their running sums, last shares, stack.
    _, child, level, weight, ranked, prefix, _, _ = tables
    first, last = child[node, 0], child[node, 1]
    if first >= first_leaf:
        # A leaf's marginal w (2 (y - noisy) - 1) is at most the price for y - noisy up to this tick.
        tick = (price + weight[level[first]]) // (2 * weight[level[first]])
        return _sum_above_leaves(first, last, tick, ranked, prefix)
    count = 0
    for c in range(first, last):
        count += _value_at_price(c, price, tables)
    return count


@jit()
def _give_ties(first: int, last: int, remaining: int, price: int, value: Ints, room: Ints, tables: Any) -> None:
    """Give the missing units to children that can take them at a price, evenly among all units that could be given.

    Any choice among ties is optimal. If the first children got all of them, counts of the first sizes would err more
    than those of others, because the same sizes would make up for all the noise.

    Args:
        first, last: The range of the children.
        remaining: The number of missing units, at most as many as the children can take at the price.
        price: The price at which units are ties.
        value: The values of the nodes, to which units are added.
        room: Working memory, an entry for each node.
        tables: The arrays of the search, as in :func:`_value_at_price`.
    """
    total = 0
    for c in range(first, last):
        room[c] = _value_at_price(c, price, tables) - value[c]
        total += room[c]
    # Child by child, the part given so far is the part of the room passed so far, rounded down.
    handed_out, passed, missing = 0, 0, remaining
    for c in range(first, last):
        passed += room[c]
        extra = min(room[c], max(0, int(remaining * (passed / max(total, 1))) - handed_out), missing)
        value[c] += extra
        room[c] -= extra
        handed_out += extra
        missing -= extra
    # Doubles may round large numbers down by some units, which the first children with room take.
    for c in range(first, last):
        extra = min(room[c], missing)
        value[c] += extra
        missing -= extra


@jit()
def _solve(noisy: Ints, child: Ints, level: Ints, weight: Ints, first_leaf: int, value: Ints) -> None:
    """Divide each node's value among its children by prices, from the root down. Ties are spread evenly.

    Args:
        noisy: The noisy value of each node; node 0 is the top.
        child: (nodes, 2) The range of each node's children.
        level: The level of each node.
        weight: The weight of each level; the top's is 0.
        first_leaf: The number of the first leaf.
        value: The value of each node. Entry 0 is given; the others are written.
    """
    nodes = len(noisy)
    ranked = np.empty(nodes, np.int64)
    prefix = np.zeros(nodes + 1, np.int64)
    # The units that each child could take in addition, while ties are given.
    room = np.empty(nodes, np.int64)
    # The share at which the last search of each node ended, the first probe of the next.
    guess = np.zeros(nodes, np.int64)
    stack = np.zeros((len(weight), 11), np.int64)
    _rank_leaves(noisy, child, first_leaf, ranked, prefix)
    tables = (noisy, child, level, weight, ranked, prefix, guess, stack)
    for node in range(first_leaf):
        first, last = child[node, 0], child[node, 1]
        target = value[node]
        if target == 0:
            value[first:last] = 0
            continue
        low, high = 0, 0
        has_low, has_high = False, False
        probe, step = guess[node], 1
        # At `low` the children take fewer units than the target, at `high` at least as many;
        # adjacent prices end the search.
        while not (has_low and has_high and high - low == 1):
            if _sum_children_at_price(node, probe, tables, first_leaf) < target:
                low, has_low = probe, True
            else:
                high, has_high = probe, True
            probe = _probe(low, high, has_low, has_high, step)
            step *= 2
        # At the lower price all children together have fewer units than needed, at the upper price enough. The missing
        # units are ties at the upper price.
        remaining = target
        for c in range(first, last):
            value[c] = _value_at_price(c, low, tables)
            remaining -= value[c]
        _give_ties(first, last, remaining, high, value, room, tables)


def integer_weights(weights: Sequence[Fraction | int], *, limit: int = 1 << 20) -> Ints:
    """Return integers in the same proportions as the rational ``weights``.

    If the exact proportions need integers above ``limit``, weights are scaled so that the largest is ``limit``, and
    rounded; positive weights stay at least 1.

    Args:
        weights: The weight of each level.
        limit: The largest integer weight.

    Raises:
        ValueError: A weight is negative, or the last weight, that of the leaves, is 0.
    """
    rational = [Fraction(weight) for weight in weights]
    if min(rational) < 0 or rational[-1] == 0:
        raise ValueError(f"level weights must not be negative, the leaves' positive; found {list(map(str, weights))}")
    # Smallest integers in the same proportions; they may still be too large for the search in 64 bits.
    common = lcm(*(weight.denominator for weight in rational))
    integers = [int(weight * common) for weight in rational]
    divisor = int(np.gcd.reduce(np.array(integers, dtype=object)))
    integers = [weight // divisor for weight in integers]
    if max(integers) > limit:
        unit = max(rational) / limit
        # A positive weight stays at least 1. At 0 its level would no longer count, and the leaves' weight is a divisor.
        integers = [max(1, round(weight / unit)) if weight else 0 for weight in rational]
    return np.array(integers, dtype=np.int64)


def _number_nodes(tree: Tree, sizes: int) -> tuple[Ints, Ints, int]:
    """Assign indices to the nodes of all trees, one tree for each size, with all roots below node 0.

    Nodes are numbered level by level, and within a level size by size.

    Args:
        tree: The regions.
        sizes: The number of sizes.

    Returns:
        (nodes, 2) the range of each node's children, (nodes,) each node's level, and the index of the first leaf.
    """
    # The number of the first node of each level; node 0 is above all.
    offsets = 1 + sizes * np.cumsum([0, *tree.widths])
    child = np.zeros((int(offsets[-1]), 2), np.int64)
    child[0] = 1, 1 + sizes
    for index, start in enumerate(tree.start):
        # (sizes, 1): the number of the first node of the next level, for each size.
        begins = offsets[index + 1] + tree.widths[index + 1] * np.arange(sizes)[:, None]
        level_slice = slice(offsets[index], offsets[index + 1])
        child[level_slice, 0] = (begins + start[:-1]).ravel()
        child[level_slice, 1] = (begins + start[1:]).ravel()
    level = np.repeat(np.arange(tree.depth + 1), [1, *(sizes * width for width in tree.widths)])
    return child, level.astype(np.int64), int(offsets[-2])


def project_counts(tree: Tree, noisy: Sequence[Ints], *, total: int, weights: Ints | None = None) -> list[Ints]:
    """Return the consistent non-negative integers nearest to noisy counts whose root counts add up to G (Model 1, M_H).

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N) noisy counts on each level.
        total: G, the number of groups.
        weights: (L,) integer weights of the levels, which may be 0 above the leaves. All 1 by default.

    Returns:
        Counts (R_l, N) of each level, which minimise sum_l w_l |x_l - noisy_l|^2 exactly.

    Raises:
        ValueError: Numbers in the search would not fit into 64 bits.
    """
    weight = np.ones(tree.depth, np.int64) if weights is None else np.asarray(weights, dtype=np.int64)
    # The search multiplies values by weights in 64-bit integers, which wrap around silently in
    # compiled code.
    if int(weight.max()) > _largest_factor(tree, noisy, total):
        raise ValueError("noisy values times level weights exceed 64 bits: use smaller weights")
    sizes = noisy[0].shape[1]
    child, level, first_leaf = _number_nodes(tree, sizes)
    # One tree for each size, side by side: `.T` puts the regions of one size next to each other, as
    # `_number_nodes` counts.
    flat = np.concatenate([[0], *(np.asarray(values, dtype=np.int64).T.ravel() for values in noisy)])
    value = np.zeros_like(flat)
    value[0] = total
    _solve(flat, child, level, np.concatenate([[0], weight]), first_leaf, value)
    split_points = 1 + sizes * np.cumsum([0, *tree.widths])[:-1]
    return [np.ascontiguousarray(part.reshape(sizes, -1).T) for part in np.split(value, split_points)[1:]]


def relax_counts(
    tree: Tree, noisy: Sequence[Ints], *, total: int, weights: Sequence[Fraction | int]
) -> tuple[int, list[NDArray[np.float64]]]:
    """Solve Model 1 without integrality, by the same search as `project_counts` on a finer grid.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N) noisy counts on each level.
        total: G, the number of groups.
        weights: The weight of each level.

    Returns:
        The number of grid points per group (1024, or fewer if values are too large), and the (R_l, N) values of each
        level, in groups.
    """
    grid, heaviest = _RELAXED_GRID, min(int(integer_weights(weights).max()), _RELAXED_GRID)
    # The grid is coarsened until all numbers of the search fit into 64 bits.
    while grid > 1 and _largest_factor(tree, noisy, total) < grid * heaviest:
        grid //= 2
    fine = [np.asarray(values, dtype=np.int64) * grid for values in noisy]
    scaled_weights = integer_weights(weights, limit=largest_weight(tree, fine, total * grid))
    solved = project_counts(tree, fine, total=total * grid, weights=scaled_weights)
    return grid, [values / float(grid) for values in solved]


def _largest_factor(tree: Tree, noisy: Sequence[Ints], total: int) -> int:
    """Return the largest factor by which the search's numbers can be scaled within 64 bits, or 0 if there is none.

    The factor is the largest weight of a level times the number of grid points per group.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N) noisy counts on each level.
        total: G, the number of groups.
    """
    # Differences from noisy values are at most largest + total, and marginals have them twice. They are added over the
    # levels for prices and over the regions for sums; another factor of 2 is a margin.
    largest = max(max(-int(level.min(initial=0)), int(level.max(initial=0))) for level in noisy)
    return (2**62 - 1) // ((largest + total + 1) * 4 * tree.depth * tree.regions)


def largest_weight(tree: Tree, noisy: Sequence[Ints], total: int) -> int:
    """Return the largest integer weight of a level, up to 2**20, that keeps the search within 64 bits.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N) noisy counts on each level.
        total: G, the number of groups.

    Raises:
        UsageError: Even a weight of 1 is too large.
    """
    max_factor = _largest_factor(tree, noisy, total)
    if max_factor < 1:
        raise UsageError(
            f"{tree.regions:,} regions with noisy values of up to 1e15 and more exceed 64 bits; use smaller counts, "
            "fewer regions or a larger epsilon"
        )
    return min(max_factor, 1 << 20)


def objective(values: Sequence[Ints], noisy: Sequence[Ints], weights: Iterable[int] | None = None) -> int:
    """Return the sum over levels of w_l |values_l - noisy_l|^2, an exact integer for integer weights.

    Args:
        values: The (R_l, N) integers on each level.
        noisy: The (R_l, N) noisy integers on each level.
        weights: The integer weight of each level; 1 by default.
    """
    weight = [1] * len(values) if weights is None else weights
    return sum(
        int(w) * sum_squares(np.asarray(value, dtype=np.int64) - np.asarray(target, dtype=np.int64))
        for w, value, target in zip(weight, values, noisy, strict=True)
    )
