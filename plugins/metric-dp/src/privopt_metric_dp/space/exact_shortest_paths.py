"""Compiled kernels for shortest paths with exact lengths.

A pair of records may be dropped only if some path between them is no longer than their distance. Because the sum
of two doubles is seldom a double, each length is stored as an integer multiple of a common power of two, divided into
limbs (digits) of 62 bits. Sums and comparisons of these integers are exact. Doubles are used only to order the heap in
Dijkstra's algorithm, and to skip paths that are clearly too long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit

__all__ = ["limbs", "short_enough"]

_LIMB_BITS = 62  # bits in a limb: two limbs and a carry add up to less than 2^63, the limit of a signed 64-bit integer
_HEADROOM_BITS = 16  # bits above the largest distance, so that sums of many distances do not overflow


def limbs(*values: npt.NDArray[np.float64]) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.float64]]:
    """Represent finite non-negative doubles exactly as integer multiples of a common unit, in limbs of 62 bits.

    Args:
        values: One or more one-dimensional arrays, for which a common unit is chosen.

    Returns:
        The limbs, and the units of the limbs. The limbs are a list with one array of shape (M, L) for each array of M
        values. A row contains the L limbs of a value, least significant first. The units are an array of shape (L,).
        Each unit is a power of two, 2^62 times the previous one, so value = sum_l limb[l] unit[l] exactly.
    """
    fractions, exponents = zip(*(np.frexp(v) for v in values), strict=True)
    wholes = [np.ldexp(f, 53).astype(np.int64) for f in fractions]
    shifts = [e.astype(np.int64) - 53 for e in exponents]
    # Each value is a 53-bit integer mantissa times 2^shift. The lowest bit that any value uses is the common unit, and
    # the highest bit determines the number of limbs.
    lowest_bit, highest_bit = 0, 0
    nonzero_parts = [(w[w > 0], s[w > 0]) for w, s in zip(wholes, shifts, strict=True)]
    mantissas, shift = (np.concatenate([u[part] for u in nonzero_parts]) for part in (0, 1))
    if mantissas.size:
        # mantissa & -mantissa is the lowest set bit, whose exponent is the number of trailing zeros.
        trailing = np.frexp((mantissas & -mantissas).astype(np.float64))[1].astype(np.int64) - 1
        lowest_bit = int((shift + trailing).min())
        highest_bit = int(shift.max()) + 53
    count = (highest_bit - lowest_bit + _HEADROOM_BITS) // _LIMB_BITS + 1
    # 1023 is the largest exponent of a double. The last limb, which is only used by sums, may have a larger unit.
    units = np.ldexp(1.0, np.minimum(lowest_bit + _LIMB_BITS * np.arange(count), 1023))
    return [_split_into_limbs(w, s - lowest_bit, count) for w, s in zip(wholes, shifts, strict=True)], units


def _split_into_limbs(
    mantissas: npt.NDArray[np.int64], shift: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int64]:
    """Return mantissa * 2^shift as limbs of 62 bits, least significant first.

    Args:
        mantissas: (M,) Integers from 0 to 2^53.
        shift: (M,) The exponents. A negative shift only removes trailing zero bits from the mantissa.
        count: The number L of limbs.

    Returns:
        (M, L) The limbs, each from 0 to 2^62 - 1.
    """
    mantissas = np.where(mantissas > 0, mantissas >> np.maximum(-shift, 0).clip(max=62), 0)
    shift = np.where(mantissas > 0, np.maximum(shift, 0), 0)
    limb_index, offset = shift // _LIMB_BITS, shift % _LIMB_BITS
    result = np.zeros((len(mantissas), count), dtype=np.int64)
    rows = np.arange(len(mantissas))
    result[rows, limb_index] = (mantissas & ((1 << (_LIMB_BITS - offset)) - 1)) << offset
    # A mantissa has at most 53 bits, so it extends into at most one more limb.
    carry = mantissas >> (_LIMB_BITS - offset)
    has_carry = carry > 0
    result[rows[has_carry], limb_index[has_carry] + 1] = carry[has_carry]
    return result


@jit()
def _is_less(a: Any, i: int, b: Any, j: int) -> bool:  # pragma: no cover - compiled
    """Return whether the number in row i of a is less than the number in row j of b.

    A row contains a number's limbs, least significant first.
    """
    for limb in range(a.shape[1] - 1, -1, -1):
        if a[i, limb] != b[j, limb]:
            return bool(a[i, limb] < b[j, limb])
    return False


@jit()
def _add_rows(a: Any, i: int, b: Any, j: int, total: Any) -> None:  # pragma: no cover - compiled
    """Set row 0 of ``total`` to the sum of the numbers in row i of a and row j of b.

    A row contains a number's limbs, least significant first.
    """
    carry = 0
    for limb in range(a.shape[1]):
        value = a[i, limb] + b[j, limb] + carry
        # The sum of two limbs and a carry is below 2^63, so it fits. 4611686018427387903 is 2^62 - 1, the mask for a
        # limb.
        carry = value >> 62
        total[0, limb] = value & 4611686018427387903


@jit()
def _copy_row(a: Any, i: int, b: Any, j: int) -> None:  # pragma: no cover - compiled
    """Copy the number in row j of b to row i of a."""
    for limb in range(a.shape[1]):
        a[i, limb] = b[j, limb]


@jit()
def _set_infinite(a: Any, i: int) -> None:  # pragma: no cover - compiled
    """Set the number in row i of a to a value larger than any length."""
    for limb in range(a.shape[1]):
        a[i, limb] = 0
    a[i, a.shape[1] - 1] = 4611686018427387904  # 2^62, above every value that a limb can have


@jit()
def _to_double(a: Any, i: int, units: Any) -> float:  # pragma: no cover - compiled
    """Return the number in row i of a, rounded to a double, for use as a key in the heap.

    Args:
        a: (n, L) The limbs of the numbers, least significant first.
        i: The index of the row.
        units: (L,) The units of the limbs, which are powers of two.
    """
    total = 0.0
    for limb in range(a.shape[1] - 1, -1, -1):
        total += float(a[i, limb]) * units[limb]
    return total


@jit()
def _push_or_lift(heap: Any, slots: Any, key: Any, size: int, node: int) -> int:  # pragma: no cover - compiled
    """Insert a node into a binary min-heap, or move it up after its key has decreased.

    Args:
        heap: The node indices in heap order. Only the first ``size`` entries are used.
        slots: (n,) The position of each node in the heap, or -1.
        key: (n,) The key of each node, which determines its place in the heap.
        size: The number of nodes in the heap.
        node: The index of the node.

    Returns:
        The new size of the heap.
    """
    slot = slots[node]
    if slot < 0:
        slot = size
        size += 1
    # Parents with larger keys move down until the node's position is found.
    while slot > 0:
        parent = (slot - 1) >> 1
        if key[heap[parent]] <= key[node]:
            break
        heap[slot] = heap[parent]
        slots[heap[slot]] = slot
        slot = parent
    heap[slot] = node
    slots[node] = slot
    return size


@jit()
def _pop_nearest(heap: Any, slots: Any, key: Any, size: int) -> int:  # pragma: no cover - compiled
    """Remove and return the node with the smallest key in a binary min-heap.

    The caller must decrement the size.

    Args:
        heap: The node indices in heap order. Only the first ``size`` entries are used.
        slots: (n,) The position of each node in the heap, or -1.
        key: (n,) The key of each node, which determines its place in the heap.
        size: The number of nodes in the heap before the removal, at least 1.
    """
    nearest: int = heap[0]
    slots[nearest] = -1
    size -= 1
    # The last node moves to the root and sinks until neither of its children has a smaller key.
    node = heap[size]
    slot = 0
    while size > 0:
        child = 2 * slot + 1
        if child >= size:
            break
        if child + 1 < size and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[heap[child]] >= key[node]:
            break
        heap[slot] = heap[child]
        slots[heap[slot]] = slot
        slot = child
    if size > 0:
        heap[slot] = node
        slots[node] = slot
    return nearest


@jit()
def _mark_touched(is_touched: Any, touched: Any, count: int, j: int) -> int:  # pragma: no cover - compiled
    """Add node j to the list of touched nodes unless the list already contains it, and return the list's new length.

    The list consists of the first ``count`` elements of ``touched``. The array ``is_touched`` of shape (n,) indicates
    whether each node is in the list.
    """
    if is_touched[j]:
        return count
    is_touched[j] = True
    touched[count] = j
    return count + 1


@jit()
def _reset_nodes(
    nodes: Any, best: Any, detour: Any, length: Any, give_up: Any, is_touched: Any
) -> None:  # pragma: no cover
    """Reset the state of the nodes touched by a search, so that the next search can begin.

    Resetting the state of all nodes for each source would take quadratic time. The comments in :func:`short_enough`
    describe the arrays.
    """
    for j in nodes:
        _set_infinite(best, j)
        _set_infinite(detour, j)
        length[j], give_up[j], is_touched[j] = np.inf, np.inf, False


# For small graphs, the function is interpreted instead of compiled.
@jit(few=lambda start, node, *_: len(start) * len(node) <= 20_000)
def short_enough(
    start: Ints, node: Ints, weight: Floats, exact: Ints, ask: Ints, goal: Ints, bound: Floats,
    exact_bound: Ints, units: Floats, two_edges: bool,
) -> Bools:  # pragma: no cover - compiled  # fmt: skip
    """For each question (source, goal, bound), return whether any path from source to goal is at most ``bound`` long.

    The comparison is exact.

    Args:
        start, node, weight, exact: The graph with n nodes and E edges, in CSR form. ``start`` has shape (n + 1,) and
            contains the offset of each node's first edge. The other three arrays contain, for each edge, the neighbour,
            the weight as a double and the exact weight as limbs (see :func:`limbs`). Their shapes are (E,), (E,) and
            (E, L). The edges of a node are sorted by ascending weight.
        ask, goal, bound, exact_bound: The questions in CSR form. The questions about source i are at indices ask[i] to
            ask[i + 1] - 1. For each question, the other three arrays contain the goal, the bound as a double and the
            exact bound as limbs. Their shapes are (Q,), (Q,) and (Q, L).
        units: (L,) The units of the limbs.
        two_edges: Whether only paths with at least two edges count.

    Returns:
        (Q,) For each question, whether there is such a path.
    """
    # For each node, `best` is the exact length of the shortest path so far, and `length` is the same length as a
    # double, which is the key in the heap. `detour` is the exact length of the shortest path with at least two edges.
    # `longest_bound` is the largest bound in a question about the node. Paths longer than `give_up` need no exact
    # comparison. If `two_edges` is set, `give_up` is at least `longest_bound`, because a path that is longer than the
    # best one may still be the shortest detour.
    n, width = len(start) - 1, exact.shape[1]
    answer = np.zeros(len(goal), dtype=np.bool_)
    best = np.empty((n, width), dtype=np.int64)
    detour = np.empty((n, width), dtype=np.int64)
    length, longest_bound, give_up = np.empty(n), np.empty(n), np.empty(n)
    heap, slots, touched = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    is_touched = np.zeros(n, dtype=np.bool_)
    total = np.empty((1, width), dtype=np.int64)
    longest_bound[:], slots[:] = -1.0, -1
    _reset_nodes(np.arange(n), best, detour, length, give_up, is_touched)
    # The margin is far above the keys' relative rounding errors, but small enough to cause few extra comparisons.
    margin = 1.0 + 1e-12
    for source in range(n):
        if ask[source] == ask[source + 1]:
            continue
        # Paths longer than this source's largest bound answer no question.
        limit = 0.0
        for q in range(ask[source], ask[source + 1]):
            longest_bound[goal[q]] = max(longest_bound[goal[q]], bound[q] * margin)
            limit = max(limit, bound[q] * margin)
        count, size = 0, 0
        for e in range(start[source], start[source + 1]):
            if weight[e] > limit:
                break  # edges are sorted by weight
            j = node[e]
            count = _mark_touched(is_touched, touched, count, j)
            if j != source and _is_less(exact, e, best, j):
                _copy_row(best, j, exact, e)
                length[j] = weight[e]
                give_up[j] = max(weight[e] * margin, longest_bound[j] if two_edges else 0.0)
                size = _push_or_lift(heap, slots, length, size, j)
        while size > 0:
            r = _pop_nearest(heap, slots, length, size)
            size -= 1
            distance = length[r]
            for e in range(start[r], start[r + 1]):
                reach = distance + weight[e]
                if reach > limit:
                    break  # the remaining edges of r are even longer
                j = node[e]
                # give_up[j] exceeds the best length so far by more than the keys' rounding errors. So this comparison
                # of doubles only discards paths that are longer in exact arithmetic as well.
                if reach > give_up[j] or j == source:
                    continue
                _add_rows(best, r, exact, e, total)
                count = _mark_touched(is_touched, touched, count, j)
                if two_edges and _is_less(total, 0, detour, j):
                    _copy_row(detour, j, total, 0)
                if _is_less(total, 0, best, j):
                    _copy_row(best, j, total, 0)
                    length[j] = _to_double(total, 0, units)
                    give_up[j] = max(length[j] * margin, longest_bound[j] if two_edges else 0.0)
                    size = _push_or_lift(heap, slots, length, size, j)
        for q in range(ask[source], ask[source + 1]):
            answer[q] = not _is_less(exact_bound, q, detour if two_edges else best, goal[q])
            longest_bound[goal[q]] = -1.0
        _reset_nodes(touched[:count], best, detour, length, give_up, is_touched)
    return answer
