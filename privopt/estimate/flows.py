"""Estimate flows: the share of trips from each group of records to each, from pairs of reports, with intervals.

The sums of rows and columns are the estimates of each column alone (:mod:`.shares`). How the flows within these sums
are found is told in :mod:`.flow_fit`. Intervals are by the parametric bootstrap of :mod:`.smooth_intervals`: trips are
drawn from a pilot of half the resolution, again and again, and estimated in the same way.

Estimate and pilot both begin as if ends were independent of starts, and both end before the maximum of the likelihood.
So the intervals leave out a bias towards independence, which more trips do not remove: with twelve records at 1.4 per
km and trips that all end where they began, the intervals of three groups did not hold in any of six runs, with 2,000 or
with 2,000,000 trips.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl
from attrs import field, frozen

from privopt.arrays import Floats, Ints
from privopt.declare.notebook import card
from privopt.errors import UsageError, number_of
from privopt.estimate.count_trips import TripCounts
from privopt.estimate.flow_fit import MIN_GAIN, ROUNDS, FlowFit, fit_flows, merge_columns, merge_outputs, scale_to_sums
from privopt.estimate.likelihood import fit
from privopt.estimate.shares import (
    BOOTSTRAP,
    MAX_UNSMOOTHED_RECORDS,
    SMOOTH,
    EstimateOptions,
    check_possible,
    fit_reports,
    group_functionals,
)
from privopt.estimate.smooth_intervals import (
    REPLICATE_GAP,
    SEED,
    describe_assumption,
    half_widths_of,
)
from privopt.estimate.smooth_shares import FINER, Rows, make_bumps
from privopt.execution.resources import limited_to
from privopt.interfaces import Progress

MAX_GROUPS: Final = 100
"""Largest number of groups, between which there are 10,000 flows."""

MAX_BUMPS: Final = 250
"""Largest number of bumps of a fit; if there are more, the resolution is made coarser. Half of them squared are the
weights of a round, which takes 10 ms."""

MAX_PILOT_BUMPS: Final = 500
"""The same for the pilot, which is fitted once."""

REPLICATES: Final = 40
"""Number of times that trips are drawn from the pilot."""

PILOT_REFINEMENT: Final = 2.0
"""The pilot's bumps are narrower than those of the estimate by this factor. Narrower ones did not make more intervals
hold."""

LOOSE: Final = "loosely linked"
"""What the table says, in each row, that intervals assume of starts and ends; after ``smooth``, if flows are smooth."""

PILOT_ROUNDS: Final = 3 * ROUNDS
"""Rounds of the pilot if shares are not smooth, so that it is rougher than the estimate."""


@frozen(kw_only=True, eq=False)
class Flows:
    """Estimated flows between groups of records, with their intervals.

    Attributes:
        groups: Names of the G groups.
        shares: (G, G) shares of the trips from each group (row) to each group (column), summing to 1.
        low, high: (G, G) ends of their intervals, which hold simultaneously if trips are as is assumed.
        n: Number of trips with both reports.
        skipped: Number of rows that lack a report.
        method: ``"maximum-likelihood"``, or the same after ``smooth-``.
        confidence: Confidence of the intervals.
        gap: Proved bound on the distance of the log-likelihood from its maximum at this resolution, per trip, before
            the flows were scaled to the shares of their starts and ends.
        intervals: ``"smooth"``, or ``"loosely linked"`` if shares are not smooth: the name of what they assume.
        resolution: Resolution of smooth flows, in ``unit``; 0 if they are not smooth.
        unit: Unit of distance.
        assumption: What the intervals assume of the trips, as a sentence.
        pair_guarantee: What both reports of a trip guarantee together, as a sentence.
        notes: Warnings for users of the estimate, as sentences.
    """

    groups: tuple[str, ...]
    shares: Floats
    low: Floats
    high: Floats
    n: int
    skipped: int
    method: str
    confidence: float
    gap: float
    intervals: str
    resolution: float = 0.0
    unit: str = ""
    assumption: str = ""
    pair_guarantee: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def starts(self) -> Floats:
        """(G,) shares of the trips that start in each group."""
        sums: Floats = self.shares.sum(axis=1)
        return sums

    @property
    def ends(self) -> Floats:
        """(G,) shares of the trips that end in each group."""
        sums: Floats = self.shares.sum(axis=0)
        return sums

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``privopt estimate --from --to --json`` prints."""
        names = ("n", "skipped", "method", "confidence", "gap", "intervals", "resolution", "unit", "pair_guarantee")
        values = {name: getattr(self, name) for name in names} | {"intervals_by": BOOTSTRAP}
        return {**values, "assumption": self.assumption, "notes": list(self.notes)}

    def to_frame(self) -> pl.DataFrame:
        """Return a table with a row for each flow: from, to, share, low, high, and what intervals assume (assumes)."""
        count = len(self.groups)
        columns: dict[str, Any] = {"from": np.repeat(self.groups, count), "to": np.tile(self.groups, count)}
        figures = {"share": self.shares, "low": self.low, "high": self.high}
        columns |= {name: values.ravel() for name, values in figures.items()}
        columns["assumes"] = [f"{SMOOTH}, {LOOSE}" if self.resolution else LOOSE] * count**2
        return pl.DataFrame(columns)

    def __repr__(self) -> str:
        count = len(self.groups)
        trips = number_of(self.n, "trip")
        return f"Flows(<{count:,} x {count:,} shares from {trips}, {self.method}, {self.confidence:.0%}>)"

    # Jupyter shows an object by this method.
    def _repr_html_(self) -> str:
        facts = {
            "trips": self.n,
            "without both reports": self.skipped,
            "method": self.method,
            "intervals": f"{self.confidence:.0%}, {self.intervals}",
            **({"notes": " ".join(self.notes)} if self.notes else {}),
        }
        return card("Flows", facts) + str(self.to_frame()._repr_html_())


