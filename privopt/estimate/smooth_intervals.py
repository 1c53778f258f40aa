"""Intervals for shares that are assumed to be smooth over the map, calibrated by a parametric bootstrap.

Intervals that hold for every distribution are wide, because the distribution could be concentrated at places about
which the reports say little. An estimate for many records assumes more: its shares are mixtures of bumps
(:mod:`.smooth_shares`). The intervals in this module make the same assumption, but at a resolution that is
PILOT_REFINEMENT times finer.

The most likely shares at this finer resolution are called the pilot. The bootstrap repeats two steps: it draws as many
reports from the pilot as were observed, and then estimates shares from them at the resolution of the original estimate.
The errors of these estimates reflect both the variance of the reports and the bias from smoothing shares as rough as
the pilot.

The half width for a share is a multiple of the share's root mean square error. The multiple is the same for all shares,
and is chosen so that the intervals hold simultaneously. It is a quantile of the largest relative error among all shares
under a multivariate t distribution with the same mean and covariance as the bootstrap errors.

Source:
    Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, chapters 6 and 12; Haerdle, Marron, "Bootstrap
    simultaneous error bars for nonparametric regression", Annals of Statistics 1991, for the use of a pilot at a
    different resolution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.estimate.likelihood import fit
from privopt.estimate.smooth_shares import MAX_BUMP_ENTRIES, Rows, fit_bumps, make_bumps
from privopt.interfaces import Progress

PILOT_REFINEMENT: Final = 4.0
"""The ratio of the width of the estimate's bumps to the width of the pilot's: four steps in the resolution search.

