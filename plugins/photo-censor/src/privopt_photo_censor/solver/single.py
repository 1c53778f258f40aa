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

    The numbers are exact: if a sum in doubles cannot decide, the photos are ordered and summed as rationals.
    Time is O(M N log N). 0 means that only the empty set will do, which is left to the caller.
    """
    photo_count = data.diff.shape[1]
    is_ruled_out = (data.kills & data.keep).any(axis=1)
    sort_keys = np.where(data.kills, -np.inf, data.diff)
    sort_keys[:, data.keep] = np.inf  # photos that must stay come first
    order = np.argsort(-sort_keys, axis=1, kind="stable")
    advantages = np.take_along_axis(np.where(data.kills, -np.inf, data.diff), order, axis=1)
    sums = np.cumsum(advantages, axis=1)
    slack = data.slack[:, None]
    fixed_count = int(data.keep.sum())
    counts = np.arange(1, photo_count + 1)
    is_usable = counts >= max(fixed_count, 1)
    max_counts = np.where((sums > slack) & is_usable, counts, 0).max(axis=1, initial=0)
    possible_counts = np.where((sums >= -slack) & is_usable, counts, 0).max(axis=1, initial=0)
    for j in np.flatnonzero((possible_counts > max_counts) & ~is_ruled_out).tolist():
        totals = enumerate(accumulate(gain for gain, _ in _sort_photos(data, j)), start=1)
        max_counts[j] = max((number for number, total in totals if total >= 0 and number >= fixed_count), default=0)
    max_counts[is_ruled_out | ((max_counts == 0) & (fixed_count > 0))] = -1
    return np.asarray(max_counts, dtype=np.int64)


def _sort_photos(data: Alternates, j: int) -> list[tuple[Fraction, int]]:
    """Return exact advantages for alternate ``j`` and their photos: those that must stay first, then the best first.

    Photos that rule the alternate out are omitted.
    """
    photos = [(data.gain(j, i), i) for i in np.flatnonzero(~data.kills[j]).tolist()]
    return sorted(photos, key=lambda photo: (not data.keep[photo[1]], -photo[0]))


def best_for(album: Album, row: int, count: int) -> Bools:
    """Return the ``count`` photos to keep that are best for alternate ``row`` of ``album.alternates``.

    With ``count = reach[row]`` they leave it at or above the true location. Ties in doubles are put in exact order.
    """
    data = album.alternates
    is_kept = np.zeros(album.photos, dtype=np.bool_)
    is_kept[np.lexsort((-data.diff[row], ~data.keep, data.kills[row]))[:count]] = True
    if exact_sign(data.scores[row, is_kept].tolist(), data.true[is_kept].tolist(), album.margin) < 0:
        is_kept[:] = False
        is_kept[[i for _, i in _sort_photos(data, row)[:count]]] = True
    return is_kept
