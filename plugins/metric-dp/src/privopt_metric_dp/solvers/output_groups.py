"""Groups of outputs that the interior point works on, eight outputs side by side, by compiled kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from privopt.arrays import Floats, Ints, Singles
from privopt.execution.clock import check
from privopt_metric_dp.matrix.simd import DOUBLE_LANES
from privopt_metric_dp.solvers import factor_kernels, row_kernels
from privopt_metric_dp.solvers.chordal import add_entries
from privopt_metric_dp.solvers.elimination import Elimination
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.row_kernels import Arrays

__all__ = ["Outputs"]


class Outputs:
    """A group of outputs. Vectors ``(N,)`` are in the order of elimination.

    Attributes:
        width: how many outputs they are.
    """

    def __init__(self, instance: Instance, pattern: Elimination, cost: Floats, start: Floats, mu: float) -> None:
        """Begin with ``z = first``, ``(N, R)`` as ``cost`` in the records' own order, and ``f = mu / s``."""
        self.pattern, self.width = pattern, cost.shape[1]
        batches = -(-self.width // DOUBLE_LANES)
        column = np.minimum(np.arange(batches * DOUBLE_LANES), self.width - 1)

        def pack_lanes(values: Floats) -> Floats:
            lanes = values[np.ix_(pattern.order, column)].reshape(-1, batches, DOUBLE_LANES)
            return np.ascontiguousarray(lanes.transpose(1, 0, 2)).reshape(batches, -1)

        z, pair_positions, root = pack_lanes(start), pattern.place[instance.pairs], np.exp(instance.lengths / 2)
        z_first, z_second = (z.reshape(batches, -1, DOUBLE_LANES)[:, pair_positions[:, end]] for end in (0, 1))
        growth = root[:, None]
        s = np.stack([growth * z_second - z_first / growth, growth * z_first - z_second / growth], axis=2).reshape(
            batches, -1
        )
        f, mask = mu / s, np.arange(batches * DOUBLE_LANES) < self.width
        records = {name: np.zeros_like(z) for name in ("dz", "ez", "right", "inverse", "unit")}
        rows = {name: np.zeros_like(s) for name in ("df", "ef")}
        factor = np.zeros((batches, DOUBLE_LANES * pattern.entries))
        self.arrays = Arrays(
            ends=pair_positions,
            root=root,
            mask=mask.astype(np.float64).reshape(batches, DOUBLE_LANES),
            cost=pack_lanes(cost),
            z=z,
            s=s,
            f=f,
            factor=factor,
            **records,
            **rows,
        )
        self._best_z, self._best_f = z, f
        self._other_z, self._other_f = np.zeros_like(z), np.zeros_like(s)

    def _lane_indices(self, records: Ints, outputs: Ints) -> tuple[Ints, Ints]:
        """Return where arrays of records hold some records, in their own order, and outputs, element by element."""
        return outputs // DOUBLE_LANES, DOUBLE_LANES * self.pattern.place[records] + outputs % DOUBLE_LANES

    def at(self, records: Ints, outputs: Ints) -> Floats:
        """Return probabilities of some records, in their own order, and outputs of the group, element by element."""
        return np.asarray(self.arrays.z[self._lane_indices(records, outputs)])

    def recost(self, records: Ints, outputs: Ints, costs: Floats) -> None:
        """Change their costs."""
        self.arrays.cost[self._lane_indices(records, outputs)] = costs
        last = (self.width - 1) % DOUBLE_LANES
        lanes = self.arrays.cost[-1].reshape(-1, DOUBLE_LANES)  # those that are left over repeat the last output
        lanes[:, last + 1 :] = lanes[:, last : last + 1]

    def measure(self) -> tuple[float, float, Floats, Floats]:
        """Return loss, products ``f s``, row sums ``(N,)``, least reduced costs ``(N,)`` of the iterate."""
        return row_kernels.measure(self.arrays)

    def keep(self, mechanism: bool, proof: bool) -> None:
        """Keep the iterate's mechanism, its multipliers, or both, as the best so far: `move` leaves them in place."""
        self._best_z = self.arrays.z if mechanism else self._best_z
        self._best_f = self.arrays.f if proof else self._best_f

    def factorise(self) -> Floats:
        """Factor ``H = A' diag(f / s) A`` of each output; return scales ``(N,)`` for `couple`.

        Raises:
            numpy.linalg.LinAlgError: a matrix is not positive definite in floating point.
            OutOfTime: the limit has come; it is looked at between batches, as below.
        """
        for g in range(len(self.arrays.z)):
            check()
            if not factor_kernels.factorise(self.pattern, self.arrays, g):
                raise np.linalg.LinAlgError("a matrix is not positive definite")
        unit = self.arrays.unit
        return np.asarray(unit.reshape(len(unit), -1, DOUBLE_LANES).max(axis=(0, 2)))

    def couple(self, scale: Floats, into: Singles) -> None:
        """Add ``sum H^-1 / (scale scale')`` to panels of it: see `factor_kernels.couple`."""
        for g in range(len(self.arrays.z)):
            check()
            factor_kernels.couple(self.pattern, self.arrays, g, scale, into)

    def add_entries(self, diagonal: Floats, off_diagonal: Floats) -> None:
        """Add the entries of ``sum H^-1`` on the factors' pattern: diagonal ``(N,)``, others ``(E,)``."""
        for g in range(len(self.arrays.z)):
            check()
            add_entries(self.pattern, self.arrays, g, diagonal, off_diagonal)

    def _solve_batches(self, prices: Floats, weight: float, right: Floats, result: Floats) -> Floats:
        return np.asarray(factor_kernels.solve(self.pattern, self.arrays, prices, weight, right, result))

    def solve(self, prices: Floats, weight: float) -> Floats:
        """Sum over outputs of ``H^-1 (prices - weight cost)``."""
        return self._solve_batches(prices, -weight, self.arrays.cost, self.arrays.ez)

    def solve_right(self, prices: Floats) -> Floats:
        """Sum over outputs of ``H^-1 (prices + right)`` with the right side that `aim` left."""
        return self._solve_batches(prices, 1.0, self.arrays.right, self.arrays.ez)

    def predict(self, prices: Floats) -> Floats:
        """Set the direction straight at the optimum under prices.

        Returns the smallest ``ds / s`` and ``df / f`` (at most 0), sums of ``f s``, ``f ds``, ``df s``, ``df ds``.
        """
        self._solve_batches(prices, -1.0, self.arrays.cost, self.arrays.dz)
        return np.asarray(row_kernels.predict(self.arrays))

    def aim(self, add: tuple[float, float], target: float, trial_steps: tuple[float, float]) -> None:
        """Add the extra direction with weights; then set the targets of complementarity of the next one.

        Steps ``trial_steps`` of zero ask for Mehrotra's target, others for Gondzio's at those steps.
        """
        row_kernels.aim(self.arrays, add, target, trial_steps)

    def extend(self, prices: Floats, weights: Floats) -> Floats:
        """Set the extra direction.

        Returns ``(2, W)``, for each weight the smallest ratio to the iterate of the direction plus weight times it.
        """
        self._solve_batches(prices, 1.0, self.arrays.right, self.arrays.ez)
        return np.asarray(row_kernels.extend(self.arrays, weights))

    def move(self, add: tuple[float, float], step: tuple[float, float]) -> None:
        """Add the extra direction with weights and go."""
        z, f = self.arrays.z, self.arrays.f
        if z is self._best_z:
            z, self._other_z = self._other_z, z
        if f is self._best_f:
            f, self._other_f = self._other_f, f
        row_kernels.move(self.arrays, add, step, z, f)
        self.arrays = self.arrays._replace(z=z, f=f)

    def row_sums(self) -> Floats:
        """Sum of the mechanism over the outputs."""
        values = self.arrays.z.reshape(len(self.arrays.z), -1, DOUBLE_LANES)
        return np.asarray(np.einsum("gnl,gl->n", values, self.arrays.mask))

    def straighten(self, prices: Floats) -> float:
        """Set ``dz = H^-1 prices``; return the smallest ``ds / s``, at most 0."""
        self._solve_batches(prices, 0.0, self.arrays.cost, self.arrays.dz)
        return row_kernels.advance(self.arrays, 0.0)

    def take(self) -> None:
        """Go along that ``dz`` in the mechanism."""
        row_kernels.advance(self.arrays, 1.0)

    def mechanism(self) -> Callable[[], Floats]:
        """Return the function that gives the stored mechanism, ``(N, R)``, in the records' own order."""
        columns = self._best_z.reshape(len(self._best_z), -1, DOUBLE_LANES).transpose(1, 0, 2)
        position, width = self.pattern.place, self.width
        return lambda: np.asarray(columns[position].reshape(len(position), -1)[:, :width])

    def proof(self) -> Callable[[], Floats]:
        """Return the function that gives the stored multipliers, ``(R, P)``: of each pair's rows one less the other."""
        rows, width = self._best_f.reshape(len(self._best_f), -1, 2, DOUBLE_LANES), self.width
        return lambda: np.ascontiguousarray(
            (rows[:, :, 0] - rows[:, :, 1]).transpose(0, 2, 1).reshape(-1, rows.shape[1])[:width]
        )
