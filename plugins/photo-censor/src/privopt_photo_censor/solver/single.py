"""The polynomial case (paper, section 4 and Appendix B; mathematics P3): one alternate at a time.

For one alternate j the photos are sorted by its advantage ``S_ij - S_it - theta`` and deleted from the worst on until
the sum is not negative. The printed Algorithm 1 never advances d, forgets the empty deletion set and wants a strict
inequality; this is the method its text describes.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Bools
from privopt_photo_censor.album import Album, Alternates
from privopt_photo_censor.rank import exact_sign

__all__ = ["best_for", "reach"]


def _order(data: Alternates, j: int) -> NDArray[np.int64]:
    """Photos of alternate `j`, those never deleted first, then by advantage, best first; ruled-out photos omitted."""
    allowed = np.flatnonzero(~data.kills[j])
    first = ~data.keep[allowed]
    return np.asarray(allowed[np.lexsort((-data.diff[j, allowed], first))])


def reach(data: Alternates) -> NDArray[np.int64]:
    """Return (m,) the most photos that can stay with each alternate alone at or above the true location; -1 for none.

    Exact: where the double sum cannot decide, the photos are ordered and summed as rationals. O(M N log N).
    0 means that only the empty set will do, which is left to the caller.
    """
    n = data.diff.shape[1]
    ruled = (data.kills & data.keep).any(axis=1)
    key = np.where(data.kills, -np.inf, data.diff)
    key[:, data.keep] = np.inf
    order = np.argsort(-key, axis=1, kind="stable")
    values = np.take_along_axis(np.where(data.kills, -np.inf, data.diff), order, axis=1)
    sums = np.cumsum(values, axis=1)
    slack = data.slack[:, None]
    fixed = int(data.keep.sum())
    count = np.arange(1, n + 1)
    usable = count >= max(fixed, 1)
    sure = np.where((sums > slack) & usable, count, 0).max(axis=1, initial=0)
    maybe = np.where((sums >= -slack) & usable, count, 0).max(axis=1, initial=0)
    result = sure.astype(np.int64)
    for j in np.flatnonzero((maybe > sure) & ~ruled).tolist():
        result[j] = _exact_reach(data, j, int(sure[j]), int(maybe[j]))
    result[ruled | ((result == 0) & (fixed > 0))] = -1
    return np.asarray(result)


def _exact_reach(data: Alternates, j: int, sure: int, maybe: int) -> int:
    """Most photos between `sure` and `maybe` that can stay, with rationals."""
    margin = Fraction(data.margin)
    photos = [
        (not data.keep[i], -(Fraction(data.scores[j, i]) - Fraction(data.true[i]) - margin))
        for i in range(data.diff.shape[1])
        if not data.kills[j, i]
    ]
    total = Fraction(0)
    best = sure
    for count, (_, value) in enumerate(sorted(photos), start=1):
        total -= value
        if total >= 0 and count > best and count >= int(data.keep.sum()):
            best = count
        if count == maybe:
            break
    return best


def best_for(album: Album, row: int, count: int) -> Bools:
    """Return the `count` photos to keep that are best for alternate row `j` of ``album.reduced``.

    With ``count = reach[j]`` they leave j at or above the true location; ties in doubles are put in exact order.
    """
    data = album.reduced
    kept = np.zeros(album.photos, dtype=np.bool_)
    order = _order(data, row)[:count]
    kept[order] = True
    if count and exact_sign(data.scores[row, kept].tolist(), data.true[kept].tolist(), album.margin) < 0:
        margin = Fraction(album.margin)

        def place(photo: int) -> tuple[bool, Fraction]:
            return not data.keep[photo], -(Fraction(data.scores[row, photo]) - Fraction(data.true[photo]) - margin)

        kept[:] = False
        kept[sorted(np.flatnonzero(~data.kills[row]).tolist(), key=place)[:count]] = True
    return kept
