"""Model 1 solved exactly by half-prices and integer tie filling (mathematics H3).

The problem: one tree a group size; find integers x >= 0 on the leaves, sums of their children above,
whose roots add up to G, with the least sum over all nodes of w_level (x - noisy)^2.

Raising a node from v - 1 to v costs its *marginal*: w (2 (v - noisy) - 1) for the node itself plus
the marginal of the child that is raised. All weights and noisy values are integers, so marginals
are integers too, and each node's are increasing (its cost is convex: the paper's Lemma 5). Hence a
node answers a *price* p with the largest value whose marginal is at most p. The price that reaches
a node's children is p less the node's own share (the other half), found by a search over integers;
above the leaves, sorted break points give it in closed form. The price at the top is the smallest
that reaches G; where several nodes have a marginal exactly equal to it, units are given in order.

Cost: O(|R| N log) with a few searches for each level between root and leaves' parents.
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

_RELAXED_GRID = 1024  # the relaxed method's step: one 1024th of a group


@jit()
def _above_leaves(first: int, last: int, tick: int, ranked: Ints, prefix: Ints) -> Any:
    """Sum over the leaves first..last of max(0, noisy + tick)."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if ranked[middle] + tick > 0:
            low = middle + 1
        else:
            high = middle
    return prefix[low] - prefix[first] + (low - first) * tick


