"""Outputs on an array library: in batches on a device, all at once where the problem is small."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from attrs import define, field, frozen
from scipy.sparse import csr_array

from privopt.arrays import Floats, Singles
from privopt.metric.optimal.arrays import Array, Arrays
from privopt.metric.optimal.blocks import Factors, factorise, make_layout
from privopt.metric.optimal.instance import Instance
from privopt.metric.optimal.interior_state import Measure

__all__ = ["BlockEngine"]


@frozen(kw_only=True, eq=False)
class _Rows:
    """Privacy rows as sparse matrices: ``2P x N``, its transpose, and the transpose of its squares."""

    forward: Array
    transpose: Array
    squares: Array


def _rows(instance: Instance, arrays: Arrays) -> _Rows:
    pairs, n = len(instance.pairs), instance.records
    i, j = instance.pairs.T
    a = np.exp(instance.lengths / 2)
    row = np.arange(pairs)
    values = np.concatenate([a, -1 / a, a, -1 / a])
    where = (np.concatenate([row, row, row + pairs, row + pairs]), np.concatenate([j, i, i, j]))
    matrix = csr_array((values, where), shape=(2 * pairs, n))
    return _Rows(
        forward=arrays.sparse(matrix),
        transpose=arrays.sparse(csr_array(matrix.T)),
        squares=arrays.sparse(csr_array(matrix.power(2).T)),
    )


class BlockEngine:
    """See `privopt.metric.optimal.interior_state.Engine`."""

    exact = True

    def __init__(self, instance: Instance, arrays: Arrays) -> None:
        self.arrays = arrays
        self.layout = make_layout(instance)
        self.rows = _rows(instance, arrays)
        self.pairs = len(instance.pairs)
        self.order = np.arange(instance.records)
        self.details = {"blocks": self.layout.blocks, "widest_block": int(np.diff(self.layout.bounds).max())}

    def groups(self, cost: Floats, first: Floats, mu: float) -> list[BlockOutputs]:
        """See `privopt.metric.optimal.interior_state.Engine`: one group, a device works on all outputs together."""
        z = self.arrays.put(first)
        s = self.rows.forward @ z
        return [BlockOutputs(engine=self, cost=self.arrays.put(cost), z=z, s=s, f=mu / s)]

    def empty_coupling(self) -> Floats:
        """See `privopt.metric.optimal.interior_state.Engine`."""
        return np.zeros((len(self.order), len(self.order)))

    def whole_coupling(self, parts: Sequence[Singles | Floats]) -> Floats:
        """See `privopt.metric.optimal.interior_state.Engine`."""
        return np.asarray(sum(parts))


@define(eq=False)
class BlockOutputs:
    """See `privopt.metric.optimal.interior_state.Outputs` for what methods do.

    Arrays have one column an output, the rows ``ij`` of all pairs first, then the rows ``ji``.
    """

    engine: BlockEngine
    cost: Array
    z: Array
    s: Array
    f: Array
    w: Array = field(init=False)
    factors: Factors = field(init=False)
    right: Array = field(init=False)
    direction: tuple[Array, Array, Array] = field(init=False)
    extra: tuple[Array, Array, Array] = field(init=False)
    best_z: Array = field(init=False)
    best_f: Array = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.best_z, self.best_f = self.z, self.f

    def measure(self) -> Measure:
        reduced = self.engine.arrays.get(self.cost - self.engine.rows.transpose @ self.f)
        return Measure(
            loss=float((self.cost * self.z).sum()),
            products=float((self.f * self.s).sum()),
            sums=self.row_sums(),
            least=reduced.min(axis=1),
        )

    def keep(self, mechanism: bool, proof: bool) -> None:
        self.best_z = self.z if mechanism else self.best_z
        self.best_f = self.f if proof else self.best_f

    def factorise(self, late: Callable[[], None]) -> Floats:
        """See `Outputs`: doubles need no scale."""
        late()
        engine = self.engine
        self.w = self.f / self.s
        off = -(self.w[: engine.pairs] + self.w[engine.pairs :])
        diagonal = (engine.rows.squares @ self.w) * (1 + 1e-14)
        self.factors = factorise(engine.layout, engine.arrays, off, diagonal)
        return np.ones(len(engine.order))

    def couple(self, scale: Floats, into: Singles | Floats, late: Callable[[], None]) -> None:
        late()
        order = self.engine.layout.order
        into[np.ix_(order, order)] += self.engine.arrays.get(self.factors.coupling()) / (scale[:, None] * scale)

    def _priced(self, prices: Floats, right: Array) -> Array:
        return self.factors.solve(self.engine.arrays.put(prices[:, None]) + right)

    def solve(self, prices: Floats, weight: float) -> Floats:
        return self.engine.arrays.get(self._priced(prices, -weight * self.cost).sum(1))

    def solve_right(self, prices: Floats) -> Floats:
        return self.engine.arrays.get(self._priced(prices, self.right).sum(1))

    def _ratio(self, value: Array, change: Array) -> float:
        return min(0.0, self.engine.arrays.least(change / value))

    def predict(self, prices: Floats) -> Floats:
        s, f = self.s, self.f
        dz = self._priced(prices, -self.cost)
        ds = self.engine.rows.forward @ dz
        df = -f - self.w * ds
        self.direction = dz, ds, df
        sums = [float(product.sum()) for product in (f * s, f * ds, df * s, df * ds)]
        return np.array([self._ratio(s, ds), self._ratio(f, df), *sums])

    def _add(self, weights: tuple[float, float]) -> None:
        primal, dual = weights
        if primal or dual:
            (dz, ds, df), (ez, es, ef) = self.direction, self.extra
            self.direction = dz + primal * ez, ds + primal * es, df + dual * ef

    def aim(self, add: tuple[float, float], target: float, ahead: tuple[float, float]) -> None:
        self._add(add)
        _, ds, df = self.direction
        if ahead[0] == 0:
            missing = target - ds * df
        else:
            clip = self.engine.arrays.clip
            product = (self.f + ahead[1] * df) * (self.s + ahead[0] * ds)
            missing = clip(clip(product, 0.1 * target, 10 * target) - product, -10 * target, np.inf)
        targets = missing / self.s
        self.extra = ds, ds, targets
        self.right = self.engine.rows.transpose @ targets

    def extend(self, prices: Floats, weights: Floats) -> Floats:
        ez = self._priced(prices, self.right)
        es = self.engine.rows.forward @ ez
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
        return self.engine.arrays.get(self.z.sum(1))

    def straighten(self, prices: Floats) -> float:
        dz = self._priced(prices, 0.0 * self.cost)
        ds = self.engine.rows.forward @ dz
        self.direction = dz, ds, self.direction[2]
        return self._ratio(self.s, ds)

    def take(self) -> None:
        self.z, self.s = self.z + self.direction[0], self.s + self.direction[1]

    def mechanism(self) -> Floats:
        return self.engine.arrays.get(self.best_z)

    def proof(self) -> Callable[[], tuple[Floats, Floats]]:
        f, pairs = self.engine.arrays.get(self.best_f), self.engine.pairs
        return lambda: (f[:pairs], f[pairs:])
