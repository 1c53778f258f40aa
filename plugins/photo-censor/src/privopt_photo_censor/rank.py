"""Exact ranks of the true location, given the set of photos that are posted.

Solvers propose sets of photos, and this module decides whether a set protects the true location. Let S_ij be photo i's
score for location j, t the true location, and theta the margin, which is added to the true location's score for each
photo. Location j ranks at or above the true one if the sum of ``S_ij - S_it - theta`` over the posted photos i is
non-negative. The sign is taken from a single :func:`math.fsum` over all scores, which is correctly rounded.
Comparing two rounded sums, or adding rounded differences, could give the wrong sign.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from privopt.arrays import Bools, Floats
from privopt_photo_censor.album import Album

__all__ = ["belief", "exact_sign", "protected_k", "rank"]


def exact_sign(score: list[float], true: list[float], margin: float) -> int:
    """Return the exact sign (1, 0 or -1) of the sum of ``score[i] - true[i] - margin`` over all i, for finite doubles.

    >>> exact_sign([0.1] * 10, [1.0] + [0.0] * 9, 0.0)    # ten times the double 0.1 is more than 1
    1
    """
    terms = [*score, *(-value for value in true), *([-margin] * len(score) if margin else [])]
    try:
        total: float | Fraction = math.fsum(terms)
    except OverflowError:
        # A partial sum exceeds the largest double. Rationals have no such limit.
        total = sum(map(Fraction, terms), Fraction(0))
    return (total > 0) - (total < 0)


def protected_k(album: Album, retained: Bools | None = None) -> int:
    """Return the number of locations that rank at or above the true one if only some of the photos are posted.

    A location counts if the sum of its scores over the posted photos is at least that of the true location. The margin
    is added to the true location's score for each photo. Ties count, including ties at -inf. If no photo is posted, all
    locations are tied.

    Args:
        album: The scores.
        retained: (N,) A mask of the posted photos. By default, all photos are posted.
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
    # `slack` bounds the rounding error of each sum. Where a sum is too near 0 to be sure of its sign, the exact sign is
    # computed.
    for row in np.flatnonzero((sums >= -slack) & (sums <= slack)).tolist():
        count += exact_sign(alternates.scores[row, is_retained].tolist(), true_scores, album.margin) >= 0
    return count


def rank(album: Album, retained: Bools | None = None) -> int:
    """Return the true location's rank among the classifier's guesses if only some of the photos are posted.

    Rank 1 is the most likely location. Locations that tie with the true one rank before it.

    Args:
        album: The scores.
        retained: (N,) A mask of the posted photos. By default, all photos are posted.
    """
    return protected_k(album, retained) + 1


def belief(album: Album, retained: Bools) -> Floats:
    """Return the classifier's posterior over the M locations, given the retained photos (AAAI 2020, Equation (1)).

    The margin is added to the true location's score for each photo. If the photos rule out every location, the
    posterior is uniform.

    Args:
        album: The scores.
        retained: (N,) A mask of the retained photos.
    """
    scores = album.scores[retained].sum(axis=0)
    # As in the guarantee, the margin counts once for each photo.
    scores[album.true] += album.margin * int(retained.sum())
    if np.isneginf(scores).all():
        return np.full(album.locations, 1.0 / album.locations)
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())
