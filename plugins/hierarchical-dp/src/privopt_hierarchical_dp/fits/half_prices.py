"""An exact solver for Model 1 based on half-prices (docs/papers/hierarchical-dp.md, "Corrections").

In Model 1, there is one tree of regions for each group size. Each node gets a non-negative integer x. Every parent is
the sum of its children, and the roots of all trees add up to the total number G of groups. The integers minimise the
sum of w (x - noisy)^2 over all nodes, where w is the weight of the node's level.

Raising a node from v - 1 to v has a *marginal* cost. It is w (2 (v - noisy) - 1) for the node itself, plus the marginal
cost of the child that is raised along with it. Weights and noisy values are integers, so marginal costs are integers as
well. They increase with v, because the cost of each node is convex (Lemma 5 of the paper).

A *price* p, which is a Lagrange multiplier, therefore determines the value of each node: the largest one whose marginal
cost is at most p. The *half-price* is the price that a node passes on to its children, i.e. p minus the node's own part
of the marginal cost. It is found by a search over integers or, for nodes directly above the leaves, in closed form from
sorted break points. The price at the top is the smallest one at which the roots add up to at least G. Nodes whose
marginal cost equals this price are tied. The units that would be missing at any lower price are divided evenly among
them.

For |R| regions and N sizes, the running time is O(|R| N) up to logarithmic factors, with a few searches per level
between the root and the parents of the leaves.
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
"""The number of grid points per group in `relax_counts`, unless the values are too large for 64-bit integers."""


@jit()
def _sum_above_leaves(first: int, last: int, tick: int, ranked: Ints, prefix: Ints) -> Any:
    """Return the sum of max(0, noisy + tick) over the leaves with indices first to last - 1, by binary search.

    Args:
        first: The index of the first leaf.
        last: The index after the last leaf.
        tick: The amount to add to each leaf's noisy value.
        ranked: The noisy values by leaf index, sorted in descending order among these leaves.
        prefix: The prefix sums of ``ranked``, where entry i is the sum of the ranked values before index i.
    """
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if ranked[middle] + tick > 0:
            low = middle + 1
        else:
            high = middle
    # Only the leaves before `low` are positive. Each contributes its noisy value plus the tick.
    return prefix[low] - prefix[first] + (low - first) * tick


@jit()
def _value_above_leaves(
    first: int, last: int, noisy: int, own_weight: int, leaf: int, price: int, ranked: Ints, prefix: Ints
) -> Any:
    """Return the largest value with marginal cost at most ``price`` for a node directly above the leaves.

    Args:
        first: The index of the node's first leaf.
        last: The index after the node's last leaf.
        noisy: The node's noisy value.
        own_weight: The weight of the node's level.
        leaf: The weight of the leaf level.
        price: The upper bound on the marginal cost.
        ranked: The noisy values by leaf index, sorted in descending order among the node's leaves.
        prefix: The prefix sums of ``ranked``, where entry i is the sum of the ranked values before index i.
    """
    # A node with weight 0 passes on the whole price to its children.
    if own_weight == 0:
        return _sum_above_leaves(first, last, (price + leaf) // (2 * leaf), ranked, prefix)
    # A leaf with value y has the marginal cost leaf * (2 (y - noisy) - 1). At the price leaf * (2 tick - 1) its value
    # is therefore max(0, noisy + tick), so all positive leaves move by the same tick. Let T(tick) be the sum of the
    # leaves. The node can afford a tick if own_weight * (2 (T - noisy) - 1) + leaf * (2 tick - 1) <= price, which is
    # equivalent to 2 own_weight T + 2 leaf tick <= budget.
    budget = price + own_weight + leaf + 2 * own_weight * noisy
    # Here, even the largest leaf is 0 at every tick that the budget allows.
    if 2 * leaf * -ranked[first] > budget:
        return 0
    # Leaf i becomes positive at the break point tick = -ranked[i]. Find the last break point within the budget.
    low, high = first, last - 1
    while low < high:
        middle = (low + high + 1) // 2
        tick = -ranked[middle]
        total = prefix[middle] - prefix[first] + (middle - first) * tick
        if 2 * own_weight * total + 2 * leaf * tick <= budget:
            low = middle
        else:
            high = middle - 1
    # Up to the next break point, T grows by one per positive leaf and tick, so the last tick within the budget is a
    # quotient that is rounded down.
    active = low + 1 - first
    base = prefix[low + 1] - prefix[first]
    tick = (budget - 2 * own_weight * base) // (2 * own_weight * active + 2 * leaf)
    reached = base + active * tick
    # The units between T(tick) and T(tick + 1) are tied at the leaves' price leaf * (2 tick + 1). The node takes as
    # many of them as its own marginal cost allows at this price.
    bound = noisy + (price - leaf * (2 * tick + 1) + own_weight) // (2 * own_weight)
    return max(reached, bound)


@jit()
def _low_value_at_price(
    node: int, price: int, noisy: Ints, child: Ints, level: Ints, weight: Ints, ranked: Ints, prefix: Ints
) -> Any:
    """Return the largest value with marginal cost at most ``price`` for a leaf or a node directly above the leaves.

    Args:
        node: The index of the node.
        price: The upper bound on the marginal cost.
        noisy: The noisy values by node index.
        child: (nodes, 2) The index range of each node's children, which is empty for leaves.
        level: The level of each node.
        weight: The weight of each level.
        ranked: The noisy values by leaf index, sorted in descending order among each parent's children.
        prefix: The prefix sums of ``ranked``, where entry i is the sum of the ranked values before index i.
    """
    own_weight = weight[level[node]]
    first, last = child[node, 0], child[node, 1]
    if first == last:
        return max(0, noisy[node] + (price + own_weight) // (2 * own_weight))
    return _value_above_leaves(first, last, noisy[node], own_weight, weight[level[first]], price, ranked, prefix)


@jit()
def _probe(low: int, high: int, has_low: bool, has_high: bool, step: int) -> Any:
    """Return the next integer to try in a search that doubles its step until it has two bounds, and then bisects.

    Args:
        low: The lower bound, which is ignored unless ``has_low``.
        high: The upper bound, which is ignored unless ``has_high``.
        has_low: Whether the lower bound is known. At least one of the bounds must be known.
        has_high: Whether the upper bound is known.
        step: The distance from the only known bound to the next integer to try. It is ignored if both bounds are known.
    """
    if not has_high:
        return low + step
    return (low + high) // 2 if has_low else high - step


# The columns of a frame, which holds the state of the half-price search at one node. First come the node and its price,
# then the probed half-price and the next step, then the lower bound on the half-price, the children's sum at this
# bound, the upper bound, and whether each bound is known. The last two are the next child to count, and the sum of the
# children counted so far at the probe.
_NODE, _PRICE, _PROBE, _STEP, _LOW, _LOW_COUNT, _HIGH, _HAS_LOW, _HAS_HIGH, _NEXT, _COUNT = range(11)


@jit()
def _narrow_search(frame: Ints, own_weight: int, noisy: int) -> Any:
    """Narrow the bounds on a node's half-price, and return whether the search for it is finished.

    The half-price is the price that the node passes on to its children. One of the bounds is moved to the half-price
    that was tried last, and the next one to try is chosen.

    Args:
        frame: The state of the search, including the sum of the children's values at the half-price tried last. It is
            modified in place.
        own_weight: The weight of the node's level.
        noisy: The node's noisy value.
    """
    # The half-price PROBE is affordable if the node's own marginal cost is at most what it leaves of the price.
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
    """Return the largest value of ``node`` with marginal cost at most ``price``.

    For a node whose children are not leaves, this searches for the half-price, i.e. the largest part q of the price
    that the node can pass on to its children. Let count(q) be the sum of the children at the price q, and w the weight
    of the node's level. Then q must satisfy 2 w (count(q) - noisy) + q <= price + w. The left-hand side increases with
    q. The search starts at the node's previous half-price.

    Nested searches use an explicit stack with one frame per level, because compiled recursion cannot be cached.

    Args:
        node: The index of the node.
        price: The upper bound on the marginal cost.
        tables: The arrays of the search, in this order: the noisy value, range of children and level of each node, the
            weight of each level, the ranked leaves and their prefix sums, the last half-price of each node, and the
            stack.
    """
    noisy, child, level, weight, ranked, prefix, guess, stack = tables
    # The height is 1 for leaves and 2 for nodes directly above them, both of which have closed forms.
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
            # Similar prices have similar half-prices, so the previous one is a good first probe. A node with weight 0
            # passes on the whole price and needs no search.
            frame[_PROBE] = guess[frame[_NODE]] if own_weight else frame[_PRICE]
            frame[_STEP] = 1
            frame[_HAS_LOW] = 0
            frame[_HAS_HIGH] = 0
            frame[_NEXT] = first
            frame[_COUNT] = 0
            entering = False
        # Children with closed forms are counted here. Others are pushed onto the stack, one at a time.
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
        # By now all children have been counted at the probe.
        is_done = own_weight == 0
        result = frame[_COUNT]
        if own_weight:
            is_done = _narrow_search(frame, own_weight, noisy[frame[_NODE]])
            if is_done:
                guess[frame[_NODE]] = frame[_LOW]
                # As for nodes directly above the leaves, units beyond the count at LOW are tied at the half-price LOW +
                # 1. The node takes as many of them as its own marginal cost allows.
                bound = noisy[frame[_NODE]] + (frame[_PRICE] - frame[_LOW] - 1 + own_weight) // (2 * own_weight)
                result = max(frame[_LOW_COUNT], bound)
        if not is_done:
            frame[_NEXT] = first
            frame[_COUNT] = 0
        elif stack_index == 0:
            return result
        else:
            stack_index -= 1
            # Add the result to the parent's sum and continue with the parent's next child.
            stack[stack_index, _COUNT] += result
            stack[stack_index, _NEXT] += 1


@jit()
def _rank_leaves(noisy: Ints, child: Ints, first_leaf: int, ranked: Ints, prefix: Ints) -> None:
    """Sort the leaves below each parent by noisy value in descending order, and compute their prefix sums.

    Args:
        noisy: The noisy values by node index.
        child: (nodes, 2) The index range of each node's children.
        first_leaf: The index of the first leaf.
        ranked: The output array for the sorted noisy values, by leaf index.
        prefix: The output array for the prefix sums of ``ranked``, where entry i is the sum of the ranked values before
            index i.
    """
    for node in range(first_leaf):
        first, last = child[node, 0], child[node, 1]
        if first >= first_leaf:
            # Each parent's leaves are sorted separately, because a search only reads the leaves of one parent at a
            # time.
            ranked[first:last] = np.sort(noisy[first:last])[::-1]
    prefix[first_leaf] = 0
    for leaf in range(first_leaf, len(noisy)):
        prefix[leaf + 1] = prefix[leaf] + ranked[leaf]


@jit()
def _sum_children_at_price(node: int, price: int, tables: Any, first_leaf: int) -> Any:
    """Return the total value of a node's children at a given price.

    A child's value at a price is the largest value that it can reach with a marginal cost of at most that price.

    Args:
        node: The index of the node, which must not be a leaf.
        price: The price to pass on to the children.
        tables: The arrays of the search, as in :func:`_value_at_price`.
        first_leaf: The index of the first leaf.
    """
    # The unused entries are the noisy values, the last half-prices and the stack.
    _, child, level, weight, ranked, prefix, _, _ = tables
    first, last = child[node, 0], child[node, 1]
    if first >= first_leaf:
        # A leaf's marginal cost w (2 (y - noisy) - 1) is at most the price as long as y - noisy is at most this tick.
        tick = (price + weight[level[first]]) // (2 * weight[level[first]])
        return _sum_above_leaves(first, last, tick, ranked, prefix)
    count = 0
    for c in range(first, last):
        count += _value_at_price(c, price, tables)
    return count


@jit()
def _give_ties(first: int, last: int, remaining: int, price: int, value: Ints, room: Ints, tables: Any) -> None:
    """Distribute missing units among a node's children, spreading them evenly over all units that are tied at a price.

    Any choice among tied units is optimal. However, if the first children always got the missing units, the counts of
    the first sizes would have larger errors than the others.

    Args:
        first: The index of the first child.
        last: The index after the last child.
        remaining: The number of missing units, which is at most the number of tied units.
        price: The price at which units are tied.
        value: The values by node index, to which the units are added in place.
        room: A scratch array with one entry per node.
        tables: The arrays of the search, as in :func:`_value_at_price`.
    """
    total = 0
    for c in range(first, last):
        room[c] = _value_at_price(c, price, tables) - value[c]
        total += room[c]
    # After each child, the units distributed so far are proportional to the room of the children so far, rounded down.
    handed_out, passed, missing = 0, 0, remaining
    for c in range(first, last):
        passed += room[c]
        extra = min(room[c], max(0, int(remaining * (passed / max(total, 1))) - handed_out), missing)
        value[c] += extra
        room[c] -= extra
        handed_out += extra
        missing -= extra
    # With large numbers, rounding in doubles can leave over some units, which the first children with room get.
    for c in range(first, last):
        extra = min(room[c], missing)
        value[c] += extra
        missing -= extra


@jit()
def _solve(noisy: Ints, child: Ints, level: Ints, weight: Ints, first_leaf: int, value: Ints) -> None:
    """Divide the value of each node among its children, working from the root down.

    For each node, this finds the smallest price at which the values of the children add up to at least the node's
    value. Units that are tied at this price are spread evenly among the children.

    Args:
        noisy: The noisy values by node index. Node 0 is an artificial node above all roots.
        child: (nodes, 2) The index range of each node's children.
        level: The level of each node.
        weight: The weight of each level, which is 0 for the level of node 0.
        first_leaf: The index of the first leaf.
        value: The values by node index. Entry 0 is an input, and all others are outputs.
    """
    nodes = len(noisy)
    ranked = np.empty(nodes, np.int64)
    prefix = np.zeros(nodes + 1, np.int64)
    # The number of further units that each child can take while ties are distributed.
    room = np.empty(nodes, np.int64)
    # The half-price at which each node's last search ended, which is the first probe of its next one.
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
        # At the price `low`, the children take fewer units than the target, and at `high` at least as many. The search
        # ends when these prices are adjacent.
        while not (has_low and has_high and high - low == 1):
            if _sum_children_at_price(node, probe, tables, first_leaf) < target:
                low, has_low = probe, True
            else:
                high, has_high = probe, True
            probe = _probe(low, high, has_low, has_high, step)
            step *= 2
        # Children start with their values at the lower price. The missing units are tied at the upper price.
        remaining = target
        for c in range(first, last):
            value[c] = _value_at_price(c, low, tables)
            remaining -= value[c]
        _give_ties(first, last, remaining, high, value, room, tables)


def integer_weights(weights: Sequence[Fraction | int], *, limit: int = 1 << 20) -> Ints:
    """Return integers in the same proportions as the rational ``weights``.

    If exact proportions would require integers above ``limit``, the weights are instead scaled so that the largest
    equals ``limit``, and then rounded. Positive weights remain at least 1.

    Args:
        weights: The weight of each level, from the root to the leaves.
        limit: The largest allowed integer weight.

    Raises:
        ValueError: A weight is negative, or the last one, which belongs to the leaves, is 0.
    """
    rational = [Fraction(weight) for weight in weights]
    if min(rational) < 0 or rational[-1] == 0:
        raise ValueError(f"level weights must not be negative, the leaves' positive; found {list(map(str, weights))}")
    # The smallest integers in the same proportions, which may still be too large for a 64-bit search.
    common = lcm(*(weight.denominator for weight in rational))
    integers = [int(weight * common) for weight in rational]
    divisor = int(np.gcd.reduce(np.array(integers, dtype=object)))
    integers = [weight // divisor for weight in integers]
    if max(integers) > limit:
        unit = max(rational) / limit
        # Positive weights stay at least 1, because a weight of 0 would drop its level, and the search divides by the
        # leaf weight.
        integers = [max(1, round(weight / unit)) if weight else 0 for weight in rational]
    return np.array(integers, dtype=np.int64)


def _number_nodes(tree: Tree, sizes: int) -> tuple[Ints, Ints, int]:
    """Assign indices to the nodes of a tree that has one copy of the region tree for each size.

    The copies are placed below a common node 0. Nodes are ordered by level, then by size and then by region.

    Args:
        tree: The region tree.
        sizes: The number of sizes.

    Returns:
        A (nodes, 2) array with the index range of each node's children, the level of each node, and the index of the
        first leaf.
    """
    # The index of the first node on each level, where node 0 is above all roots.
    offsets = 1 + sizes * np.cumsum([0, *tree.widths])
    child = np.zeros((int(offsets[-1]), 2), np.int64)
    child[0] = 1, 1 + sizes
    for index, start in enumerate(tree.start):
        # (sizes, 1) The index of each size's first node on the next level.
        begins = offsets[index + 1] + tree.widths[index + 1] * np.arange(sizes)[:, None]
        level_slice = slice(offsets[index], offsets[index + 1])
        child[level_slice, 0] = (begins + start[:-1]).ravel()
        child[level_slice, 1] = (begins + start[1:]).ravel()
    level = np.repeat(np.arange(tree.depth + 1), [1, *(sizes * width for width in tree.widths)])
    return child, level.astype(np.int64), int(offsets[-2])


def project_counts(tree: Tree, noisy: Sequence[Ints], *, total: int, weights: Ints | None = None) -> list[Ints]:
    """Return the consistent non-negative integers nearest to noisy counts, with G groups at the root (Model 1, M_H).

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy counts.
        total: The total number G of groups.
        weights: (levels,) The integer weights, which may be 0 above the leaves. By default, all are 1.

    Returns:
        For each level l, a (regions, sizes) array x_l. Together these minimise sum_l w_l |x_l - noisy_l|^2 exactly.

    Raises:
        ValueError: The search could overflow 64-bit integers.
    """
    weight = np.ones(tree.depth, np.int64) if weights is None else np.asarray(weights, dtype=np.int64)
    # The search multiplies values by weights in 64-bit integers, which would overflow silently in compiled code.
    if int(weight.max()) > _largest_factor(tree, noisy, total):
        raise ValueError("noisy values times level weights exceed 64 bits: use smaller weights")
    sizes = noisy[0].shape[1]
    child, level, first_leaf = _number_nodes(tree, sizes)
    # After transposing, the regions of each size are adjacent, as in `_number_nodes`.
    flat = np.concatenate([[0], *(np.asarray(values, dtype=np.int64).T.ravel() for values in noisy)])
    value = np.zeros_like(flat)
    value[0] = total
    _solve(flat, child, level, np.concatenate([[0], weight]), first_leaf, value)
    split_points = 1 + sizes * np.cumsum([0, *tree.widths])[:-1]
    return [np.ascontiguousarray(part.reshape(sizes, -1).T) for part in np.split(value, split_points)[1:]]


def relax_counts(
    tree: Tree, noisy: Sequence[Ints], *, total: int, weights: Sequence[Fraction | int]
) -> tuple[int, list[NDArray[np.float64]]]:
    """Solve Model 1 approximately over the reals, by running `project_counts` on a grid finer than the integers.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy counts.
        total: The total number G of groups.
        weights: The weight of each level, from the root to the leaves.

    Returns:
        The number of grid points per group (1024, or fewer if the values are large), and for each level a (regions,
        sizes) array with the fitted counts.
    """
    grid, heaviest = _RELAXED_GRID, min(int(integer_weights(weights).max()), _RELAXED_GRID)
    # Coarsen the grid until the search fits into 64-bit integers.
    while grid > 1 and _largest_factor(tree, noisy, total) < grid * heaviest:
        grid //= 2
    fine = [np.asarray(values, dtype=np.int64) * grid for values in noisy]
    scaled_weights = integer_weights(weights, limit=largest_weight(tree, fine, total * grid))
    solved = project_counts(tree, fine, total=total * grid, weights=scaled_weights)
    return grid, [values / float(grid) for values in solved]


def _largest_factor(tree: Tree, noisy: Sequence[Ints], total: int) -> int:
    """Return the largest scaling factor at which the search does not overflow 64-bit integers, or 0 if there is none.

    The scaling factor is the largest level weight multiplied by the number of grid points per group.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy counts.
        total: The total number G of groups.
    """
    # Differences from noisy values are at most largest + total, and marginal costs contain them twice. Prices add up
    # marginal costs over the levels, and sums over the regions. Another factor of 2 is a safety margin.
    largest = max(max(-int(level.min(initial=0)), int(level.max(initial=0))) for level in noisy)
    return (2**62 - 1) // ((largest + total + 1) * 4 * tree.depth * tree.regions)


def largest_weight(tree: Tree, noisy: Sequence[Ints], total: int) -> int:
    """Return the largest integer level weight, at most 2**20, at which the search does not overflow 64-bit integers.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy counts.
        total: The total number G of groups.

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
    """Return the exact value of Model 1's objective, the sum of w_l |values_l - noisy_l|^2 over all levels l.

    Args:
        values: For each level, a (regions, sizes) array with the fitted integers.
        noisy: For each level, a (regions, sizes) array with the noisy integers.
        weights: The integer weight of each level. By default, all are 1.
    """
    weight = [1] * len(values) if weights is None else weights
    return sum(
        int(w) * sum_squares(np.asarray(value, dtype=np.int64) - np.asarray(target, dtype=np.int64))
        for w, value, target in zip(weight, values, noisy, strict=True)
    )
