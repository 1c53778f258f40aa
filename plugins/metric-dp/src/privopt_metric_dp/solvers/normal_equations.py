"""The Schur complement that couples the outputs: ``T = sum_r Q' H_r^-1 Q``, one row for each orbit of records.

``T v`` takes a sparse solve per output, so conjugate gradients apply ``T^-1`` without forming ``T``. There are two
preconditioners. A factor of ``T`` in single precision is used if it fits and pays: two or three steps are enough. The
chordal completion of its entries on the pattern of the factors (`privopt_metric_dp.solvers.chordal`) takes no more
memory than one output: 15 to 100 steps reach a residual of 1e-3, more are needed near the optimum.
"""

from __future__ import annotations

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
"""Shares of the diagonal that are added, one after the other, until the matrix in single precision has a factor."""
PARTIAL_SUMS = 8
"""Number of partial sums of the coupling. It is fixed, so that the result does not depend on the number of threads."""
MAX_RECYCLED = 64
"""Largest number of stored directions."""
MAX_STEPS = 80
"""Steps of conjugate gradients after which a formed coupling counts as broken down, and a completed one is accepted."""


@define(eq=False)
class _Directions:
    """T-orthonormal directions of conjugate gradients on one coupling ``T``, from all its right sides.

    The solution in their span is computed directly, and later steps stay orthogonal to it (augmented conjugate
    gradients, Erhel and Guyomarc'h 2000).

    Attributes:
        ways, products: ``(R, O)`` directions ``w`` and products ``T w``; the first ``count`` are in use.
        count: Number of directions in use.
    """

    ways: Floats
    products: Floats
    count: int = 0

    def within(self, residual: Floats) -> tuple[Floats, Floats]:
        """Return the solution in the span of the directions, and the remaining residual."""
        y, active = np.zeros(len(residual)), slice(self.count)
        for _ in range(2):  # the second time takes off what rounding left
            shares = self.ways[active] @ residual
            y, residual = y + shares @ self.ways[active], residual - shares @ self.products[active]
        return y, residual

    def conjugate(self, way: Floats) -> Floats:
        """Return a direction without its part in what they span."""
        active = slice(self.count)
        return np.asarray(way - (self.products[active] @ way) @ self.ways[active])

    def keep(self, way: Floats, product: Floats, square: float) -> bool:
        """Keep one more, of ``w' T w`` as given; False where as many are kept already."""
        if self.count == len(self.ways):
            return False
        self.ways[self.count], self.products[self.count] = way / square**0.5, product / square**0.5
        self.count += 1
        return True


@define(eq=False)
class SchurComplement:
    """The coupling of an iterate.

    Attributes:
        state: the iterate's.
        rough: about ``T^-1``, times a vector.
        loose: whether conjugate gradients may end before they are done.
        known: directions of the solves so far; none are kept where ``rough`` leaves few steps to do.
    """

    state: State
    rough: Callable[[Floats], Floats]
    loose: bool
    known: _Directions = field(init=False)

    def __attrs_post_init__(self) -> None:
        shape = MAX_RECYCLED if self.loose else 0, len(self.state.y)
        self.known = _Directions(np.empty(shape), np.empty(shape))

    def _product(self, y: Floats) -> Floats:
        check()
        prices = self.state.prices(y)
        return self.state.sums(lambda group: group.solve(prices, 0.0))

    def solve(self, right: Floats, tolerance: float, max_steps: int = MAX_STEPS) -> Floats:
        """Solve ``T^-1 right``, up to a share of its length as ``rough`` measures it.

        Args:
            right: ``(O,)``.
            share: of the length of the right side, at which to end.
            max_steps: steps of conjugate gradients.

        Raises:
            numpy.linalg.LinAlgError: the numbers have broken down.
            OutOfTime: the limit has come.
        """
        if not np.isfinite(right).all():
            raise np.linalg.LinAlgError("the right side has left the range of doubles")
        start_square = float(right @ self.rough(right))
        y, residual = self.known.within(right)
        preconditioned = self.rough(residual)
        size, way = float(residual @ preconditioned), self.known.conjugate(preconditioned)
        for _ in range(max_steps):
            if not size > tolerance**2 * start_square:
                break
            product = self._product(way)
            square = float(way @ product)
            length = float(way @ residual) / square
            y += length * way
            residual -= length * product
            preconditioned = self.rough(residual)
            previous_size, size = size, float(residual @ preconditioned)
            is_stored = self.known.keep(way, product, square)
            way = self.known.conjugate(preconditioned if is_stored else preconditioned + (size / previous_size) * way)
        else:
            if not self.loose:
                raise np.linalg.LinAlgError("conjugate gradients do not converge")
        if not np.isfinite(y).all():
            raise np.linalg.LinAlgError("conjugate gradients do not converge")
        return y


