"""The bumps (smooth distributions over records, around centres) with which flows are fitted, and their resolution."""

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
    """M bumps of one resolution (:func:`.smooth_shares.make_bumps`), in terms of the outputs and groups.

    Attributes:
        columns: (M, L) probability of each cell of outputs (:func:`.flow_fit.merge_outputs`) given each bump.
        groups: (M, G) fraction of each bump that lies on the records of each group.
    """

    columns: Floats
    groups: Floats

    def fit_weights(self, counts: Floats, gap: float) -> Floats:
        """Return the most likely weights (M,) of the bumps, from counts (L,) of one column of reports."""
        is_counted = counts > 0
        weights: Floats = fit(
            np.ascontiguousarray(self.columns[:, is_counted]), counts[is_counted] / counts.sum(), gap=gap
        ).shares
        return weights

    def find_links(self, counts: Floats, *, extremes: bool = False) -> list[Floats]:
        """Return the weights with which the fit of counted trips (L, L) begins; see :func:`.flow_links.find_links`."""
        starts, ends = (self.fit_weights(counts.sum(axis=axis), REPLICATE_GAP) for axis in (1, 0))
        return find_links(self.columns, counts, starts, ends, extremes=extremes)

    def choose_rounds(self, counts: Floats) -> int:
        """Return the number of rounds that predicts counted trips (L, L) best; see :func:`.flow_fit.choose_rounds`."""
        rng = np.random.default_rng([SEED, 0])
        return choose_rounds(self.columns, counts, self.groups, lambda half: self.find_links(half)[0], rng)

    def fit(self, counts: Floats, weights: Floats, *, gap: float, rounds: int) -> FlowFit:
        """Return the flows of counted trips (L, L), beginning at weights (M, M); see :func:`.flow_fit.fit_flows`."""
        return fit_flows(self.columns, counts, self.groups, weights, gap=gap, rounds=rounds)


class BumpMaker:
    """Makes bumps of several resolutions for one channel and one set of groups.

    Attributes:
        cells: (K,) the cell of each output, into which similar outputs are merged.
        _columns: (N, L) probability of each cell given each record.
        _functionals, _rows: As given to the constructor.
        _records: The number of records N.
    """

    def __init__(self, columns: Floats, functionals: Any, rows: Rows | None) -> None:
        """Merge the outputs of the channel into cells.

        Args:
            columns: (N, K) probability of each output given each record.
            functionals: (G, N) ones where a record belongs to a group, sparse.
            rows: Returns the distances (B, N) from some records to all; None if there are no distances.
        """
        self._functionals, self._rows, self._records = functionals, rows, len(columns)
        self.cells = merge_outputs(columns)
        self._columns = merge_columns(columns, self.cells)

    def make(self, resolution: float) -> Bumps:
        """Return the bumps of a resolution, in the unit of distance. If it is 0, each record is a bump by itself."""
        if resolution == 0.0 or self._rows is None:
            return Bumps(columns=self._columns, groups=self._functionals.T.toarray())
        shapes = make_bumps(self._rows, self._records, resolution)
        assert shapes is not None  # resolutions are chosen by find_resolution
        return Bumps(columns=shapes @ self._columns, groups=(self._functionals @ shapes.T).T)

    def find_resolution(self, resolution: float, max_bumps: int) -> float:
        """Return the given resolution, or the first of its multiples by powers of FINER with at most ``max_bumps``.

        If ``resolution`` is 0, return 0 if the records themselves are few enough, and otherwise begin with the distance
        between two neighbours.

        Raises:
            UsageError: There are many records, and no distances between them or too many infinite ones.
        """
        if self._records <= max_bumps and resolution == 0.0:
            return 0.0
        if self._rows is None:
            raise UsageError(
                f"flows must be of records with distances, or of at most {max_bumps:,} records, got {self._records:,}"
            )
        if resolution == 0.0:
            # The distance from record 0 to its nearest neighbour, from which the search begins.
            distances = self._rows(np.array([0]))[0]
            resolution = float(distances.min(initial=np.inf, where=distances > 0))
        while math.isfinite(resolution):
            shapes = make_bumps(self._rows, self._records, resolution)
            if shapes is not None and len(shapes) <= max_bumps:
                return resolution
            # FINER is the ratio of neighbouring resolutions, above 1, so the bumps become wider and fewer.
            resolution *= FINER
        # However coarse, each part that is connected by finite distances has a bump of its own.
        raise UsageError(
            f"flows must be of records with finite distances, or of at most {max_bumps:,} records, got "
            f"{self._records:,} with too many infinite distances"
        )
