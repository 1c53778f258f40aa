"""The restricted master problem of column generation, which mixes rays of the privacy cone into a mechanism."""

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
"""The number of rays per record that are kept when the rays with the largest reduced costs are dropped."""

NEGLIGIBLE_VALUE: Final = 1e-13
"""The largest absolute value of a negative reduced cost treated as a rounding error, as a fraction of the largest cost.

Rays with such reduced costs are ignored."""

MIN_ENTRY: Final = 1e-9
"""The value below which HiGHS silently drops entries.

They are set to 0 in the LP, but the mechanism is mixed from the unchanged rays."""

MAX_ROW_SUM_ERROR: Final = 1e-6
"""The smallest difference between a row sum and 1 at which a mixture is rejected."""


class Mixture:
    """The LP that mixes rays into a mechanism at the lowest cost.

    A ray is a vector over the records that satisfies every privacy constraint. Up to scale, it is therefore a column of
    a mechanism. A mixture is a weighted sum of rays in which every row sums to one. A ray ``z`` serves the output at
    which its cost is smallest, so its cost is ``min_k cost_k . z``. An orbit is a set of records, or of outputs, that
    symmetries map to one another. Each solve starts from the previous basis.

    Attributes:
        instance: The instance with one output from each orbit of outputs.
        symmetry: The symmetries of the original instance. The LP has one row for each orbit of records.
        rays: Array of shape (R, N) with the rays, each scaled so that its largest entry is one.
        serves: Array of shape (R,) with the index of the output served by each ray.
        costs: Array of shape (R,) with the cost of each ray.
    """

    def __init__(self, instance: Instance, symmetry: Symmetry, rays: Floats) -> None:
        """Create the LP over the given rays.

        Args:
            instance: The instance with one output from each orbit of outputs.
            symmetry: The symmetries of the original instance.
            rays: Array of shape (R, N) with positive rays. Duplicates are dropped.
        """
        self.instance, self.symmetry = instance, symmetry
        self.rays = np.zeros((0, instance.records))
        self.serves: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.costs: Floats = np.zeros(0)
        # The LP's costs are scaled to at most 1 because the solver's tolerances are absolute.
        self._scale = 1.0 / max(float(np.abs(instance.cost).max()), 1e-300)
        # The bytes of each ray, rounded to nine decimals, which identify rays that have been added before.
        self._known: set[bytes] = set()
        self._session: Session | None = None
        self._add_unseen(rays)

    def _open_session(self) -> Session:
        """Return the solver session for the LP, creating it on the first call."""
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
            # Strategy 4 is the primal simplex, because the last basis remains primal feasible when columns are added.
            options = {"presolve": "off", "solver": "simplex", "simplex_strategy": 4}
            self._session = get("highs").session(form, options=options)
        return self._session

    def _add_unseen(self, rays: Floats) -> tuple[Floats, Floats]:
        """Store the rays that differ from all stored rays when rounded to nine decimals.

        Args:
            rays: Array of shape (R, N) with one ray per row.

        Returns:
            Array of shape (M, N) with the rays that were stored, scaled so that the largest entry of each is one, and
            an array of shape (M,) with their costs.
        """
        rays = rays / rays.max(axis=1, keepdims=True)
        new_rows = []
        for number, ray in enumerate(rays):
            key = np.round(ray, 9).tobytes()
            if key not in self._known:
                self._known.add(key)
                new_rows.append(number)
        rays = rays[new_rows]
        # The cost of each ray at each output. A ray serves its cheapest output.
        table = rays @ self.instance.cost
        serves = table.argmin(axis=1)
        costs = table[np.arange(len(rays)), serves]
        self.rays = np.concatenate([self.rays, rays])
        self.serves = np.concatenate([self.serves, serves])
        self.costs = np.concatenate([self.costs, costs])
        return rays, costs

    def _lp_entries(self, rays: Floats) -> Floats:
        """Return the coefficients of rays in the LP's rows, with tiny coefficients set to 0.

        Args:
            rays: Array of shape (R, N) with one ray per row.

        Returns:
            Array of shape (R, O) with the coefficients, one column for each orbit of records.
        """
        rows = self._orbit_means(rays)
        return np.where(rows < MIN_ENTRY, 0.0, rows)

    def _orbit_means(self, rays: Floats) -> Floats:
        """Return the mean of each ray's entries over each orbit of records.

        The LP's constraints require the weighted sum of these means over all rays to be 1 for every orbit.

        Args:
            rays: Array of shape (R, N) with one ray per row.

        Returns:
            Array of shape (R, O) with the means.
        """
        # Without symmetries (order 1), every record is an orbit of its own.
        if self.symmetry.order == 1:
            return rays
        orbit_sizes = self.symmetry.size
        sums = np.zeros((len(rays), len(orbit_sizes)))
        # Record i is added to the column of its orbit, `orbit[i]`. Both arrays are transposed because `add.at` adds up
        # rows.
        np.add.at(sums.T, self.symmetry.orbit, rays.T)
        return sums / orbit_sizes

    def add(self, rays: Floats) -> int:
        """Add rays, given as an array of shape (R, N), to the LP, and return the number of new ones."""
        from scipy import sparse

        new_rays, costs = self._add_unseen(rays)
        # Before the first solve there is no session. It will be created with all rays.
        if len(costs) and self._session is not None:
            columns = sparse.csc_matrix(self._lp_entries(new_rays).T)
            self._session.add_columns(costs * self._scale, 0.0, np.inf, columns)
        return len(costs)

    def add_priced(self, logs: Floats, values: Floats) -> int:
        """Add the rays found by pricing that have negative values, and return the number of new ones.

        Args:
            logs: Array of shape (K, N) with the logarithms of the rays.
            values: Array of shape (K,) with the value of each ray at the current prices. Values that may be rounding
                errors are ignored.
        """
        logs = logs[values < -NEGLIGIBLE_VALUE / self._scale]
        # Each ray is scaled before exp is taken, so that its largest entry is 1 and nothing overflows.
        return self.add(np.exp(logs - logs.max(axis=1, keepdims=True))) if len(logs) else 0

    def solve(self) -> tuple[Floats | None, float, Floats]:
        """Solve the LP.

        Returns:
            Three values: the mechanism as an array of shape (N, K) with rows divided by their sums, the cost of the
            mixture, and an array of shape (N,) with the prices of the records, from the LP's duals. The mechanism is
            None if row sums are too far from one.

        Raises:
            OutOfTime: The time limit expired.
            SolverError: The LP was not solved to optimality.
        """
        answer = self._open_session().solve()
        # If the LP was stopped by the time limit, `check` raises `OutOfTime`.
        if answer.outcome in (Outcome.STOPPED, Outcome.FEASIBLE):
            check("the master problem was solved")
        if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
            raise SolverError(f"the restricted master problem ended as {answer.outcome.value}")
        weights = np.maximum(answer.x, 0.0)
        # A row of the LP is the mean over an orbit, so each record in the orbit gets an equal part of the row's dual.
        prices = (answer.duals / self._scale / self.symmetry.size)[self.symmetry.orbit]
        has_wrong_sums = np.abs(self._orbit_means(weights[None] @ self.rays) - 1.0).max() >= MAX_ROW_SUM_ERROR
        return None if has_wrong_sums else self._mix_mechanism(weights), float(weights @ self.costs), prices

    def _mix_mechanism(self, weights: Floats) -> Floats:
        """Mix the rays into a mechanism of shape (N, K), and divide its rows by their sums.

        Args:
            weights: Array of shape (R,) with the non-negative weights of the rays.
        """
        columns = np.zeros(self.instance.cost.shape)
        for number in np.flatnonzero(weights > 0):
            columns[:, self.serves[number]] += weights[number] * self.rays[number]
        z = self.symmetry.lift(columns)
        return np.asarray(z / z.sum(axis=1, keepdims=True))

    def clean(self, prices: Floats) -> None:
        """Drop the rays with the largest reduced costs, except those in the basis, if there are too many rays.

        Args:
            prices: Array of shape (N,) with the prices of the records, from which reduced costs are computed.
        """
        limit = RAYS_PER_RECORD * self.instance.records
        # Rays are dropped only at twice the limit, so that this happens rarely and removes many at a time.
        if len(self.rays) <= 2 * limit:
            return
        reduced = self.costs - self.rays @ prices
        session = self._open_session()
        basis = session.basis
        if basis is not None:
            # Status 1 means basic. If a basic column were dropped, the next solve would have no basis to start from.
            reduced[basis.columns == 1] = -np.inf
        dropped = np.argsort(reduced)[limit:]
        session.delete_columns(dropped)
        is_kept = np.ones(len(self.rays), dtype=bool)
        is_kept[dropped] = False
        self.rays, self.serves, self.costs = self.rays[is_kept], self.serves[is_kept], self.costs[is_kept]
        self._known = {np.round(ray, 9).tobytes() for ray in self.rays}
