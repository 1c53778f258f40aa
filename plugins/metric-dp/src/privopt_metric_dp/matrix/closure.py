"""Closing a matrix under its privacy rows: the kernels of the repair.

The max-times closure of z is the least matrix above it with ``z_ik >= f_ij z_jk`` for each required pair, where
f_ij = exp(-eps' d_ij); it always exists: max_j exp(-eps' D_ij) z_jk with D the shortest paths over the pairs. Here
it is reached by sweeps along the pairs: two or three when the distances are a metric, more along sparse graphs.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.errors import CertificationError
from privopt.execution.clock import check
from privopt.execution.compiled import jit
from privopt.execution.limits import in_threads
from privopt.numbers.graphs import components, neighbours

__all__ = ["Graph", "close", "lower"]


#: Pairs times outputs below which threads are not worth their start.
MIN_SHARED = 10_000_000
_BLOCK_COLUMNS = 64


class Graph:
    """Required pairs as rows of neighbours.

    Attributes:
        first, second: (P,) the pairs.
        exponents: (P,) eps d in doubles, all above 0.
        indptr: (N + 1,) where each record's neighbours start.
        indices: (2 P,) neighbours.
        edges: (2 P,) which pair each is.
        labels: (N,) connected component of each record.
        components: how many there are.
    """

    def __init__(self, pairs: Ints, exponents: Floats, records: int) -> None:
        self.first, self.second = (np.ascontiguousarray(pairs[:, end]) for end in (0, 1))
        self.exponents = exponents
        self.indptr, self.indices, self.edges = neighbours(records, pairs)
        self.labels = components(records, pairs)
        self.components = int(self.labels.max(initial=-1)) + 1


@jit()
def _gather(top, z, rows, factors, count):  # type: ignore[no-untyped-def]
    """top_k = max over the first ``count`` rows r of factors_r z_rk, four rows at a time."""
    top[:] = 0.0
    full = count - count % 4
    for s in range(0, full, 4):
        a, b, c, d = rows[s], rows[s + 1], rows[s + 2], rows[s + 3]
        fa, fb, fc, fd = factors[s], factors[s + 1], factors[s + 2], factors[s + 3]
        for k in range(top.size):
            u, v, w, x = fa * z[a, k], fb * z[b, k], fc * z[c, k], fd * z[d, k]
            u = u if u > v else v
            w = w if w > x else x
            u = u if u > w else w
            top[k] = u if u > top[k] else top[k]
    for s in range(full, count):
        a, fa = rows[s], factors[s]
        for k in range(top.size):
            u = fa * z[a, k]
            top[k] = u if u > top[k] else top[k]


@jit()
def _sweeps(block, indptr, indices, factors, whole, limit):  # type: ignore[no-untyped-def]
    """Sweep until nothing rises, pulling rows only from neighbours that rose since; False where the limit was met.

    A rise by less than 2**-50, relative, is a rounding and pulls no one: the slack tau covers what it leaves.
    """
    n, width = block.shape
    top = np.empty(width)
    rows, scales = np.empty(n, dtype=np.int64), np.empty(n)
    before = np.ones(n, dtype=np.bool_)
    for sweep in range(limit):
        now = np.zeros(n, dtype=np.bool_)
        any_raised = False
        for step in range(n):
            j = step if sweep % 2 == 0 else n - 1 - step
            count = 0
            for e in range(indptr[j], indptr[j + 1]):
                if before[indices[e]] or now[indices[e]]:
                    rows[count], scales[count] = indices[e], factors[e]
                    count += 1
            if count == 0:
                continue
            _gather(top, block, rows, scales, count)
            raised = 0
            for k in range(width):
                value = np.ceil(top[k]) if whole else top[k]
                if value > block[j, k]:
                    raised += value > block[j, k] * 1.0000000000000009
                    block[j, k] = value
            if raised > 0:
                now[j] = True
                any_raised = True
        if not any_raised:
            return True
        before = now
    return False


def close(z: Floats, graph: Graph, shrink: float, *, whole: bool) -> None:
    """Replace z by its closure at exponents (1 - shrink) eps d.

    Args:
        z: (N, K) finite, >= 0; changed in place.
        graph: the required pairs.
        shrink: tau, 0 <= tau < 1.
        whole: every raised entry is rounded up to an integer, so that integers stay integers.

    Raises:
        CertificationError: it did not settle, which no finite input does.
        OutOfTime: the end has come.
    """
    if not len(graph.first):
        return
    # rounded up, by more than exp can be wrong: the closure may only be too high
    factors = np.minimum(np.exp(-(1.0 - shrink) * graph.exponents) * (1.0 + 2.0**-51), 1.0)[graph.edges]

    def fill(first: int, last: int) -> None:
        for number in range(first, last):
            check()
            part = slice(number * _BLOCK_COLUMNS, (number + 1) * _BLOCK_COLUMNS)
            block = np.array(z[:, part], order="C")
            if not _sweeps(block, graph.indptr, graph.indices, factors, whole, 2 * len(block) + 64):
                raise CertificationError("the closure under the privacy rows did not settle; weights are not finite")
            z[:, part] = block

    blocks = -(-z.shape[1] // _BLOCK_COLUMNS)
    in_threads(fill, blocks, min_span=2 if len(graph.first) * z.shape[1] > MIN_SHARED else blocks + 1)


@jit()
def _lower(z, excess, cost, indptr, indices, factors):  # type: ignore[no-untyped-def]
    """Take each row's excess out of entries that lie above what their neighbours require, dearest first."""
    n, width = z.shape
    bound = np.empty(width)
    for j in range(n):
        left = excess[j]
        if left <= 0.0:
            continue
        span = slice(indptr[j], indptr[j + 1])
        _gather(bound, z, indices[span], factors[span], indptr[j + 1] - indptr[j])
        for k in np.argsort(-cost[j]):
            room = z[j, k] - bound[k]
            if room >= left:
                z[j, k] = max(bound[k], z[j, k] - left)
                break
            if room > 0.0:
                z[j, k] = bound[k]
                left -= room


def lower(z: Floats, excess: Floats, cost: Floats, graph: Graph, shrink: float) -> None:
    """Lower rows by ``excess`` (N,) as far as the closure at (1 - shrink) eps d allows, dearest entries first.

    A closed matrix stays closed: an entry falls no lower than its neighbours require, and its fall only relaxes theirs.
    """
    factors = np.minimum(np.exp(-(1.0 - shrink) * graph.exponents) * (1.0 + 2.0**-51), 1.0)[graph.edges]
    _lower(z, excess, cost, graph.indptr, graph.indices, factors)
