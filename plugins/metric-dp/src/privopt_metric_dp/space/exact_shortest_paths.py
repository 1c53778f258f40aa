"""Shortest paths whose lengths are exact: the compiled kernels.

A sum of doubles is seldom a double, and whether a path is as short as a pair is what a pair's
dropping hangs on. Each double here is a whole number of one common power of two, kept as limbs of
62 bits; sums and comparisons of these are exact, and doubles only sort the work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit

__all__ = ["limbs", "short_enough"]

_LIMB_BITS = 62
_HEADROOM_BITS = 16  # bits above the greatest distance: sums of many stay inside


def limbs(*values: npt.NDArray[np.float64]) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.float64]]:
    """Return finite non-negative doubles as whole numbers of one unit.

    Returns:
        For each array of values (M,) its limbs (M, L), least significant first, and their units (L,),
        powers of two, each 2^62 times the one before: value = sum_l limb[l] unit[l], exactly.
    """
    fractions, exponents = zip(*(np.frexp(v) for v in values), strict=True)
    wholes = [np.ldexp(f, 53).astype(np.int64) for f in fractions]
    shifts = [e.astype(np.int64) - 53 for e in exponents]
    low, high = 0, 0
    used = [(w[w > 0], s[w > 0]) for w, s in zip(wholes, shifts, strict=True)]
    whole, shift = (np.concatenate([u[part] for u in used]) for part in (0, 1))
    if whole.size:
        trailing = np.frexp((whole & -whole).astype(np.float64))[1].astype(np.int64) - 1
        low = int((shift + trailing).min())
        high = int(shift.max()) + 53
    count = (high - low + _HEADROOM_BITS) // _LIMB_BITS + 1
    units = np.ldexp(1.0, np.minimum(low + _LIMB_BITS * np.arange(count), 1023))  # the last may hold nothing but room
    return [_spread(w, s - low, count) for w, s in zip(wholes, shifts, strict=True)], units


def _spread(whole: npt.NDArray[np.int64], shift: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return whole * 2^shift as limbs; a negative shift removes zeros at the end."""
    whole = np.where(whole > 0, whole >> np.maximum(-shift, 0).clip(max=62), 0)
    shift = np.where(whole > 0, np.maximum(shift, 0), 0)
    place, offset = shift // _LIMB_BITS, shift % _LIMB_BITS
    result = np.zeros((len(whole), count), dtype=np.int64)
    rows = np.arange(len(whole))
    result[rows, place] = (whole & ((1 << (_LIMB_BITS - offset)) - 1)) << offset
    carry = whole >> (_LIMB_BITS - offset)
    over = carry > 0
    result[rows[over], place[over] + 1] = carry[over]
    return result


@jit()
def _less(a: Any, i: int, b: Any, j: int) -> bool:  # pragma: no cover - compiled
    """Check whether row i of a is less than row j of b."""
    for limb in range(a.shape[1] - 1, -1, -1):
        if a[i, limb] != b[j, limb]:
            return bool(a[i, limb] < b[j, limb])
    return False


@jit()
def _add(a: Any, i: int, b: Any, j: int, total: Any) -> None:  # pragma: no cover - compiled
    """total[0] = a[i] + b[j]."""
    carry = 0
    for limb in range(a.shape[1]):
        value = a[i, limb] + b[j, limb] + carry
        carry = value >> 62
        total[0, limb] = value & 4611686018427387903


@jit()
def _copy(a: Any, i: int, b: Any, j: int) -> None:  # pragma: no cover - compiled
    """a[i] = b[j]."""
    for limb in range(a.shape[1]):
        a[i, limb] = b[j, limb]


@jit()
def _forget(a: Any, i: int) -> None:  # pragma: no cover - compiled
    """Make a[i] greater than any length."""
    for limb in range(a.shape[1]):
        a[i, limb] = 0
    a[i, a.shape[1] - 1] = 4611686018427387904


@jit()
def _value(a: Any, i: int, units: Any) -> float:  # pragma: no cover - compiled
    total = 0.0
    for limb in range(a.shape[1] - 1, -1, -1):
        total += float(a[i, limb]) * units[limb]
    return total


@jit()
def _lift(heap: Any, where: Any, key: Any, size: int, node: int) -> int:  # pragma: no cover - compiled
    """Put a node into the heap of least keys, or move it up after its key fell; the heap's new size."""
    at = where[node]
    if at < 0:
        at = size
        size += 1
    while at > 0:
        parent = (at - 1) >> 1
        if key[heap[parent]] <= key[node]:
            break
        heap[at] = heap[parent]
        where[heap[at]] = at
        at = parent
    heap[at] = node
    where[node] = at
    return size


