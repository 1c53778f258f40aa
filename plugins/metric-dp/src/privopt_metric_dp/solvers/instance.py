"""The optimal-mechanism problem as arrays, and its answer.

The problem is "OMG" (mathematics: Bordenabe et al. 2014), the same LP as the "PMO" of the metric-DP papers. Minimise
``sum_ik cost[i, k] z[i, k]`` subject to ``z[i, k] <= exp(epsilon d_ij) z[j, k]`` for both directions of every required
pair and every output ``k``, every row of ``z`` summing to one, ``z >= 0``.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import field, frozen
from attrs.converters import optional

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.lagrangian_bound import SparseMultipliers
from privopt_metric_dp.proof.multipliers import Multipliers

__all__ = ["Instance", "Solution", "dual_bound", "one_output"]

EPSILON_SLACK = 1e-9
"""Share of epsilon that a solution leaves to rounding."""


def _to_read_only(values: Any, dtype: type = np.float64) -> Any:
    """Return a read-only, contiguous view of an array; the array is copied only if necessary."""
    array: Any = np.ascontiguousarray(values, dtype=dtype).view()
    array.flags.writeable = False
    return array


def _to_pairs(values: Any) -> Any:
    return _to_read_only(values if np.size(values) else np.zeros((0, 2)), np.int64)


@frozen(kw_only=True, eq=False)
class Instance:
    """One optimal-mechanism LP.

    Attributes:
        cost: ``(N, K)`` prior-weighted costs ``p_i c_ik`` of records ``i`` and outputs ``k``.
        pairs: ``(P, 2)`` required pairs ``i < j``, sorted, each once.
        distances: ``(P,)`` their distances, not negative, in any unit.
        epsilon: privacy per unit of distance, above 0.
        coordinates: ``(N, dim)`` positions of the records, or None. Only used to order records well.

    Raises:
        InputError: sizes that do not fit, indices out of range, numbers that are not finite.
    """

    cost: Floats = field(converter=_to_read_only)
    pairs: Ints = field(converter=_to_pairs)
    distances: Floats = field(converter=_to_read_only)
    epsilon: float = field(converter=float)
    coordinates: Floats | None = field(default=None, converter=optional(_to_read_only))

    @classmethod
    def of(cls, data: MetricData) -> Instance:
        """Return the optimal mechanism's program over a set of pairs that implies all required pairs.

        Epsilon is smaller by 1e-9, so that rounding errors of a solution do not violate privacy.

        Raises:
            OutOfTime: The time limit came while that set was computed.
        """
        pairs, distances = data.needed
        return cls(
            cost=data.weighted,
            pairs=pairs,
            distances=distances,
            epsilon=cls.solved(data.epsilon),
            coordinates=data.records.coordinates,
        )

    @staticmethod
    def solved(epsilon: Fraction) -> float:
        """Return the epsilon of the program, given the epsilon that its mechanisms must satisfy."""
        return float(epsilon) * (1.0 - EPSILON_SLACK)

    def __attrs_post_init__(self) -> None:
        faults = list(self._find_faults())
        if faults:
            raise InputError(faults)

    def _find_faults(self) -> Iterator[Fault]:
        def fault(where: str, got: object, expectation: str) -> Fault:
            return Fault(file="instance", where=where, found=str(got), wanted=expectation)

        if self.cost.ndim != 2 or 0 in self.cost.shape:
            yield fault("cost", f"shape {self.cost.shape}", "records by outputs, at least one of each")
            return
        if not np.isfinite(self.cost).all():
            yield fault("cost", "NaN or infinity", "finite numbers")
        if self.pairs.ndim != 2 or self.pairs.shape[1] != 2 or self.distances.shape != (len(self.pairs),):
            yield fault("pairs", f"shapes {self.pairs.shape} and {self.distances.shape}", "(P, 2) and (P,)")
            return
        if len(self.pairs):
            i, j = self.pairs.T
            if i.min() < 0 or j.max() >= len(self.cost) or (i >= j).any():
                yield fault("pairs", "an index out of range or out of order", "0 <= i < j < number of records")
            elif (np.diff(i * len(self.cost) + j) <= 0).any():
                yield fault("pairs", "pairs that are unsorted or repeated", "sorted pairs, each once")
        if not np.isfinite(self.distances).all() or (self.distances < 0).any():
            yield fault("distances", "a negative or infinite distance", "finite distances of at least 0")
        if not (self.epsilon > 0 and np.isfinite(self.epsilon)):
            yield fault("epsilon", self.epsilon, "a finite number above 0")
        if self.coordinates is not None and len(self.coordinates) != len(self.cost):
            yield fault("coordinates", f"{len(self.coordinates)} rows", f"{len(self.cost)} rows")

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.cost.shape[0])

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return int(self.cost.shape[1])

    @property
    def lengths(self) -> Floats:
        """Log-ratios allowed on the pairs: ``epsilon * distances``."""
        return self.epsilon * self.distances

    @property
    def noise(self) -> float:
        """A difference of losses below the rounding errors of the costs."""
        return 1e-14 * self.records * float(np.abs(self.cost).max())

    def reached(self, loss: float, bound: float, gap: float) -> bool:
        """Check whether a relative gap is reached, or the difference is lost in rounding errors."""
        return loss - bound <= max(gap * abs(loss), self.noise)

    def loss(self, z: Floats) -> float:
        """Return the expected loss of a mechanism ``z`` of the shape of ``cost``."""
        return float(np.vdot(self.cost, z))


@frozen(kw_only=True, eq=False)
class Solution:
    """The answer of a method.

    Attributes:
        z: ``(N, K)`` mechanism, feasible up to rounding errors. It must be repaired before a release.
        objective: Its loss.
        lower_bound: A lower bound on the optimum in floating point. ``multipliers`` give a proof.
        multipliers: Multipliers of the privacy rows; None if the method has none.
        method: The method that gave the answer.
        iterations: Number of rounds of that method.
        trajectory: ``(seconds, lower bound, loss)`` over time.
        status: "optimal" (the requested gap is reached), "feasible" (it is not), or "stopped" (time limit or
            interrupt).
        details: Figures of the method, plain numbers and strings.
    """

    z: Floats
    objective: float
    lower_bound: float
    multipliers: Multipliers | None = None
    method: str
    iterations: int = 0
    trajectory: tuple[tuple[float, float, float], ...] = ()
    status: str = "optimal"
    details: dict[str, Any] = field(factory=dict)

    @property
    def gap(self) -> float:
        """The relative gap between loss and lower bound; infinite without a bound."""
        if not np.isfinite(self.lower_bound):
            return float("inf")
        scale = max(abs(self.objective), 1e-300)
        return max(0.0, (self.objective - self.lower_bound) / scale)


def one_output(instance: Instance) -> Solution:
    """Return the cheapest single output for all records, with the bound of every record at its cheapest output."""
    z = np.zeros(instance.cost.shape)
    z[:, int(instance.cost.sum(axis=0).argmin())] = 1
    return Solution(
        z=z,
        objective=instance.loss(z),
        lower_bound=float(instance.cost.min(axis=1).sum()),
        multipliers=Multipliers.zero(),
        method="constant",
        status="feasible",
    )


def dual_bound(instance: Instance, multipliers: Multipliers) -> tuple[float, Floats]:
    """Return the lower bound on the optimum that multipliers prove, with the lengths in doubles.

    With ``r_ik = cost_ik + sum over rows of z_i (f) - sum over rows that bound by z_i (exp(eps d) f)``
    and ``y_i = min_k r_ik`` the bound is ``sum_i y_i``, by weak duality for all multipliers. They count as 0 if
    ``exp(eps d)`` of a row, or a sum of an output, is too large for a double. If the trivial bound, every record at its
    cheapest output, is larger, it is returned, as in `privopt_metric_dp.proof.lagrangian_bound.lower_bound`.

    Returns:
        The bound and ``y``, shape ``(N,)``, both rounded down.

    Raises:
        OutOfTime: the end of the time limit has come.
    """
    with np.errstate(over="ignore"):
        growth = np.exp(instance.lengths)
    sparse, bound = SparseMultipliers.of(multipliers, instance.pairs, growth, instance.cost.shape).tame(instance.cost)
    trivial = instance.cost.min(axis=1)
    return (bound, sparse.min_bounds(instance.cost)[0]) if bound > trivial.sum() else (float(trivial.sum()), trivial)
