"""Newton's method for the Lagrangian bound, for albums with many photos, where the simplex method is slow.

The bound ``sum_i max(0, 1 + sum_j f_j d_ij)`` is a convex, piecewise linear function of the multipliers f, where d_ij
is photo i's advantage for location j (see :mod:`privopt_photo_censor.solver.bounds`). With thousands of photos, it is
nearly smooth. Let d_i be the vector of photo i's advantages. The second derivative is estimated by the mean of the
outer products ``d_i d_i'`` over the photos whose terms are near 0, times the density of these photos.

With this estimate, Newton's method evaluates the sum only about ten times, whereas the simplex method takes hundreds of
steps. Each evaluation is a product with a matrix that has few rows. The estimate need not be exact, because any
multipliers give a valid bound (see :func:`privopt_photo_censor.solver.bounds.bound_photos`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Bools, Floats

__all__ = ["minimise_bound"]

STEPS: Final = 40
"""The maximum number of evaluations of the sum."""
NEAR_SHARE: Final = 0.05
"""The initial fraction of the photos used to estimate the second derivative. It shrinks when progress stalls."""
FEWEST_NEAR: Final = 32
"""The minimum number of photos used to estimate the second derivative. If even this many yield no progress, the descent
ends."""
SHORTEST_SHARE: Final = 0.1
"""The fraction of the Newton step above which a failed step is shortened. Otherwise, a new step is estimated."""
TINY: Final = 1e-30
"""A small positive number that keeps quotients finite."""
PROGRESS: Final = 1e-6
"""The relative decrease of the bound below which the next estimate uses fewer photos."""


def minimise_bound(diff: Floats, must: Bools, start: Floats, enough: float) -> Floats:
    """Return multipliers that nearly minimise the Lagrangian bound, or that bring it below ``enough``.

    Args:
        diff: (r, N) The advantages of the photos for the protected locations. Deleted photos are not included.
        must: (N,) Whether each photo must be kept, so that its term counts even if it is negative.
        start: (r,) The non-negative initial multipliers.
        enough: The descent stops as soon as the bound is below this number.

    Returns:
        (r,) The non-negative multipliers.
    """
    photos = diff.shape[1]
    if not photos:
        return start  # the bound is 0 for all multipliers
    near_count = min(photos, max(FEWEST_NEAR, int(NEAR_SHARE * photos)))
    best, best_force, step, share = np.inf, start, np.zeros(len(diff)), 1.0
    slope, distance = step, np.zeros(photos)
    for _ in range(STEPS):
        force = np.maximum(best_force + share * step, 0.0)
        weight = 1.0 + force @ diff
        is_counted = must | (weight > 0.0)
        value = float(weight[is_counted].sum())
        gain = best - value
        if gain > 0.0:
            best, best_force, share = value, force, 1.0
            slope, distance = diff @ is_counted, np.where(must, np.inf, np.abs(weight))
        if best < enough:
            break
        if gain <= 0.0 and share > SHORTEST_SHARE:
            share *= 0.4
            continue
        # If a step gains little, or nothing even after shortening, the derivative was estimated from too many photos.
        if gain <= PROGRESS * best:
            if near_count <= FEWEST_NEAR:
                break
            near_count, share = max(FEWEST_NEAR, near_count // 4), 1.0
        step = _newton_step(diff, slope, distance, best_force, near_count)
    return best_force


def _newton_step(diff: Floats, slope: Floats, distance: Floats, force: Floats, near_count: int) -> Floats:
    """Return the Newton step from the given multipliers, as an array of shape (r,).

    Args:
        diff: (r, N) The advantages of the photos.
        slope: (r,) The gradient of the bound.
        distance: (N,) The absolute value of each photo's term before the maximum with 0 is taken. Infinite for photos
            that must be kept.
        force: (r,) The multipliers.
        near_count: The number of photos from which to estimate the second derivative. The photos whose terms are
            nearest to 0 are used.
    """
    near = np.argpartition(distance, near_count - 1)[:near_count]
    near = near[np.isfinite(distance[near])]
    # A multiplier that is 0 must not decrease, so it is left alone if the bound would rise with it.
    moves = (force > 0.0) | (slope < 0.0)
    step = np.zeros(len(force))
    if near.size and moves.any():
        near_diff = diff[np.ix_(moves, near)]
        # The terms of these photos change sign within an interval of twice the largest distance, which gives their
        # density.
        curvature = near_diff @ near_diff.T / (2.0 * max(float(distance[near].max()), TINY))
        # The diagonal is raised a little, so that the matrix is regular even if two locations have the same advantages.
        curvature += (1e-9 * np.trace(curvature) + TINY) * np.eye(len(curvature))
        step[moves] = -np.linalg.solve(curvature, slope[moves])
    return step
