"""Estimate flows (the shares of trips from one group of records to another) from pairs of reports.

The row sums and column sums of the flows come from separate estimates of where trips start and end (:mod:`.shares`).
:mod:`.flow_fit` finds flows with these sums, and :mod:`.flow_intervals` finds their intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl
from attrs import field, frozen

from privopt.arrays import Floats, Ints
from privopt.declare.notebook import card
from privopt.errors import UsageError, number_of
from privopt.estimate.count_trips import TripCounts
from privopt.estimate.flow_bumps import BumpMaker
from privopt.estimate.flow_fit import scale_to_sums
from privopt.estimate.flow_intervals import PILOT_REFINEMENT, FlowModel, find_half_widths
from privopt.estimate.shares import (
    BOOTSTRAP,
    MAX_UNSMOOTHED_RECORDS,
    SMOOTH,
    EstimateOptions,
    check_possible,
    fit_reports,
    group_functionals,
)
from privopt.estimate.smooth_intervals import describe_assumption
from privopt.estimate.smooth_shares import Rows
from privopt.execution.resources import limited_to
from privopt.interfaces import Progress

MAX_GROUPS: Final = 100
"""The maximum number of groups. With 100 groups, there are 10,000 flows."""

MAX_BUMPS: Final = 400
"""The maximum number of bumps (smooth distributions over records) in a fit.

With this number, a round takes 5 ms. If more bumps would be needed, the resolution is made coarser.
"""

REFINEMENT: Final = 4.0
"""The factor by which bumps for flows are narrower than those for starts and ends, unless too many would be needed.

The factor was tested with 200,000 trips between 2,032 street nodes. Bumps of 0.2 km instead of 0.4 km reduced a flow's
mean error from 45 to 9 % of the flow for trips to nearby places, and from 69 to 39 % for trips that end where they
began. For other trips, the error stayed the same.
"""

LINKED: Final = "fitted links"
"""The text in a table's ``assumes`` column that states what intervals assume about starts and ends.

