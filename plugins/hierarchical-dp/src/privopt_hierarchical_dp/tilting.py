"""How regions' sizes differ from their parent's as a whole: a tilt of the parent's shares for each of them.

A region with smaller groups than its parent has fewer of all large sizes at once. So its shares are supposed to be
p_s exp(theta f(s)) / sum, where p are the parent's and theta f a line of a few pieces over the logarithm of size (an
exponential family of hat functions f). What a region tells of theta is T = sum_s n_s f(s), which noisy values give
without bias and with a known variance, be it counts or cumulative counts that were measured. theta is normal around 0
with a covariance that the regions of a level show together (EM, Laplace approximation), chance and noise taken off.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints

__all__ = ["Tilts", "tilts"]

_PIECES: Final = 4
"""Of the line, all as long: for sizes to 60 they end at 3, 8, 22 and 60."""
_ROUNDS: Final = 40
_FIRST: Final = 0.1
"""Variance of theta that EM starts from: shares differ by some third."""
_FARTHEST: Final = 3.0
"""Length of a step of Newton's."""
_RIDGE: Final = 1e-9


@frozen(kw_only=True, eq=False)
class Tilts:
    """Tilts of the regions of one level.

    Attributes:
        base: (R, N) shares of the region's parent.
        scores: (K, N) f.
        mean: (R, K) the likeliest theta.
        spread: (R, K, K) Cholesky factor of its covariance.
    """

    base: Floats
    scores: Floats
    mean: Floats
    spread: Floats

    def shares(self, rng: np.random.Generator | None = None) -> Floats:
        """(R, N) the parent's shares tilted: by the likeliest theta, or by one drawn."""
        theta = self.mean
        if rng is not None:
            theta = theta + np.einsum("rkl,rl->rk", self.spread, rng.normal(size=theta.shape))
        return _tilted(self.base, self.scores, theta)


def tilts(parents: Floats, parent: Ints, counts: Floats, totals: Ints, noise: Floats, *, cumulative: bool) -> Tilts:
    """Fit the tilts of one level's regions to what was measured of them.

    Args:
        parents: (P, N) shares of the parents, each row's sum 1.
        parent: (R,) of each region.
        counts: (R, N) estimates of counts, unbiased; where cumulative counts were measured their differences.
        totals: (R,) numbers of groups.
        noise: (R,) variance of one measured value.
        cumulative: whether those are cumulative counts.
    """
    place = np.log(np.arange(1.0, parents.shape[1] + 1.0))
    knots = np.linspace(0.0, max(place[-1], 1.0), _PIECES + 1)
    scores = np.array([np.interp(place, knots, hat) for hat in np.eye(_PIECES + 1)[1:]])
    steps = np.diff(scores, axis=1) if cumulative else scores
    used = np.flatnonzero(parents.any(axis=0))
    base, own = parents[:, used][parent], scores[:, used]
    whole = totals.astype(np.float64)[:, None]
    held, unit = totals > 0, np.eye(_PIECES)
    blur = noise[:, None, None] * (steps @ steps.T) + _RIDGE * unit
    seen, products = counts @ scores.T, (own[:, None] * own).reshape(_PIECES**2, -1).T
    theta, prior = np.zeros((len(parent), _PIECES)), _FIRST * unit
    covariance = np.broadcast_to(prior, blur.shape)
    for _ in range(_ROUNDS if held.any() else 0):
        shares = _tilted(base, own, theta)
        mean = shares @ own.T
        square = (shares @ products).reshape(blur.shape) - mean[:, :, None] * mean[:, None, :]
        slope, certain = whole[:, :, None] * square, np.linalg.inv(prior + _RIDGE * unit)
        gain = np.swapaxes(np.linalg.solve(slope + blur, slope), 1, 2)
        covariance = np.linalg.inv(gain @ slope + certain)
        pull = np.einsum("rkl,rl->rk", gain, seen - whole * mean) - theta @ certain
        step = np.einsum("rkl,rl->rk", covariance, pull)
        theta = theta + step / np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True) / _FARTHEST)
        prior = (theta[held].T @ theta[held] + covariance[held].sum(axis=0)) / held.sum()
    return Tilts(
        base=parents[parent],
        scores=scores,
        mean=theta,
        spread=np.asarray(np.linalg.cholesky(covariance + _RIDGE * unit), np.float64),
    )


def _tilted(base: Floats, scores: Floats, theta: Floats) -> Floats:
    """(R, N) shares in the proportion of base (R, N) times exp(theta f); 0 where base is."""
    power = theta @ scores
    power -= np.where(base > 0.0, power, -np.inf).max(axis=1, keepdims=True)
    found = base * np.exp(np.minimum(power, 0.0))
    return np.asarray(found / found.sum(axis=1, keepdims=True))