@frozen(kw_only=True, eq=False)
class _Bumps:
    """Bumps of one resolution, as flows are fitted with them.

    Attributes:
        columns: (M, L) probability of each cell of outputs given each bump.
        groups: (M, G) part of each bump in each group.
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

    def fit(self, counts: Floats, *, gap: float, rounds: int = ROUNDS, min_gain: float = MIN_GAIN) -> FlowFit:
        """Return the flows of a table of trips (L, L) by the cells of their reports (:func:`.flow_fit.fit_flows`)."""
        margin_gap = max(gap, REPLICATE_GAP)
        start_weights, end_weights = (self.fit_weights(counts.sum(axis=axis), margin_gap) for axis in (1, 0))
        start = (start_weights, end_weights)
        return fit_flows(self.columns, counts, self.groups, start, gap=gap, rounds=rounds, min_gain=min_gain)


class _FlowEstimator:
    """Makes bumps of several resolutions for one channel and one set of groups."""

    def __init__(self, columns: Floats, functionals: Any, rows: Rows | None) -> None:
        """Take the channel.

        Args:
            columns: (N, K) probability of each output given each record.
            functionals: (G, N) ones where a record belongs to a group, sparse.
            rows: Returns the distances (B, N) from some records to all; None if there are no distances.
        """
        self._functionals, self._rows, self._records = functionals, rows, len(columns)
        self.cells = merge_outputs(columns)
        self._columns = merge_columns(columns, self.cells)

    def make(self, resolution: float) -> _Bumps:
        """Return the bumps of a resolution; if it is 0, each record is a bump by itself."""
        if resolution == 0.0 or self._rows is None:
            return _Bumps(columns=self._columns, groups=self._functionals.T.toarray())
        shapes = make_bumps(self._rows, self._records, resolution)
        assert shapes is not None  # resolutions are chosen by find_resolution
        return _Bumps(columns=shapes @ self._columns, groups=(self._functionals @ shapes.T).T)

    def find_resolution(self, resolution: float, max_bumps: int) -> float:
        """Return the finest resolution, of those coarser than the given one by powers of FINER, with few enough bumps.

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
            # A distance between neighbours, from which the search begins.
            distances = self._rows(np.array([0]))[0]
            resolution = float(distances.min(initial=np.inf, where=distances > 0))
        while math.isfinite(resolution):
            shapes = make_bumps(self._rows, self._records, resolution)
            if shapes is not None and len(shapes) <= max_bumps:
                return resolution
            resolution *= FINER
        # However coarse, each part that is connected by finite distances has a bump of its own.
        raise UsageError(
            f"flows must be of records with finite distances, or of at most {max_bumps:,} records, got "
            f"{self._records:,} with too many infinite distances"
        )


