"""Exact ranks of the true location, given the set of photos that are posted.

Solvers propose sets of photos; this module decides whether a set protects the true location. Let S_ij be photo i's
score for location j, t the true location, and theta the margin, which is added to the true location's score for each
photo. Location j ranks at or above the true one if the sum of ``S_ij - S_it - theta`` over the posted photos i is
non-negative. The sign is taken from a single :func:`math.fsum` over all scores, which rounds only once, and correctly.
Comparing two rounded sums, or adding rounded differences, could yield the wrong sign.
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
    """Return the number of locations that rank at or above the true one if the given photos are posted.

    A location is counted if its total score over the posted photos is at least the true location's total, with the
    margin added for each photo. Ties count, including ties at -inf. If no photo is posted, all locations tie.

    Args:
        album: The scores.
        retained: (N,) mask of the posted photos; by default, all photos.
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
    # If a sum in doubles is within its error bound of 0, its sign is uncertain, so it is computed exactly.
    for row in np.flatnonzero((sums >= -slack) & (sums <= slack)).tolist():
        count += exact_sign(alternates.scores[row, is_retained].tolist(), true_scores, album.margin) >= 0
    return count


def rank(album: Album, retained: Bools | None = None) -> int:
    """Return the rank of the true location among the classifier's guesses if the given photos are posted.

    Rank 1 is the most likely location. Locations that tie with the true one rank before it.

    Args:
        album: The scores.
        retained: (N,) mask of the posted photos; by default, all photos.
    """
    return protected_k(album, retained) + 1


def belief(album: Album, retained: Bools) -> Floats:
    """Return the classifier's (M,) posterior over the locations, given the retained photos (AAAI 2020, Equation (1)).

    The margin is added to the true location's score for each photo. The posterior is uniform if the photos rule out
    every location.

    Args:
        album: The scores.
        retained: (N,) mask of the retained photos.
    """
    scores = album.scores[retained].sum(axis=0)
    # The guarantee adds the margin to the true location once for each photo.
    scores[album.true] += album.margin * int(retained.sum())
    if np.isneginf(scores).all():
        return np.full(album.locations, 1.0 / album.locations)
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())
