"""Smooth shares: mixtures of bumps over the records, at the finest resolution that the reports support.

Over a thousand records, the maximum of the likelihood concentrates all shares on a few records. It can be farther from
the truth than the reports themselves, because reports with a kilometre of noise say little about which of ten streets a
person is in. Mixtures of bumps exp(-(d / r)^2 / 2) around centres about r apart are a convex family too, so the maximum
over these mixtures is also found to a proved gap. (This is a sieve; compare the smoothed EM of Silverman et al. 1990.)
Resolutions are tried from coarse to fine. The best r has the greatest maximum log-likelihood minus the number of bumps
(Akaike). If ever finer resolutions are better, shares are not smoothed.
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
"""The coarsest resolution is the largest distance divided by this; each next one is finer by FINER."""
FINER: Final = math.sqrt(2.0)
"""The ratio of two successive resolutions."""
MAX_WORSE_RESOLUTIONS: Final = 2
"""Number of worse resolutions in a row after which no finer one is tried."""
MAX_BUMP_ENTRIES: Final = 100_000_000
"""Largest number of entries of the bumps (M, N) of a resolution, which take 0.8 GB. Finer resolutions are not tried."""
MIN_BUMP_SHARE: Final = 1e-5
"""A bump with a larger share than this counts as used."""

Rows = Callable[[Ints], Floats]
"""Returns the distances (B, N) from some records, given by their numbers (B,), to all records."""


def make_bumps(rows: Rows, count: int, resolution: float) -> Floats | None:
    """Return bumps, distributions (M, N) over the records, such that every record is near the centre of a bump.

    Near means within the resolution. Centres are chosen by farthest-first traversal from record 0. Return None if the
    bumps would have more than :data:`MAX_BUMP_ENTRIES` entries.

    Args:
        rows: Returns the distances from some records to all.
        count: Number of records N.
        resolution: Width of the bumps, in the unit of distance.
    """
    centre_distances = [rows(np.array([0]))[0]]
    nearest = centre_distances[0]
    while nearest.max() > resolution and len(centre_distances) < count:
        if (len(centre_distances) + 1) * count > MAX_BUMP_ENTRIES:
            return None
        centre_distances.append(rows(np.array([int(nearest.argmax())]))[0])
        nearest = np.minimum(nearest, centre_distances[-1])
    # The square of a very long distance overflows to infinity, where a bump is 0.
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
    """Return the shares of maximum likelihood at a resolution, or at the finest that the reports support.

    Args:
        columns: (N, K) probability of each reported output given each record.
        parts: (K,) fraction of all reports that each output has; the fractions sum to 1.
        gap: Distance from the greatest log-likelihood, per report, at which a fit ends.
        reports: Number of reports n.
        rows: Returns the distances (B, N) from some records to all. If None, only the resolution 0 is possible.
        resolution: Width of the bumps, in the unit of distance; 0 to allow all distributions, None to choose the width.
        progress: Called with each resolution that is tried.

    Raises:
        UsageError: The resolution is so fine that the bumps do not fit into memory.
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
        # Akaike's criterion: each bump that is used costs one unit of log-likelihood.
        score = reports * smooth_fit.log_likelihood - bump_count
        # Count how many resolutions in a row were worse than the best.
        best_fit, worse_count = (smooth_fit, 0) if score > best_score else (best_fit, worse_count + 1)
        best_score = max(best_score, score)
        if worse_count == MAX_WORSE_RESOLUTIONS:
            break
    # The finest resolution was the best, so all distributions may be better still.
    if best_fit is None or worse_count == 0:
        full_fit = fit(columns, parts, gap=gap, progress=progress)
        bump_count = int((full_fit.shares > MIN_BUMP_SHARE).sum()) - 1
        if best_fit is None or reports * full_fit.log_likelihood - bump_count > best_score:
            return full_fit
    return best_fit


def _list_resolutions(rows: Rows, count: int) -> Iterator[float]:
    """Yield resolutions from coarse to fine: a quarter of the greatest distance down to that of typical neighbours.

    The typical distance is the median distance of up to 200 records to their nearest neighbour at another place.
    ``count`` is the number of records.
    """
    first_distances = rows(np.array([0]))[0]
    # Two sweeps: the record farthest from record 0, then the greatest distance from that one.
    max_distance = float(rows(np.array([int(first_distances.argmax())]))[0].max())
    sample = np.unique(np.linspace(0, count - 1, 200).astype(np.int64))
    distances = rows(sample)
    # A record is not its own neighbour, nor is one at the same place.
    distances[distances == 0] = np.inf
    finest = float(np.median(distances.min(axis=1)))
    resolution = max_distance / COARSEST_DIVISOR
    while resolution > finest and math.isfinite(max_distance):
        yield resolution
        resolution /= FINER


def fit_bumps(
    columns: Floats, parts: Floats, rows: Rows, resolution: float, gap: float, progress: Progress | None = None
) -> tuple[Fit, int] | None:
    """Return the shares of maximum likelihood at a resolution, and the number of bumps in use minus one.

    Return None if the resolution needs too many centres.

    Args:
        columns: (N, K) probability of each reported output given each record.
        parts: (K,) fraction of all reports that each output has.
        rows: Distances from some records to all.
        resolution: Width of the bumps, in the unit of distance.
        gap: Distance from the greatest log-likelihood, per report, at which the fit ends.
        progress: Called with the resolution that is tried.
    """
    if progress is not None:
        progress(f"likelihood at resolution {resolution:.3g}", 0, None, None)
    shapes = make_bumps(rows, len(columns), resolution)
    if shapes is None:
        return None
    # A mixture of bumps is a distribution over bumps, whose outputs have the probabilities shapes @ columns.
    mixture_fit = fit(shapes @ columns, parts, gap=gap)
    shares = read_only(mixture_fit.shares @ shapes)
    smooth = evolve(mixture_fit, shares=shares, resolution=resolution, whole_gap=gap_of(shares, columns, parts))
    return smooth, int((mixture_fit.shares > MIN_BUMP_SHARE).sum()) - 1
