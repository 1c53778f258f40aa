"""Several classifiers at once, and how far one is from another.

A place j lies at or above the true place t for a classifier if the sum over the kept photos of S_ij - S_it is at least
0. The least of these differences over classifiers, photo by photo, has the least sum. If that is at least 0, j lies at
or above t for each of them, and for anyone who takes one classifier for this photo and another for that. Differences of
doubles are rounded down, so that what is protected by them is protected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats

__all__ = ["jointly", "theta"]


def _differences(scores: Floats, true: int) -> Floats:
    """(N, M) scores - the true place's, rounded down; infinite where a photo gives the true place probability 0."""
    own = scores[:, [true]]
    with np.errstate(invalid="ignore"):
        made = scores - own
        back = made - scores
        error = (scores - (made - back)) + (-own - back)  # what the difference was rounded by (Knuth)
    made = np.where(np.isfinite(made) & (error < 0.0), np.nextafter(made, -np.inf), made)
    return np.asarray(np.where(np.isneginf(own), np.inf, np.where(np.isneginf(scores), -np.inf, made)))


def jointly(tables: Sequence[Floats], true: int) -> Floats:
    """Return one table of scores that protects against several classifiers at once.

    Args:
        tables: (N, M) log-probabilities each, of the same photos and places, finite or -inf.
        true: column of the true place.

    Returns:
        (N, M) scores, 0 in the true place's column. A set of photos that protects k by them protects k for every
        classifier, whichever scores which photo. A photo that hides the place from all of them has -inf there.

    >>> jointly([np.array([[-1.0, -2.0]]), np.array([[-1.5, -1.0]])], 0)
    array([[ 0., -1.]])
    """
    least: Floats = np.minimum.reduce([_differences(np.asarray(table, dtype=np.float64), true) for table in tables])
    hidden = np.isposinf(least).all(axis=1)
    least[hidden] = 0.0
    least[hidden, true] = -np.inf
    return least


def theta(first: Floats, second: Floats, true: int, share: float = 1.0) -> float:
    """Return the margin at which protection from one classifier is protection from another, on these photos.

    With ``share = 1`` it holds for every set of them: the second's differences S_ij - S_it are at most theta below the
    first's. A smaller share is the quantile over photos of each photo's greatest such gap: an estimate for photos like
    these, no promise.

    Args:
        first: (N, M) log-probabilities of the proxy, whose ``privacy.margin`` it is for.
        second: (N, M) of the classifier to be hidden from, of the same photos and places.
        true: column of the true place.
        share: of the photos, in (0, 1].

    Raises:
        ValueError: shapes differ, or the share is outside (0, 1].
    """
    if np.shape(first) != np.shape(second) or not 0.0 < share <= 1.0:
        raise ValueError(f"shapes {np.shape(first)} and {np.shape(second)}, share {share}")
    proxy, other = (np.asarray(table, dtype=np.float64) for table in (first, second))
    high = -_differences(-np.where(np.isneginf(proxy), np.nan, proxy), true)  # rounded up
    low = _differences(other, true)
    with np.errstate(invalid="ignore"):
        gap = np.nextafter(high - low, np.inf)
    gap[np.isneginf(proxy[:, true])] = np.inf  # the proxy alone believes itself blind
    gap = np.where(np.isneginf(proxy) | np.isposinf(low), 0.0, gap)  # never above there, or always
    gap[:, true] = 0.0
    each = np.sort(np.maximum(gap, 0.0).max(axis=1))
    return float(each[int(np.ceil(share * len(each))) - 1])
