"""Block-tridiagonal normal equations, one matrix an output, factored in batches.

The matrix of output ``r`` is ``H_r = A' diag(w_r) A``, with the sparsity of the required-pairs graph.
Under an order of small bandwidth it is block tridiagonal with blocks of about the bandwidth
(sqrt(N) on a grid; the whole matrix where all pairs are required). This is for devices, where large products
are cheap, and for small problems; `privopt.metric.optimal.elimination` has less fill.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from privopt.arrays import Ints
from privopt.exact.graph import edge_matrix
from privopt.metric.optimal.arrays import Array, Arrays
from privopt.metric.optimal.instance import Instance

__all__ = ["Factors", "Layout", "factorise", "make_layout"]


@frozen(kw_only=True, eq=False)
class Layout:
    """Order of the records, block bounds and the place of each entry in one flat buffer.

    Attributes:
        order: record at each place.
        bounds: ``(B + 1,)`` first place of each block.
        diagonal, below: offset of each diagonal block, and of the block below the diagonal.
        size: length of the buffer.
        record: ``(N,)`` place in the buffer of each record's diagonal entry.
        upper, lower: ``(P,)`` places of each pair's two entries (equal between two blocks).
    """

    order: Ints
    bounds: Ints
    diagonal: Ints
    below: Ints
    size: int
    record: Ints
    upper: Ints
    lower: Ints

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.bounds) - 1

    def span(self, block: int) -> slice:
        """Places of a block."""
        return slice(int(self.bounds[block]), int(self.bounds[block + 1]))


def _candidate_orders(instance: Instance) -> list[Ints]:
    n = instance.records
    orders = [np.arange(n)]
    if len(instance.pairs) > n * (n - 1) // 4:
        return orders
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    graph = edge_matrix(n, instance.pairs, both=True)
    orders.append(np.asarray(reverse_cuthill_mckee(graph, symmetric_mode=True), dtype=np.int64))
    if instance.coordinates is not None and instance.coordinates.shape[1] >= 2:
        centred = instance.coordinates - instance.coordinates.mean(axis=0)
        axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
        angles = np.arange(0, np.pi, np.pi / 12)
        along = centred @ (axes.T @ np.stack([np.cos(angles), np.sin(angles)]))
        orders.extend(np.argsort(along, axis=0, kind="stable").T)
    return orders


def _bounds(instance: Instance, order: Ints) -> Ints:
    """Cheapest blocks for an order such that every pair lies in one block or in two that follow."""
    n = instance.records
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    ends = place[instance.pairs]
    reach = np.arange(n)
    np.maximum.at(reach, ends.min(axis=1), ends.max(axis=1))
    reach = np.maximum.accumulate(reach)
    width = int((reach - np.arange(n)).max())
    best, cost = np.array([0, n]), float(n) ** 2
    for first in sorted({max(1, width), max(1, width - 1), max(1, width * 2 // 3), max(1, width // 2)}):
        bounds = [0, min(first, n)]
        while bounds[-1] < n:
            bounds.append(min(n, max(int(reach[bounds[-1] - 1]), bounds[-1]) + 1))
        price = float((np.diff(bounds).astype(float) ** 2).sum())
        if price < cost:
            best, cost = np.array(bounds), price
    return best


def make_layout(instance: Instance) -> Layout:
    """Choose the cheapest of several orders: as given, reverse Cuthill-McKee, along directions."""
    candidates = [(order, _bounds(instance, order)) for order in _candidate_orders(instance)]
    order, bounds = min(candidates, key=lambda c: float((np.diff(c[1]).astype(float) ** 2).sum()))
    n = instance.records
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    width = np.diff(bounds)
    diagonal = np.concatenate([[0], np.cumsum(width**2)])
    below = np.concatenate([[0], diagonal[-1] + np.concatenate([[0], np.cumsum(width[1:] * width[:-1])])])
    block = np.searchsorted(bounds, place, side="right") - 1
    local = place - bounds[block]
    ends = instance.pairs
    turned = place[ends[:, 0]] > place[ends[:, 1]]
    low, high = np.where(turned, ends[:, 1], ends[:, 0]), np.where(turned, ends[:, 0], ends[:, 1])
    same = block[low] == block[high]
    across = below[block[high]] + local[high] * width[block[low]] + local[low]
    inside = diagonal[block[high]]
    return Layout(
        order=order,
        bounds=bounds,
        diagonal=diagonal,
        below=below,
        size=int(below[-1]) if len(width) > 1 else int(diagonal[-1]),
        record=diagonal[block] + local * width[block] + local,
        upper=np.where(same, inside + local[low] * width[block[high]] + local[high], across),
        lower=np.where(same, inside + local[high] * width[block[high]] + local[low], across),
    )


@frozen(kw_only=True, eq=False)
class Factors:
    """Cholesky factors of a batch: inverses of the diagonal blocks' factors, and the blocks below."""

    layout: Layout
    arrays: Arrays
    inverse: list[Array]
    below: list[Array]

    def solve(self, right: Array) -> Array:
        """Solve for one right-hand side an output, ``(N, R)`` in the records' own order."""
        layout = self.layout
        batch = self.arrays.contiguous(right[layout.order].T)[:, :, None]
        parts: list[Array] = []
        for q in range(layout.blocks):
            r = batch[:, layout.span(q)]
            if q:
                r = r - self.below[q - 1] @ parts[-1]
            parts.append(self.inverse[q] @ r)
        result = self.arrays.zeros(*right.shape)
        x: Array | None = None
        for q in range(layout.blocks - 1, -1, -1):
            r = parts[q]
            if x is not None:
                r = r - self.below[q].mT @ x
            x = self.inverse[q].mT @ r
            result[layout.order[layout.span(q)]] = x[:, :, 0].T
        return result

    def coupling(self) -> Array:
        """``sum_r H_r^-1``, in the layout's order."""
        layout = self.layout
        n = int(layout.bounds[-1])
        last = self.inverse[-1]
        if layout.blocks == 1:
            flat = last.reshape(-1, n)
            return flat.T @ flat
        total = self.arrays.zeros(n, n)
        x = last.mT @ last  # rows of the inverse from the block at hand, columns from there on
        place = layout.span(layout.blocks - 1)
        total[place, place] = x.sum(0)
        for q in range(layout.blocks - 2, -1, -1):
            inverse = self.inverse[q]
            place, rest = layout.span(q), slice(int(layout.bounds[q + 1]), n)
            step = inverse.mT @ self.below[q].mT
            right = -(step @ x)
            corner = inverse.mT @ inverse - right[:, :, : step.shape[-1]] @ step.mT
            corner = (corner + corner.mT) * 0.5
            total[place, place] = corner.sum(0)
            total[place, rest] = right.sum(0)
            total[rest, place] = total[place, rest].T
            x = self.arrays.stack_columns(corner, right)
        return total


