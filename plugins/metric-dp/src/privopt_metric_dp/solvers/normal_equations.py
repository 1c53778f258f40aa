"""The Schur complement that couples the outputs, ``T = sum_r Q' H_r^-1 Q``, with one row for each orbit of records.

Orbits are the sets of records that symmetries map to one another, and column o of Q averages over orbit o. H_r is the
sparse matrix for output r.

A product ``T v`` takes one sparse solve per output, so conjugate gradients apply ``T^-1`` without forming ``T``. There
are two preconditioners. The first is a factor of ``T`` in single precision, which makes two or three steps sufficient.
It is used if it fits in memory and saves time. The second is the chordal completion of the entries of ``T`` on the
pattern of the factors (`privopt_metric_dp.solvers.chordal`). It takes up no more memory than one output, and reaches a
residual of 1e-3 in 15 to 100 steps, or more near the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field

from privopt.arrays import Floats, Ints, Singles
from privopt.execution.clock import check
from privopt_metric_dp.solvers.interior_point_state import State

if TYPE_CHECKING:
    from privopt_metric_dp.solvers.output_groups import Outputs
else:
    Outputs = Any

__all__ = ["MAX_RECYCLED", "MAX_STEPS", "PARTIAL_SUMS", "SchurComplement", "couple", "form"]

RIDGES = (0.0, 1e-6, 1e-4, 1e-2)
"""The ridges to add to the diagonal, tried in turn until the matrix can be factored in single precision.

They are fractions of the diagonal."""
PARTIAL_SUMS = 8
"""The number of partial sums that make up the coupling matrix.

It is fixed so that the result does not depend on the number of threads."""
MAX_RECYCLED = 64
"""The maximum number of conjugate gradient directions stored."""
MAX_STEPS = 80
"""The default limit on conjugate gradient steps.