@jit()
def _take(heap: Any, where: Any, key: Any, size: int) -> int:  # pragma: no cover - compiled
    """Take the node of least key out of a heap of `size` nodes."""
    least: int = heap[0]
    where[least] = -1
    size -= 1
    node = heap[size]
    at = 0
    while size > 0:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[heap[child]] >= key[node]:
            break
        heap[at] = heap[child]
        where[heap[at]] = at
        at = child
    if size > 0:
        heap[at] = node
        where[node] = at
    return least


@jit()
def _touch(seen: Any, touched: Any, count: int, j: int) -> int:  # pragma: no cover - compiled
    """Note a node, once, among the first `count` of `touched`; returns how many there are now."""
    if seen[j]:
        return count
    seen[j] = True
    touched[count] = j
    return count + 1


@jit()
def _clear(nodes: Any, best: Any, detour: Any, length: Any, give_up: Any, seen: Any) -> None:  # pragma: no cover
    """Forget what a search found of some nodes."""
    for j in nodes:
        _forget(best, j)
        _forget(detour, j)
        length[j], give_up[j], seen[j] = np.inf, np.inf, False


@jit(few=lambda start, node, *_: len(start) * len(node) <= 3_000)
def short_enough(
    start: Ints, node: Ints, weight: Floats, exact: Ints, ask: Ints, goal: Ints, bound: Floats,
    exact_bound: Ints, units: Floats, two_edges: bool,
) -> Bools:  # pragma: no cover - compiled  # fmt: skip
    """Decide exactly, for each question (source, goal), whether a path has a length of at most its bound.

    Args:
        start, node, weight, exact: neighbours of each of n nodes (CSR: start (n + 1,), node (E,)), by
            ascending weight, with the weights as doubles and as limbs (E, L).
        ask, goal, bound, exact_bound: the same shape for the questions: those of source i are
            ask[i]:ask[i + 1], goal (Q,), bound (Q,) doubles and limbs (Q, L).
        units: (L,) of the limbs.
        two_edges: whether paths of one edge do not count.

    Returns:
        (Q,) booleans.
    """
    n, width = len(start) - 1, exact.shape[1]
    answer = np.zeros(len(goal), dtype=np.bool_)
    best = np.empty((n, width), dtype=np.int64)
    detour = np.empty((n, width), dtype=np.int64)
    length, wanted, give_up = np.empty(n), np.empty(n), np.empty(n)
    heap, where, touched = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    seen = np.zeros(n, dtype=np.bool_)
    total = np.empty((1, width), dtype=np.int64)
    wanted[:], where[:] = -1.0, -1
    _clear(np.arange(n), best, detour, length, give_up, seen)
    more = 1.0 + 1e-12  # far above what rounding can do to a key, far below what matters for speed
    for source in range(n):
        if ask[source] == ask[source + 1]:
            continue
        limit = 0.0
        for q in range(ask[source], ask[source + 1]):
            wanted[goal[q]] = max(wanted[goal[q]], bound[q] * more)
            limit = max(limit, bound[q] * more)
        count, size = 0, 0
        for e in range(start[source], start[source + 1]):
            if weight[e] > limit:
                break
            j = node[e]
            count = _touch(seen, touched, count, j)
            if j != source and _less(exact, e, best, j):
                _copy(best, j, exact, e)
                length[j] = weight[e]
                give_up[j] = max(weight[e] * more, wanted[j] if two_edges else 0.0)
                size = _lift(heap, where, length, size, j)
        while size > 0:
            r = _take(heap, where, length, size)
            size -= 1
            here = length[r]
            for e in range(start[r], start[r + 1]):
                reach = here + weight[e]
                if reach > limit:
                    break
                j = node[e]
                if reach > give_up[j] or j == source:
                    continue
                _add(best, r, exact, e, total)
                count = _touch(seen, touched, count, j)
                if two_edges and _less(total, 0, detour, j):
                    _copy(detour, j, total, 0)
                if _less(total, 0, best, j):
                    _copy(best, j, total, 0)
                    length[j] = _value(total, 0, units)
                    give_up[j] = max(length[j] * more, wanted[j] if two_edges else 0.0)
                    size = _lift(heap, where, length, size, j)
        for q in range(ask[source], ask[source + 1]):
            answer[q] = not _less(exact_bound, q, detour if two_edges else best, goal[q])
            wanted[goal[q]] = -1.0
        _clear(touched[:count], best, detour, length, give_up, seen)
    return answer