def factorise(layout: Layout, arrays: Arrays, off: Array, record: Array) -> Factors:
    """Factor a batch from its entries.

    Args:
        layout: where the entries go.
        arrays: the array library.
        off: ``(P, R)`` entries of the pairs.
        record: ``(N, R)`` diagonal entries.

    Raises:
        numpy.linalg.LinAlgError: a matrix is not positive definite in floating point.
    """
    buffer = arrays.zeros(off.shape[1], layout.size)
    entries = off.T
    buffer[:, layout.upper] = entries
    buffer[:, layout.lower] = entries
    buffer[:, layout.record] = record.T
    width = np.diff(layout.bounds)
    inverse: list[Array] = []
    below: list[Array] = []
    for q in range(layout.blocks):
        b = int(width[q])
        start = int(layout.diagonal[q])
        block = buffer[:, start : start + b * b].reshape(-1, b, b)
        if q:
            start, a = int(layout.below[q]), int(width[q - 1])
            coupling = buffer[:, start : start + a * b].reshape(-1, b, a) @ inverse[-1].mT
            below.append(coupling)
            block = block - coupling @ coupling.mT
        inverse.append(arrays.lower_inverse(arrays.cholesky(block)))
    return Factors(layout=layout, arrays=arrays, inverse=inverse, below=below)
