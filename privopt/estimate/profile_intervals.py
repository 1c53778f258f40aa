"""Asymptotic profile-likelihood intervals for sums of shares that were estimated from noisy reports.

Let pi be the shares of the records, and h the vector with a 1 for each record in a group and 0 elsewhere, so that
h . pi is the group's share. The profile at a value v is the greatest log-likelihood, per report, of shares with
h . pi = v. The interval consists of the values v at which the profile is at most chi-squared / 2n below its maximum,
where n is the number of reports and chi-squared is the chi-squared quantile for the confidence level.

The profile is found without imposing this constraint. Let c be a number such that all entries of the vector T = 1 + c h
are positive. Let v be the value of h . pi for the shares that maximise the log-likelihood minus ln(T . pi). These
shares have the greatest log-likelihood of all shares with h . pi = v. With T_i pi_i as the unknowns, finding them is an
ordinary maximum likelihood problem with the probabilities z_ik / T_i, where z_ik is the probability of output k given
record i. As c grows from -1 to infinity, v falls from its largest value to 0.

Each such fit also bounds the profile at every other value v': the profile is at most the sum of the fit's objective,
the fit's gap and ln(1 + c v'). If this bound is low enough at v', then v' is a valid end for the interval: it never
lies inside the exact interval, however inaccurate the fit is. This also holds if v jumps as c grows, as it does with
few reports. The tightest of all ends found is used.
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
"""The value of |ln T| beyond which the search for an end stops. h . pi is then practically at the end of its range."""

FALL_TOLERANCE: Final = 0.05
"""The largest distance between the profile at an interval's end and the required level, relative to the allowed drop.

This tolerance shifts the end by at most 0.1 % of the interval's half width.
"""

MIN_GAP_PER_REPORT: Final = 1e-11
"""The smallest gap per report requested of a fit. Rounding errors prevent smaller gaps."""

BRACKET_TOLERANCE: Final = 1e-6
"""The bracket width at which bisection stops, relative to the bracket's upper end.

A bracket becomes this narrow only if the best shares jump inside it.
"""


def profile_intervals(
    columns: Floats,
    parts: Floats,
    reports: int,
    functionals: csr_array,
    confidence: float,
    progress: Progress | None = None,
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds on each group's share h . pi, as two (G,) arrays.

    The confidence level holds asymptotically, and for each interval individually rather than for all simultaneously.

    Args:
        columns: (N, K) The probability of each reported output given each record.
        parts: (K,) Each output's fraction of all reports. The fractions sum to 1.
        reports: The number of reports, n.
        functionals: Sparse matrix of shape (G, N) with entries 0 and 1, whose rows are the vectors h.
        confidence: The confidence level, in (0, 1).
        progress: A function to call with the number of finished intervals, or None.

    Notes:
        An interval takes about fifteen fits. An end that is not found exactly lies outside the exact interval, never
        inside.
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
    """Return the amount by which the profile log-likelihood per report may fall below its maximum within an interval.

    The drop follows from Wilks' theorem.
    """
    from scipy.stats import chi2

    return float(chi2.ppf(confidence, 1)) / (2 * reports)


def gap_for(confidence: float, reports: int) -> float:
    """Return a log-likelihood gap, per report, that is too small to widen the intervals noticeably.

    It is a small fraction of the drop in the profile log-likelihood that an interval allows.
    """
    return max(MIN_GAP_PER_REPORT, min(1e-6, _allowed_drop(confidence, reports) / 50))


def _find_end(
    columns: Floats, parts: Floats, level: float, h: Floats, gap: float, tolerance: float, sign: float
) -> float:
    """Return the value of h . pi where the profile log-likelihood falls to ``level``, or a value farther out.

    The profile log-likelihood at a value is the greatest log-likelihood among all shares pi for which h . pi has this
    value.

    Args:
        columns: (N, K) The probability of each reported output given each record.
        parts: (K,) Each output's fraction of all reports.
        level: The log-likelihood, per report, at the end of the interval.
        h: (N,) The vector h, with entries 0 and 1. The interval is for h . pi.
        gap: The distance from the maximum log-likelihood, per report, at which each fit stops.
        tolerance: The largest distance between the profile and the level, in log-likelihood per report.
        sign: 1 for the lower end of the interval, -1 for the upper end.
    """
    # As the tilt grows, the shares concentrate on the records on this edge, where h . pi is 0 or 1.
    is_on_edge = h == 0 if sign > 0 else h == 1
    # If all entries of h are equal, h . pi equals them. (If they are 1, the lower end 0 is valid but loose.)
    if not is_on_edge.any() or is_on_edge.all():
        return 0.0 if sign > 0 else 1.0 if h.any() else 0.0
    edge_columns = columns[is_on_edge]
    # If shares on the edge alone can produce all reports and are likely enough, the interval extends to the edge.
    if (edge_columns.max(axis=0) > 0).all():
        edge_fit = fit(edge_columns, parts, gap=gap)
        if edge_fit.log_likelihood + edge_fit.gap >= level:
            return 0.0 if sign > 0 else 1.0
    proved_ends: list[float] = []

    def measure_excess(log_tilt: float) -> float:
        """Return the amount by which the profile exceeds the level in a fit at a given tilt.

        The interval end proved by this fit is also stored. The tilt T is described in the module's docstring.

        Args:
            log_tilt: |ln T|, which is positive. T tilts the likelihood against the records with h = 1 if ``sign`` is 1,
                and in their favour otherwise.
        """
        t = np.exp(sign * log_tilt * h)
        tilted_fit = fit(columns / t[:, None], parts, gap=gap)
        # By weak duality for the tilted problem, the profile is below the level beyond this value, however good the
        # fit.
        proved_ends.append(math.expm1(level - tilted_fit.log_likelihood - tilted_fit.gap) / math.expm1(sign * log_tilt))
        return tilted_fit.log_likelihood - math.log(float((tilted_fit.shares / t).sum())) - level

    low, high = 0.0, 0.1
    excess = measure_excess(high)
    # The excess falls as the tilt grows, so the tilt is doubled until the level is passed.
    while excess > tolerance and high <= MAX_LOG_TILT:
        low, high = high, 2 * high
        excess = measure_excess(high)
    while abs(excess) > tolerance and BRACKET_TOLERANCE * high < high - low and high <= MAX_LOG_TILT:
        middle = 0.5 * (low + high)
        excess = measure_excess(middle)
        low, high = (middle, high) if excess > 0 else (low, middle)
    # Every fit proves an end. Use the tightest.
    return min(1.0, max(0.0, max(proved_ends) if sign > 0 else min(proved_ends)))
