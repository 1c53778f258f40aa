"""What the interior point holds: rows, and chunks of outputs, each with its iterate and its directions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from attrs import define, frozen

from privopt.arrays import Floats
from privopt.metric.optimal.arrays import Arrays
from privopt.metric.optimal.blocks import Factors, Layout, make_layout
from privopt.metric.optimal.instance import Instance
from privopt.metric.optimal.symmetry import Symmetry

__all__ = ["Chunk", "State", "begin"]


@frozen(kw_only=True, eq=False)
class _Rows:
    """Privacy rows as sparse matrices: ``2P x N``, its transpose, and the transpose of its squares."""

    forward: Any
    transpose: Any
    squares: Any


def _rows(instance: Instance, arrays: Arrays) -> _Rows:
    from scipy.sparse import csr_array

    pairs, n = len(instance.pairs), instance.records
    i, j = instance.pairs.T
    a = np.exp(instance.lengths / 2)
    row = np.arange(pairs)
    values = np.concatenate([a, -1 / a, a, -1 / a])
    where = (np.concatenate([row, row, row + pairs, row + pairs]), np.concatenate([j, i, i, j]))
    matrix = csr_array((values, where), shape=(2 * pairs, n))
    return _Rows(
        forward=arrays.sparse(matrix),
        transpose=arrays.sparse(csr_array(matrix.T)),
        squares=arrays.sparse(csr_array(matrix.power(2).T)),
    )


@define(eq=False)
class Chunk:
    """The outputs that one worker handles together: all arrays have one column an output."""

    cost: Any
    z: Any
    s: Any
    f: Any
    w: Any = None
    factors: Factors | None = None
    dz: Any = None
    ds: Any = None
    df: Any = None
    extra: tuple[Any, Any, Any] | None = None
    rc: Any = None


@define(eq=False)
class State:
    """One reduced problem under solution."""

    instance: Instance
    symmetry: Symmetry
    arrays: Arrays
    pool: ThreadPoolExecutor | None
    rows: _Rows
    layout: Layout
    chunks: list[Chunk]
    spread: Any
    gather: Any
    orbit_columns: Any
    y: Floats
    size: int
    scale: float
    saved: list[Any]
    proof: list[Any]
    saved_loss: float = np.inf
    bound: float = -np.inf

    def each(self, function: Callable[[Chunk], Any]) -> list[Any]:
        """Run a function on all chunks; what overflows at huge epsilon d ends the iteration by itself."""

        def quietly(chunk: Chunk) -> Any:
            with np.errstate(over="ignore", invalid="ignore"):  # a thread does not inherit it
                return function(chunk)

        if self.pool is None or len(self.chunks) == 1:
            return [quietly(chunk) for chunk in self.chunks]
        return list(self.pool.map(quietly, self.chunks))

    def row_values(self, y: Floats) -> Any:
        """Dual price of each record, ``(N, 1)``."""
        return self.arrays.put((self.spread @ y)[:, None])

    def sums(self, parts: list[Any]) -> Floats:
        """Row sums by orbit from the parts' sums over outputs."""
        return np.asarray(self.gather @ sum(self.arrays.get(part) for part in parts))


def begin(instance: Instance, symmetry: Symmetry, arrays: Arrays, threads: int) -> State:
    """The first iterate: one mechanism for all outputs, strictly inside the rows, and multipliers to match."""
    from scipy.sparse import csr_array

    n, orbits = instance.records, int(symmetry.orbit.max()) + 1
    size = np.bincount(symmetry.orbit)
    cost = instance.cost[:, symmetry.representatives]
    scale = float(np.abs(cost).max()) or 1.0
    rows = _rows(instance, arrays)
    layout = make_layout(instance)
    columns = cost.shape[1]
    share = max(1, min(-(-columns // threads), int(3e5 / max(2 * len(instance.pairs), layout.size)) + 1))
    if not isinstance(arrays.put(np.zeros(1)), np.ndarray):
        share = columns
    spread = csr_array((1 / size[symmetry.orbit], (np.arange(n), symmetry.orbit)), shape=(n, orbits))
    total = 2 * len(instance.pairs) * columns
    times = np.bincount(symmetry.origin()[0])
    mu = max(float(np.abs(cost @ times).sum()) / (instance.outputs * scale), 1e-12) / total
    chunks = []
    for k in range(0, columns, share):
        part = arrays.put(cost[:, k : k + share] / scale)
        z = arrays.put(np.repeat(times[None, k : k + share] / instance.outputs, n, axis=0))
        s = rows.forward @ z
        chunks.append(Chunk(cost=part, z=z, s=s, f=mu / s))
    return State(
        instance=instance,
        symmetry=symmetry,
        arrays=arrays,
        pool=ThreadPoolExecutor(threads) if threads > 1 and len(chunks) > 1 else None,
        rows=rows,
        layout=layout,
        chunks=chunks,
        spread=spread,
        gather=csr_array(spread.T),
        orbit_columns=arrays.put(spread.toarray()[layout.order]) if orbits < n else None,
        y=np.zeros(orbits),
        size=total,
        scale=scale,
        saved=[chunk.z for chunk in chunks],
        proof=[chunk.f for chunk in chunks],
    )
