"""Estimates and intervals for the shares of records, or of groups of records, computed from reports.

The estimated shares maximise the likelihood (:mod:`.likelihood`). If there are many records, the estimated shares are
smooth (:mod:`.smooth_shares`). Intervals come from linear programs, linear estimators, profile likelihood or a
bootstrap, depending on the options and the size of the problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
import polars as pl
from attrs import evolve, field, frozen
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.declare.notebook import card
from privopt.errors import UsageError, check_number, number_of
from privopt.estimate.finite_sample_intervals import finite_sample, is_affordable
from privopt.estimate.likelihood import Fit
from privopt.estimate.linear_intervals import linear_intervals
from privopt.estimate.profile_intervals import gap_for, profile_intervals
from privopt.estimate.smooth_intervals import describe_assumption, smooth_intervals
from privopt.estimate.smooth_shares import Rows, resolved_fit
from privopt.execution.resources import limited_to
from privopt.interfaces import Channel, NoisyCounts, Progress
from privopt.numbers.binomial import clopper_pearson

Intervals = Literal["finite-sample", "asymptotic", "smooth"]

MAX_UNSMOOTHED_RECORDS: Final = 300
"""The largest number of records for which all distributions are allowed by default.

With more records, the estimated shares are smooth.
"""

PROFILE: Final = "profile likelihood"
"""The name used in results for the method in :mod:`privopt.estimate.profile_intervals`."""
EACH: Final = "each by itself"
"""The suffix added to a method's name if its intervals hold individually but not simultaneously."""

NOISY_COUNTS: Final = "noisy-counts"
"""The value of :attr:`Estimate.method` for an estimate from noisy counts."""
BOOTSTRAP: Final = "parametric bootstrap"
"""The name used in results for the method in :mod:`privopt.estimate.smooth_intervals`."""
SMOOTH: Final = "smooth"
"""The text in a table's ``assumes`` column for smooth intervals."""

MAX_PROFILED_RECORDS: Final = 300
"""The largest number of records for which asymptotic intervals are found by profile likelihood.

Each interval takes about fifteen fits, and with 2,000 records each fit takes 0.3 s.
"""

MIN_THREADED_ENTRIES: Final = 250_000
"""The number of channel entries above which a fit over all distributions uses one thread per processor."""


@frozen(kw_only=True)
class EstimateOptions:
    """Options for an estimate.

    Attributes:
        confidence: The confidence level of the intervals.
        gap: The proved distance from the maximum log-likelihood, per report, at which the fit stops.
        intervals: The kind of intervals. Finite-sample intervals hold for any number of reports, and asymptotic ones
            for many reports. Smooth intervals hold for many reports if the shares are smooth over the map
            (:mod:`privopt.estimate.smooth_intervals`).
        resolution: The resolution of smooth shares (:mod:`privopt.estimate.smooth_shares`), in the same units as the
            distances, or 0 for shares that are not smooth. If None, shares are smooth only if the intervals are smooth
            or if there are more than 300 records with distances. The resolution is then the finest that the reports
            support.
    """

    confidence: float = 0.95
    gap: float = 1e-6
    intervals: Intervals = "finite-sample"
    resolution: float | None = None

    def __attrs_post_init__(self) -> None:
        """Check that all options have valid values.

        Raises:
            UsageError: An option is out of range.
        """
        for name in ("confidence", "gap", *(() if self.resolution is None else ("resolution",))):
            check_number(name, getattr(self, name), "a finite number")
        rules = [
            ("confidence", self.confidence, 0 < self.confidence < 1, "a number between 0 and 1"),
            ("gap", self.gap, 1e-9 <= self.gap < np.inf, "a number of at least 1e-9"),
            ("resolution", self.resolution, 0 <= (self.resolution or 0) < np.inf, "a distance of at least 0"),
            ("intervals", self.intervals, self.intervals in get_args(Intervals), " or ".join(get_args(Intervals))),
            (
                "resolution",
                self.resolution,
                self.intervals != "smooth" or self.resolution != 0,
                "a distance above 0 if intervals are smooth",
            ),
        ]
        for name, value, is_valid, expectation in rules:
            if not is_valid:
                raise UsageError(f"{name} must be {expectation}, got {value!r}")


