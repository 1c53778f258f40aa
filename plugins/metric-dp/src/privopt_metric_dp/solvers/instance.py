"""The optimal-mechanism problem as arrays, and its solution.

The problem is "OMG" (Bordenabe et al., CCS 2014), which is the same LP as "PMO" in the metric-DP papers. It minimises
``sum_ik cost[i, k] z[i, k]`` subject to ``z[i, k] <= exp(epsilon d_ij) z[j, k]`` for every required pair, in both
directions, and for every output ``k``. Every row of ``z`` sums to one, and ``z >= 0``.
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
from privopt.numbers.distances import directions
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.lagrangian_bound import Multipliers, SparseMultipliers
from privopt_metric_dp.space.places import Space

__all__ = ["Instance", "Solution", "dual_bound", "one_output"]

EPSILON_SLACK = 1e-9
"""The relative amount by which epsilon is reduced when solving LPs, so that rounding errors do not violate privacy."""


def _to_read_only(values: Any, dtype: type = np.float64) -> Any:
    """Return values as a read-only, contiguous array, copying them only if necessary.

    Args:
        values: An array, or anything that NumPy can turn into one.
        dtype: The type of the elements.
    """
    # Without a copy, the view shares the caller's memory, but only the view becomes read-only.
    array: Any = np.ascontiguousarray(values, dtype=dtype).view()
    array.flags.writeable = False
    return array


def _to_pairs(values: Any) -> Any:
    """Return pairs as a read-only integer array of shape (P, 2), which is (0, 2) if there are no pairs."""
    return _to_read_only(values if np.size(values) else np.zeros((0, 2)), np.int64)


def _read_coordinates(records: Space) -> Floats | None:
    """Return the records' coordinates for finding symmetries, with places on the Earth converted to unit vectors."""
    if records.kind == "geographic" and records.coordinates is not None:
        return directions(records.coordinates)
    return records.coordinates


@frozen(kw_only=True, eq=False)
class Instance:
    """The linear program for an optimal mechanism, as arrays.

    Attributes:
        cost: Array of shape (N, K) with the costs times the prior, ``p_i c_ik``, for records ``i`` and outputs ``k``.
        pairs: Array of shape (P, 2) with the pairs ``i < j`` of records that need privacy constraints, sorted and
            unique.
        distances: Array of shape (P,) with the non-negative distances between the records of each pair, in any unit.
        epsilon: Epsilon per unit of distance, which must be positive.
        coordinates: Array of shape (N, dim) with the positions of the records, or None. They are only used to find
            symmetries. Places on the Earth are given as unit vectors.

    Raises:
        InputError: Shapes do not match, indices are out of range or out of order, a number is not finite, a distance is
            negative, or epsilon is not positive.
    """

    cost: Floats = field(converter=_to_read_only)
    pairs: Ints = field(converter=_to_pairs)
    distances: Floats = field(converter=_to_read_only)
    epsilon: float = field(converter=float)
    coordinates: Floats | None = field(default=None, converter=optional(_to_read_only))

    @classmethod
    def of(cls, data: MetricData) -> Instance:
        """Return the LP for the optimal mechanism.

        The LP contains only a subset of the pairs covered by the guarantee. This subset implies all other pairs. The
        LP's epsilon is reduced by 1e-9 of its value, so that rounding errors in a solution do not violate privacy.

        Args:
            data: The problem's data.

        Raises:
            OutOfTime: The time limit expired while the subset of pairs was being computed.
        """
        pairs, distances = data.needed
        return cls(
            cost=data.weighted,
            pairs=pairs,
            distances=distances,
            epsilon=cls.reduce_epsilon(data.epsilon),
            coordinates=_read_coordinates(data.records),
        )

    @staticmethod
    def reduce_epsilon(epsilon: Fraction) -> float:
        """Return the epsilon for the LP, which is slightly smaller than the one that mechanisms must satisfy."""
        return float(epsilon) * (1.0 - EPSILON_SLACK)

    def __attrs_post_init__(self) -> None:
        """Check the arrays, and raise InputError with all faults if there are any."""
        faults = list(self._find_faults())
        if faults:
            raise InputError(faults)

    def _find_faults(self) -> Iterator[Fault]:
        """Yield the faults in the arrays. If a shape is wrong, all further checks are skipped."""

        def fault(where: str, got: object, expectation: str) -> Fault:
            """Return a fault for the attribute ``where``, with its actual value and a description of valid values."""
            return Fault(file="instance", where=where, actual=str(got), expectation=expectation)

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
            # Each pair (i, j) is encoded as a number. The pairs are sorted and distinct if these numbers increase
            # strictly.
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
        """The number of records."""
        return int(self.cost.shape[0])

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return int(self.cost.shape[1])

    @property
    def lengths(self) -> Floats:
        """Array of shape (P,) with the largest log ratio allowed for each pair, ``epsilon * distances``."""
        return self.epsilon * self.distances

    @property
    def noise(self) -> float:
        """The largest difference between two computed losses that can be caused by rounding alone."""
        # 45 times the resolution of a double (2.2e-16) per record, relative to the largest cost.
        return 1e-14 * self.records * float(np.abs(self.cost).max())

    def is_gap_reached(self, loss: float, bound: float, gap: float) -> bool:
        """Return whether a loss exceeds a bound by at most a relative gap, or by at most :attr:`noise`.

        Args:
            loss: The expected loss of a mechanism.
            bound: The lower bound on the optimum.
            gap: The largest accepted difference, relative to the loss.
        """
        return loss - bound <= max(gap * abs(loss), self.noise)

    def loss(self, z: Floats) -> float:
        """Return the expected loss of a mechanism ``z`` of shape (N, K), which is the sum of ``cost * z``."""
        return float(np.vdot(self.cost, z))


