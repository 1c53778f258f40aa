"""Groups of outputs for the interior-point method. Compiled kernels process the outputs eight at a time."""

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
    """A group of outputs with their current iterate.

    The variables have the same names as in :class:`Arrays`: ``z`` is the mechanism, ``s`` are the slacks ``A z`` in the
    privacy constraints, and ``f`` are the multipliers of these constraints. ``dz`` and ``df`` are the direction of the
    next step, ``ez`` and ``ef`` are an extra direction, and ``right`` is the right-hand side of the linear system for
    the extra direction. The matrix of each output is ``H = A' diag(f / s) A``. Vectors of shape ``(N,)`` are in
    elimination order.

    Attributes:
        pattern: The elimination order of the records and the sparsity pattern of the factors.
        width: The number of outputs, R.
        arrays: The current iterate and directions, in batches of eight outputs.
    """

    def __init__(self, instance: Instance, pattern: Elimination, cost: Floats, start: Floats, mu: float) -> None:
        """Create a group at its first iterate, with the mechanism ``start`` and the multipliers ``mu / s``.

        Args:
            instance: The instance.
            pattern: The elimination order and the pattern of the factors, which are shared by all outputs.
            cost: Array of shape (N, R) with the costs for the group's outputs. Records are in the order of the
                instance.
            start: Array of shape (N, R) with the first iterate, which must satisfy every privacy constraint strictly.
            mu: The complementarity, i.e. the product ``f s`` (multiplier times slack) for every privacy constraint.
        """
        self.pattern, self.width = pattern, cost.shape[1]
        batches = -(-self.width // DOUBLE_LANES)
        # Unused lanes repeat the last output, so that they compute with numbers as valid as those of a real output. The
        # mask keeps them out of sums, and minima are not changed by a repetition.
        column = np.minimum(np.arange(batches * DOUBLE_LANES), self.width - 1)

        def pack_lanes(values: Floats) -> Floats:
            """Rearrange an (N, R) array into batches of shape (G, 8 N), with eight consecutive values per record."""
            lanes = values[np.ix_(pattern.order, column)].reshape(-1, batches, DOUBLE_LANES)
            return np.ascontiguousarray(lanes.transpose(1, 0, 2)).reshape(batches, -1)

        # Each pair has two rows, with the slacks `a z_j - z_i / a` and `a z_i - z_j / a`, where a = exp(eps d / 2).
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
        # The mechanism and the multipliers have two buffers each. While one is saved as the best so far, `move` writes
        # into the other, so that saving needs no copy.
        self._best_z, self._best_f = z, f
        self._other_z, self._other_f = np.zeros_like(z), np.zeros_like(s)

    def _lane_indices(self, records: Ints, outputs: Ints) -> tuple[Ints, Ints]:
        """Return the index of the batch for each (record, output) pair, and the pair's position within the batch.

        Args:
            records, outputs: Arrays of shape (M,) with the indices of the records, and of the outputs within the group.
        """
        return outputs // DOUBLE_LANES, DOUBLE_LANES * self.pattern.place[records] + outputs % DOUBLE_LANES

    def at(self, records: Ints, outputs: Ints) -> Floats:
        """Return the current probabilities of given (record, output) pairs.

        Args:
            records, outputs: Arrays of shape (M,) with the indices of the records, and of the outputs within the group.

        Returns:
            Array of shape (M,) with the probabilities.
        """
        return np.asarray(self.arrays.z[self._lane_indices(records, outputs)])

    def recost(self, records: Ints, outputs: Ints, costs: Floats) -> None:
        """Change the costs of given (record, output) pairs.

        Args:
            records, outputs: Arrays of shape (M,) with the indices of the records, and of the outputs within the group.
            costs: Array of shape (M,) with the new costs.
        """
        self.arrays.cost[self._lane_indices(records, outputs)] = costs
        # Unused lanes must keep repeating the last output, whose costs may have changed.
        last = (self.width - 1) % DOUBLE_LANES
        lanes = self.arrays.cost[-1].reshape(-1, DOUBLE_LANES)
        lanes[:, last + 1 :] = lanes[:, last : last + 1]

    def measure(self) -> tuple[float, float, Floats, Floats]:
        """Compute the quantities that describe the current iterate.

        Returns:
            The loss, the sum of ``f s``, an array of shape (N,) with the sums of the mechanism's rows over the group's
            outputs, and an array of shape (N,) with the smallest reduced cost of each record.
        """
        return row_kernels.measure(self.arrays)

    def keep(self, mechanism: bool, proof: bool) -> None:
        """Save the iterate's mechanism, its multipliers, or both as the best so far.

        :meth:`move` does not overwrite what has been saved.

        Args:
            mechanism: Whether to save the mechanism.
            proof: Whether to save the multipliers, which prove a bound.
        """
        self._best_z = self.arrays.z if mechanism else self._best_z
        self._best_f = self.arrays.f if proof else self._best_f

    def factorise(self) -> Floats:
        """Factor ``H = A' diag(f / s) A`` for each output, and return the scales for `couple`.

        Returns:
            Array of shape (N,) with the scales. Entry i is the maximum of ``1 / sqrt(H[i, i])`` over all outputs.

        Raises:
            numpy.linalg.LinAlgError: A matrix is not positive definite in floating point.
            OutOfTime: The time limit has expired. The limit is checked between batches.
        """
        for g in range(len(self.arrays.z)):
            check()
            if not factor_kernels.factorise(self.pattern, self.arrays, g):
                raise np.linalg.LinAlgError("a matrix is not positive definite")
        # The largest scale over the outputs is used, so that dividing by the scales brings every output's inverse into
        # the range of single precision.
        unit = self.arrays.unit
        return np.asarray(unit.reshape(len(unit), -1, DOUBLE_LANES).max(axis=(0, 2)))

    def couple(self, scale: Floats, into: Singles) -> None:
        """Add the scaled sum of ``H^-1`` over the group's outputs to ``into``.

        The sum is this group's contribution to the matrix that couples the outputs.

        Args:
            scale: Array of shape (N,) with scales. Entry (i, j) is divided by ``scale_i scale_j``.
            into: The panels to which the sum is added. See `factor_kernels.couple` for their layout.

        Raises:
            OutOfTime: The time limit expired.
        """
        for g in range(len(self.arrays.z)):
            check()
            factor_kernels.couple(self.pattern, self.arrays, g, scale, into)

    def add_entries(self, diagonal: Floats, off_diagonal: Floats) -> None:
        """Sum ``H^-1`` over the group's outputs, and add the entries of the sum that lie on the factors' pattern.

        Args:
            diagonal: Array of shape (N,) to which the diagonal entries are added.
            off_diagonal: Array of shape (E,) to which the entries below the diagonal are added.

        Raises:
            OutOfTime: The time limit expired.
        """
        for g in range(len(self.arrays.z)):
            check()
            add_entries(self.pattern, self.arrays, g, diagonal, off_diagonal)

    def _solve_batches(self, prices: Floats, weight: float, right: Floats, result: Floats) -> Floats:
        """Compute ``result = H^-1 (prices + weight right)`` for all outputs, and return the sum over the outputs.

        Args:
            prices: Array of shape (N,) with the prices of the records, which are shared by all outputs.
            weight: The factor for ``right``.
            right: Array of shape (G, 8 N) with the right-hand sides.
            result: Array of shape (G, 8 N) that receives the solutions.

        Returns:
            Array of shape (N,) with the sums of the solutions over the outputs.
        """
        return np.asarray(factor_kernels.solve(self.pattern, self.arrays, prices, weight, right, result))

    def solve(self, prices: Floats, weight: float) -> Floats:
        """Solve ``H x = prices - weight cost`` for all outputs, and return the sum of the solutions.

        Args:
            prices: Array of shape (N,) with the prices of the records, which are shared by all outputs.
            weight: The factor for the costs.

        Returns:
            Array of shape (N,) with the sums of the solutions over the outputs.
        """
        # `ez` serves as a workspace, because the extra direction of the last step has been added and the next one is
        # not set yet.
        return self._solve_batches(prices, -weight, self.arrays.cost, self.arrays.ez)

    def solve_right(self, prices: Floats) -> Floats:
        """Solve ``H x = prices + right`` for all outputs, and return the sum of the solutions.

        :meth:`aim` must be called first, because it sets ``right``.

        Args:
            prices: Array of shape (N,) with the prices of the records, which are shared by all outputs.

        Returns:
            Array of shape (N,) with the sums of the solutions over the outputs.
        """
        return self._solve_batches(prices, 1.0, self.arrays.right, self.arrays.ez)

    def predict(self, prices: Floats) -> Floats:
        """Set ``dz`` and ``df`` to the affine scaling direction, which aims for complementarity 0.

        The mechanism's direction is ``dz = H^-1 (prices - cost)``.

        Args:
            prices: Array of shape (N,) with the prices of the records, which are shared by all outputs.

        Returns:
            Array of shape (6,) with the smallest ``ds / s`` and ``df / f`` (at most 0), and the sums of ``f s``,
            ``f ds``, ``df s`` and ``df ds``.
        """
        self._solve_batches(prices, -1.0, self.arrays.cost, self.arrays.dz)
        return np.asarray(row_kernels.predict(self.arrays))

    def aim(self, add: tuple[float, float], target: float, trial_steps: tuple[float, float]) -> None:
        """Add the weighted extra direction to the main direction, and set the targets for the next extra direction.

        Args:
            add: The primal and dual weights for the extra direction.
            target: The complementarity to aim for.
            trial_steps: The primal and the dual step length at which Gondzio's corrector is evaluated, or (0, 0) for
                Mehrotra's corrector.
        """
        row_kernels.aim(self.arrays, add, target, trial_steps)

    def extend(self, prices: Floats, weights: Floats) -> Floats:
        """Compute the extra direction ``ez``, ``ef`` from the targets set by `aim`, at the given prices.

        Args:
            prices: Array of shape (N,) with the prices of the records, which are shared by all outputs.
            weights: Array of shape (W,) with the weights to try for the extra direction.

        Returns:
            Array of shape (2, W) with the smallest ratios (at most 0) of (direction + weight times extra direction) to
            the iterate. The first row is for the primal side and the second for the dual side. Each column is for one
            weight.
        """
        self._solve_batches(prices, 1.0, self.arrays.right, self.arrays.ez)
        return np.asarray(row_kernels.extend(self.arrays, weights))

    def move(self, add: tuple[float, float], step: tuple[float, float]) -> None:
        """Add the weighted extra direction to the main direction, and take a step along the result.

        Args:
            add: The primal and dual weights for the extra direction.
            step: The primal and dual step lengths.
        """
        z, f = self.arrays.z, self.arrays.f
        # A saved iterate must not be overwritten, so the next one is written to the other buffer.
        if z is self._best_z:
            z, self._other_z = self._other_z, z
        if f is self._best_f:
            f, self._other_f = self._other_f, f
        row_kernels.move(self.arrays, add, step, z, f)
        self.arrays = self.arrays._replace(z=z, f=f)

    def row_sums(self) -> Floats:
        """Return an array of shape (N,) with the sums of the mechanism's rows over the group's outputs."""
        values = self.arrays.z.reshape(len(self.arrays.z), -1, DOUBLE_LANES)
        return np.asarray(np.einsum("gnl,gl->n", values, self.arrays.mask))

    def set_sum_correction(self, prices: Floats) -> float:
        """Set ``dz = H^-1 prices`` without changing the mechanism, and return the smallest ``ds / s`` (at most 0).

        Args:
            prices: Array of shape (N,) with the prices that correct the row sums.
        """
        self._solve_batches(prices, 0.0, self.arrays.cost, self.arrays.dz)
        return row_kernels.advance(self.arrays, 0.0)

    def apply_sum_correction(self) -> None:
        """Add the correction ``dz`` from :meth:`set_sum_correction` to the mechanism."""
        row_kernels.advance(self.arrays, 1.0)

    def mechanism(self) -> Callable[[], Floats]:
        """Return a function that returns the saved mechanism, of shape (N, R), with records in the instance's order."""
        # The shape is (N, G, 8), because each record has G batches of eight outputs.
        columns = self._best_z.reshape(len(self._best_z), -1, DOUBLE_LANES).transpose(1, 0, 2)
        position, width = self.pattern.place, self.width
        return lambda: np.asarray(columns[position].reshape(len(position), -1)[:, :width])

    def proof(self) -> Callable[[], Floats]:
        """Return a function that returns the saved multipliers, of shape (R, P).

        The entry for a pair is the multiplier of its first privacy constraint minus the multiplier of its second one.
        """
        # The shape is (G, P, 2, 8), because in each batch, each pair has two rows of eight outputs.
        rows, width = self._best_f.reshape(len(self._best_f), -1, 2, DOUBLE_LANES), self.width
        return lambda: np.ascontiguousarray(
            (rows[:, :, 0] - rows[:, :, 1]).transpose(0, 2, 1).reshape(-1, rows.shape[1])[:width]
        )
