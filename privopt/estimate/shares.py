"""Estimate the shares of the records, or of groups of them, from reports, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
import polars as pl
from attrs import field, frozen
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError, check_number
from privopt.estimate.finite_sample_intervals import finite_sample, is_affordable
from privopt.estimate.linear_intervals import linear_intervals
from privopt.estimate.profile_intervals import gap_for, profile_intervals
from privopt.estimate.smooth_shares import Rows, resolved_fit
from privopt.execution.limits import limited_to
from privopt.interfaces import Channel, NoisyCounts, Progress
from privopt.numbers.binomial import clopper_pearson

Intervals = Literal["finite-sample", "asymptotic"]

MAX_UNSMOOTHED_RECORDS: Final = 300
"""Records up to which all distributions are allowed unless a resolution is asked for; above, one is chosen."""

PROFILE: Final = "profile likelihood"
EACH: Final = "each by itself"
"""Behind the method of intervals that do not hold all at once."""

MAX_PROFILED_RECORDS: Final = 300
"""Records up to which asymptotic intervals are by profile likelihood: some thirty fits each, .3 s a fit at 2,000."""

MIN_THREADED_ENTRIES: Final = 250_000
"""Entries of a channel above which a fit over all distributions takes a thread a processor."""


@frozen(kw_only=True)
class EstimateOptions:
    """Options of an estimate.

    Attributes:
        confidence: of the intervals.
        gap: of the log-likelihood, per report, at which to end.
        intervals: which; finite-sample ones hold for every number of reports, asymptotic ones for many.
        resolution: of :mod:`privopt.estimate.smooth_shares`, in the unit of distance; 0 for none, None for what the
            reports support, over more than 300 records with distances.
    """

    confidence: float = 0.95
    gap: float = 1e-6
    intervals: Intervals = "finite-sample"
    resolution: float | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("confidence", "gap", *(() if self.resolution is None else ("resolution",))):
            check_number(name, getattr(self, name), "a finite number")
        rules = [
            ("confidence", self.confidence, 0 < self.confidence < 1, "a number between 0 and 1"),
            ("gap", self.gap, 1e-9 <= self.gap < np.inf, "a number of at least 1e-9"),
            ("resolution", self.resolution, 0 <= (self.resolution or 0) < np.inf, "a distance of at least 0"),
            ("intervals", self.intervals, self.intervals in get_args(Intervals), " or ".join(get_args(Intervals))),
        ]
        for name, value, is_valid, expectation in rules:
            if not is_valid:
                raise UsageError(f"{name} must be {expectation}, got {value!r}")


@frozen(kw_only=True, eq=False)
class ReportCounts:
    """The counted reports of one release.

    Attributes:
        channel: of the release.
        counts: (K,) how often each output was reported.
        skipped: rows without a report.
        repeated: rows omitted, as their subject had a report already, here or in a release counted before.
    """

    channel: Channel
    counts: Ints
    skipped: int = 0
    repeated: int = 0


@frozen(kw_only=True, eq=False)
class Estimate:
    """Estimated shares with their intervals.

    Attributes:
        ids: of records, in their order, or of groups.
        shares: (G,) summing to 1.
        low, high: (G,) ends of their intervals.
        n: reports, or those who were counted.
        method: ``"maximum-likelihood"``, the same after ``smooth-``, ``"noisy-counts"``.
        confidence: of the intervals.
        gap: proved: how far the log-likelihood can be from its maximum, per report; of smooth shares from that among
            shares of their resolution.
        intervals: ``"finite-sample"`` or ``"asymptotic"``; they hold all at once, but asymptotic ones of up to 300
            single records, which hold each by itself.
        intervals_by: ``"linear programs"``, ``"linear estimators"``, both, ``"profile likelihood"`` or ``"noise"``;
            ``", each by itself"`` behind it where they do not hold all at once.
        resolution: of smooth shares, in ``unit``; 0 for others.
        whole_gap: of smooth shares how far the log-likelihood can be from its maximum over all distributions, per
            report; of others the same as ``gap``.
        unit: of distance.
        skipped: rows without a report.
        reported: (G,) shares of the raw reports, if outputs are records.
        group_of: (N,) number of each record's group, -1 of a record in none; None if there are no groups.
        notes: what anyone who uses it must know, a sentence each.
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
    resolution: float = 0.0
    whole_gap: float = 0.0
    unit: str = ""
    skipped: int = 0
    reported: Floats | None = None
    group_of: Ints | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def each_by_itself(self) -> bool:
        """Whether the intervals do not hold all at once."""
        return self.intervals_by.endswith(EACH)

    @property
    def gaps(self) -> str:
        """The gap, and for smooth shares the gap to all distributions, as the end of a list; empty for noisy counts."""
        if self.method == "noisy-counts":
            return ""
        whole_text = f", gap_to_all {self.whole_gap:.2g}" if self.resolution else ""
        return f", gap {self.gap:.2g}{whole_text} per report"

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``privopt estimate --json`` prints."""
        names = ("n", "skipped", "method", "confidence", "gap", "intervals", "intervals_by", "resolution", "unit")
        values = {name: getattr(self, name) for name in names}
        return {**values, "gap_to_all": self.whole_gap, "notes": list(self.notes)}

    def table(self) -> pl.DataFrame:
        """Return a table with columns id, share, low, high."""
        columns = {"id": list(self.ids), "share": self.shares, "low": self.low, "high": self.high}
        return pl.DataFrame(columns)


def estimate(
    observed: Sequence[ReportCounts],
    options: EstimateOptions,
    *,
    groups: Mapping[str, Ints] | None = None,
    rows: Rows | None = None,
    unit: str = "",
    progress: Progress | None = None,
) -> Estimate:
    """Estimate the distribution of the secrets behind reports.

    Args:
        observed: of one release, or of several with the same inputs: reports are independent of one another.
        options: how to estimate.
        groups: records of each group, in place of the records.
        rows: distances (B, N) from some records to all; None if there are none.
        unit: of distance.
        progress: called with what is being done.

    Raises:
        UsageError: no reports, releases of different records, or reports that no record can send.
    """
    ids = list(observed[0].channel.inputs)
    columns, counts = _collect_reports(observed)
    n, is_reported = int(counts.sum()), counts > 0
    parts, reported_columns = counts[is_reported] / n, np.ascontiguousarray(columns[:, is_reported])
    auto = len(ids) > MAX_UNSMOOTHED_RECORDS and options.resolution is None
    resolution = options.resolution if auto or options.resolution is not None else 0.0
    names, functionals = _group_functionals(ids, groups)
    gap = options.gap
    if options.intervals == "asymptotic" and resolution == 0.0:
        gap = min(gap, gap_for(options.confidence, n))  # shares of a greater one can lie outside their intervals
    dense = resolution == 0.0 and reported_columns.size > MIN_THREADED_ENTRIES
    with limited_to(None if dense else 1):  # of smaller matrices threads wait for one another, long on a busy machine
        best_fit = resolved_fit(reported_columns, parts, n, rows, resolution=resolution, gap=gap, progress=progress)
        low, high, intervals_by, notes = _find_intervals(
            observed, columns, reported_columns, parts, n, functionals, options, progress
        )
    shares = functionals @ best_fit.shares
    return Estimate(
        ids=names,
        shares=shares / shares.sum(),
        low=np.minimum(low, shares),
        high=np.maximum(high, shares),
        n=n,
        method=f"{'smooth-' if best_fit.resolution else ''}maximum-likelihood",
        confidence=options.confidence,
        gap=best_fit.gap,
        intervals=options.intervals,
        intervals_by=intervals_by,
        resolution=best_fit.resolution,
        whole_gap=best_fit.whole_gap,
        unit=unit,
        reported=_reported_shares(observed, functionals),
        group_of=_group_of(groups, len(ids)),
        notes=notes,
    )


def _collect_reports(observed: Sequence[ReportCounts]) -> tuple[Floats, Floats]:
    """Return the channels of all releases side by side (N, K), and how often each output was reported (K,)."""
    ids = list(observed[0].channel.inputs)
    if any(list(release.channel.inputs) != ids for release in observed[1:]):
        raise UsageError("releases must have the same records in the same order")
    columns = np.hstack([release_counts.channel.probabilities for release_counts in observed])
    counts = np.concatenate([release_counts.counts for release_counts in observed]).astype(np.float64)
    if not counts.any():
        raise UsageError("reports must be at least one, got none")
    impossible = (counts > 0) & ~columns.any(axis=0)
    if impossible.any():
        outputs = [name for release_counts in observed for name in release_counts.channel.outputs]
        raise UsageError(f"reports: got {outputs[int(impossible.argmax())]!r}, which no record of this release sends")
    return columns, counts


def _group_functionals(ids: Sequence[str], groups: Mapping[str, Ints] | None) -> tuple[tuple[str, ...], csr_array]:
    """Return names, and ones (G, N) where a record belongs to a group.

    The matrix is sparse, because 50,000 single records alone would take 20 GB.
    """
    members_by_group = [np.array([number]) for number in range(len(ids))] if groups is None else list(groups.values())
    members = (
        np.concatenate([np.unique(group_members) for group_members in members_by_group])
        if members_by_group
        else np.zeros(0, dtype=np.int64)
    )
    starts = np.concatenate([[0], np.cumsum([len(np.unique(group_members)) for group_members in members_by_group])])
    functionals = csr_array((np.ones(len(members)), members, starts), shape=(len(members_by_group), len(ids)))
    return tuple(ids if groups is None else groups), functionals


def _group_of(groups: Mapping[str, Ints] | None, records: int) -> Ints | None:
    """Return the number of each record's group (N,), -1 for a record in none; None without groups."""
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
    """Return the ends of the intervals, the method that gave them, and notes."""
    channels = [release_counts.channel.probabilities for release_counts in observed]
    is_grouped = functionals.shape[0] != len(columns)
    if options.intervals == "asymptotic" and len(columns) <= MAX_PROFILED_RECORDS:
        confidence = 1.0 - (1.0 - options.confidence) / functionals.shape[0] if is_grouped else options.confidence
        low, high = profile_intervals(reported_columns, parts, n, functionals, confidence, progress)
        return low, high, PROFILE if is_grouped else f"{PROFILE}, {EACH}", ()
    is_finite_sample = options.intervals == "finite-sample"
    by_programs = is_finite_sample and is_affordable(len(columns), columns.shape[1], functionals.shape[0])
    by_estimators = is_grouped or not by_programs
    # Both methods hold together if each gets half of the error probability.
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
    if len(valid_bounds) == len(bounds_by_method):  # what lies within all bounds, each with its share of the error
        low, high = np.max([low for low, _ in valid_bounds], axis=0), np.min([high for _, high in valid_bounds], axis=0)
        if (low <= high).all():
            return low, high, method, ()
    note = (
        "no shares at all give reports like these: they come from another release, are not independent (several of "
        f"one person), or this is the {1 - options.confidence:.3g} of cases in which the intervals fail"
    )
    count = functionals.shape[0]
    return np.zeros(count), np.ones(count), method, (note,)


