"""What couples the outputs: ``T = sum_r Q' H_r^-1 Q``, one row and column for each orbit of records.

The compiled engine forms it in single precision alone, scaled to a unit diagonal. Its factor is the preconditioner of
conjugate gradients on the true one, of which each product is a sparse solve an output; two or three steps do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import define

from privopt.arrays import Floats, Singles
from privopt_metric_dp.solvers.interior_point_state import Outputs, State

__all__ = ["ROOMS", "Coupling", "couple"]

RIDGES = (0.0, 1e-6, 1e-4, 1e-2)
"""Shares of the diagonal that are added one after the other until a matrix in single precision has a factor."""
ROOMS = 8
"""Parts of the outputs whose couplings are summed apart: the answer is the same whatever the threads."""
STEPS = 80
"""Steps of conjugate gradients after which the numbers have broken down."""


@define(eq=False)
class Coupling:
    """The coupling of an iterate, factored.

    Attributes:
        factor: ``(O, O)`` lower Cholesky factor of ``T / (scale scale')``.
        scale: ``(O,)``.
    """

    state: State
    factor: Singles | Floats
    scale: Floats

    def _rough(self, right: Floats) -> Floats:
        from scipy.linalg import cho_solve

        scaled = (right / self.scale).astype(self.factor.dtype)
        return np.asarray(cho_solve((self.factor, True), scaled, check_finite=False) / self.scale)

    def _product(self, y: Floats) -> Floats:
        self.state.late()
        prices = self.state.prices(y)
        return self.state.sums(lambda group: group.solve(prices, 0.0))

    def solve(self, right: Floats, share: float) -> Floats:
        """``T^-1 right``, the residual at most a share of ``right``.

        Raises:
            numpy.linalg.LinAlgError: the numbers have broken down.
            TimeoutError: the limit has come.
        """
        if not np.isfinite(right).all():
            raise np.linalg.LinAlgError("the right side has left the range of doubles")
        if self.state.engine.exact:
            return self._rough(right)
        from scipy.sparse.linalg import LinearOperator, cg

        shape = len(right), len(right)
        operator = LinearOperator(shape, matvec=self._product, dtype=np.float64)
        rough = LinearOperator(shape, matvec=self._rough, dtype=np.float64)
        y, failed = cg(operator, right, rtol=share, atol=0.0, maxiter=STEPS, M=rough)
        if failed or not np.isfinite(y).all():
            raise np.linalg.LinAlgError("conjugate gradients do not converge")
        return np.asarray(y)


def _form(state: State, scale: Floats) -> Singles | Floats:
    """The coupling of the records over ``scale scale'``, in the engine's order."""
    shares = [state.groups[room::ROOMS] for room in range(min(ROOMS, len(state.groups)))]

    def one(share: Sequence[Outputs]) -> Singles | Floats:
        room = state.engine.empty_coupling()
        for group in share:
            group.couple(scale, room, state.late)
        return room

    return state.engine.whole_coupling(state.over(shares, one))


def couple(state: State) -> Coupling:
    """Factor the matrices of all outputs and their coupling.

    Raises:
        numpy.linalg.LinAlgError: a matrix is not positive definite in floating point.
        TimeoutError: the limit has come.
    """
    from scipy.linalg import cholesky

    scale = np.maximum.reduce(state.each(lambda group: group.factorise(state.late)))
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise np.linalg.LinAlgError("the coupling has left the range of doubles")
    matrix: Singles | Floats = _form(state, scale)
    if state.symmetry.order == 1:  # one record an orbit: the order alone differs
        place = np.argsort(state.engine.order)
        matrix, scale = matrix[np.ix_(place, place)], scale[place]
    else:
        q = state.spread.multiply(scale[:, None]).tocsr()
        matrix = np.asarray(q.T @ (q.T @ matrix).T)
        scale = np.ones(len(matrix))
    own = np.sqrt(matrix.diagonal())
    if not (np.isfinite(own).all() and (own > 0).all()):
        raise np.linalg.LinAlgError("the coupling has left the range of doubles")
    matrix /= own[:, None]
    matrix /= own
    for ridge in (0.0,) if state.engine.exact else RIDGES:
        np.fill_diagonal(matrix, 1 + ridge)
        try:
            factor = cholesky(matrix, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
        return Coupling(state=state, factor=factor, scale=scale * own)
    raise np.linalg.LinAlgError("the coupling is not positive definite")
