"""Smooth shares: mixtures of bumps over the records, at the finest resolution supported by the reports.

With a thousand records, the likelihood is greatest for shares concentrated on a few records. These shares can be
farther from the truth than the raw reports, because reports with a kilometre of noise say little about which of ten
streets a person is in. Smooth shares avoid this.

A bump at resolution r is proportional to exp(-(d / r)^2 / 2) at distance d from its centre. Mixtures of bumps whose
centres are about r apart form a convex family, so the maximum likelihood over these mixtures is also found to within a
proved gap. (This is a sieve; compare the smoothed EM algorithm of Silverman et al. 1990.) Resolutions are tried from
coarse to fine. The best resolution is the one for which the maximum log-likelihood minus the number of bumps in use is
greatest (Akaike's criterion). If the finest resolution is the best, shares that are not smooth are also tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints, read_only
from privopt.errors import UsageError
from privopt.estimate.likelihood import Fit, fit, gap_of
from privopt.interfaces import Progress

COARSEST_DIVISOR: Final = 4.0
"""The ratio of the largest distance to the coarsest resolution. Each later resolution is finer by a factor of FINER."""
FINER: Final = math.sqrt(2.0)
"""The ratio of each resolution to the next finer one."""
MAX_WORSE_RESOLUTIONS: Final = 2
"""The number of consecutive resolutions without improvement after which no finer ones are tried."""
MAX_BUMP_ENTRIES: Final = 100_000_000
"""The largest number of entries in the (M, N) array of bumps, which takes 0.8 GB at this size.