def _program_intervals(
    observed: Sequence[ReportCounts], functionals: csr_array, confidence: float, progress: Progress | None
) -> tuple[Floats, Floats] | None:
    """Return intervals by linear programs over the shares that the counts of outputs allow."""
    # All outputs of all releases share the error probability, half of it for each side.
    alpha = (1.0 - confidence) / sum(release_counts.channel.probabilities.shape[1] for release_counts in observed)
    release_bounds = [
        (
            release_counts.channel.probabilities,
            *clopper_pearson(release_counts.counts.astype(np.float64), float(release_counts.counts.sum()), alpha / 2),
        )
        for release_counts in observed
        if release_counts.counts.any()  # a release without reports says nothing
    ]
    all_columns, low, high = (np.hstack(parts) for parts in zip(*release_bounds, strict=True))
    return finite_sample(all_columns, low, high, functionals, progress)


def _reported_shares(observed: Sequence[ReportCounts], functionals: csr_array) -> Floats | None:
    """Return the shares of the raw reports by group, if every release's outputs are its records."""
    if any(list(release_counts.channel.outputs) != list(release_counts.channel.inputs) for release_counts in observed):
        return None
    total = np.sum([release_counts.counts for release_counts in observed], axis=0)
    raw: Floats = functionals @ (total / total.sum())
    return raw


