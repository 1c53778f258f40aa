"""The polynomial case (paper, section 4 and Appendix B; mathematics P3): one alternate at a time.

For one alternate j the photos are sorted by its advantage ``S_ij - S_it - theta`` and deleted from the worst on until
the sum is not negative. The printed Algorithm 1 never advances d, forgets the empty deletion set and wants a strict
inequality; this is the method its text describes.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Bools
from privopt_photo_censor.album import Album, Alternates
from privopt_photo_censor.rank import exact_sign

__all__ = ["best_for", "reach"]


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
    result = np.where((sums > slack) & usable, count, 0).max(axis=1, initial=0)
    maybe = np.where((sums >= -slack) & usable, count, 0).max(axis=1, initial=0)
    for j in np.flatnonzero((maybe > result) & ~ruled).tolist():
        totals = enumerate(accumulate(gain for gain, _ in _best_first(data, j)), start=1)
        result[j] = max((number for number, total in totals if total >= 0 and number >= fixed), default=0)
    result[ruled | ((result == 0) & (fixed > 0))] = -1
    return np.asarray(result, dtype=np.int64)


def _best_first(data: Alternates, j: int) -> list[tuple[Fraction, int]]:
    """Advantages for alternate `j`, exact, and their photos: those never deleted first, then the best first.

    Photos that rule it out are omitted.
    """
    photos = [(data.gain(j, i), i) for i in np.flatnonzero(~data.kills[j]).tolist()]
    return sorted(photos, key=lambda each: (not data.keep[each[1]], -each[0]))


def best_for(album: Album, row: int, count: int) -> Bools:
    """Return the `count` photos to keep that are best for alternate row `j` of ``album.reduced``.

    With ``count = reach[j]`` they leave j at or above the true location; ties in doubles are put in exact order.
    """
    data = album.reduced
    kept = np.zeros(album.photos, dtype=np.bool_)
    kept[np.lexsort((-data.diff[row], ~data.keep, data.kills[row]))[:count]] = True
    if exact_sign(data.scores[row, kept].tolist(), data.true[kept].tolist(), album.margin) < 0:
        kept[:] = False
        kept[[i for _, i in _best_first(data, row)[:count]]] = True
    return kept