def couple(state: State) -> SchurComplement:
    """Factor the matrices of all outputs, and the preconditioner of conjugate gradients on their coupling.

    Raises:
        numpy.linalg.LinAlgError: a matrix is not positive definite in floating point.
        OutOfTime: the limit has come.
    """
    scale = np.maximum.reduce(state.each(lambda group: group.factorise()))
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise np.linalg.LinAlgError("the coupling has left the range of doubles")
    return _factor_coupling(state, scale) if state.formed else _complete_coupling(state)


def _complete_coupling(state: State) -> SchurComplement:
    """Return the chordal completion; each record is an orbit of its own here."""
    from privopt_metric_dp.solvers.chordal import complete

    pattern = state.pattern

    def entries(groups: Sequence[Outputs]) -> tuple[Floats, Floats]:
        diagonal, off_diagonal = np.zeros(state.instance.records), np.zeros(pattern.entries)
        for group in groups:
            group.add_entries(diagonal, off_diagonal)
        return diagonal, off_diagonal

    parts = state.over(_group_parts(state), entries)
    solve = complete(pattern, *(np.sum(arrays, axis=0) for arrays in zip(*parts, strict=True)))

    def rough(right: Floats) -> Floats:
        y = np.empty(len(right))
        y[pattern.order] = solve(right[pattern.order])
        return y

    return SchurComplement(state=state, rough=rough, loose=True)


def _group_parts(state: State) -> list[Sequence[Outputs]]:
    """Return groups of outputs whose couplings are summed apart."""
    return [state.groups[part_number::PARTIAL_SUMS] for part_number in range(min(PARTIAL_SUMS, len(state.groups)))]


def form(state: State, scale: Floats) -> Singles:
    """Return the coupling of the records over ``scale scale'``, in the order of elimination."""
    from privopt_metric_dp.solvers.factor_kernels import PANEL

    n = state.instance.records

    def panels(groups: Sequence[Outputs]) -> Singles:
        sums = np.zeros((-(-n // PANEL), n * PANEL), dtype=np.float32)
        for group in groups:
            group.couple(scale, sums)
        return sums

    total, *others = state.over(_group_parts(state), panels)
    for part in others:
        total += part
    coupling = np.empty((n, n), dtype=np.float32)
    for q, panel in enumerate(total):
        begin = q * PANEL
        end = min(n, begin + PANEL)
        panel_rows = panel.reshape(n, PANEL)[begin:, : end - begin]
        corner = np.tril(panel_rows[: end - begin])
        coupling[begin:, begin:end] = panel_rows
        coupling[begin:end, begin:end] = corner + np.tril(corner, -1).T
        coupling[begin:end, end:] = panel_rows[end - begin :].T
    return coupling


def _factor_coupling(state: State, scale: Floats) -> SchurComplement:
    """Return the whole coupling, factored."""
    from scipy.linalg import cho_solve, cholesky

    matrix = form(state, scale)
    if state.symmetry.order == 1:  # one record an orbit: the order alone differs
        position: Ints = np.argsort(state.pattern.order)
        matrix, scale = matrix[np.ix_(position, position)], scale[position]
    else:
        q = state.spread.multiply(scale[:, None]).tocsr()
        matrix = np.asarray(q.T @ (q.T @ matrix).T)
        scale = np.ones(len(matrix))
    root_diagonal = np.sqrt(matrix.diagonal())
    if not (np.isfinite(root_diagonal).all() and (root_diagonal > 0).all()):
        raise np.linalg.LinAlgError("the coupling has left the range of doubles")
    matrix /= root_diagonal[:, None]
    matrix /= root_diagonal
    scale = scale * root_diagonal
    for ridge in RIDGES:
        np.fill_diagonal(matrix, 1 + ridge)
        try:
            factor = cholesky(matrix, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue

        def rough(right: Floats, factor: Singles | Floats = factor) -> Floats:
            scaled = (right / scale).astype(factor.dtype)
            return np.asarray(cho_solve((factor, True), scaled, check_finite=False) / scale)

        return SchurComplement(state=state, rough=rough, loose=False)
    raise np.linalg.LinAlgError("the coupling is not positive definite")