def estimate_of_counts(
    channel: NoisyCounts, counts: Floats, options: EstimateOptions, *, groups: Mapping[str, Ints] | None = None
) -> Estimate:
    """Estimate the shares of people at each input, from counts that are noisy themselves.

    The likeliest count under symmetric noise is the noisy one, or 0 if that is negative. With the confidence, none of
    the N noises exceeds its reach at (1 - confidence) / N. All counts then lie in their intervals at once, and so do
    the shares.

    Args:
        channel: of the release.
        counts: (N,) noisy counts, in the order of its inputs.
        options: the confidence; intervals are finite-sample ones.
        groups: as of :func:`estimate`.
    """
    if options.intervals != "finite-sample" or options.resolution:
        raise UsageError("noisy counts must have finite-sample intervals, without a resolution")
    names, functionals = _group_functionals(channel.inputs, groups)
    likely_counts = np.maximum(counts, 0.0)
    if not likely_counts.any():
        raise UsageError("counts must have one above 0, got none: shares cannot be estimated")
    # A union bound over the N noises.
    reach = channel.reach((1.0 - options.confidence) / len(counts))
    min_counts, max_counts = (
        functionals @ np.maximum(counts - reach, 0.0),
        functionals @ np.maximum(counts + reach, 0.0),
    )
    min_total, max_total = np.maximum(counts - reach, 0.0).sum(), np.maximum(counts + reach, 0.0).sum()
    shares = functionals @ likely_counts / likely_counts.sum()
    # A share is smallest if its own counts are smallest and all others are largest.
    with np.errstate(invalid="ignore"):
        low = np.nan_to_num(min_counts / (min_counts + (max_total - max_counts)), nan=0.0)
        high = np.nan_to_num(max_counts / (max_counts + (min_total - min_counts)), nan=1.0)
    return Estimate(
        ids=names,
        shares=shares,
        low=np.minimum(low, shares),
        high=np.maximum(high, shares),
        n=round(float(likely_counts.sum())),
        method="noisy-counts",
        confidence=options.confidence,
        gap=0.0,
        intervals="finite-sample",
        reported=shares,
        group_of=_group_of(groups, len(counts)),
    )
