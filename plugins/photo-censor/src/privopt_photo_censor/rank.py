"""The rank that a set of kept photos leaves to the true location, exactly (mathematics P1, P6, P7).

This decides, whatever a search says. A location is at or above the true one when the sum of *all* terms ``S_ij - S_it -
theta`` over the kept photos is not negative. Its sign is that of one :func:`math.fsum`, which rounds once and
correctly, never of two sums or of differences taken before.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from privopt.arrays import Bools, Floats
from privopt_photo_censor.album import Album

__all__ = ["belief", "exact_sign", "protected_k", "rank"]


def exact_sign(score: list[float], true: list[float], margin: float) -> int:
    """Sign of ``sum(score_i - true_i - margin)`` over doubles, exactly.

    >>> exact_sign([0.1] * 10, [1.0] + [0.0] * 9, 0.0)    # ten times the double .1 is more than 1
    1
    """
    terms = [*score, *(-value for value in true), *([-margin] * len(score) if margin else [])]
    try:
        total: float | Fraction = math.fsum(terms)
    except OverflowError:
        total = sum(map(Fraction, terms), Fraction(0))
    return (total > 0) - (total < 0)


def protected_k(album: Album, retained: Bools | None = None) -> int:
    """Count the locations at or above the true one when the photos `kept` (all by default) are posted.

    Ties protect, -inf with -inf too; with no photo posted every location ties.

    Returns:
        ``|{j != t : S'_j >= S'_t}|``, at most M - 1.
    """
    chosen = np.ones(album.photos, dtype=np.bool_) if retained is None else retained
    rows = np.flatnonzero(chosen)
    if not rows.size or np.isneginf(album.scores[rows, album.true]).any():
        return album.locations - 1
    data = album.reduced
    sums = data.sums(chosen)
    slack = data.slack
    count = int((sums > slack).sum())
    true = data.true[chosen].tolist()
    for j in np.flatnonzero((sums >= -slack) & (sums <= slack)).tolist():
        count += exact_sign(data.scores[j, chosen].tolist(), true, album.margin) >= 0
    return count


def rank(album: Album, retained: Bools | None = None) -> int:
    """Rank of the true location, 1 = most likely; ties count against it."""
    return protected_k(album, retained) + 1


def belief(album: Album, retained: Bools) -> Floats:
    """Return (M,) the classifier's posterior from the photos kept (paper, (1)), with the margin, in doubles.

    Equal shares where they rule out every place.
    """
    scores = album.scores[retained].sum(axis=0)
    scores[album.true] += album.margin * int(retained.sum())
    if np.isneginf(scores).all():
        return np.full(album.locations, 1.0 / album.locations)
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())