@frozen(kw_only=True, eq=False)
class Solution:
    """The result of solving an instance.

    Attributes:
        z: Array of shape (N, K) with the mechanism, which is feasible up to rounding errors. It must be repaired before
            it is released.
        objective: The expected loss of the mechanism.
        lower_bound: A lower bound on the optimum, computed in floating point and proved by ``multipliers``.
        multipliers: The multipliers of the privacy constraints, or None if there are none.
        method: The name of the method that found the mechanism.
        iterations: The number of offers (mechanisms or bounds) made by this method.
        trajectory: Tuples ``(seconds, lower bound, loss)`` in chronological order.
        status: "optimal" if the requested gap was reached, "feasible" if it was not, or "stopped" if a time limit or an
            interrupt ended the search first.
        details: Statistics recorded by the methods, keyed by name.
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
        """The relative gap between the loss and the lower bound, or infinity if there is no bound."""
        if not np.isfinite(self.lower_bound):
            return float("inf")
        # The floor avoids a division by 0. As a result, the gap of a loss of 0 is 0 if the bound is 0 too, and
        # otherwise huge.
        scale = max(abs(self.objective), 1e-300)
        return max(0.0, (self.objective - self.lower_bound) / scale)


def one_output(instance: Instance) -> Solution:
    """Return the mechanism that always reports the output with the lowest total cost over all records.

    Its lower bound is the trivial one: the loss if every record reported its own cheapest output.
    """
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
    """Return the lower bound on the optimum proved by multipliers, evaluated in floating point.

    If ``f_ijk`` is the multiplier of the constraint ``z_ik <= exp(eps d_ij) z_jk``, the reduced costs are
    ``r_ik = cost_ik + sum_j f_ijk - sum_j exp(eps d_ij) f_jik``. By weak duality, ``sum_i y_i`` with
    ``y_i = min_k r_ik`` is a lower bound for any non-negative multipliers. A multiplier is treated as 0 if
    ``exp(eps d_ij)`` for its constraint, or a sum for its output, is too large for a double. If the trivial bound (the
    loss if every record reports its cheapest output) is larger, it is returned instead, as in
    `privopt_metric_dp.proof.lagrangian_bound.lower_bound`.

    Args:
        instance: The problem. Its log ratios ``epsilon * distances`` are used as doubles, so the bound is not an exact
            proof.
        multipliers: Any multipliers for the instance's pairs.

    Returns:
        The bound, and an array of shape (N,) with ``y``. Both are rounded down, unless the trivial bound is returned.

    Raises:
        OutOfTime: The time limit expired.
    """
    with np.errstate(over="ignore"):
        # Rows with an infinite factor are left out below, because they prove nothing in doubles.
        growth = np.exp(instance.lengths)
    sparse, bound = SparseMultipliers.of(multipliers, instance.pairs, growth, instance.cost.shape).tame(instance.cost)
    trivial = instance.cost.min(axis=1)
    return (bound, sparse.min_bounds(instance.cost)[0]) if bound > trivial.sum() else (float(trivial.sum()), trivial)