With a pilot at the estimate's own resolution, the intervals would not account for the bias from smoothing. With a pilot
whose bumps were half as wide as the estimate's, the intervals held simultaneously in 0 of 4 runs of
tests/bench/bench_smooth.py in Chiang Mai, where the density of places is uneven.
"""

REPLICATES: Final = 60
"""The number of times that reports are drawn from the pilot."""

REPLICATE_GAP: Final = 1e-5
"""The smallest gap, in log-likelihood per report, at which fits to drawn reports may stop."""

SEED: Final = 20261129
"""The seed of all random draws. It is fixed so that the same reports always give the same intervals."""

QUANTILE_DRAWS: Final = 20_000
"""The number of draws used to estimate the quantile of the largest relative error."""

BLOCK: Final = 1 << 22
"""The largest number of relative errors held in memory at a time."""


def smooth_intervals(
    channels: Sequence[Floats],
    counts: Sequence[Ints],
    rows: Rows,
    resolution: float,
    functionals: csr_array,
    confidence: float,
    *,
    gap: float,
    progress: Progress | None = None,
) -> tuple[Floats, float]:
    """Return the (G,) half widths of simultaneous intervals for smooth shares, and the pilot's resolution.

    The pilot is a fit at a finer resolution. It stands in for the true shares when reports are drawn for a parametric
    bootstrap.

    Args:
        channels: For each release, an (N, K) array with the probability of each output given each record.
        counts: For each release, a (K,) array with the number of times each output was reported.
        rows: A function that takes the indices of B records and returns their distances to all records as an array of
            shape (B, N).
        resolution: The estimate's resolution, greater than 0.
        functionals: Sparse matrix of shape (G, N) with a 1 where a record belongs to a group.
        confidence: The confidence level, in (0, 1).
        gap: The distance from the maximum log-likelihood, per report, at which the fit for the estimate stopped. The
            pilot's fit stops at the same distance, and the fits to drawn reports at this distance or REPLICATE_GAP,
            whichever is larger.
        progress: A function to call with the number of the current draw, or None.

    Raises:
        UsageError: The pilot's bumps do not fit in memory.
    """
    columns = np.hstack(channels)
    totals = [int(release_counts.sum()) for release_counts in counts]
    n = sum(totals)
    # The pilot stands in for the true shares: reports are drawn from it, and shares are estimated from them in the same
    # way as from the real reports.
    pilot = _fit_pilot(columns, np.concatenate(counts), rows, resolution / PILOT_REFINEMENT, gap)
    pilot_shares = functionals @ pilot
    bumps = make_bumps(rows, len(columns), resolution)
    assert bumps is not None  # the estimate had the same bumps
    mixture_columns, mixture_functionals = bumps @ columns, (functionals @ bumps.T).T
    output_probabilities = [pilot @ channel for channel in channels]
    errors = np.zeros((REPLICATES, functionals.shape[0]))
    for number in range(REPLICATES):
        if progress is not None:
            progress(f"smooth intervals: draw {number + 1} of {REPLICATES}", number, None, None)
        rng = np.random.default_rng([SEED, number])
        drawn = np.concatenate(
            [
                rng.multinomial(total, probabilities / probabilities.sum())
                for total, probabilities in zip(totals, output_probabilities, strict=True)
            ]
        )
        is_drawn = drawn > 0
        drawn_fit = fit(
            np.ascontiguousarray(mixture_columns[:, is_drawn]), drawn[is_drawn] / n, gap=max(gap, REPLICATE_GAP)
        )
        errors[number] = drawn_fit.shares @ mixture_functionals - pilot_shares
    return half_widths_of(errors, confidence, n), resolution / PILOT_REFINEMENT


def half_widths_of(errors: Floats, confidence: float, reports: int) -> Floats:
    """Return a (G,) array of half widths within which all errors lie simultaneously with the given confidence.

    Args:
        errors: (B, G) The errors of B estimates of shares whose true values are known.
        confidence: The confidence level, in (0, 1).
        reports: The number of reports, n, for each estimate. No half width is below ln(G / (1 - confidence)) / n, which
            is the rule of three applied to all G shares at once. A smaller share cannot be distinguished from 0,
            because it may not occur in any of the n reports.
    """
    replicates, count = errors.shape
    sizes = np.sqrt((errors**2).mean(axis=0))
    scaled = errors / np.where(sizes > 0, sizes, 1.0)
    bias = scaled.mean(axis=0)
    deviations = (scaled - bias) / math.sqrt(replicates - 1)
    rng = np.random.default_rng([SEED, replicates])
    largest_errors = []
    for _ in range(max(1, math.ceil(QUANTILE_DRAWS * count / BLOCK))):
        draws = min(QUANTILE_DRAWS, max(1, BLOCK // count))
        normal = rng.standard_normal((draws, replicates))
        # Student's t distribution allows for the error of a covariance that is estimated from few draws.
        inflation = np.sqrt((replicates - 1) / rng.chisquare(replicates - 1, size=(draws, 1)))
        largest_errors.append(np.abs(bias + inflation * (normal @ deviations)).max(axis=1))
    quantile = float(np.quantile(np.concatenate(largest_errors), confidence))
    minimum = math.log(count / (1.0 - confidence)) / reports
    half_widths: Floats = np.maximum(quantile * sizes, minimum)
    return half_widths


def _fit_pilot(columns: Floats, counts: Ints, rows: Rows, resolution: float, gap: float) -> Floats:
    """Return the most likely shares at the pilot's resolution as an (N,) array.

    In the bootstrap, the pilot stands in for the true shares.

    Args:
        columns: (N, K) The probability of each output from all releases given each record.
        counts: (K,) The number of times each output was reported.
        rows: A function that takes the indices of B records and returns their distances to all records as an array of
            shape (B, N).
        resolution: The pilot's resolution.
        gap: The proved distance from the maximum log-likelihood, per report, at which the fit stops.

    Raises:
        UsageError: The pilot's bumps do not fit in memory.
    """
    is_reported = counts > 0
    pilot = fit_bumps(
        np.ascontiguousarray(columns[:, is_reported]), counts[is_reported] / counts.sum(), rows, resolution, gap
    )
    if pilot is None:
        raise UsageError(
            f"smooth intervals need finer bumps than the estimate ({resolution:.3g}), which would be more than "
            f"{MAX_BUMP_ENTRIES // len(columns):,}: give a coarser resolution, or other intervals"
        )
    return pilot[0].shares


def describe_assumption(resolution: float, unit: str, *, has_others: bool = True) -> str:
    """Return a sentence about what smooth intervals assume, and what happens if the assumption is wrong.

    Args:
        resolution: The pilot's resolution.
        unit: The unit of distance.
        has_others: Whether finite-sample intervals are available instead.
    """
    advice = "; finite-sample intervals assume nothing" if has_others else ""
    return (
        f"intervals assume that shares are smooth over the map, no rougher than bumps {resolution:.3g} {unit} wide; "
        "if they are not (a sharp border, many people at one address), the truth can lie outside its interval "
        f"without any sign of it{advice}"
    )
