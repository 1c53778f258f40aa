"""Bumps for fitting flows: smooth distributions over the records near a centre, at a given resolution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.errors import UsageError
from privopt.estimate.flow_fit import FlowFit, choose_rounds, fit_flows, merge_columns, merge_outputs
from privopt.estimate.flow_links import find_links
from privopt.estimate.likelihood import fit
from privopt.estimate.smooth_intervals import REPLICATE_GAP, SEED
from privopt.estimate.smooth_shares import FINER, Rows, make_bumps


@frozen(kw_only=True, eq=False)
class Bumps:
    """A set of M bumps at one resolution. Bumps are smooth distributions over the records.

    See :func:`.smooth_shares.make_bumps`. Only the probabilities of cells and groups are stored, not the records
    themselves.

    Attributes:
        columns: (M, L) The probability of each cell given each bump. A cell is a set of similar outputs
            (:func:`.flow_fit.merge_outputs`).
        groups: (M, G) The fraction of each bump that lies on each group's records.
    """

    columns: Floats
    groups: Floats

    def fit_weights(self, counts: Floats, gap: float) -> Floats:
        """Return the most likely weights of the bumps as an array of shape (M,).

        Args:
            counts: (L,) The number of times that each cell was reported.
            gap: The fit stops once its log-likelihood per report is proved to be within this distance of the maximum.
        """
        is_counted = counts > 0
        weights: Floats = fit(
            np.ascontiguousarray(self.columns[:, is_counted]), counts[is_counted] / counts.sum(), gap=gap
        ).shares
        return weights

    def find_links(self, counts: Floats, *, extremes: bool = False) -> list[Floats]:
        """Return initial weights for a fit to trip counts, as described in :func:`.flow_links.find_links`.

        Args:
            counts: (L, L) The number of trips for each pair of cells.
            extremes: Whether to also return the extreme mixtures.
        """
        starts, ends = (self.fit_weights(counts.sum(axis=axis), REPLICATE_GAP) for axis in (1, 0))
        return find_links(self.columns, counts, starts, ends, extremes=extremes)

    def choose_rounds(self, counts: Floats) -> int:
        """Return the number of rounds after which a fit best predicts held-out trips (see :func:`.choose_rounds`).

        Args:
            counts: (L, L) The number of trips for each pair of cells.
        """
        # A fixed seed, so that the same reports give the same flows.
        rng = np.random.default_rng([SEED, 0])
        return choose_rounds(self.columns, counts, self.groups, lambda half: self.find_links(half)[0], rng)

    def fit(self, counts: Floats, weights: Floats, *, gap: float, rounds: int) -> FlowFit:
        """Fit flows to trip counts with :func:`.fit_flows`.

        Args:
            counts: (L, L) The number of trips for each pair of cells.
            weights: (M, M) The initial weights of pairs of bumps.
            gap: The fit stops once its log-likelihood per trip is proved to be within this distance of the maximum.
            rounds: The maximum number of rounds.
        """
        return fit_flows(self.columns, counts, self.groups, weights, gap=gap, rounds=rounds)


class BumpMaker:
    """A factory for bumps (smooth distributions over records) at various resolutions.

    All bumps are for the same channel and the same groups.

    Attributes:
        cells: (K,) The index of each output's cell. Similar outputs share a cell.
        _columns: (N, L) The probability of each cell given each record.
        _functionals, _rows: The constructor's arguments ``functionals`` and ``rows``.
        _records: The number of records N.
    """

    def __init__(self, columns: Floats, functionals: Any, rows: Rows | None) -> None:
        """Merge the channel's outputs into cells, which are sets of similar outputs.

        Args:
            columns: (N, K) The probability of each output given each record.
            functionals: (G, N) A sparse matrix with a 1 where a record belongs to a group.
            rows: A function that takes the indices of B records and returns an array of shape (B, N) with their
                distances to all records, or None if there are no distances.
        """
        self._functionals, self._rows, self._records = functionals, rows, len(columns)
        self.cells = merge_outputs(columns)
        self._columns = merge_columns(columns, self.cells)

    def make(self, resolution: float) -> Bumps:
        """Return the bumps at a resolution, which is a distance. At resolution 0, each record is a separate bump."""
        if resolution == 0.0 or self._rows is None:
            return Bumps(columns=self._columns, groups=self._functionals.T.toarray())
        shapes = make_bumps(self._rows, self._records, resolution)
        assert shapes is not None  # resolutions are chosen by find_resolution
        return Bumps(columns=shapes @ self._columns, groups=(self._functionals @ shapes.T).T)

    def find_resolution(self, resolution: float, max_bumps: int) -> float:
        """Coarsen ``resolution`` until at most ``max_bumps`` bumps are needed, and return the result.

        Each step multiplies the resolution by :data:`.smooth_shares.FINER`. A resolution of 0 is returned unchanged if
        there are at most ``max_bumps`` records. If there are more, the search starts from the distance between record 0
        and its nearest neighbour.

        Raises:
            UsageError: There are no distances, or too many of them are infinite. Distances are not needed if
                ``resolution`` is 0 and there are at most ``max_bumps`` records.
        """
        if self._records <= max_bumps and resolution == 0.0:
            return 0.0
        if self._rows is None:
            raise UsageError(
                f"flows must be of records with distances, or of at most {max_bumps:,} records, got {self._records:,}"
            )
        if resolution == 0.0:
            # Start the search from the distance between record 0 and its nearest neighbour.
            distances = self._rows(np.array([0]))[0]
            resolution = float(distances.min(initial=np.inf, where=distances > 0))
        while math.isfinite(resolution):
            shapes = make_bumps(self._rows, self._records, resolution)
            if shapes is not None and len(shapes) <= max_bumps:
                return resolution
            # FINER, the ratio between successive resolutions, is greater than 1, so the bumps become wider and fewer.
            resolution *= FINER
        # However coarse the resolution, each set of records connected by finite distances needs at least one bump.
        raise UsageError(
            f"flows must be of records with finite distances, or of at most {max_bumps:,} records, got "
            f"{self._records:,} with too many infinite distances"
        )
