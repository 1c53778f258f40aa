"""Estimate what noise at the position itself would lose over a region, for comparison with a mechanism on a mesh.

The estimate is not a bound. Planar Laplace noise has a density proportional to ``exp(-epsilon d)`` around a person's
position, so it satisfies epsilon between any two positions without a mesh, and a report can be replaced by the best
guess under the prior: the median of the posterior. The mechanism ``spherical-laplace`` draws such noise exactly.
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
"""Largest number of equally likely positions that represent all people."""
SPACING: Final = 0.3
"""Distance between these representatives, in units of 1 / epsilon, from which their number follows."""
REACH: Final = 8.0
"""Distance from a noisy position beyond which people are left out, in units of 1 / epsilon."""
REPORTS: Final = 600
"""Number of noisy positions that are drawn."""
WEISZFELD_STEPS: Final = 12
"""Number of steps of Weiszfeld's algorithm, with which the best guess for a report is computed."""
MOST_NOISE_LENGTHS: Final = 1e12
"""Largest coordinate of a position in units of 1 / epsilon, up to which the estimate is made."""


def people_over_region(data: MetricData, *, at_records: bool) -> tuple[Floats, Floats]:
    """Return positions (Q, 2) in km of the people of a problem over a plane, and their probabilities (Q,).

    Args:
        data: The problem's data, with a region.
        at_records: Whether people are at the records, as the prior says, and not evenly over the region.
    """
    assert data.region is not None  # the caller asks for a region
    if at_records and data.records.coordinates is not None:
        places, shares = data.records.coordinates, data.prior
    else:
        spread = spread_evenly(data.region, data.epsilon, data.records)
        places, shares = spread.places, spread.mass
    if data.records.kind == "geographic":
        # From degrees to km, as if the region were flat, which is accurate enough for an estimate.
        scale = np.radians(EARTH_RADIUS_KM)
        places = places * [scale, scale * np.cos(np.radians(places[:, 0].mean()))]
    return places, shares


def estimate_noise_loss(people: Floats, shares: Floats, epsilon: float, *, report_count: int = REPORTS) -> float:
    """Estimate the expected distance in km to a report of remapped Laplace noise, to about two per cent.

    Args:
        people: (Q, 2) positions in km.
        shares: (Q,) their probabilities.
        epsilon: Epsilon per km.
        report_count: Number of noisy positions that are drawn; with four times as many the error is about half.

    Returns:
        The estimate, which is at most 2 / epsilon, the mean distance without a remap.
    """
    from scipy.spatial import KDTree

    unmapped = 2.0 / epsilon
    # Beyond the digits of doubles the noise would be lost next to the positions, and squares of these could overflow.
    if np.abs(people).max() * epsilon > MOST_NOISE_LENGTHS:
        return unmapped
    people = people * epsilon  # in units of 1 / epsilon from here on
    # About as many people as points at a distance of SPACING in the box around them, within limits.
    count = int(min(MOST_PEOPLE, max(REPORTS, np.prod(np.ptp(people, axis=0) / SPACING + 1.0))))
    if len(people) > count:
        people, shares = _choose_people(people, shares, count), np.full(count, 1.0 / count)
    # The same reports at each call. They only serve an estimate, and nobody's position is among them.
    chance = np.random.default_rng(0)
    # In units of 1 / epsilon, the distance of planar Laplace noise has the gamma distribution of shape 2.
    radii, bearings = chance.gamma(2.0, size=report_count), chance.uniform(0.0, 2.0 * np.pi, report_count)
    noise = radii[:, None] * np.stack([np.cos(bearings), np.sin(bearings)], axis=1)
    # People in random order, each with a draw of the noise.
    reports = _choose_people(people, shares, report_count)[chance.permutation(report_count)] + noise
    losses = []
    for report, near in zip(reports, KDTree(people).query_ball_point(reports, REACH), strict=True):
        if not near:  # so rare that it may be left out of an estimate
            continue
        places = people[near]
        # The posterior of the people near the report, up to scale: prior times the density of the noise.
        weights = shares[near] * np.exp(-np.hypot(*(places - report).T))
        # Weiszfeld's algorithm for the point of the smallest mean distance to the people, the best guess.
        best = weights @ places / weights.sum()
        for _ in range(WEISZFELD_STEPS):
            # Each person pulls with its weight over its distance. The floor avoids a division by 0 at a person.
            pull = weights / np.maximum(np.hypot(*(places - best).T), 1e-6)
            best = pull @ places / pull.sum()
        losses.append(float(weights @ np.hypot(*(places - best).T) / weights.sum()))
    return min(unmapped, float(np.mean(losses)) / epsilon) if losses else unmapped


def _choose_people(people: Floats, shares: Floats, count: int) -> Floats:
    """Return (count, 2) positions of people, one for each equal step of their cumulated probability."""
    # People are ordered by triangle or row, so equal steps spread over the region.
    levels = (np.arange(count) + 0.5) / count * shares.sum()
    return np.asarray(people[np.minimum(np.searchsorted(np.cumsum(shares), levels), len(people) - 1)])