@jit()
def _answer_above_leaves(
    first: int, last: int, noisy: int, own_weight: int, leaf: int, price: int, ranked: Ints, prefix: Ints
) -> Any:
    """Answer of a node whose children are the leaves first..last (ranked: decreasing)."""
    # Without a weight of its own, the node passes the whole price to its children.
    if own_weight == 0:
        return _above_leaves(first, last, (price + leaf) // (2 * leaf), ranked, prefix)
    budget = price + own_weight + leaf + 2 * own_weight * noisy
    if 2 * leaf * -ranked[first] > budget:
        return 0
    low, high = first, last - 1  # last break point that the budget reaches
    while low < high:
        middle = (low + high + 1) // 2
        tick = -ranked[middle]
        total = prefix[middle] - prefix[first] + (middle - first) * tick
        if 2 * own_weight * total + 2 * leaf * tick <= budget:
            low = middle
        else:
            high = middle - 1
    active = low + 1 - first
    base = prefix[low + 1] - prefix[first]
    tick = (budget - 2 * own_weight * base) // (2 * own_weight * active + 2 * leaf)
    reached = base + active * tick
    bound = noisy + (price - leaf * (2 * tick + 1) + own_weight) // (2 * own_weight)
    return max(reached, bound)


@jit()
def _answer_low(
    node: int, price: int, noisy: Ints, child: Ints, level: Ints, weight: Ints, ranked: Ints, prefix: Ints
) -> Any:
    """Answer of a leaf, or of a node above leaves."""
    own_weight = weight[level[node]]
    first, last = child[node, 0], child[node, 1]
    if first == last:
        return max(0, noisy[node] + (price + own_weight) // (2 * own_weight))
    return _answer_above_leaves(first, last, noisy[node], own_weight, weight[level[first]], price, ranked, prefix)


@jit()
def _probe(low: int, high: int, has_low: bool, has_high: bool, step: int) -> Any:
    """Return the next probe of a search: it gallops until it has both bounds, and then bisects."""
    if not has_high:
        return low + step
    return (low + high) // 2 if has_low else high - step


# columns of a frame of the search
_NODE, _PRICE, _PROBE, _STEP, _LOW, _LOW_COUNT, _HIGH, _HAS_LOW, _HAS_HIGH, _NEXT, _COUNT = range(11)


@jit()
def _narrow_search(frame: Ints, own_weight: int, noisy: int) -> Any:
    """Narrow a frame's search by the count at its probe, and return whether the search is finished."""
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
def _answer(node: int, price: int, tables: Any) -> Any:
    """Return the largest value of ``node`` whose marginal is at most ``price``.

    A node above others searches for the largest share q of the price that it can leave to its children: 2 w (count(q) -
    noisy) + q <= price + w, the left side increasing in q. The search gallops from the last answer, then halves. Nested
    searches are on ``stack``, one frame a level (compiled recursion cannot be cached).
    """
    noisy, child, level, weight, ranked, prefix, guess, stack = tables
    height = len(weight) - level[node]
    if height <= 2:
        return _answer_low(node, price, noisy, child, level, weight, ranked, prefix)
    stack_index = 0
    entering = True
    stack[0, _NODE] = node
    stack[0, _PRICE] = price
    while True:
        frame = stack[stack_index]
        own_weight = weight[level[frame[_NODE]]]
        first, last = child[frame[_NODE], 0], child[frame[_NODE], 1]
        if entering:
            frame[_PROBE] = guess[frame[_NODE]] if own_weight else frame[_PRICE]
            frame[_STEP] = 1
            frame[_HAS_LOW] = 0
            frame[_HAS_HIGH] = 0
            frame[_NEXT] = first
            frame[_COUNT] = 0
            entering = False
        if len(weight) - level[first] <= 2:
            while frame[_NEXT] < last:
                frame[_COUNT] += _answer_low(frame[_NEXT], frame[_PROBE], noisy, child, level, weight, ranked, prefix)
                frame[_NEXT] += 1
        elif frame[_NEXT] < last:
            stack_index += 1
            stack[stack_index, _NODE] = frame[_NEXT]
            stack[stack_index, _PRICE] = frame[_PROBE]
            entering = True
            continue
        is_done = own_weight == 0
        result = frame[_COUNT]
        if own_weight:
            is_done = _narrow_search(frame, own_weight, noisy[frame[_NODE]])
            if is_done:
                guess[frame[_NODE]] = frame[_LOW]
                bound = noisy[frame[_NODE]] + (frame[_PRICE] - frame[_LOW] - 1 + own_weight) // (2 * own_weight)
                result = max(frame[_LOW_COUNT], bound)
        if not is_done:
            frame[_NEXT] = first
            frame[_COUNT] = 0
        elif stack_index == 0:
            return result
        else:
            stack_index -= 1
            stack[stack_index, _COUNT] += result
            stack[stack_index, _NEXT] += 1


@jit()
def _rank_leaves(noisy: Ints, child: Ints, first_leaf: int, ranked: Ints, prefix: Ints) -> None:
    """Sort each parent's leaves by noisy value, decreasing, with running sums (prefix[i]: before i)."""
    for node in range(first_leaf):
        first, last = child[node, 0], child[node, 1]
        if first >= first_leaf:
            ranked[first:last] = np.sort(noisy[first:last])[::-1]
    prefix[first_leaf] = 0
    for leaf in range(first_leaf, len(noisy)):
        prefix[leaf + 1] = prefix[leaf] + ranked[leaf]


@jit()
def _count(node: int, price: int, tables: Any, first_leaf: int) -> Any:
    """Sum of the answers of a node's children to a price."""
    _, child, level, weight, ranked, prefix, _, _ = tables
    first, last = child[node, 0], child[node, 1]
    if first >= first_leaf:
        tick = (price + weight[level[first]]) // (2 * weight[level[first]])
        return _above_leaves(first, last, tick, ranked, prefix)
    count = 0
    for c in range(first, last):
        count += _answer(c, price, tables)
    return count


@jit()
def _solve(noisy: Ints, child: Ints, level: Ints, weight: Ints, first_leaf: int, value: Ints) -> None:
    """Split each node's value over its children: the price that reaches it, then ties."""
    nodes = len(noisy)
    ranked = np.empty(nodes, np.int64)
    prefix = np.zeros(nodes + 1, np.int64)
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
        while not (has_low and has_high and high - low == 1):
            if _count(node, probe, tables, first_leaf) < target:
                low, has_low = probe, True
            else:
                high, has_high = probe, True
            probe = _probe(low, high, has_low, has_high, step)
            step *= 2
        # At the lower price all children together have fewer units than needed, at the upper price enough. The missing
        # units are ties at the upper price, and are given in order.
        remaining = target
        for c in range(first, last):
            value[c] = _answer(c, low, tables)
            remaining -= value[c]
        for c in range(first, last):
            if remaining == 0:
                break
            extra = min(remaining, _answer(c, high, tables) - value[c])
            value[c] += extra
            remaining -= extra


def integer_weights(weights: Sequence[Fraction | int], *, limit: int = 1 << 20) -> Ints:
    """Return integers in the proportions of the rational ``weights``.

    Where the exact proportions need integers above ``limit``, each weight is first brought to
    the nearest multiple of the largest divided by ``limit``, at least one of them.

    Raises:
        ValueError: a negative weight, or none for the leaves (the last).
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
        integers = [max(1, round(weight / unit)) if weight else 0 for weight in rational]
    return np.array(integers, dtype=np.int64)


def _number_nodes(tree: Tree, sizes: int) -> tuple[Ints, Ints, int]:
    """Lay out the nodes of one tree for each size, all below node 0: level by level, and one size after the other.

    Returns:
        The range of each node's children, each node's level, and the first leaf.
    """
    offsets = 1 + sizes * np.cumsum([0, *tree.widths])
    child = np.zeros((int(offsets[-1]), 2), np.int64)
    child[0] = 1, 1 + sizes
    for index, start in enumerate(tree.start):
        begins = offsets[index + 1] + tree.widths[index + 1] * np.arange(sizes)[:, None]
        level_slice = slice(offsets[index], offsets[index + 1])
        child[level_slice, 0] = (begins + start[:-1]).ravel()
        child[level_slice, 1] = (begins + start[1:]).ravel()
    level = np.repeat(np.arange(tree.depth + 1), [1, *(sizes * width for width in tree.widths)])
    return child, level.astype(np.int64), int(offsets[-2])


def project_counts(tree: Tree, noisy: Sequence[Ints], *, total: int, weights: Ints | None = None) -> list[Ints]:
    """Solve Model 1 (M_H): the nearest consistent non-negative integers that add up to G; exact.

    Args:
        tree: the hierarchy.
        noisy: for each level (R_l, N) noisy counts.
        total: G, the number of groups.
        weights: (L,) integer weights of the levels (0 allowed above the leaves); default: all 1.

    Returns:
        For each level (R_l, N) counts: a minimiser of sum_l w_l |x_l - noisy_l|^2.
    """
    weight = np.ones(tree.depth, np.int64) if weights is None else np.asarray(weights, dtype=np.int64)
    if int(weight.max()) > _largest_factor(tree, noisy, total):
        raise ValueError("noisy values times level weights pass 64 bits: take smaller weights")
    sizes = noisy[0].shape[1]
    child, level, first_leaf = _number_nodes(tree, sizes)
    flat = np.concatenate([[0], *(np.asarray(values, dtype=np.int64).T.ravel() for values in noisy)])
    value = np.zeros_like(flat)
    value[0] = total
    _solve(flat, child, level, np.concatenate([[0], weight]), first_leaf, value)
    split_points = 1 + sizes * np.cumsum([0, *tree.widths])[:-1]
    return [np.ascontiguousarray(part.reshape(sizes, -1).T) for part in np.split(value, split_points)[1:]]


def relax_counts(
    tree: Tree, noisy: Sequence[Ints], *, total: int, weights: Sequence[Fraction | int]
) -> tuple[int, list[NDArray[np.float64]]]:
    """Solve Model 1 without integrality: the same search on a grid finer than one group.

    Returns:
        The grid's points to a group (1024, fewer where values are too large for it), and the values.
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
    """Return the largest factor for the search's numbers within 64 bits; 0 if there is none."""
    largest = max(max(-int(level.min(initial=0)), int(level.max(initial=0))) for level in noisy)
    return (2**62 - 1) // ((largest + total + 1) * 4 * tree.depth * tree.regions)


def largest_weight(tree: Tree, noisy: Sequence[Ints], total: int) -> int:
    """Return the largest integer weight of a level for which the search stays within 64 bits, at most 2**20.

    Raises:
        UsageError: there is none.
    """
    max_factor = _largest_factor(tree, noisy, total)
    if max_factor < 1:
        raise UsageError(
            f"{tree.regions:,} regions with noisy values of up to 1e15 and more pass 64 bits; use smaller counts, "
            "fewer regions or a larger epsilon"
        )
    return min(max_factor, 1 << 20)


def objective(values: Sequence[Ints], noisy: Sequence[Ints], weights: Iterable[int] | None = None) -> int:
    """Return the sum over levels of w_l |values_l - noisy_l|^2, an exact integer for integer weights."""
    weight = [1] * len(values) if weights is None else weights
    return sum(
        int(w) * sum_squares(np.asarray(value, dtype=np.int64) - np.asarray(target, dtype=np.int64))
        for w, value, target in zip(weight, values, noisy, strict=True)
    )