@frozen(kw_only=True, eq=False)
class ReportCounts:
    """The counted reports from one release.

    Attributes:
        channel: The channel of the release.
        counts: (K,) The number of times each output was reported.
        skipped: The number of rows without a report.
        repeated: The number of rows omitted because their subject already had a counted report, from this release or
            from one counted earlier.
    """

    channel: Channel
    counts: Ints
    skipped: int = 0
    repeated: int = 0


@frozen(kw_only=True, eq=False)
class Estimate:
    """Estimated shares and their intervals.

    Attributes:
        ids: The ids of the G records, in the release's order, or the names of the G groups.
        shares: (G,) The shares, which sum to 1.
        low, high: (G,) The lower and upper ends of the shares' intervals.
        n: The number of reports, or the number of people according to noisy counts.
        method: ``"maximum-likelihood"``, ``"smooth-maximum-likelihood"`` or ``"noisy-counts"``.
        confidence: The confidence level of the intervals.
        gap: A proved bound on how far the log-likelihood per report is below its maximum. For smooth shares, the
            maximum is taken over shares with the same resolution.
        intervals: ``"finite-sample"``, ``"asymptotic"`` or ``"smooth"``. All intervals hold simultaneously, except
            asymptotic intervals for up to 300 single records, each of which holds individually.
        intervals_by: The method that found the intervals: ``"linear programs"``, ``"linear estimators"``, both of
            these, ``"profile likelihood"``, ``"parametric bootstrap"`` or ``"noise"``. If the intervals do not hold
            simultaneously, ``", each by itself"`` is appended.
        assumption: A sentence about what smooth intervals assume about the shares, or "" for other intervals.
        resolution: The resolution of smooth shares, in ``unit``, or 0 if the shares are not smooth.
        whole_gap: The same bound as ``gap``, but relative to the maximum over all distributions. It equals ``gap``
            unless the shares are smooth.
        unit: The unit of distance.
        skipped: The number of rows without a report.
        reported: (G,) The records' or groups' shares among the raw reports, or None if the outputs are not the same as
            the records.
        group_of: (N,) The index of each record's group, or -1 for a record without a group. It is None if there are no
            groups.
        notes: Warnings for users of the estimate, as sentences.
    """

    ids: tuple[str, ...]
    shares: Floats
    low: Floats
    high: Floats
    n: int
    method: str
    confidence: float
    gap: float
    intervals: Intervals
    intervals_by: str = "noise"
    assumption: str = ""
    resolution: float = 0.0
    whole_gap: float = 0.0
    unit: str = ""
    skipped: int = 0
    reported: Floats | None = None
    group_of: Ints | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def each_by_itself(self) -> bool:
        """Whether the confidence level applies to each interval individually rather than to all simultaneously."""
        return self.intervals_by.endswith(EACH)

    @property
    def gaps(self) -> str:
        """A phrase stating the gap and, for smooth shares, the gap relative to all distributions.

        It is "" for noisy counts.
        """
        if self.method == NOISY_COUNTS:
            return ""
        whole_text = f", gap_to_all {self.whole_gap:.2g}" if self.resolution else ""
        return f", gap {self.gap:.2g}{whole_text} per report"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object printed by ``privopt estimate --json``, as a dict."""
        names = ("n", "skipped", "method", "confidence", "gap", "intervals", "intervals_by", "resolution", "unit")
        values = {name: getattr(self, name) for name in names}
        assumption = {"assumption": self.assumption} if self.assumption else {}
        return {**values, **assumption, "gap_to_all": self.whole_gap, "notes": list(self.notes)}

    def to_frame(self) -> pl.DataFrame:
        """Return a DataFrame with the columns ``id``, ``share``, ``low`` and ``high``.

        If the intervals make an assumption about the shares, there is also an ``assumes`` column.
        """
        columns: dict[str, Any] = {"id": list(self.ids), "share": self.shares, "low": self.low, "high": self.high}
        if self.assumption:
            columns["assumes"] = [SMOOTH] * len(self.ids)
        return pl.DataFrame(columns)

    def __repr__(self) -> str:
        return (
            f"Estimate(<{number_of(len(self.ids), 'share')} from {number_of(self.n, 'report')}, {self.method}, "
            f"{self.confidence:.0%} {self.intervals} intervals>)"
        )

    # Jupyter calls this method to show an object.
    def _repr_html_(self) -> str:
        facts = {
            "reports": self.n,
            "without a report": self.skipped,
            "method": self.method,
            "intervals": f"{self.confidence:.0%}, {self.intervals}",
            **({"notes": " ".join(self.notes)} if self.notes else {}),
        }
        return card("Estimate", facts) + str(self.to_frame()._repr_html_())


def estimate(
    observed: Sequence[ReportCounts],
    options: EstimateOptions,
    *,
    groups: Mapping[str, Ints] | None = None,
    rows: Rows | None = None,
    unit: str = "",
    progress: Progress | None = None,
) -> Estimate:
    """Estimate the share of each record, or of each group of records, among the true values behind the reports.

    Args:
        observed: The counts for one release, or for several releases with the same inputs. The reports must be
            independent of one another.
        options: The options for the estimate.
        groups: The indices of each group's records, or None to estimate the shares of individual records.
        rows: A function that takes the indices of B records and returns their distances to all records as an array of
            shape (B, N), or None if there are no distances.
        unit: The unit of distance.
        progress: A function to call with the current step, or None.

    Raises:
        UsageError: There are no reports, the releases have different records, a report cannot come from any record, or
            smooth intervals are requested for records without distances.
    """
    if options.intervals == "smooth" and rows is None:
        raise UsageError("intervals must be finite-sample or asymptotic without distances between records, got smooth")
    ids = list(observed[0].channel.inputs)
    columns, counts = collect_reports(observed)
    n, is_reported = int(counts.sum()), counts > 0
    parts, reported_columns = counts[is_reported] / n, np.ascontiguousarray(columns[:, is_reported])
    names, functionals = group_functionals(ids, groups)
    best_fit = fit_reports(columns, counts, options, rows, progress)
    with limited_to(_thread_limit(reported_columns, best_fit.resolution)):
        shares, assumption = functionals @ best_fit.shares, ""
        shares = shares / shares.sum()
        notes: tuple[str, ...]
        if options.intervals == "smooth" and rows is not None and best_fit.resolution:
            half_widths, pilot_resolution = smooth_intervals(
                [release_counts.channel.probabilities for release_counts in observed],
                [release_counts.counts for release_counts in observed],
                rows,
                best_fit.resolution,
                functionals,
                options.confidence,
                gap=options.gap,
                progress=progress,
            )
            low, high = np.maximum(shares - half_widths, 0.0), np.minimum(shares + half_widths, 1.0)
            assumption = describe_assumption(pilot_resolution, unit)
            intervals_by, notes = BOOTSTRAP, (assumption,)
        else:
            options, smooth_notes = _without_smoothness(options)
            low, high, intervals_by, notes = _find_intervals(
                observed, columns, reported_columns, parts, n, functionals, options, progress
            )
            notes = (*notes, *smooth_notes)
    return Estimate(
        ids=names,
        shares=shares,
        # An interval must contain its share, and widening it keeps it valid.
        low=np.minimum(low, shares),
        high=np.maximum(high, shares),
        n=n,
        method=f"{'smooth-' if best_fit.resolution else ''}maximum-likelihood",
        confidence=options.confidence,
        gap=best_fit.gap,
        intervals=options.intervals,
        intervals_by=intervals_by,
        assumption=assumption,
        resolution=best_fit.resolution,
        whole_gap=best_fit.whole_gap,
        unit=unit,
        reported=_reported_shares(observed, functionals),
        group_of=_group_of(groups, len(ids)),
        notes=notes,
    )


def fit_reports(
    columns: Floats,
    counts: Floats | Ints,
    options: EstimateOptions,
    rows: Rows | None,
    progress: Progress | None = None,
) -> Fit:
    """Return the most likely shares of the records.

    The shares are smooth if the options or the number of records require it.

    Args:
        columns: (N, K) The probability of each output given each record.
        counts: (K,) The number of times each output was reported.
        options: The options for the estimate.
        rows: A function that takes the indices of B records and returns their distances to all records as an array of
            shape (B, N), or None if there are no distances.
        progress: A function to call with the current step, or None.
    """
    n, is_reported = int(counts.sum()), counts > 0
    parts, reported_columns = counts[is_reported] / n, np.ascontiguousarray(columns[:, is_reported])
    # If None, resolved_fit chooses the resolution. The shares of few records are smooth only on request.
    auto = options.resolution is None and (len(columns) > MAX_UNSMOOTHED_RECORDS or options.intervals == "smooth")
    resolution = options.resolution if auto or options.resolution is not None else 0.0
    gap = options.gap
    if options.intervals == "asymptotic" and resolution == 0.0:
        # Shares with a larger gap could lie outside their intervals.
        gap = min(gap, gap_for(options.confidence, n))
    with limited_to(_thread_limit(reported_columns, 1.0 if resolution is None else resolution)):
        return resolved_fit(reported_columns, parts, n, rows, resolution=resolution, gap=gap, progress=progress)


def _thread_limit(reported_columns: Floats, resolution: float) -> int | None:
    """Return the number of threads for linear algebra: 1 for small matrices, None (one per processor) for large ones.

    With small matrices, threads mostly wait for one another, which is slow on a busy machine. If ``resolution`` is
    greater than 0, the fit uses bumps, whose matrix is small.
    """
    is_dense = resolution == 0.0 and reported_columns.size > MIN_THREADED_ENTRIES
    return None if is_dense else 1


def _without_smoothness(options: EstimateOptions) -> tuple[EstimateOptions, tuple[str, ...]]:
    """Replace smooth intervals with finite-sample ones, for use when the best fit is not smooth.

    Smooth intervals would assume smoothness that the reports do not support. The best fit is not smooth if there are
    many reports, or if the reports show that people are concentrated at a few records.

    Returns:
        The options, and a tuple with a note about the replacement. If other intervals were requested, the options are
        unchanged and the tuple is empty.
    """
    if options.intervals != "smooth":
        return options, ()
    note = "the reports support no smoothness, so intervals are finite-sample ones, which do not assume it"
    return evolve(options, intervals="finite-sample"), (note,)


def collect_reports(observed: Sequence[ReportCounts]) -> tuple[Floats, Floats]:
    """Return the channels of several releases as one (N, K) array, and their counts of outputs as one (K,) array.

    Raises:
        UsageError: The releases have different records, there are no reports, or a report cannot come from any record.
    """
    ids = list(observed[0].channel.inputs)
    if any(list(release.channel.inputs) != ids for release in observed[1:]):
        raise UsageError("releases must have the same records in the same order")
    columns = np.hstack([release_counts.channel.probabilities for release_counts in observed])
    counts = np.concatenate([release_counts.counts for release_counts in observed]).astype(np.float64)
    check_possible([name for release_counts in observed for name in release_counts.channel.outputs], columns, counts)
    return columns, counts


def check_possible(outputs: Sequence[str], columns: Floats, counts: Floats | Ints) -> None:
    """Raise an error if there are no reports, or if a report has probability 0 for every record.

    Args:
        outputs: The ids of the K outputs.
        columns: (N, K) The probability of each output given each record.
        counts: (K,) The number of times each output was reported.

    Raises:
        UsageError: There are no reports, or a report cannot come from any record.
    """
    if not counts.any():
        raise UsageError("reports must be at least one, got none")
    impossible = (counts > 0) & ~columns.any(axis=0)
    if impossible.any():
        raise UsageError(f"reports: got {outputs[int(impossible.argmax())]!r}, which no record of this release sends")


def group_functionals(ids: Sequence[str], groups: Mapping[str, Ints] | None) -> tuple[tuple[str, ...], csr_array]:
    """Return the names of the groups and a sparse (G, N) matrix with a 1 where a record belongs to a group.

    The matrix is sparse because a dense one would take 20 GB if each of 50,000 records were a group.

    Args:
        ids: The ids of the N records.
        groups: The indices of each group's records, by group name. If None, each record is a group.
    """
    members_by_group = [np.array([number]) for number in range(len(ids))] if groups is None else list(groups.values())
    # A record that occurs twice in a group counts once.
    members = (
        np.concatenate([np.unique(group_members) for group_members in members_by_group])
        if members_by_group
        else np.zeros(0, dtype=np.int64)
    )
    starts = np.concatenate([[0], np.cumsum([len(np.unique(group_members)) for group_members in members_by_group])])
    functionals = csr_array((np.ones(len(members)), members, starts), shape=(len(members_by_group), len(ids)))
    return tuple(ids if groups is None else groups), functionals


def _group_of(groups: Mapping[str, Ints] | None, records: int) -> Ints | None:
    """Return an (N,) array with the index of each record's group, or None if ``groups`` is None.

    The index is -1 for a record without a group.
    """
    if groups is None:
        return None
    group_numbers = np.full(records, -1, dtype=np.int64)
    for number, members in enumerate(groups.values()):
        group_numbers[members] = number
    return group_numbers


def _find_intervals(
    observed: Sequence[ReportCounts],
    columns: Floats,
    reported_columns: Floats,
    parts: Floats,
    n: int,
    functionals: csr_array,
    options: EstimateOptions,
    progress: Progress | None,
) -> tuple[Floats, Floats, str, tuple[str, ...]]:
    """Find intervals for the shares.

    Args:
        observed: The counts for each release.
        columns: (N, K) The probability of each output from all releases given each record.
        reported_columns: The columns of the outputs that were reported.
        parts: Each of these outputs' fraction of all reports.
        n: The number of reports.
        functionals: Sparse matrix of shape (G, N) with a 1 where a record belongs to a group.
        options: The options, which set the intervals' confidence level and kind.
        progress: A function to call with the current step, or None.

    Returns:
        The lower and upper ends of the intervals as two (G,) arrays, the name of the method that found them, and notes
        for users.
    """
    channels = [release_counts.channel.probabilities for release_counts in observed]
    is_grouped = functionals.shape[0] != len(columns)
    if options.intervals == "asymptotic" and len(columns) <= MAX_PROFILED_RECORDS:
        # The intervals of groups hold simultaneously, by a union bound. Those of single records hold individually.
        confidence = 1.0 - (1.0 - options.confidence) / functionals.shape[0] if is_grouped else options.confidence
        low, high = profile_intervals(reported_columns, parts, n, functionals, confidence, progress)
        return low, high, PROFILE if is_grouped else f"{PROFILE}, {EACH}", ()
    is_finite_sample = options.intervals == "finite-sample"
    by_programs = is_finite_sample and is_affordable(len(columns), columns.shape[1], functionals.shape[0])
    # Either method may give the narrower interval for a group, so both are used.
    by_estimators = is_grouped or not by_programs
    # With half of the error probability for each method, the intervals of both hold together.
    confidence = 0.5 + 0.5 * options.confidence if by_programs and by_estimators else options.confidence
    bounds_by_method: dict[str, tuple[Floats, Floats] | None] = {}
    if by_programs:
        bounds_by_method["linear programs"] = _program_intervals(observed, functionals, confidence, progress)
    if by_estimators:
        counts = [release_counts.counts for release_counts in observed]
        bounds_by_method["linear estimators"] = linear_intervals(
            channels, counts, functionals, confidence, finite=is_finite_sample, progress=progress
        )
    method, valid_bounds = (
        " and ".join(bounds_by_method),
        [bounds for bounds in bounds_by_method.values() if bounds is not None],
    )
    # The intersection has the requested confidence, because the methods share the error probability.
    if len(valid_bounds) == len(bounds_by_method):
        low, high = np.max([low for low, _ in valid_bounds], axis=0), np.min([high for _, high in valid_bounds], axis=0)
        if (low <= high).all():
            return low, high, method, ()
    note = (
        "no shares are consistent with these reports: they come from another release, are not independent (several "
        f"of one person), or this is the {1 - options.confidence:.3g} of cases in which the intervals fail"
    )
    count = functionals.shape[0]
    return np.zeros(count), np.ones(count), method, (note,)


def _program_intervals(
    observed: Sequence[ReportCounts], functionals: csr_array, confidence: float, progress: Progress | None
) -> tuple[Floats, Floats] | None:
    """Compute intervals by solving linear programs over the set of all shares consistent with the output counts.

    Args:
        observed: The counts for each release.
        functionals: Sparse matrix of shape (G, N) with a 1 where a record belongs to a group.
        confidence: The confidence level at which all intervals hold simultaneously.
        progress: A function to call with the current step, or None.

    Returns:
        The lower and upper bounds as two (G,) arrays, or None if no shares are consistent with the counts.
    """
    # The error probability is divided evenly among all outputs of all releases, and then between both sides.
    alpha = (1.0 - confidence) / sum(release_counts.channel.probabilities.shape[1] for release_counts in observed)
    release_bounds = [
        (
            release_counts.channel.probabilities,
            *clopper_pearson(release_counts.counts.astype(np.float64), float(release_counts.counts.sum()), alpha / 2),
        )
        for release_counts in observed
        if release_counts.counts.any()  # a release without reports gives no bounds
    ]
    all_columns, low, high = (np.hstack(parts) for parts in zip(*release_bounds, strict=True))
    return finite_sample(all_columns, low, high, functionals, progress)


def _reported_shares(observed: Sequence[ReportCounts], functionals: csr_array) -> Floats | None:
    """Return each group's share of the raw reports as a (G,) array.

    The result is None if the outputs of any release are not the same as its records.

    Args:
        observed: The counts for each release.
        functionals: Sparse matrix of shape (G, N) with a 1 where a record belongs to a group.
    """
    if any(list(release_counts.channel.outputs) != list(release_counts.channel.inputs) for release_counts in observed):
        return None
    total = np.sum([release_counts.counts for release_counts in observed], axis=0)
    raw: Floats = functionals @ (total / total.sum())
    return raw


def estimate_of_counts(
    channel: NoisyCounts, counts: Floats, options: EstimateOptions, *, groups: Mapping[str, Ints] | None = None
) -> Estimate:
    """Estimate the share of people at each input from noisy counts.

    Under symmetric noise, the maximum-likelihood count is the noisy count, or 0 if the noisy count is negative. Each of
    the N noise values exceeds its bound with probability at most (1 - confidence) / N. Therefore all counts, and hence
    all shares, lie within their intervals simultaneously with the given confidence.

    Args:
        channel: The channel of the release.
        counts: (N,) The noisy counts in the order of the channel's inputs.
        options: The options. Only the confidence is used. The intervals must be finite-sample ones, and no resolution
            may be set.
        groups: The indices of each group's inputs, or None to estimate the shares of individual inputs.

    Raises:
        UsageError: The options request other intervals or a resolution, or no counts are positive.
    """
    if options.intervals != "finite-sample" or options.resolution:
        raise UsageError("noisy counts must have finite-sample intervals, without a resolution")
    names, functionals = group_functionals(channel.inputs, groups)
    likely_counts = np.maximum(counts, 0.0)
    if not likely_counts.any():
        raise UsageError("counts must have one above 0, got none: shares cannot be estimated")
    # A noise value exceeds this size with probability at most (1 - confidence) / N. By a union bound, none of the N
    # noise values exceeds it, with the given confidence.
    reach = channel.reach((1.0 - options.confidence) / len(counts))
    min_counts, max_counts = (
        functionals @ np.maximum(counts - reach, 0.0),
        functionals @ np.maximum(counts + reach, 0.0),
    )
    min_total, max_total = np.maximum(counts - reach, 0.0).sum(), np.maximum(counts + reach, 0.0).sum()
    shares = functionals @ likely_counts / likely_counts.sum()
    # A share is smallest if its own counts are smallest and all other counts are largest.
    with np.errstate(invalid="ignore"):
        # If this is 0 / 0, the share has no bound, so its interval ends at 0 or 1.
        low = np.nan_to_num(min_counts / (min_counts + (max_total - max_counts)), nan=0.0)
        high = np.nan_to_num(max_counts / (max_counts + (min_total - min_counts)), nan=1.0)
    return Estimate(
        ids=names,
        shares=shares,
        low=np.minimum(low, shares),
        high=np.maximum(high, shares),
        n=round(float(likely_counts.sum())),
        method=NOISY_COUNTS,
        confidence=options.confidence,
        gap=0.0,
        intervals="finite-sample",
        reported=shares,
        group_of=_group_of(groups, len(counts)),
    )
