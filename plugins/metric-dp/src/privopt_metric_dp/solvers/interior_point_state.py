"""Protocols of the interior point's engines, and the state and starting point that its iterations share.

Two kinds of group do the same: `privopt_metric_dp.solvers.interior_point_sparse` compiled for this processor, and
`privopt_metric_dp.solvers.interior_point_dense` in NumPy, for small problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from attrs import define, frozen
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints, Singles
from privopt.execution import Executor
from privopt.execution import threads as in_threads
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.symmetry import Symmetry

__all__ = ["Engine", "Measure", "Outputs", "State", "begin"]

S = TypeVar("S")
T = TypeVar("T")


@frozen(kw_only=True, eq=False)
class Measure:
    """Figures of an iterate: loss, products ``f s``, row sums ``(N,)``, least reduced costs ``(N,)``."""

    loss: float
    products: float
    sums: Floats
    least: Floats


class Outputs(Protocol):
    """A group of outputs. Vectors ``(N,)`` are in the engine's own order of the records.

    Directions: ``dz``, ``ds``, ``df``, and an extra one that is added to them with weights, primal and dual.
    """

    @property
    def width(self) -> int:
        """How many outputs they are."""

    def at(self, records: Ints, outputs: Ints) -> Floats:
        """Return probabilities of some records, in their own order, and outputs of the group, element by element."""

    def recost(self, records: Ints, outputs: Ints, costs: Floats) -> None:
        """Change their costs."""

    def measure(self) -> Measure:
        """Look at the iterate."""

    def keep(self, mechanism: bool, proof: bool) -> None:
        """Keep the iterate's mechanism, its multipliers, or both, as the best so far."""

    def factorise(self) -> Floats:
        """Factor ``H = A' diag(f / s) A`` of each output; it looks at the clock between batches.

        Returns scales ``(N,)`` for `couple`, above 0.

        Raises:
            numpy.linalg.LinAlgError: a matrix is not positive definite in floating point.
        """

    def couple(self, scale: Floats, into: Singles | Floats) -> None:
        """Add ``sum H^-1 / (scale scale')`` to what `Engine.empty_coupling` made; it looks at the clock."""

    def solve(self, prices: Floats, weight: float) -> Floats:
        """Sum over outputs of ``H^-1 (prices - weight cost)``."""

    def solve_right(self, prices: Floats) -> Floats:
        """Sum over outputs of ``H^-1 (prices + right)`` with the right side that `aim` left."""

    def predict(self, prices: Floats) -> Floats:
        """Set the direction straight at the optimum under prices.

        Returns the smallest ``ds / s`` and ``df / f`` (at most 0), sums of ``f s``, ``f ds``, ``df s``, ``df ds``.
        """

    def aim(self, add: tuple[float, float], target: float, trial_steps: tuple[float, float]) -> None:
        """Add the extra direction with weights; then set the targets of complementarity of the next one.

        Steps ``trial_steps`` of zero ask for Mehrotra's target, others for Gondzio's at those steps.
        """

    def extend(self, prices: Floats, weights: Floats) -> Floats:
        """Set the extra direction.

        Returns ``(2, W)``, for each weight the smallest ratio to the iterate of the direction plus weight times it.
        """

    def move(self, add: tuple[float, float], step: tuple[float, float]) -> None:
        """Add the extra direction with weights and go."""

    def row_sums(self) -> Floats:
        """Sum of the mechanism over the outputs."""

    def straighten(self, prices: Floats) -> float:
        """Set ``dz = H^-1 prices``; the smallest ``ds / s``, at most 0."""

    def take(self) -> None:
        """Go along that ``dz`` in the mechanism."""

    def mechanism(self) -> Callable[[], Floats]:
        """Return the function that gives the stored mechanism, ``(N, R)``, in the records' own order."""

    def proof(self) -> Callable[[], tuple[Floats, Floats]]:
        """Return the function that gives the stored multipliers, ``(P, R)`` each, of the two rows of each pair."""


class Engine(Protocol):
    """How outputs are worked on.

    Attributes:
        order: ``(N,)`` record at each place of the vectors.
        exact: whether the coupling is formed in double precision; otherwise it only preconditions.
        details: figures for the answer.
    """

    order: Ints
    exact: bool
    details: dict[str, int]

    def groups(self, cost: Floats, first: Floats, mu: float) -> Sequence[Outputs]:
        """Return groups with ``z = first``, shape of ``cost`` ``(N, R)`` in the records' own order, ``f = mu / s``."""

    def empty_coupling(self) -> Singles | Floats:
        """Return zeros for a sum of inverses."""

    def whole_coupling(self, parts: Sequence[Singles | Floats]) -> Singles | Floats:
        """Add up such sums to the symmetric ``(N, N)`` coupling."""


@define(eq=False)
class State:
    """One reduced problem under solution.

    Attributes:
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
    engine: Engine
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
        """Run a function on all groups; what overflows at huge epsilon d ends the iteration by itself."""

        return self.over(self.groups, function)

    def over(self, parts: Sequence[S], function: Callable[[S], T]) -> list[T]:
        """Run a function on parts of the problem, in threads; results come in the parts' order."""

        def quietly(part: S) -> T:
            with np.errstate(all="ignore"):  # a thread does not inherit it
                return function(part)

        if self.pool is None:
            return [quietly(part) for part in parts]
        return list(self.pool.map(quietly, parts))

    def at(self, records: Ints, outputs: Ints) -> Floats:
        """Return the mechanism's probabilities of some records and outputs, element by element."""
        found = np.empty(len(records))
        for group, rows, columns in self._by_group(outputs):
            found[rows] = group.at(records[rows], columns)
        return found

    def recost(self, records: Ints, outputs: Ints, costs: Floats) -> None:
        """Change the costs of some records and outputs, element by element."""
        for group, rows, columns in self._by_group(outputs):
            group.recost(records[rows], columns, costs[rows] / self.scale)

    def _by_group(self, outputs: Ints) -> Iterator[tuple[Outputs, Ints, Ints]]:
        """Yield each group, the places of its outputs among those given, and their numbers in the group."""
        first = 0
        for group in self.groups:
            rows = np.flatnonzero((outputs >= first) & (outputs < first + group.width))
            yield group, rows, outputs[rows] - first
            first += group.width

    def prices(self, y: Floats) -> Floats:
        """Price of each record, ``(N,)``."""
        return np.asarray(self.spread @ y)

    def sums(self, function: Callable[[Outputs], Floats]) -> Floats:
        """Sum over all groups, by orbit."""
        return np.asarray(self.gather @ sum(self.each(function)))


def begin(instance: Instance, symmetry: Symmetry, engine: Engine, *, formed: bool, threads: int) -> State:
    """Return the first iterate: one mechanism for all outputs, strictly inside the rows, and multipliers to match."""
    n, orbit = instance.records, symmetry.orbit[engine.order]
    size = np.bincount(orbit)
    cost = instance.cost[:, symmetry.representatives]
    scale = float(np.abs(cost).max()) or 1.0
    spread = csr_array((1 / size[orbit], (np.arange(n), orbit)), shape=(n, len(size)))
    rows = 2 * len(instance.pairs) * cost.shape[1]
    times = np.bincount(symmetry.origin()[0])
    mu = max(float(np.abs(cost @ times).sum()) / (instance.outputs * scale), 1e-12) / rows
    first = np.broadcast_to(times / instance.outputs, cost.shape)
    groups = engine.groups(cost / scale, first, mu)
    return State(
        instance=instance,
        symmetry=symmetry,
        engine=engine,
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
