"""Asymptotic profile-likelihood intervals for sums of shares that are estimated from noisy reports.

The interval of h . pi holds the values v for which the best shares with h . pi = v lie at most chi-squared / 2n below
the maximum, per report. Those shares are found without constraints. For T = 1 + c h > 0 the shares that maximise the
log-likelihood less ln(T . pi) are the best among all with their own h . pi. With T_i pi_i as the unknown this is a
plain maximum likelihood over the columns z_ik / T_i. As c goes from -1 to infinity, v goes from its greatest to 0.

Each such fit also bounds the profile at every other v: it is at most the fit's objective, its gap and ln(1 + c v'). A
v' at which this has fallen far enough is an end that is never inside the true one, however well the fit went. That also
holds if v jumps as c grows, as it does with few reports. The tightest end among those tried is used.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from privopt.arrays import Floats
from privopt.estimate.likelihood import fit
from privopt.interfaces import Progress

MAX_LOG_TILT: Final = 40.0
"""|ln T| at which h . pi is at its end."""

FALL_TOLERANCE: Final = 0.05
"""Of the fall: how near a fit must come to it. The end that follows is then within 0.1 % of the interval's half."""

MIN_GAP_PER_REPORT: Final = 1e-11
"""Gap of fits, per report, below which rounding keeps them from their end."""

BRACKET_TOLERANCE: Final = 1e-6
"""Width of a bracket, of its end, below which the best shares jump inside it."""


def profile_intervals(
    columns: Floats,
    parts: Floats,
    reports: int,
    functionals: csr_array,
    confidence: float,
    progress: Progress | None = None,
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of each h . pi, (G,) each. Each holds by itself, asymptotically.

    Args:
        columns, parts: as of :func:`privopt.estimate.likelihood.fit`.
        reports: n.
        functionals: (G, N) of zeros and ones, sparse.
        confidence: in (0, 1).
        progress: called with how many are done.

    Notes:
        Some fifteen fits an interval, and never an end that is not found: with less patience it is only farther out.
    """
    drop, gap = _allowed_drop(confidence, reports), gap_for(confidence, reports)
    best_log_likelihood = fit(columns, parts, gap=gap).log_likelihood
    bounds = np.zeros((2, functionals.shape[0]))
    for row in range(bounds.shape[1]):
        h = functionals[[row]].toarray()[0]
        for bound_number, sign in enumerate((1.0, -1.0)):
            bounds[bound_number, row] = _find_end(
                columns, parts, best_log_likelihood - drop, h, gap, FALL_TOLERANCE * drop, sign
            )
        if progress is not None:
            progress(f"interval {row + 1:,} of {bounds.shape[1]:,}", row, None, None)
    return bounds[0], bounds[1]


def _allowed_drop(confidence: float, reports: int) -> float:
    """Return how far the profile may fall inside an interval, per report (Wilks)."""
    from scipy.stats import chi2

    return float(chi2.ppf(confidence, 1)) / (2 * reports)


def gap_for(confidence: float, reports: int) -> float:
    """Return the gap, per report, that does not widen intervals: a small part of the profile's margin inside them."""
    return max(MIN_GAP_PER_REPORT, min(1e-6, _allowed_drop(confidence, reports) / 50))


def _find_end(
    columns: Floats, parts: Floats, level: float, h: Floats, gap: float, tolerance: float, sign: float
) -> float:
    """Return where the profile is at ``level``, below (sign 1) or above (sign -1) the maximum, or farther out."""
    # Tilted without end, the shares lie on the records of this edge alone, where h . pi is 0 or 1.
    is_on_edge = h == 0 if sign > 0 else h == 1
    if not is_on_edge.any() or is_on_edge.all():
        return 0.0 if sign > 0 else 1.0 if h.any() else 0.0
    edge_columns = columns[is_on_edge]
    if (edge_columns.max(axis=0) > 0).all():
        edge_fit = fit(edge_columns, parts, gap=gap)
        if edge_fit.log_likelihood + edge_fit.gap >= level:
            return 0.0 if sign > 0 else 1.0
    proved_ends: list[float] = []

    def measure_excess(log_tilt: float) -> float:
        """Return how far the best shares at ln T = u are above the level; append the end that they prove."""
        t = np.exp(sign * log_tilt * h)
        tilted_fit = fit(columns / t[:, None], parts, gap=gap)
        # Weak duality for the tilted problem: beyond this value the profile lies below the level, whatever the fit.
        proved_ends.append(math.expm1(level - tilted_fit.log_likelihood - tilted_fit.gap) / math.expm1(sign * log_tilt))
        return tilted_fit.log_likelihood - math.log(float((tilted_fit.shares / t).sum())) - level

    low, high = 0.0, 0.1
    excess = measure_excess(high)
    while excess > tolerance and high <= MAX_LOG_TILT:  # it falls with u: double until it is passed
        low, high = high, 2 * high
        excess = measure_excess(high)
    while abs(excess) > tolerance and BRACKET_TOLERANCE * high < high - low and high <= MAX_LOG_TILT:
        # The excess falls as the tilt grows, so that bisection finds its zero.
        middle = 0.5 * (low + high)
        excess = measure_excess(middle)
        low, high = (middle, high) if excess > 0 else (low, middle)
    return min(1.0, max(0.0, max(proved_ends) if sign > 0 else min(proved_ends)))
