"""Smooth shares: mixtures of bumps over the records, as fine as the reports support.

Over a thousand records the maximum of the likelihood puts all shares on a few records. It can be farther from the truth
than the reports themselves: noise of a kilometre says little about who is in which of ten streets. Mixtures of bumps
exp(-(d / r)^2 / 2) around centres r apart are a convex family too, so the maximum within it is found to a proved gap as
well. (This is a sieve; compare the smoothed EM of Silverman et al. 1990.) Resolutions are tried from coarse to fine.
The best r has the greatest maximum less its number of bumps (Akaike); if ever finer ones are better, none is used.
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


def bumps(rows: Rows, count: int, resolution: float) -> Floats | None:
    """Return (M, N) distributions over the records; every record has a centre of one within the resolution.

    Centres are taken farthest first, from record 0. None where they are too many to be held at once.
    """
    found = [rows(np.array([0]))[0]]
    nearest = found[0]
    while nearest.max() > resolution and len(found) < count:
        if (len(found) + 1) * count > MAX_BUMP_ENTRIES:
            return None
        found.append(rows(np.array([int(nearest.argmax())]))[0])
        nearest = np.minimum(nearest, found[-1])
    with np.errstate(over="ignore"):  # so far off that nothing is left
        made = np.exp(-0.5 * (np.array(found) / resolution) ** 2)
    made /= made.sum(axis=1, keepdims=True)
    return made


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
        asked = _at(columns, parts, rows, resolution, gap, progress)
        if asked is None:
            few = MAX_BUMP_ENTRIES // len(columns)
            raise UsageError(f"resolution must be one at which {few:,} centres are enough, or 0, got {resolution:g}")
        return asked[0]
    best, score, worse = None, -math.inf, 0
    for tried in _resolutions(rows, len(columns)):
        made = _at(columns, parts, rows, tried, gap, progress)
        if made is None:
            break
        found, used = made
        now = reports * found.log_likelihood - used
        best, worse = (found, 0) if now > score else (best, worse + 1)
        score = max(score, now)
        if worse == MAX_WORSE_RESOLUTIONS:
            break
    if best is None or worse == 0:  # the finest was the best
        whole = fit(columns, parts, gap=gap, progress=progress)
        used = int((whole.shares > MIN_BUMP_SHARE).sum()) - 1
        if best is None or reports * whole.log_likelihood - used > score:
            return whole
    return best


def _resolutions(rows: Rows, count: int) -> Iterator[float]:
    """From a quarter of the greatest distance down to the middle record's distance to its nearest neighbour."""
    first = rows(np.array([0]))[0]
    far = float(rows(np.array([int(first.argmax())]))[0].max())
    some = np.unique(np.linspace(0, count - 1, 200).astype(np.int64))
    near = rows(some)
    near[near == 0] = np.inf
    finest = float(np.median(near.min(axis=1)))
    tried = far / COARSEST_DIVISOR
    while tried > finest and math.isfinite(far):
        yield tried
        tried /= FINER


def _at(
    columns: Floats, parts: Floats, rows: Rows, resolution: float, gap: float, progress: Progress | None
) -> tuple[Fit, int] | None:
    """Return the maximum at a resolution, and how many bumps beyond one it takes; None if these are too many."""
    if progress is not None:
        progress(f"likelihood at resolution {resolution:.3g}", 0, None, None)
    shapes = bumps(rows, len(columns), resolution)
    if shapes is None:
        return None
    found = fit(shapes @ columns, parts, gap=gap)
    shares = read_only(found.shares @ shapes)
    smooth = evolve(found, shares=shares, resolution=resolution, whole_gap=gap_of(shares, columns, parts))
    return smooth, int((found.shares > MIN_BUMP_SHARE).sum()) - 1
