"""The restricted master of the Dantzig-Wolfe decomposition: rays of the cone, mixed into a mechanism."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt.backends import Outcome, Session, get
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError
from privopt.execution.clock import check
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.symmetry import Symmetry

__all__ = ["Mixture"]

RAYS_PER_RECORD: Final = 6
"""Rays kept, in multiples of the records, when the worst are dropped."""

NEGLIGIBLE_VALUE: Final = 1e-13
"""Rays whose value is less negative than this share of the largest cost are noise."""

MIN_ENTRY: Final = 1e-9
"""HiGHS drops entries below it in silence: the LP is given none; the mechanism is mixed of the rays themselves."""

MAX_ROW_SUM_ERROR: Final = 1e-6
"""A mixture whose rows miss one by more is none."""


class Mixture:
    """The least-cost mixture of rays whose rows sum to one, warm from one solve to the next.

    A ray ``z`` costs ``min_k cost_k . z``: it serves the output that is cheapest for it.

    Attributes:
        instance: with one output for each orbit of outputs.
        rays: (R, N), each with a largest entry of one.
        solves: how often the mixture was solved.
    """

    def __init__(self, instance: Instance, symmetry: Symmetry, rays: Floats) -> None:
        self.instance, self.symmetry = instance, symmetry
        self.rays = np.zeros((0, instance.records))
        self.serves: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.costs: Floats = np.zeros(0)
        self.solves = 0
        self._scale = 1.0 / max(float(np.abs(instance.cost).max()), 1e-300)
        self._known: set[bytes] = set()
        self._session: Session | None = None
        self._add_unseen(rays)

    def _open_session(self) -> Session:
        """Return the LP, made when it is first asked for: what needs no mixture does not pay for one."""
        if self._session is None:
            n, count = len(self.symmetry.size), len(self.rays)
            form = StandardForm(
                c=self.costs * self._scale,
                A=self._lp_entries(self.rays).T,
                row_lower=np.ones(n),
                row_upper=np.ones(n),
                col_lower=np.zeros(count),
                col_upper=np.full(count, np.inf),
                integrality=np.zeros(count, dtype=np.uint8),
            )
            options = {"presolve": "off", "solver": "simplex", "simplex_strategy": 4}
            self._session = get("highs").session(form, options=options)
        return self._session

    def _add_unseen(self, rays: Floats) -> tuple[Floats, Floats]:
        """Take the rays not seen before; they and their costs."""
        rays = rays / rays.max(axis=1, keepdims=True)
        new_rows = []
        for number, ray in enumerate(rays):
            key = np.round(ray, 9).tobytes()
            if key not in self._known:
                self._known.add(key)
                new_rows.append(number)
        rays = rays[new_rows]
        table = rays @ self.instance.cost
        serves = table.argmin(axis=1)
        costs = table[np.arange(len(rays)), serves]
        self.rays = np.concatenate([self.rays, rays])
        self.serves = np.concatenate([self.serves, serves])
        self.costs = np.concatenate([self.costs, costs])
        return rays, costs

    def _lp_entries(self, rays: Floats) -> Floats:
        """Return what rays add to each row of the LP."""
        rows = self._orbit_means(rays)
        return np.where(rows < MIN_ENTRY, 0.0, rows)

    def _orbit_means(self, rays: Floats) -> Floats:
        """Return what rays add to each row of the master: their means over the orbits of records."""
        if self.symmetry.order == 1:
            return rays
        means = np.zeros((len(rays), len(self.symmetry.size)))
        np.add.at(means.T, self.symmetry.orbit, rays.T)
        return means / self.symmetry.size

    def add(self, rays: Floats) -> int:
        """Add rays (R, N); how many were new."""
        from scipy import sparse

        fresh, costs = self._add_unseen(rays)
        if len(costs) and self._session is not None:
            columns = sparse.csc_matrix(self._lp_entries(fresh).T)
            self._session.add_columns(costs * self._scale, 0.0, np.inf, columns)
        return len(costs)

    def add_priced(self, logs: Floats, values: Floats) -> int:
        """Add the rays of a pricing, given as logarithms, whose values are below 0; how many were new."""
        logs = logs[values < -NEGLIGIBLE_VALUE / self._scale]
        return self.add(np.exp(logs - logs.max(axis=1, keepdims=True))) if len(logs) else 0

    def solve(self) -> tuple[Floats | None, float, Floats]:
        """Mix the rays.

        Returns:
            The mechanism (N, K) with rows scaled to one (None where rows are off), what it costs, and the prices (N,)
            of the records.

        Raises:
            OutOfTime: the limit came first.
            SolverError: the LP was not solved.
        """
        answer = self._open_session().solve()
        self.solves += 1
        if answer.outcome in (Outcome.STOPPED, Outcome.FEASIBLE):
            check("the rays were mixed")
        if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
            raise SolverError(f"the mixture of rays ended as {answer.outcome.value}")
        weights = np.maximum(answer.x, 0.0)
        prices = (answer.duals / self._scale / self.symmetry.size)[self.symmetry.orbit]
        has_wrong_sums = np.abs(self._orbit_means(weights[None] @ self.rays) - 1.0).max() >= MAX_ROW_SUM_ERROR
        return None if has_wrong_sums else self._mix_mechanism(weights), float(weights @ self.costs), prices

    def _mix_mechanism(self, weights: Floats) -> Floats:
        columns = np.zeros(self.instance.cost.shape)
        for number in np.flatnonzero(weights > 0):
            columns[:, self.serves[number]] += weights[number] * self.rays[number]
        z = self.symmetry.lift(columns)
        return np.asarray(z / z.sum(axis=1, keepdims=True))

    def clean(self, prices: Floats) -> None:
        """Drop the rays that price out worst once there are too many; those in the basis stay."""
        limit = RAYS_PER_RECORD * self.instance.records
        if len(self.rays) <= 2 * limit:
            return
        reduced = self.costs - self.rays @ prices
        session = self._open_session()
        basis = session.basis
        if basis is not None:
            reduced[basis.columns == 1] = -np.inf
        gone = np.argsort(reduced)[limit:]
        session.delete_columns(gone)
        is_kept = np.ones(len(self.rays), dtype=bool)
        is_kept[gone] = False
        self.rays, self.serves, self.costs = self.rays[is_kept], self.serves[is_kept], self.costs[is_kept]
        self._known = {np.round(ray, 9).tobytes() for ray in self.rays}