Resolutions that need a larger array are not tried.
"""
MIN_BUMP_SHARE: Final = 1e-5
"""The share above which a bump is counted as being in use."""

Rows = Callable[[Ints], Floats]
"""A function that takes a (B,) array of record indices and returns their distances to all records as a (B, N) array."""


def make_bumps(rows: Rows, count: int, resolution: float) -> Floats | None:
    """Return M bumps, which are smooth distributions over the N records, as an array of shape (M, N).

    The bumps' centres are chosen by farthest-first traversal from record 0, until the distance from every record to the
    nearest centre is at most the resolution. Returns None if the array would have more than :data:`MAX_BUMP_ENTRIES`
    entries.

    Args:
        rows: A function that takes the indices of B records and returns their distances to all records as an array of
            shape (B, N).
        count: The number of records, N.
        resolution: The bumps' width, in the same units as the distances.
    """
    centre_distances = [rows(np.array([0]))[0]]
    nearest = centre_distances[0]
    while nearest.max() > resolution and len(centre_distances) < count:
        if (len(centre_distances) + 1) * count > MAX_BUMP_ENTRIES:
            return None
        centre_distances.append(rows(np.array([int(nearest.argmax())]))[0])
        nearest = np.minimum(nearest, centre_distances[-1])
    # The square of a very long distance overflows to infinity, at which a bump is 0.
    with np.errstate(over="ignore"):
        shapes = np.exp(-0.5 * (np.array(centre_distances) / resolution) ** 2)
    shapes /= shapes.sum(axis=1, keepdims=True)
    return shapes


def resolved_fit(
    columns: Floats,
    parts: Floats,
    reports: int,
    rows: Rows | None,
    *,
    resolution: float | None,
    gap: float,
    progress: Progress | None = None,
) -> Fit:
    """Return the most likely shares, at a given resolution or at the best one according to Akaike's criterion.

    Args:
        columns: (N, K) The probability of each reported output given each record.
        parts: (K,) Each output's fraction of all reports. The fractions sum to 1.
        reports: The number of reports, n.
        rows: A function that takes the indices of B records and returns their distances to all records as an array of
            shape (B, N). If None, only resolution 0 is possible.
        resolution: The bumps' width, in the same units as the distances. If 0, all distributions are allowed. If None,
            the width is chosen automatically.
        gap: The proved distance from the maximum log-likelihood, per report, at which a fit stops.
        progress: A function to call with each resolution tried, or None.

    Raises:
        UsageError: The given resolution is so fine that the bumps do not fit in memory.
    """
    if rows is None or resolution == 0:
        return fit(columns, parts, gap=gap, progress=progress)
    if resolution is not None:
        given_fit = fit_bumps(columns, parts, rows, resolution, gap, progress)
        if given_fit is None:
            max_centres = MAX_BUMP_ENTRIES // len(columns)
            raise UsageError(
                f"resolution must be one at which {max_centres:,} centres are enough, or 0, got {resolution:g}"
            )
        return given_fit[0]
    best_fit, best_score, worse_count = None, -math.inf, 0
    for candidate in _list_resolutions(rows, len(columns)):
        candidate_fit = fit_bumps(columns, parts, rows, candidate, gap, progress)
        if candidate_fit is None:
            break
        smooth_fit, bump_count = candidate_fit
        # By Akaike's criterion, each bump that is used costs one unit of log-likelihood.
        score = reports * smooth_fit.log_likelihood - bump_count
        # worse_count is the number of resolutions in a row that were worse than the best.
        best_fit, worse_count = (smooth_fit, 0) if score > best_score else (best_fit, worse_count + 1)
        best_score = max(best_score, score)
        if worse_count == MAX_WORSE_RESOLUTIONS:
            break
    # If the finest resolution was the best, shares that are not smooth may be even better.
    if best_fit is None or worse_count == 0:
        full_fit = fit(columns, parts, gap=gap, progress=progress)
        bump_count = int((full_fit.shares > MIN_BUMP_SHARE).sum()) - 1
        if best_fit is None or reports * full_fit.log_likelihood - bump_count > best_score:
            return full_fit
    return best_fit


def _list_resolutions(rows: Rows, count: int) -> Iterator[float]:
    """Yield resolutions from coarse to fine.

    They start at a quarter of the greatest distance, and stop at a typical distance between neighbours: the median
    distance from a record to the nearest record at another place, based on up to 200 records.

    Args:
        rows: A function that takes the indices of B records and returns their distances to all records as an array of
            shape (B, N).
        count: The number of records, N.
    """
    first_distances = rows(np.array([0]))[0]
    # The greatest distance is found approximately, by measuring from the record that is farthest from record 0.
    max_distance = float(rows(np.array([int(first_distances.argmax())]))[0].max())
    sample = np.unique(np.linspace(0, count - 1, 200).astype(np.int64))
    distances = rows(sample)
    # A record does not count as its own neighbour, nor does another record at the same place.
    distances[distances == 0] = np.inf
    finest = float(np.median(distances.min(axis=1)))
    resolution = max_distance / COARSEST_DIVISOR
    while resolution > finest and math.isfinite(max_distance):
        yield resolution
        resolution /= FINER


def fit_bumps(
    columns: Floats, parts: Floats, rows: Rows, resolution: float, gap: float, progress: Progress | None = None
) -> tuple[Fit, int] | None:
    """Fit a mixture of bumps of a given width by maximum likelihood.

    Args:
        columns: (N, K) The probability of each reported output given each record.
        parts: (K,) Each output's fraction of all reports.
        rows: A function that takes the indices of B records and returns their distances to all records as an array of
            shape (B, N).
        resolution: The bumps' width, in the same units as the distances.
        gap: The proved distance from the maximum log-likelihood, per report, at which the fit stops.
        progress: A function to call with a message that states the resolution, or None.

    Returns:
        The fit and its number of free parameters (the number of bumps in use minus one), or None if this width would
        need too many bumps.
    """
    if progress is not None:
        progress(f"likelihood at resolution {resolution:.3g}", 0, None, None)
    shapes = make_bumps(rows, len(columns), resolution)
    if shapes is None:
        return None
    # Fit a distribution over bumps. The probability of each output given each bump is shapes @ columns.
    mixture_fit = fit(shapes @ columns, parts, gap=gap)
    shares = read_only(mixture_fit.shares @ shapes)
    smooth = evolve(mixture_fit, shares=shares, resolution=resolution, whole_gap=gap_of(shares, columns, parts))
    return smooth, int((mixture_fit.shares > MIN_BUMP_SHARE).sum()) - 1
