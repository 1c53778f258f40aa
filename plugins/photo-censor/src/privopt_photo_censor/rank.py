"""The rank that a set of kept photos leaves to the true location, exactly (mathematics P1, P6, P7).

This module decides whether a set protects, whatever a search says. A location is at or above the true one if the sum of
*all* terms ``S_ij - S_it - theta`` over the kept photos is not negative. The sign is that of one :func:`math.fsum`,
which rounds once and correctly. Two sums, or differences taken before, could round to the wrong sign.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from privopt.arrays import Bools, Floats
from privopt_photo_censor.album import Album

__all__ = ["belief", "exact_sign", "protected_k", "rank"]


def exact_sign(score: list[float], true: list[float], margin: float) -> int:
    """Return the sign of ``sum(score_i - true_i - margin)`` over doubles, exactly.

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
    """Count the locations at or above the true one if the photos ``retained`` (by default all) are posted.

    Ties protect, -inf with -inf too. If no photo is posted, every location ties.

    Returns:
        ``|{j != t : S'_j >= S'_t}|``, at most M - 1.
    """
    is_retained = np.ones(album.photos, dtype=np.bool_) if retained is None else retained
    rows = np.flatnonzero(is_retained)
    if not rows.size or np.isneginf(album.scores[rows, album.true]).any():
        return album.locations - 1
    alternates = album.alternates
    sums = alternates.sums(is_retained)
    slack = alternates.slack
    count = int((sums > slack).sum())
    true_scores = alternates.true[is_retained].tolist()
    # Sums in doubles leave these open.
    for row in np.flatnonzero((sums >= -slack) & (sums <= slack)).tolist():
        count += exact_sign(alternates.scores[row, is_retained].tolist(), true_scores, album.margin) >= 0
    return count


def rank(album: Album, retained: Bools | None = None) -> int:
    """Return the rank of the true location, 1 for the most likely. Ties count against it."""
    return protected_k(album, retained) + 1


def belief(album: Album, retained: Bools) -> Floats:
    """Return (M,) the classifier's posterior from the photos kept (paper, (1)), with the margin, in doubles.

    The shares are equal if the photos rule out every place.
    """
    scores = album.scores[retained].sum(axis=0)
    scores[album.true] += album.margin * int(retained.sum())
    if np.isneginf(scores).all():
        return np.full(album.locations, 1.0 / album.locations)
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())