If it is not enough, a solve with a formed coupling matrix fails. If the matrix was completed instead, the result is
used as is."""


@define(eq=False)
class _Directions:
    """Conjugate gradient directions for the Schur complement ``T``, stored for reuse with later right-hand sides.

    The directions are orthonormal in the inner product defined by T. The solution in their span is computed directly,
    and later steps stay orthogonal to them (augmented conjugate gradients, Erhel and Guyomarc'h 2000).

    Attributes:
        ways, products: Arrays of shape (R, O) with the directions ``w`` and the products ``T w``. The first ``count``
            rows are in use.
        count: The number of directions in use.
    """

    ways: Floats
    products: Floats
    count: int = 0

    def solve_in_span(self, residual: Floats) -> tuple[Floats, Floats]:
        """Return the solution in the span of the stored directions, and the remaining residual.

        Args:
            residual: Array of shape (O,) with the right-hand side.
        """
        y, active = np.zeros(len(residual)), slice(self.count)
        for _ in range(2):  # the second pass removes the rounding errors of the first
            # The directions are orthonormal in T's inner product, so these are the solution's components along them.
            shares = self.ways[active] @ residual
            y, residual = y + shares @ self.ways[active], residual - shares @ self.products[active]
        return y, residual

    def conjugate(self, way: Floats) -> Floats:
        """Remove a direction's components along the stored directions, in the inner product defined by T."""
        active = slice(self.count)
        return np.asarray(way - (self.products[active] @ way) @ self.ways[active])

    def store(self, way: Floats, product: Floats, square: float) -> bool:
        """Store a direction and its product.

        Args:
            way: Array of shape (O,) with the direction ``w``.
            product: Array of shape (O,) with the product ``T w``.
            square: The squared norm ``w' T w``, which must be positive.

        Returns:
            Whether the direction was stored. It is not stored if there is no space left.
        """
        if self.count == len(self.ways):
            return False
        # Directions are scaled to w' T w = 1, so that components along them are plain inner products.
        self.ways[self.count], self.products[self.count] = way / square**0.5, product / square**0.5
        self.count += 1
        return True


@define(eq=False)
class SchurComplement:
    """The Schur complement ``T`` that couples the outputs at an iterate, and a preconditioner for systems with ``T``.

    Attributes:
        state: The iterate.
        rough: The preconditioner, a function that multiplies a vector of shape (O,) by an approximate inverse of T.
        loose: Whether conjugate gradients may end before they have converged.
        directions: The directions from previous solves. They are only stored if ``loose`` is True. Otherwise, the
            preconditioner is nearly exact, so few steps are needed.
    """

    state: State
    rough: Callable[[Floats], Floats]
    loose: bool
    directions: _Directions = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Allocate space for `MAX_RECYCLED` directions if ``loose`` is True, and for none otherwise."""
        shape = MAX_RECYCLED if self.loose else 0, len(self.state.y)
        self.directions = _Directions(np.empty(shape), np.empty(shape))

    def _product(self, y: Floats) -> Floats:
        """Return the product ``T y`` for a vector ``y`` of shape (O,), using one sparse solve per output."""
        check()
        prices = self.state.prices(y)
        return self.state.sums(lambda group: group.solve(prices, 0.0))

    def solve(self, right: Floats, tolerance: float, max_steps: int = MAX_STEPS) -> Floats:
        """Compute ``T^-1 right`` by preconditioned conjugate gradients.

        Args:
            right: Array of shape (O,) with the right-hand side.
            tolerance: The residual at which to stop, relative to the right-hand side, in the norm defined by the
                preconditioner.
            max_steps: The maximum number of steps.

        Returns:
            Array of shape (O,) with the solution. If ``loose`` is True, it may not have reached the tolerance.

        Raises:
            numpy.linalg.LinAlgError: The iteration does not converge (unless ``loose`` is True), or a number
                overflowed.
            OutOfTime: The time limit expired.
        """
        if not np.isfinite(right).all():
            raise np.linalg.LinAlgError("the right-hand side is out of the range of doubles")
        # The squared norm of the right-hand side, as defined by the preconditioner. The tolerance is relative to it.
        start_square = float(right @ self.rough(right))
        y, residual = self.directions.solve_in_span(right)
        preconditioned = self.rough(residual)
        # The residual's squared norm, and the first direction.
        residual_square, direction = float(residual @ preconditioned), self.directions.conjugate(preconditioned)
        for _ in range(max_steps):
            # The comparison is negated so that NaN ends the loop too.
            if not residual_square > tolerance**2 * start_square:
                break
            product = self._product(direction)
            direction_square = float(direction @ product)
            length = float(direction @ residual) / direction_square
            y += length * direction
            residual -= length * product
            preconditioned = self.rough(residual)
            previous_square, residual_square = residual_square, float(residual @ preconditioned)
            # The next direction must be T-orthogonal to this one. `conjugate` ensures this for all stored directions,
            # so the classical update is needed only if this one was not stored.
            is_stored = self.directions.store(direction, product, direction_square)
            direction = self.directions.conjugate(
                preconditioned if is_stored else preconditioned + (residual_square / previous_square) * direction
            )
        else:
            if not self.loose:
                raise np.linalg.LinAlgError("conjugate gradients do not converge")
        # A number that overflows makes the residual NaN, while y keeps its last finite value.
        if not (math.isfinite(residual_square) and np.isfinite(y).all()):
            raise np.linalg.LinAlgError("conjugate gradients do not converge")
        return y


def couple(state: State) -> SchurComplement:
    """Factor the matrices of all outputs, and prepare to solve systems with the Schur complement that couples them.

    Args:
        state: The iterate.

    Raises:
        numpy.linalg.LinAlgError: A matrix is not positive definite in floating point.
        OutOfTime: The time limit expired.
    """
    # The coupling is divided by the largest scale of any group, record by record, to keep it within the range of single
    # precision.
    scale = np.maximum.reduce(state.map_groups(lambda group: group.factorise()))
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise np.linalg.LinAlgError("the Schur complement is out of the range of doubles")
    return _factor_coupling(state, scale) if state.formed else _complete_coupling(state)


def _complete_coupling(state: State) -> SchurComplement:
    """Return the Schur complement with a preconditioner based on the chordal completion of some of its entries.

    Args:
        state: The iterate, whose matrices have been factored. Each of its orbits must be a single record.
    """
    from privopt_metric_dp.solvers.chordal import complete

    pattern = state.pattern

    def entries(groups: Sequence[Outputs]) -> tuple[Floats, Floats]:
        """Return the contribution of the given groups to the entries of ``T`` on the pattern.

        Args:
            groups: The groups.

        Returns:
            Array of shape (N,) with the diagonal entries, and an array of shape (E,) with the entries below the
            diagonal.
        """
        diagonal, off_diagonal = np.zeros(state.instance.records), np.zeros(pattern.entries)
        for group in groups:
            group.add_entries(diagonal, off_diagonal)
        return diagonal, off_diagonal

    # A fixed number of partial sums is added in a fixed order, so that the result does not depend on the threads.
    parts = state.map_parts(_group_parts(state), entries)
    solve = complete(pattern, *(np.sum(arrays, axis=0) for arrays in zip(*parts, strict=True)))

    def rough(right: Floats) -> Floats:
        """Multiply a vector by the inverse of the chordal completion. The vector is in the instance's record order."""
        y = np.empty(len(right))
        y[pattern.order] = solve(right[pattern.order])
        return y

    return SchurComplement(state=state, rough=rough, loose=True)


def _group_parts(state: State) -> list[Sequence[Outputs]]:
    """Divide the groups of outputs into parts, with one part for each partial sum of the coupling matrix."""
    return [state.groups[part_number::PARTIAL_SUMS] for part_number in range(min(PARTIAL_SUMS, len(state.groups)))]


def form(state: State, scale: Floats) -> Singles:
    """Form the matrix that couples the outputs, ``sum_r H_r^-1``, as a dense matrix in single precision.

    Here, ``H_r`` is the matrix of output r.

    Args:
        state: The iterate, whose matrices have been factored.
        scale: Array of shape (N,) with scales in elimination order. Entry (i, j) is divided by ``scale_i scale_j``.

    Returns:
        Array of shape (N, N) with the matrix, in elimination order.
    """
    from privopt_metric_dp.solvers.factor_kernels import PANEL

    n = state.instance.records

    def panels(groups: Sequence[Outputs]) -> Singles:
        """Return the contribution of the given groups to the coupling matrix, as an array of shape (panels, N * PANEL).

        Each panel contains `PANEL` columns, stored row by row.
        """
        sums = np.zeros((-(-n // PANEL), n * PANEL), dtype=np.float32)
        for group in groups:
            group.couple(scale, sums)
        return sums

    # Partial sums are added in a fixed order, so that the result does not depend on the threads.
    total, *others = state.map_parts(_group_parts(state), panels)
    for part in others:
        total += part
    coupling = np.empty((n, n), dtype=np.float32)
    for q, panel in enumerate(total):
        begin = q * PANEL
        end = min(n, begin + PANEL)
        panel_rows = panel.reshape(n, PANEL)[begin:, : end - begin]
        # The kernels compute only the entries on and below the diagonal, which the others mirror.
        corner = np.tril(panel_rows[: end - begin])
        coupling[begin:, begin:end] = panel_rows
        coupling[begin:end, begin:end] = corner + np.tril(corner, -1).T
        coupling[begin:end, end:] = panel_rows[end - begin :].T
    return coupling


def _factor_coupling(state: State, scale: Floats) -> SchurComplement:
    """Return the Schur complement with a preconditioner based on a single-precision factor of the whole matrix.

    Args:
        state: The iterate, whose matrices have been factored.
        scale: Array of shape (N,) with the scales for forming the matrix, in elimination order.

    Raises:
        numpy.linalg.LinAlgError: The matrix cannot be factored, or a number overflowed.
    """
    from scipy.linalg import cho_solve, cholesky

    matrix = form(state, scale)
    # `form` returns a matrix in elimination order, but prices and right-hand sides are in the order of the orbits.
    if state.symmetry.order == 1:  # each orbit is a single record, so only the order differs
        position: Ints = np.argsort(state.pattern.order)
        matrix, scale = matrix[np.ix_(position, position)], scale[position]
    else:
        # This is Q' T Q, where column o of Q averages over orbit o. It undoes the scaling by `scale`, which is
        # therefore 1 from now on.
        q = state.spread.multiply(scale[:, None]).tocsr()
        matrix = np.asarray(q.T @ (q.T @ matrix).T)
        scale = np.ones(len(matrix))
    # The matrix is scaled to a unit diagonal, which keeps the factor within the range of single precision.
    root_diagonal = np.sqrt(matrix.diagonal())
    if not (np.isfinite(root_diagonal).all() and (root_diagonal > 0).all()):
        raise np.linalg.LinAlgError("the Schur complement is out of the range of doubles")
    matrix /= root_diagonal[:, None]
    matrix /= root_diagonal
    scale = scale * root_diagonal
    # Rounding to single precision can make the matrix indefinite. A ridge on the diagonal makes it definite again.
    for ridge in RIDGES:
        np.fill_diagonal(matrix, 1 + ridge)
        try:
            factor = cholesky(matrix, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue

        def rough(right: Floats, factor: Singles | Floats = factor) -> Floats:
            """Multiply a right-hand side by the inverse of the factored matrix, in the factor's precision."""
            scaled = (right / scale).astype(factor.dtype)
            return np.asarray(cho_solve((factor, True), scaled, check_finite=False) / scale)

        return SchurComplement(state=state, rough=rough, loose=False)
    raise np.linalg.LinAlgError("the Schur complement is not positive definite")
