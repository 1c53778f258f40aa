"""Smooth shares: mixtures of bumps over the records, as fine as the reports support.

Over a thousand records the maximum of the likelihood puts all shares on a few records. It can be farther from the truth
than the reports themselves: noise of a kilometre says little about which of ten streets a person is in. Mixtures of
bumps exp(-(d / r)^2 / 2) around centres at distance r are a convex family too, so that the maximum among them is found
to a proved gap as well. (This is a sieve; compare the smoothed EM of Silverman et al. 1990.) Resolutions are tried from
coarse to fine. The best r has the greatest maximum less its number of bumps (Akaike). If ever finer ones are better,
none is used.
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
"""The coarsest resolution is the greatest distance over this; each next is finer by FINER."""
FINER: Final = math.sqrt(2.0)
MAX_WORSE_RESOLUTIONS: Final = 2
"""Finer resolutions in a row that are worse, after which none is tried."""
MAX_BUMP_ENTRIES: Final = 100_000_000
"""Entries of the bumps (M, N) up to which a resolution is tried: .8 GB."""
MIN_BUMP_SHARE: Final = 1e-5
"""Share of a bump from which it counts as used."""

Rows = Callable[[Ints], Floats]
"""Distances (B, N) from some records to all."""


def make_bumps(rows: Rows, count: int, resolution: float) -> Floats | None:
    """Return distributions (M, N) over the records such that every record is within the resolution of a centre.

    Centres are chosen farthest first, from record 0. Returns None if they are too many for memory.
    """
    centre_distances = [rows(np.array([0]))[0]]
    nearest = centre_distances[0]
    while nearest.max() > resolution and len(centre_distances) < count:
        if (len(centre_distances) + 1) * count > MAX_BUMP_ENTRIES:
            return None
        centre_distances.append(rows(np.array([int(nearest.argmax())]))[0])
        nearest = np.minimum(nearest, centre_distances[-1])
    with np.errstate(over="ignore"):  # so far off that nothing is left
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
    """Return the shares of greatest likelihood at a resolution, or at the finest that the reports support.

    Args:
        columns, parts, gap: as of :func:`privopt.estimate.likelihood.fit`.
        reports: n.
        rows: distances; without them (None) only the resolution 0 is possible.
        resolution: r; 0 for all distributions; None to choose.
        progress: called with what is tried.

    Raises:
        UsageError: a resolution so fine that its bumps cannot be held at once.
    """
    if rows is None or resolution == 0:
        return fit(columns, parts, gap=gap, progress=progress)
    if resolution is not None:
        given_fit = _fit_at_resolution(columns, parts, rows, resolution, gap, progress)
        if given_fit is None:
            max_centres = MAX_BUMP_ENTRIES // len(columns)
            raise UsageError(
                f"resolution must be one at which {max_centres:,} centres are enough, or 0, got {resolution:g}"
            )
        return given_fit[0]
    best_fit, best_score, worse_count = None, -math.inf, 0
    for candidate in _list_resolutions(rows, len(columns)):
        candidate_fit = _fit_at_resolution(columns, parts, rows, candidate, gap, progress)
        if candidate_fit is None:
            break
        smooth_fit, bump_count = candidate_fit
        score = reports * smooth_fit.log_likelihood - bump_count
        best_fit, worse_count = (smooth_fit, 0) if score > best_score else (best_fit, worse_count + 1)
        best_score = max(best_score, score)
        if worse_count == MAX_WORSE_RESOLUTIONS:
            break
    if best_fit is None or worse_count == 0:  # the finest was the best
        full_fit = fit(columns, parts, gap=gap, progress=progress)
        bump_count = int((full_fit.shares > MIN_BUMP_SHARE).sum()) - 1
        if best_fit is None or reports * full_fit.log_likelihood - bump_count > best_score:
            return full_fit
    return best_fit


def _list_resolutions(rows: Rows, count: int) -> Iterator[float]:
    """Yield resolutions, from a quarter of the greatest distance to the median distance to a nearest neighbour."""
    first_distances = rows(np.array([0]))[0]
    # Two sweeps: the record farthest from record 0, then the greatest distance from that one.
    max_distance = float(rows(np.array([int(first_distances.argmax())]))[0].max())
    sample = np.unique(np.linspace(0, count - 1, 200).astype(np.int64))
    distances = rows(sample)
    distances[distances == 0] = np.inf
    finest = float(np.median(distances.min(axis=1)))
    resolution = max_distance / COARSEST_DIVISOR
    while resolution > finest and math.isfinite(max_distance):
        yield resolution
        resolution /= FINER


def _fit_at_resolution(
    columns: Floats, parts: Floats, rows: Rows, resolution: float, gap: float, progress: Progress | None
) -> tuple[Fit, int] | None:
    """Return the maximum at a resolution, and its number of bumps beyond one; None if it has too many centres."""
    if progress is not None:
        progress(f"likelihood at resolution {resolution:.3g}", 0, None, None)
    shapes = make_bumps(rows, len(columns), resolution)
    if shapes is None:
        return None
    mixture_fit = fit(shapes @ columns, parts, gap=gap)
    shares = read_only(mixture_fit.shares @ shapes)
    smooth = evolve(mixture_fit, shares=shares, resolution=resolution, whole_gap=gap_of(shares, columns, parts))
    return smooth, int((mixture_fit.shares > MIN_BUMP_SHARE).sum()) - 1
