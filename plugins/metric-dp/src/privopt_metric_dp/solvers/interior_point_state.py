"""The state and starting point that the interior point's iterations share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from attrs import define
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.execution import Executor
from privopt.execution import threads as in_threads
from privopt_metric_dp.solvers.elimination import Elimination
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.symmetry import Symmetry

if TYPE_CHECKING:
    from privopt_metric_dp.solvers.output_groups import Outputs
else:
    Outputs = Any

__all__ = ["State", "begin"]

SHARED_GROUPS = 32
"""Number of groups of outputs. It does not depend on the number of threads, because sums would then depend on it."""

S = TypeVar("S")
T = TypeVar("T")


@define(eq=False)
class State:
    """The state of the interior point on one reduced problem.

    Attributes:
        pattern: of the factors; vectors ``(N,)`` of the outputs are in its order.
        orbit: ``(N,)`` orbit of the record at each place.
        spread, gather: from a price an orbit to prices, from row sums to sums by orbit.
        y: ``(O,)`` prices of the orbits.
        size: number of rows of all outputs.
        scale: what costs were divided by.
        rough: share of its length to which a step's residual is brought, where the coupling is not formed.
        formed: whether the coupling is formed; else it is completed from its entries on the factors' pattern.
    """

    instance: Instance
    symmetry: Symmetry
    pattern: Elimination
    pool: Executor | None
    groups: Sequence[Outputs]
    orbit: Ints
    spread: csr_array
    gather: csr_array
    y: Floats
    size: int
    scale: float
    formed: bool
    rough: float = 1e-3
    saved_loss: float = np.inf
    bound: float = -np.inf

    def each(self, function: Callable[[Outputs], T]) -> list[T]:
        """Run a function on all groups. Overflows at huge epsilon d are ignored here; they end the iteration later."""
        return self.over(self.groups, function)

    def over(self, parts: Sequence[S], function: Callable[[S], T]) -> list[T]:
        """Run a function on parts of the problem, in threads; results come in the parts' order."""

        def run_quietly(part: S) -> T:
            with np.errstate(all="ignore"):  # a thread does not inherit it
                return function(part)

        if self.pool is None:
            return [run_quietly(part) for part in parts]
        return list(self.pool.map(run_quietly, parts))

    def at(self, records: Ints, outputs: Ints) -> Floats:
        """Return the mechanism's probabilities of some records and outputs, element by element."""
        probabilities = np.empty(len(records))
        for group, rows, columns in self._by_group(outputs):
            probabilities[rows] = group.at(records[rows], columns)
        return probabilities

    def recost(self, records: Ints, outputs: Ints, costs: Floats) -> None:
        """Change the costs of some records and outputs, element by element."""
        for group, rows, columns in self._by_group(outputs):
            group.recost(records[rows], columns, costs[rows] / self.scale)

    def _by_group(self, outputs: Ints) -> Iterator[tuple[Outputs, Ints, Ints]]:
        """Yield each group, the places of its outputs among those given, and their numbers in the group."""
        offset = 0
        for group in self.groups:
            rows = np.flatnonzero((outputs >= offset) & (outputs < offset + group.width))
            yield group, rows, outputs[rows] - offset
            offset += group.width

    def prices(self, y: Floats) -> Floats:
        """Return the price of each record, ``(N,)``."""
        return np.asarray(self.spread @ y)

    def sums(self, function: Callable[[Outputs], Floats]) -> Floats:
        """Return the sum of a function over all groups, by orbit."""
        return np.asarray(self.gather @ sum(self.each(function)))


def begin(instance: Instance, symmetry: Symmetry, pattern: Elimination, *, formed: bool, threads: int) -> State:
    """Return the first iterate: one mechanism for all outputs, strictly inside the rows, and multipliers to match."""
    from privopt_metric_dp.matrix.simd import DOUBLE_LANES
    from privopt_metric_dp.solvers.output_groups import Outputs

    n, orbit = instance.records, symmetry.orbit[pattern.order]
    size = np.bincount(orbit)
    cost = instance.cost[:, symmetry.representatives]
    scale = float(np.abs(cost).max()) or 1.0
    spread = csr_array((1 / size[orbit], (np.arange(n), orbit)), shape=(n, len(size)))
    rows = 2 * len(instance.pairs) * cost.shape[1]
    times = np.bincount(symmetry.origin()[0])
    mu = max(float(np.abs(cost @ times).sum()) / (instance.outputs * scale), 1e-12) / rows
    start = np.broadcast_to(times / instance.outputs, cost.shape)
    batches = -(-cost.shape[1] // DOUBLE_LANES)
    bounds = np.linspace(0, batches, min(batches, SHARED_GROUPS) + 1).astype(int) * DOUBLE_LANES
    groups = [Outputs(instance, pattern, cost[:, a:b] / scale, start[:, a:b], mu) for a, b in pairwise(bounds)]
    return State(
        instance=instance,
        symmetry=symmetry,
        pattern=pattern,
        pool=in_threads(threads) if threads > 1 and len(groups) > 1 else None,
        groups=groups,
        orbit=orbit,
        spread=spread,
        gather=csr_array(spread.T),
        y=np.zeros(len(size)),
        size=rows,
        scale=scale,
        formed=formed,
    )
