"""Estimate the loss of adding noise directly to positions in a region, for comparison with a mechanism on a mesh.

The estimate is not a bound. Planar Laplace noise has a density proportional to ``exp(-epsilon d)`` around a person's
position, so it satisfies the privacy constraint between any two positions without a mesh. Each report is then replaced
by the best guess given the report and the prior, which is the median of the posterior. The ``spherical-laplace``
mechanism draws this kind of noise exactly.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Floats
from privopt.numbers.distances import EARTH_RADIUS_KM
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.loss_over_region import spread_evenly

__all__ = ["estimate_noise_loss", "people_over_region"]

MOST_PEOPLE: Final = 40_000
"""The maximum number of equally likely positions that represent all people."""
SPACING: Final = 0.3
"""The distance between the positions that represent all people, in units of 1 / epsilon.

It determines the number of positions."""
REACH: Final = 8.0
"""The distance from a noisy position, in units of 1 / epsilon, beyond which people are ignored."""
REPORTS: Final = 600
"""The default number of noisy positions to draw."""
WEISZFELD_STEPS: Final = 12
"""The number of steps of Weiszfeld's algorithm, which computes the best guess for a report."""
MOST_NOISE_LENGTHS: Final = 1e12
"""The largest coordinate, in units of 1 / epsilon, for which an estimate is made."""


def people_over_region(data: MetricData, *, at_records: bool) -> tuple[Floats, Floats]:
    """Return positions and probabilities that represent the people in a problem over a planar region.

    Args:
        data: The problem's data, with a region.
        at_records: Whether people are located at the records, with the prior's probabilities. If False, they are spread
            evenly over the region.

    Returns:
        Array of shape (Q, 2) with the positions in km, and an array of shape (Q,) with their probabilities.
    """
    assert data.region is not None  # callers pass only problems with a region
    if at_records and data.records.coordinates is not None:
        places, shares = data.records.coordinates, data.prior
    else:
        spread = spread_evenly(data.region, data.epsilon, data.records)
        places, shares = spread.places, spread.mass
    if data.records.kind == "geographic":
        # Degrees are converted to km as if the region were flat, which is accurate enough for an estimate. The length
        # of a degree of latitude is pi / 180 times the radius.
        scale = np.radians(EARTH_RADIUS_KM)
        places = places * [scale, scale * np.cos(np.radians(places[:, 0].mean()))]
    return places, shares


def estimate_noise_loss(people: Floats, shares: Floats, epsilon: float, *, report_count: int = REPORTS) -> float:
    """Estimate the expected distance in km between a position and its report under Laplace noise with remapping.

    Args:
        people: Array of shape (Q, 2) with positions in km.
        shares: Array of shape (Q,) with the probabilities of these positions.
        epsilon: Epsilon per km.
        report_count: The number of noisy positions to draw. Quadrupling this number roughly halves the error.

    Returns:
        The estimate, which is accurate to about 2 %. It is at most 2 / epsilon, the mean distance without remapping.
    """
    from scipy.spatial import KDTree

    unmapped = 2.0 / epsilon
    # Beyond the precision of doubles, the noise would be lost next to the positions, and squares of these could
    # overflow.
    if np.abs(people).max() * epsilon > MOST_NOISE_LENGTHS:
        return unmapped
    people = people * epsilon  # in units of 1 / epsilon from here on
    # People are represented by about as many positions as fit into the box around them at intervals of SPACING.
    count = int(min(MOST_PEOPLE, max(REPORTS, np.prod(np.ptp(people, axis=0) / SPACING + 1.0))))
    if len(people) > count:
        people, shares = _choose_people(people, shares, count), np.full(count, 1.0 / count)
    # The seed is fixed, so each call draws the same reports. They are used only for an estimate and are never sent.
    chance = np.random.default_rng(0)
    # In units of 1 / epsilon, the distance that planar Laplace noise covers has a gamma distribution with shape 2.
    radii, bearings = chance.gamma(2.0, size=report_count), chance.uniform(0.0, 2.0 * np.pi, report_count)
    noise = radii[:, None] * np.stack([np.cos(bearings), np.sin(bearings)], axis=1)
    # Positions are put in random order, and each gets one draw of the noise.
    reports = _choose_people(people, shares, report_count)[chance.permutation(report_count)] + noise
    losses = []
    for report, near in zip(reports, KDTree(people).query_ball_point(reports, REACH), strict=True):
        if not near:  # this is so rare that an estimate can ignore it
            continue
        places = people[near]
        # The posterior over the positions near the report, up to scale, is the prior times the density of the noise.
        weights = shares[near] * np.exp(-np.hypot(*(places - report).T))
        # The best guess is the point with the smallest mean distance to these positions, which Weiszfeld's algorithm
        # finds.
        best = weights @ places / weights.sum()
        for _ in range(WEISZFELD_STEPS):
            # Each position pulls with its weight divided by its distance. The floor avoids a division by 0.
            pull = weights / np.maximum(np.hypot(*(places - best).T), 1e-6)
            best = pull @ places / pull.sum()
        losses.append(float(weights @ np.hypot(*(places - best).T) / weights.sum()))
    return min(unmapped, float(np.mean(losses)) / epsilon) if losses else unmapped


def _choose_people(people: Floats, shares: Floats, count: int) -> Floats:
    """Choose equally weighted positions that represent people.

    Args:
        people: Array of shape (Q, 2) with positions in km.
        shares: Array of shape (Q,) with the probabilities of these positions.
        count: The number of positions to choose. They are taken at equal steps in cumulative probability.

    Returns:
        Array of shape (count, 2) with the chosen positions.
    """
    # People are ordered by triangle or by row, so equal steps are spread over the region.
    levels = (np.arange(count) + 0.5) / count * shares.sum()
    return np.asarray(people[np.minimum(np.searchsorted(np.cumsum(shares), levels), len(people) - 1)])
