"""The state shared by the iterations of the interior-point method, and the first iterate."""

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
"""The maximum number of groups of outputs. It is fixed so that sums do not depend on the number of threads."""

S = TypeVar("S")
T = TypeVar("T")


@define(eq=False)
class State:
    """The state of the interior-point method for one connected instance.

    Attributes:
        instance, symmetry: The problem and its symmetries. The ``groups`` contain only one output from each orbit.
        pattern: The elimination order and the pattern of the factors. Vectors of shape (N,) in the groups are in this
            order.
        pool: The threads that run the groups, or None to run them in the caller's thread.
        groups: The outputs, divided into groups.
        orbit: Array of shape (N,) with the orbit of the record at each position in the elimination order.
        spread: A sparse matrix that converts prices of orbits to prices of records.
        gather: A sparse matrix that converts row sums of records to means over orbits.
        y: Array of shape (O,) with the prices of the orbits.
        size: The total number of privacy constraints for all outputs in the groups.
        scale: The divisor applied to the costs.
        formed: Whether the whole matrix that couples the outputs is formed. If not, it is approximated from its entries
            on the pattern.
        rough: The relative residual at which to stop solving systems with that matrix if it is not formed.
        saved_loss, bound: The loss of the saved mechanism and the best bound, both divided by ``scale``.
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

    def map_groups(self, function: Callable[[Outputs], T]) -> list[T]:
        """Run a function on all groups, using threads, and return the results in the order of the groups.

        Overflows, which occur if epsilon d is very large, are ignored here because the iteration detects them later.
        """
        return self.map_parts(self.groups, function)

    def map_parts(self, parts: Sequence[S], function: Callable[[S], T]) -> list[T]:
        """Run a function on parts of the problem, using threads, and return the results in the order of the parts.

        Args:
            parts: The parts, such as groups of outputs.
            function: The function, which is called with one part.
        """

        def run_quietly(part: S) -> T:
            """Run the function without floating-point warnings."""
            with np.errstate(all="ignore"):  # a thread does not inherit it
                return function(part)

        if self.pool is None:
            return [run_quietly(part) for part in parts]
        return list(self.pool.map(run_quietly, parts))

    def at(self, records: Ints, outputs: Ints) -> Floats:
        """Return the current probabilities of given (record, output) pairs.

        Args:
            records: Array of shape (M,) with the indices of the records.
            outputs: Array of shape (M,) with the indices of the outputs, counted across all groups. Without symmetries,
                these are the indices in the instance.

        Returns:
            Array of shape (M,) with the probabilities.
        """
        probabilities = np.empty(len(records))
        for group, rows, columns in self._by_group(outputs):
            probabilities[rows] = group.at(records[rows], columns)
        return probabilities

    def recost(self, records: Ints, outputs: Ints, costs: Floats) -> None:
        """Change the costs of given (record, output) pairs.

        Args:
            records, outputs: Arrays of shape (M,) with the indices of the records and the outputs, as in :meth:`at`.
            costs: Array of shape (M,) with the new costs, in the same units as the instance's costs.
        """
        for group, rows, columns in self._by_group(outputs):
            group.recost(records[rows], columns, costs[rows] / self.scale)

    def _by_group(self, outputs: Ints) -> Iterator[tuple[Outputs, Ints, Ints]]:
        """Split outputs by group.

        Args:
            outputs: Array of shape (M,) with the indices of outputs, counted across all groups.

        Yields:
            A group, the positions of its outputs in ``outputs``, and their indices within the group.
        """
        offset = 0
        for group in self.groups:
            rows = np.flatnonzero((outputs >= offset) & (outputs < offset + group.width))
            yield group, rows, outputs[rows] - offset
            offset += group.width

    def prices(self, y: Floats) -> Floats:
        """Convert prices of orbits, of shape (O,), to prices of records in elimination order, of shape (N,)."""
        return np.asarray(self.spread @ y)

    def sums(self, function: Callable[[Outputs], Floats]) -> Floats:
        """Sum a function's results over all groups, and return the mean of the sum over each orbit of records.

        Args:
            function: A function that returns an array of shape (N,) for a group.

        Returns:
            Array of shape (O,) with the means.
        """
        return np.asarray(self.gather @ sum(self.map_groups(function)))


def begin(instance: Instance, symmetry: Symmetry, pattern: Elimination, *, formed: bool, threads: int) -> State:
    """Create the first iterate from the uniform mechanism, with the same product ``f s`` for every privacy constraint.

    Here, ``f`` is the multiplier of the constraint, and ``s`` is its slack.

    Args:
        instance: A connected instance.
        symmetry: The instance's symmetries. Only one output from each orbit is solved for.
        pattern: The elimination order and the pattern of the factors.
        formed: Whether to form the whole matrix that couples the outputs.
        threads: The number of threads.
    """
    from privopt_metric_dp.matrix.simd import DOUBLE_LANES
    from privopt_metric_dp.solvers.output_groups import Outputs

    n, orbit = instance.records, symmetry.orbit[pattern.order]
    size = np.bincount(orbit)
    cost = instance.cost[:, symmetry.representatives]
    scale = float(np.abs(cost).max()) or 1.0
    spread = csr_array((1 / size[orbit], (np.arange(n), orbit)), shape=(n, len(size)))
    rows = 2 * len(instance.pairs) * cost.shape[1]
    # `times` is the number of outputs in each orbit. At the start, every f s is the loss of the uniform mechanism
    # (scaled, and without signs) divided by the number of rows.
    times = np.bincount(symmetry.origin()[0])
    mu = max(float(np.abs(cost @ times).sum()) / (instance.outputs * scale), 1e-12) / rows
    # If all records have equal rows, every privacy row is strictly satisfied, because exp(eps d) > 1 for all pairs in a
    # part. A column represents all outputs in its orbit, so it gets their total mass.
    start = np.broadcast_to(times / instance.outputs, cost.shape)
    batches = -(-cost.shape[1] // DOUBLE_LANES)
    # Groups consist of whole batches of eight outputs, so that only the last group has unused lanes.
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
