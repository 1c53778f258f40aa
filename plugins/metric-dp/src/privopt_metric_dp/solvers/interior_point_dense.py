"""The interior point with dense matrices, all outputs at once: for small problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from attrs import define, field
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints, Singles
from privopt.execution.clock import check
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.interior_point_state import Measure

__all__ = ["DenseEngine"]


class DenseEngine:
    """See `privopt_metric_dp.solvers.interior_point_state.Engine`.

    Attributes:
        forward, transpose, squares: privacy rows ``(2P, N)``, the transpose, and the transpose of their squares.
        ends: ``(P, 2)`` records of each pair.
    """

    exact = True

    def __init__(self, instance: Instance) -> None:
        pairs, n = len(instance.pairs), instance.records
        i, j = instance.pairs.T
        a, row = np.exp(instance.lengths / 2), np.arange(pairs)
        values = np.concatenate([a, -1 / a, a, -1 / a])
        where = (np.concatenate([row, row, row + pairs, row + pairs]), np.concatenate([j, i, i, j]))
        self.forward = csr_array((values, where), shape=(2 * pairs, n))
        self.transpose = csr_array(self.forward.T)
        self.squares = csr_array(self.forward.power(2).T)
        self.ends = instance.pairs
        self.order = np.arange(n)
        self.details: dict[str, int] = {}

    def groups(self, cost: Floats, first: Floats, mu: float) -> list[DenseOutputs]:
        """See `privopt_metric_dp.solvers.interior_point_state.Engine`: one group."""
        s = self.forward @ first
        return [DenseOutputs(engine=self, cost=cost, z=first, s=s, f=mu / s)]

    def empty_coupling(self) -> Floats:
        """See `privopt_metric_dp.solvers.interior_point_state.Engine`."""
        return np.zeros((len(self.order), len(self.order)))

    def whole_coupling(self, parts: Sequence[Singles | Floats]) -> Floats:
        """See `privopt_metric_dp.solvers.interior_point_state.Engine`."""
        return np.asarray(sum(parts))


@define(eq=False)
class DenseOutputs:
    """See `privopt_metric_dp.solvers.interior_point_state.Outputs` for what methods do.

    Arrays have one column an output, the rows ``ij`` of all pairs first, then the rows ``ji``; `inverse` has the
    inverses ``(R, N, N)`` of the lower Cholesky factors of ``H``.
    """

    engine: DenseEngine
    cost: Floats
    z: Floats
    s: Floats
    f: Floats
    w: Floats = field(init=False)
    inverse: Floats = field(init=False)
    right: Floats = field(init=False)
    direction: tuple[Floats, Floats, Floats] = field(init=False)
    extra: tuple[Floats, Floats, Floats] = field(init=False)
    best_z: Floats = field(init=False)
    best_f: Floats = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.best_z, self.best_f = self.z, self.f

    @property
    def width(self) -> int:
        return int(self.z.shape[1])

    def at(self, records: Ints, outputs: Ints) -> Floats:
        return np.asarray(self.z[records, outputs])

    def recost(self, records: Ints, outputs: Ints, costs: Floats) -> None:
        self.cost = self.cost.copy()
        self.cost[records, outputs] = costs

    def measure(self) -> Measure:
        reduced = self.cost - self.engine.transpose @ self.f
        return Measure(
            loss=float((self.cost * self.z).sum()),
            products=float((self.f * self.s).sum()),
            sums=self.row_sums(),
            least=reduced.min(axis=1),
        )

    def keep(self, mechanism: bool, proof: bool) -> None:
        self.best_z = self.z if mechanism else self.best_z
        self.best_f = self.f if proof else self.best_f

    def factorise(self) -> Floats:
        """See `Outputs`: doubles need no scale.

        LU of an upper triangular matrix does not pivot, so NumPy's inverse is plain back substitution.
        """
        check()
        engine, n, pairs = self.engine, len(self.engine.order), len(self.engine.ends)
        self.w = self.f / self.s
        matrix = np.zeros((self.w.shape[1], n, n))
        i, j = engine.ends.T
        matrix[:, i, j] = matrix[:, j, i] = -(self.w[:pairs] + self.w[pairs:]).T
        matrix[:, engine.order, engine.order] = (engine.squares @ self.w).T * (1 + 1e-14)
        upper = np.swapaxes(np.linalg.cholesky(matrix), 1, 2)
        del matrix
        self.inverse = np.swapaxes(np.linalg.inv(upper), 1, 2)
        return np.ones(n)

    def couple(self, scale: Floats, into: Singles | Floats) -> None:
        check()
        flat = self.inverse.reshape(-1, len(scale))
        into += (flat.T @ flat) / (scale[:, None] * scale)

    def _solve(self, right: Floats) -> Floats:
        """``H^-1 right``, one right side an output, ``(N, R)``."""
        batch = self.inverse @ right.T[:, :, None]
        return np.asarray((np.swapaxes(self.inverse, 1, 2) @ batch)[:, :, 0].T)

    def solve(self, prices: Floats, weight: float) -> Floats:
        return np.asarray(self._solve(prices[:, None] - weight * self.cost).sum(axis=1))

    def solve_right(self, prices: Floats) -> Floats:
        return np.asarray(self._solve(prices[:, None] + self.right).sum(axis=1))

    def _ratio(self, value: Floats, change: Floats) -> float:
        return min(0.0, float((change / value).min()))

    def predict(self, prices: Floats) -> Floats:
        s, f = self.s, self.f
        dz = self._solve(prices[:, None] - self.cost)
        ds = self.engine.forward @ dz
        df = -f - self.w * ds
        self.direction = dz, ds, df
        sums = [float(product.sum()) for product in (f * s, f * ds, df * s, df * ds)]
        return np.array([self._ratio(s, ds), self._ratio(f, df), *sums])

    def _add(self, weights: tuple[float, float]) -> None:
        primal, dual = weights
        if primal or dual:
            (dz, ds, df), (ez, es, ef) = self.direction, self.extra
            self.direction = dz + primal * ez, ds + primal * es, df + dual * ef

    def aim(self, add: tuple[float, float], target: float, trial_steps: tuple[float, float]) -> None:
        self._add(add)
        _, ds, df = self.direction
        if trial_steps[0] == 0:
            missing = target - ds * df
        else:
            product = (self.f + trial_steps[1] * df) * (self.s + trial_steps[0] * ds)
            missing = np.clip(product, 0.1 * target, 10 * target) - product
            missing = np.maximum(missing, -10 * target)
        targets = missing / self.s
        self.extra = ds, ds, targets
        self.right = self.engine.transpose @ targets

    def extend(self, prices: Floats, weights: Floats) -> Floats:
        ez = self._solve(prices[:, None] + self.right)
        es = self.engine.forward @ ez
        ef = self.extra[2] - self.w * es
        self.extra = ez, es, ef
        _, ds, df = self.direction
        return np.array(
            [
                [self._ratio(self.s, ds + float(weight) * es) for weight in weights],
                [self._ratio(self.f, df + float(weight) * ef) for weight in weights],
            ]
        )

    def move(self, add: tuple[float, float], step: tuple[float, float]) -> None:
        self._add(add)
        dz, ds, df = self.direction
        self.z = self.z + step[0] * dz
        self.s = self.s + step[0] * ds
        self.f = self.f + step[1] * df

    def row_sums(self) -> Floats:
        return np.asarray(self.z.sum(axis=1))

    def straighten(self, prices: Floats) -> float:
        dz = self._solve(np.broadcast_to(prices[:, None], self.z.shape))
        ds = self.engine.forward @ dz
        self.direction = dz, ds, self.direction[2]
        return self._ratio(self.s, ds)

    def take(self) -> None:
        self.z, self.s = self.z + self.direction[0], self.s + self.direction[1]

    def mechanism(self) -> Callable[[], Floats]:
        z = self.best_z
        return lambda: z

    def proof(self) -> Callable[[], tuple[Floats, Floats]]:
        f, pairs = self.best_f, len(self.engine.ends)
        return lambda: (f[:pairs], f[pairs:])
