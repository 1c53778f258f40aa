"""The sparse engine of the interior point: outputs in batches of eight, which compiled kernels work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import numpy as np
from attrs import define, field

from privopt.arrays import Floats, Indices, Ints, Singles
from privopt.execution.clock import check
from privopt_metric_dp.matrix.simd import DOUBLE_LANES
from privopt_metric_dp.solvers import factor_kernels, row_kernels
from privopt_metric_dp.solvers.chordal import add_entries
from privopt_metric_dp.solvers.elimination import Elimination
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.interior_point_state import Measure, Outputs

__all__ = ["LaneEngine"]

SHARED_GROUPS = 32
"""Groups that threads share; not as many as there are threads, for sums would then depend on these."""


class LaneEngine:
    """See `privopt_metric_dp.solvers.interior_point_state.Engine`."""

    exact = False

    def __init__(self, instance: Instance, pattern: Elimination) -> None:
        self.instance = instance
        self.pattern = pattern
        self.order = self.pattern.order
        self.details = {"factor_entries": self.pattern.entries}
        self.ends: Indices = np.ascontiguousarray(self.pattern.place[instance.pairs])
        self.root = np.exp(instance.lengths / 2)

    def groups(self, cost: Floats, first: Floats, mu: float) -> list[LaneOutputs]:
        """See `privopt_metric_dp.solvers.interior_point_state.Engine`."""
        batches = -(-cost.shape[1] // DOUBLE_LANES)
        count = min(batches, SHARED_GROUPS)
        bounds = np.linspace(0, batches, count + 1).astype(int) * DOUBLE_LANES
        return [self._group(cost[:, a:b], first[:, a:b], mu) for a, b in pairwise(bounds)]

    def _group(self, cost: Floats, first: Floats, mu: float) -> LaneOutputs:
        width = cost.shape[1]
        batches = -(-width // DOUBLE_LANES)
        # lanes that are left over repeat the last output: same steps, and sums do not count them
        column = np.minimum(np.arange(batches * DOUBLE_LANES), width - 1)

        def packed(values: Floats) -> Floats:
            lanes = values[np.ix_(self.order, column)].reshape(-1, batches, DOUBLE_LANES)
            return np.ascontiguousarray(lanes.transpose(1, 0, 2)).reshape(batches, -1)

        z = packed(first)
        here, there = (z.reshape(batches, -1, DOUBLE_LANES)[:, self.ends[:, side]] for side in (0, 1))
        up = self.root[:, None]
        s = np.stack([up * there - here / up, up * here - there / up], axis=2).reshape(batches, -1)
        mask = (np.arange(batches * DOUBLE_LANES) < width).astype(float).reshape(batches, DOUBLE_LANES)
        return LaneOutputs(
            pattern=self.pattern,
            ends=self.ends,
            root=self.root,
            width=width,
            mask=mask,
            cost=packed(cost),
            z=z,
            s=s,
            f=mu / s,
        )

    def empty_coupling(self) -> Singles:
        """See `privopt_metric_dp.solvers.interior_point_state.Engine`."""
        n = self.instance.records
        return np.zeros((-(-n // factor_kernels.PANEL), n * factor_kernels.PANEL), dtype=np.float32)

    def entries(self, share: Sequence[Outputs]) -> tuple[Floats, Floats]:
        """Return sums of ``H^-1`` over groups' outputs on the factors' pattern: diagonal ``(N,)``, others ``(E,)``."""
        diagonal, below = np.zeros(self.instance.records), np.zeros(self.pattern.entries)
        for group in cast("Sequence[LaneOutputs]", share):  # as this engine made them
            for g in range(len(group.z)):
                check()
                batch = group.factor[g], group.inverse[g], group.mask[g]
                add_entries(self.pattern.start, self.pattern.row, *batch, diagonal, below)
        return diagonal, below

    def whole_coupling(self, parts: Sequence[Singles | Floats]) -> Singles:
        """See `privopt_metric_dp.solvers.interior_point_state.Engine`."""
        n = self.instance.records
        total = parts[0]
        for part in parts[1:]:
            total += part
        whole = np.empty((n, n), dtype=np.float32)
        for q, panel in enumerate(total):
            first = q * factor_kernels.PANEL
            last = min(n, first + factor_kernels.PANEL)
            below = panel.reshape(n, factor_kernels.PANEL)[first:, : last - first]
            corner = np.tril(below[: last - first])
            whole[first:, first:last] = below
            whole[first:last, first:last] = corner + np.tril(corner, -1).T
            whole[first:last, last:] = below[last - first :].T
        return whole


@define(eq=False)
class LaneOutputs:
    """See `privopt_metric_dp.solvers.interior_point_state.Outputs` for what methods do.

    Arrays are those of `privopt_metric_dp.solvers.row_kernels`.
    """

    pattern: Elimination
    ends: Indices
    root: Floats
    width: int
    mask: Floats
    cost: Floats
    z: Floats
    s: Floats
    f: Floats
    dz: Floats = field(init=False)
    ez: Floats = field(init=False)
    right: Floats = field(init=False)
    df: Floats = field(init=False)
    ef: Floats = field(init=False)
    factor: Floats = field(init=False)
    inverse: Floats = field(init=False)
    unit: Floats = field(init=False)
    other_z: Floats = field(init=False)
    other_f: Floats = field(init=False)
    best_z: Floats = field(init=False)
    best_f: Floats = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.best_z, self.best_f = self.z, self.f
        records, rows = self.z.shape, self.s.shape
        self.dz, self.ez, self.right, self.inverse = (np.zeros(records) for _ in range(4))
        self.unit, self.other_z = np.zeros(records), np.zeros(records)
        self.df, self.ef, self.other_f = (np.zeros(rows) for _ in range(3))
        self.factor = np.zeros((len(self.z), DOUBLE_LANES * self.pattern.entries))

    def at(self, records: Ints, outputs: Ints) -> Floats:
        return np.asarray(
            self.z[outputs // DOUBLE_LANES, DOUBLE_LANES * self.pattern.place[records] + outputs % DOUBLE_LANES]
        )

    def recost(self, records: Ints, outputs: Ints, costs: Floats) -> None:
        self.cost[outputs // DOUBLE_LANES, DOUBLE_LANES * self.pattern.place[records] + outputs % DOUBLE_LANES] = costs
        last = (self.width - 1) % DOUBLE_LANES
        lanes = self.cost[-1].reshape(-1, DOUBLE_LANES)  # those that are left over repeat the last output
        lanes[:, last + 1 :] = lanes[:, last : last + 1]

    def measure(self) -> Measure:
        loss, products, sums, least = row_kernels.measure(
            self.ends, self.root, self.mask, self.cost, self.z, self.s, self.f
        )
        return Measure(loss=loss, products=products, sums=sums, least=least)

    def keep(self, mechanism: bool, proof: bool) -> None:
        """See `Outputs`: `move` leaves what is kept where it is."""
        if mechanism:
            self.best_z = self.z
        if proof:
            self.best_f = self.f

    def factorise(self) -> Floats:
        p = self.pattern
        rows, pattern = (self.ends, p.pair, self.root**2), (p.start, p.row, p.across, p.entry, p.column)
        for g in range(len(self.z)):
            check()
            one = slice(g, g + 1)
            lanes = self.s[one], self.f[one], self.factor[one], self.inverse[one], self.unit[one]
            if not factor_kernels.factorise(*pattern, *rows, *lanes):
                raise np.linalg.LinAlgError("a matrix is not positive definite")
        return np.asarray(self.unit.reshape(len(self.unit), -1, DOUBLE_LANES).max(axis=(0, 2)))

    def couple(self, scale: Floats, into: Singles | Floats) -> None:
        p, room = self.pattern, cast("Singles", into)  # as its engine made it
        for g in range(len(self.z)):
            check()
            factor_kernels.couple(
                p.start, p.row, p.column, self.factor[g], self.inverse[g], self.unit[g], scale, self.mask[g], room
            )

    def _solve(self, prices: Floats, weight: float, right: Floats, out: Floats) -> Floats:
        p = self.pattern
        return np.asarray(
            factor_kernels.solve(p.start, p.row, self.factor, self.inverse, prices, weight, right, out, self.mask)
        )

    def solve(self, prices: Floats, weight: float) -> Floats:
        return self._solve(prices, -weight, self.cost, self.ez)

    def solve_right(self, prices: Floats) -> Floats:
        return self._solve(prices, 1.0, self.right, self.ez)

    def predict(self, prices: Floats) -> Floats:
        self._solve(prices, -1.0, self.cost, self.dz)
        return np.asarray(row_kernels.predict(self.ends, self.root, self.mask, self.s, self.f, self.dz, self.df))

    def aim(self, add: tuple[float, float], target: float, trial_steps: tuple[float, float]) -> None:
        rows = self.s, self.f, self.dz, self.df, self.ez, self.ef
        row_kernels.aim(self.ends, self.root, *rows, self.right, add, target, trial_steps)

    def extend(self, prices: Floats, weights: Floats) -> Floats:
        self._solve(prices, 1.0, self.right, self.ez)
        rows = self.s, self.f, self.dz, self.df, self.ez, self.ef
        return np.asarray(row_kernels.extend(self.ends, self.root, *rows, weights))

    def move(self, add: tuple[float, float], step: tuple[float, float]) -> None:
        z, f = self.z, self.f
        if z is self.best_z:
            self.z, self.other_z = self.other_z, z
        if f is self.best_f:
            self.f, self.other_f = self.other_f, f
        rows = z, self.s, f, self.dz, self.df, self.ez, self.ef
        row_kernels.move(self.ends, self.root, *rows, add, step, self.z, self.f)

    def row_sums(self) -> Floats:
        values = self.z.reshape(len(self.z), -1, DOUBLE_LANES)
        return np.asarray(np.einsum("gnl,gl->n", values, self.mask))

    def straighten(self, prices: Floats) -> float:
        self._solve(prices, 0.0, self.cost, self.dz)
        return float(row_kernels.advance(self.ends, self.root, self.z, self.s, self.dz, 0.0))

    def take(self) -> None:
        row_kernels.advance(self.ends, self.root, self.z, self.s, self.dz, 1.0)

    def mechanism(self) -> Callable[[], Floats]:
        columns = self.best_z.reshape(len(self.z), -1, DOUBLE_LANES).transpose(1, 0, 2)
        place, width = self.pattern.place, self.width
        return lambda: np.asarray(columns[place].reshape(len(place), -1)[:, :width])

    def proof(self) -> Callable[[], tuple[Floats, Floats]]:
        """See `Outputs`: a copy in the order of the rows is made only where they are read."""
        rows = self.best_f.reshape(len(self.z), -1, 2, DOUBLE_LANES).transpose(2, 1, 0, 3)
        width = self.width

        def unpacked() -> tuple[Floats, Floats]:
            forward, backward = rows.reshape(2, rows.shape[1], -1)[:, :, :width]
            return forward, backward

        return unpacked
