"""The special case in which only one alternate must be protected (AAAI 2020, section 4 and Appendix B).

An alternate is a location other than the true one. The advantage of a photo for an alternate is its score for the
alternate, minus its score for the true location, minus the margin. Photos are deleted in ascending order of their
advantage until the sum of the remaining advantages is non-negative, which takes polynomial time. The paper's printed
Algorithm 1 never increments its variable d, omits the empty deletion set and requires a strict inequality. This module
implements the method described in the paper's text.
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
    """Return the maximum number of photos that can be kept if only a single alternate must be protected.

    An alternate is a location other than the true one. The numbers are exact. Where sums in doubles are inconclusive,
    the photos are sorted and summed in rational arithmetic. The running time is O(M N log N) for N photos and M
    locations.

    Returns:
        (m,) The number of photos for each alternate. It is -1 if no set of photos protects the alternate, and 0 if only
        the empty set does. The caller must decide whether the empty set is allowed.
    """
    photo_count = data.diff.shape[1]
    is_ruled_out = (data.kills & data.keep).any(axis=1)
    # In each row, the photos are sorted by their advantage for the alternate, largest first. But those that must stay
    # come before all others, and those that rule the alternate out come last.
    sort_keys = np.where(data.kills, -np.inf, data.diff)
    sort_keys[:, data.keep] = np.inf
    order = np.argsort(-sort_keys, axis=1, kind="stable")
    advantages = np.take_along_axis(np.where(data.kills, -np.inf, data.diff), order, axis=1)
    sums = np.cumsum(advantages, axis=1)
    slack = data.slack[:, None]
    fixed_count = int(data.keep.sum())
    counts = np.arange(1, photo_count + 1)
    # sums[:, c - 1] is over the first c photos, which must include all that have to stay.
    is_usable = counts >= max(fixed_count, 1)
    max_counts = np.where((sums > slack) & is_usable, counts, 0).max(axis=1, initial=0)
    possible_counts = np.where((sums >= -slack) & is_usable, counts, 0).max(axis=1, initial=0)
    # `max_counts` photos suffice despite any rounding errors. Where the errors leave a larger count possible, rationals
    # decide.
    for j in np.flatnonzero((possible_counts > max_counts) & ~is_ruled_out).tolist():
        totals = enumerate(accumulate(gain for gain, _ in _sort_photos(data, j)), start=1)
        max_counts[j] = max((number for number, total in totals if total >= 0 and number >= fixed_count), default=0)
    # No count is possible if a photo that must stay rules the alternate out, or if no set that includes the photos that
    # must stay has a non-negative sum.
    max_counts[is_ruled_out | ((max_counts == 0) & (fixed_count > 0))] = -1
    return np.asarray(max_counts, dtype=np.int64)


def _sort_photos(data: Alternates, j: int) -> list[tuple[Fraction, int]]:
    """Return (advantage, photo) pairs for alternate ``j``, with exact advantages.

    Photos that must be kept come first, followed by the others. Within both groups, photos are sorted by advantage,
    largest first. Photos that rule out the alternate are omitted.
    """
    photos = [(data.gain(j, i), i) for i in np.flatnonzero(~data.kills[j]).tolist()]
    return sorted(photos, key=lambda photo: (not data.keep[photo[1]], -photo[0]))


def best_for(album: Album, row: int, count: int) -> Bools:
    """Return an (N,) mask of the ``count`` photos with the largest advantages for one alternate.

    Photos that must be kept are taken first. If ``count`` is the alternate's entry in the result of :func:`reach`, the
    alternate ranks at or above the true location. The advantages are computed in floating point. They are computed
    exactly only if the resulting set leaves the alternate below the true location.

    Args:
        album: The scores, and the photos that must be kept.
        row: The row of the alternate in ``album.alternates``.
        count: The number of photos to keep.
    """
    data = album.alternates
    is_kept = np.zeros(album.photos, dtype=np.bool_)
    # lexsort gives its last key the most weight. Photos that rule the location out come last, those that must stay come
    # first, and the others follow by their advantage.
    is_kept[np.lexsort((-data.diff[row], ~data.keep, data.kills[row]))[:count]] = True
    if exact_sign(data.scores[row, is_kept].tolist(), data.true[is_kept].tolist(), album.margin) < 0:
        is_kept[:] = False
        is_kept[[i for _, i in _sort_photos(data, row)[:count]]] = True
    return is_kept