If flows are smooth, it comes after ``smooth``.
"""

LINK_ASSUMPTION: Final = (
    "intervals of flows are measured, not proved: they assume that ends depend on starts about as in one of the fits "
    "that the reports allow, from independence to trips that end where they began; if a pattern is finer than the "
    "noise (each place linked to one other), they can miss the truth without any sign of it"
)
"""A sentence about what intervals assume about starts and ends, and what happens if the assumption is wrong."""


@frozen(kw_only=True, eq=False)
class Flows:
    """Estimated flows between groups of records, with their intervals.

    Attributes:
        groups: The names of the G groups.
        shares: (G, G) The share of trips from each group (row) to each group (column). The shares sum to 1.
        low, high: (G, G) The lower and upper ends of the shares' intervals. The intervals are meant to hold
            simultaneously. This was tested empirically, but is not proved.
        n: The number of trips with both reports.
        skipped: The number of rows with a missing report.
        method: ``"maximum-likelihood"`` or ``"smooth-maximum-likelihood"``.
        confidence: The confidence level of the intervals.
        gap: A proved bound, per trip, on how far the log-likelihood was below its maximum at this resolution before the
            flows were scaled to the shares of starts and ends.
        intervals: What the intervals assume: ``"smooth"``, or ``"fitted links"`` if flows are not smooth.
        resolution: The resolution of smooth flows, in ``unit``, or 0 if flows are not smooth.
        unit: The unit of distance.
        assumption: A sentence about what the intervals assume about the trips.
        pair_guarantee: A sentence about the combined privacy cost of a trip's two reports.
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
        """The share of trips that start in each group, as an array of shape (G,)."""
        sums: Floats = self.shares.sum(axis=1)
        return sums

    @property
    def ends(self) -> Floats:
        """The share of trips that end in each group, as an array of shape (G,)."""
        sums: Floats = self.shares.sum(axis=0)
        return sums

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object printed by ``privopt estimate --from --to --json``, as a dict."""
        names = ("n", "skipped", "method", "confidence", "gap", "intervals", "resolution", "unit", "pair_guarantee")
        values = {name: getattr(self, name) for name in names} | {"intervals_by": BOOTSTRAP}
        return {**values, "assumption": self.assumption, "notes": list(self.notes)}

    def to_frame(self) -> pl.DataFrame:
        """Return a DataFrame with one row for each flow.

        Its columns are ``from``, ``to``, ``share``, ``low``, ``high`` and ``assumes``.
        """
        count = len(self.groups)
        columns: dict[str, Any] = {"from": np.repeat(self.groups, count), "to": np.tile(self.groups, count)}
        figures = {"share": self.shares, "low": self.low, "high": self.high}
        columns |= {name: values.ravel() for name, values in figures.items()}
        columns["assumes"] = [f"{SMOOTH}, {LINKED}" if self.resolution else LINKED] * count**2
        return pl.DataFrame(columns)

    def __repr__(self) -> str:
        count = len(self.groups)
        trips = number_of(self.n, "trip")
        return f"Flows(<{count:,} x {count:,} shares from {trips}, {self.method}, {self.confidence:.0%}>)"

    # Jupyter calls this method to show an object.
    def _repr_html_(self) -> str:
        facts = {
            "trips": self.n,
            "without both reports": self.skipped,
            "method": self.method,
            "intervals": f"{self.confidence:.0%}, {self.intervals}",
            **({"notes": " ".join(self.notes)} if self.notes else {}),
        }
        return card("Flows", facts) + str(self.to_frame()._repr_html_())


def estimate_flows(
    trips: TripCounts,
    options: EstimateOptions,
    groups: Mapping[str, Ints],
    *,
    rows: Rows | None = None,
    unit: str = "",
    progress: Progress | None = None,
) -> Flows:
    """Estimate the share of trips from each group to each group.

    Args:
        trips: The counted trips.
        options: The options for the estimate. The option ``intervals`` is ignored, because intervals for flows always
            come from the parametric bootstrap.
        groups: The indices of each group's records, keyed by group name. Every record is in exactly one group.
        rows: A function that takes the indices of B records and returns an array of shape (B, N) with their distances
            to all records, or None if there are no distances.
        unit: The unit of distance.
        progress: A function to call with the current step, or None.

    Raises:
        UsageError: There are no trips, a report cannot come from any record, there are too many groups, or the records
            lack finite distances and there are too many of them.
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
    # Flows are less accurate than starts and ends, but are fitted with finer bumps, because short trips cross the
    # border between two groups within a bump. The small number of rounds keeps the fit smooth.
    margin_resolution = min(margin_fit.resolution for margin_fit in margin_fits)
    finest_resolution = margin_resolution if options.resolution is not None else margin_resolution / REFINEMENT
    # The matrices here are small, so additional threads would mostly wait for one another.
    with limited_to(1):
        if progress is not None:
            progress("flows: likelihood", 0, None, None)
        maker = BumpMaker(channel.probabilities, functionals, rows)
        counts = _merge_trips(trips, maker.cells)
        resolution = maker.find_resolution(
            finest_resolution, MAX_BUMPS if margin_resolution else MAX_UNSMOOTHED_RECORDS
        )
        bumps = maker.make(resolution)
        rounds = bumps.choose_rounds(counts)
        flow_fit = bumps.fit(counts, bumps.find_links(counts)[0], gap=options.gap, rounds=rounds)
        shares = scale_to_sums(flow_fit.flows, *(group_shares / group_shares.sum() for group_shares in sums))
        # Pilots are the fits from which trips are drawn for the intervals. If flows are not smooth (resolution 0), no
        # resolution is finer, so pilots differ from the estimate only in their rounds.
        pilot_resolution = resolution and maker.find_resolution(resolution / PILOT_REFINEMENT, MAX_BUMPS)
        start_bumps, end_bumps = (maker.make(margin_fit.resolution) for margin_fit in margin_fits)
        model = FlowModel(bumps, rounds, start_bumps, end_bumps, options.gap)
        pilot_bumps = maker.make(pilot_resolution)
        half_widths = find_half_widths(counts, shares, model, pilot_bumps, options.confidence, progress)
    assumption = "; ".join(
        ([describe_assumption(pilot_resolution, unit, has_others=False)] if resolution else []) + [LINK_ASSUMPTION]
    )
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
        intervals=SMOOTH if resolution else LINKED,
        resolution=resolution,
        unit=unit,
        assumption=assumption,
        notes=_list_notes(trips, assumption, resolution, margin_resolution, unit),
    )


def _merge_trips(trips: TripCounts, cells: Ints) -> Floats:
    """Return the number of trips for each pair of reported cells, as an array of shape (L, L).

    ``cells`` is an array of shape (K,) with the index of each output's cell.
    """
    pairs, count = trips.counts.tocoo(), int(cells.max()) + 1
    merged = np.zeros((count, count))
    np.add.at(merged, (cells[pairs.coords[0]], cells[pairs.coords[1]]), pairs.data)
    return merged


def _list_notes(
    trips: TripCounts, assumption: str, resolution: float, margin_resolution: float, unit: str
) -> tuple[str, ...]:
    """Return warnings for the users of the flows, as sentences.

    Args:
        trips: The counted trips.
        assumption: A sentence about what the intervals assume.
        resolution: The resolution of the flows, or 0 if they are not smooth.
        margin_resolution: The resolution of the estimates of starts and ends.
        unit: The unit of distance.
    """
    lines = [assumption]
    if trips.repeated:
        lines.append(f"trips omitted because their subjects had one already: {trips.repeated:,}")
    if resolution > margin_resolution:
        lines.append(
            f"flows are smoother than the shares of starts and ends: at a resolution of {resolution:.3g} {unit}"
        )
    return tuple(lines)