def estimate_flows(
    trips: TripCounts,
    options: EstimateOptions,
    groups: Mapping[str, Ints],
    *,
    rows: Rows | None = None,
    unit: str = "",
    progress: Progress | None = None,
) -> Flows:
    """Estimate the share of trips from each group to each.

    Args:
        trips: The counted trips.
        options: Options of the estimate. Intervals are by the parametric bootstrap, whatever kind they name.
        groups: Record numbers of each group; every record is in one group.
        rows: Returns the distances (B, N) from some records to all; None if there are no distances.
        unit: Unit of distance.
        progress: Called with the step that is being done.

    Raises:
        UsageError: There are no trips, there are too many groups, or many records have no finite distances.
    """
    channel, n = trips.channel, trips.n
    if len(groups) > MAX_GROUPS:
        raise UsageError(f"flows must be between at most {MAX_GROUPS} groups (--by), got {len(groups):,}")
    margins = [trips.margin(end) for end in (0, 1)]
    for margin in margins:
        check_possible(channel.outputs, channel.probabilities, margin)
    names, functionals = group_functionals(channel.inputs, groups)
    margin_fits = [fit_reports(channel.probabilities, margin, options, rows, progress) for margin in margins]
    sums = [functionals @ margin_fit.shares for margin_fit in margin_fits]
    wished_resolution = max(margin_fit.resolution for margin_fit in margin_fits)
    with limited_to(1):
        if progress is not None:
            progress("flows: likelihood", 0, None, None)
        estimator = _FlowEstimator(channel.probabilities, functionals, rows)
        counts = _merge_trips(trips, estimator.cells)
        resolution = estimator.find_resolution(
            wished_resolution, MAX_BUMPS if wished_resolution else MAX_UNSMOOTHED_RECORDS
        )
        bumps = estimator.make(resolution)
        flow_fit = bumps.fit(counts, gap=options.gap)
        shares = scale_to_sums(flow_fit.flows, *(group_shares / group_shares.sum() for group_shares in sums))
        # Flows that are not smooth have no finer resolution: their pilot is rougher by more rounds.
        pilot_resolution = resolution and estimator.find_resolution(resolution / PILOT_REFINEMENT, MAX_PILOT_BUMPS)
        pilot_rounds, min_gain = (ROUNDS, MIN_GAIN) if resolution else (PILOT_ROUNDS, 0.0)
        pilot_bumps = estimator.make(pilot_resolution)
        errors = _draw_errors(
            pilot_bumps.fit(counts, gap=options.gap, rounds=pilot_rounds, min_gain=min_gain),
            bumps,
            [estimator.make(margin_fit.resolution) for margin_fit in margin_fits],
            n,
            options.gap,
            progress,
        )
    half_widths = half_widths_of(errors, options.confidence, n).reshape(shares.shape)
    assumption = "; ".join(([describe_assumption(pilot_resolution, unit)] if resolution else []) + [_describe_link()])
    return Flows(
        groups=names,
        shares=shares,
        low=np.maximum(shares - half_widths, 0.0),
        high=np.minimum(shares + half_widths, 1.0),
        n=n,
        skipped=trips.skipped,
        method=f"{'smooth-' if resolution else ''}maximum-likelihood",
        confidence=options.confidence,
        gap=flow_fit.gap,
        intervals=SMOOTH if resolution else LOOSE,
        resolution=resolution,
        unit=unit,
        assumption=assumption,
        notes=_list_notes(trips, assumption, resolution, wished_resolution, unit),
    )


def _merge_trips(trips: TripCounts, cells: Ints) -> Floats:
    """Return the number of trips (L, L) by the cells of their reports, given the cell of each output (K,)."""
    pairs, count = trips.counts.tocoo(), int(cells.max()) + 1
    merged = np.zeros((count, count))
    np.add.at(merged, (cells[pairs.coords[0]], cells[pairs.coords[1]]), pairs.data)
    return merged


def _draw_errors(
    pilot: FlowFit, bumps: _Bumps, margin_bumps: list[_Bumps], n: int, gap: float, progress: Progress | None
) -> Floats:
    """Return the errors (B, G * G) of estimates from trips that are drawn from a pilot.

    Args:
        pilot: The pilot.
        bumps: Bumps of the estimate.
        margin_bumps: Bumps by which the shares of starts and of ends are estimated.
        n: Number of trips.
        gap: Gap of the estimate.
        progress: Called with the number of draws that are done.
    """
    # Cells that nobody reports leave a sum that differs from 1.
    probabilities = pilot.cell_probabilities.ravel() / pilot.cell_probabilities.sum()
    errors = np.zeros((REPLICATES, pilot.flows.size))
    for number in range(REPLICATES):
        if progress is not None:
            progress(f"flows: draw {number + 1} of {REPLICATES}", number, None, None)
        rng = np.random.default_rng([SEED, number])
        drawn = rng.multinomial(n, probabilities).reshape(pilot.cell_probabilities.shape).astype(np.float64)
        starts, ends = (
            part.fit_weights(drawn.sum(axis=axis), max(gap, REPLICATE_GAP)) @ part.groups
            for part, axis in zip(margin_bumps, (1, 0), strict=True)
        )
        drawn_flows = scale_to_sums(bumps.fit(drawn, gap=gap).flows, starts / starts.sum(), ends / ends.sum())
        errors[number] = (drawn_flows - pilot.flows).ravel()
    return errors


def _describe_link() -> str:
    """Return a sentence on what intervals assume of starts and ends, and what happens if it is wrong."""
    return (
        "intervals of flows assume that ends depend on starts no more than the fit shows, which begins without any "
        "dependence and ends early; where most trips link few places or stay near their start, and the noise is wide "
        "beside the groups, the truth can lie outside of its interval without any sign of it, however many the trips"
    )


def _list_notes(
    trips: TripCounts, assumption: str, resolution: float, wished_resolution: float, unit: str
) -> tuple[str, ...]:
    """Return the warnings that users of the flows need, as sentences.

    Args:
        trips: The counted trips.
        assumption: What the intervals assume.
        resolution: Resolution of the flows; 0 if they are not smooth.
        wished_resolution: Resolution of the estimates of starts and ends.
        unit: Unit of distance.
    """
    lines = [assumption]
    if trips.repeated:
        lines.append(f"trips omitted because their subjects had one already: {trips.repeated:,}")
    if resolution > wished_resolution:
        lines.append(
            f"flows are smoother than the shares of starts and ends: at a resolution of {resolution:.3g} {unit}"
        )
    return tuple(lines)
