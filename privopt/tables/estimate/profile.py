"""Asymptotic intervals by profile likelihood.

The interval of h . pi holds the values v for which the best shares with h . pi = v lie at most chi-squared / 2n below
the maximum, per report. Those shares are found without constraints: for T = 1 + c h > 0 the shares that maximise the
log-likelihood less ln(T . pi) are the best among all with their own h . pi, and T_i pi_i as the unknown turns that into
a plain maximum likelihood over the columns z_ik / T_i. As c goes from -1 to infinity, v goes from its greatest to 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Floats
from privopt.errors import SolverError
from privopt.interfaces import Progress
from privopt.tables.estimate.likelihood import Fit, fit

__all__ = ["profile_intervals"]

FARTHEST: Final = 40.0
"""|ln T| at which h . pi is at its end."""


def profile_intervals(
    columns: Floats,
    parts: Floats,
    reports: int,
    best: Fit,
    functionals: Floats,
    confidence: float,
    progress: Progress | None = None,
) -> tuple[Floats, Floats]:
    """Lower and upper bounds of each h . pi, (G,) each; each holds by itself with the confidence, asymptotically.

    Args:
        columns, parts: as of :func:`privopt.tables.estimate.likelihood.fit`.
        reports: n.
        best: their fit.
        functionals: (G, N) of zeros and ones.
        confidence: in (0, 1).
        progress: told how many are done.

    Notes:
        Some fifteen fits an interval.
    """
    from scipy.stats import chi2

    drop = float(chi2.ppf(confidence, 1)) / (2 * reports)
    ends = np.zeros((2, len(functionals)))
    for row, h in enumerate(functionals):
        for side, sign in enumerate((1.0, -1.0)):
            ends[side, row] = _end(columns, parts, best, h, drop, sign)
        if progress is not None:
            progress(f"interval {row + 1:,} of {len(functionals):,}", row, None, None)
    return ends[0], ends[1]


def _end(columns: Floats, parts: Floats, best: Fit, h: Floats, drop: float, sign: float) -> float:
    """Where the profile has fallen by ``drop``, below (sign 1) or above (sign -1) the maximum."""
    edge = h == 0 if sign > 0 else h == 1
    if not edge.any() or edge.all():
        return 0.0 if sign > 0 else 1.0 if h.any() else 0.0
    rest = columns[edge]
    tight = min(1e-6, drop / 50)
    if (rest.max(axis=0) > 0).all():
        at_edge = fit(rest, parts, gap=tight)
        if best.log_likelihood - at_edge.log_likelihood <= drop:
            return 0.0 if sign > 0 else 1.0

    def tilted(u: float) -> tuple[float, float]:
        t = np.exp(sign * u * h)
        found = fit(columns / t[:, None], parts, gap=tight)
        shares = found.shares / t
        shares /= shares.sum()
        fallen = best.log_likelihood - float(parts @ np.log(shares @ columns))
        return float(h @ shares), fallen - drop

    low, high = 0.0, 0.1
    value, over = tilted(high)
    while over < 0:  # the fall grows with u: double until it is passed
        if high > FARTHEST:
            return value
        low, high = high, 2 * high
        value, over = tilted(high)
    for _ in range(60):
        if abs(over) <= 0.01 * drop:
            return value
        middle = 0.5 * (low + high)
        value, over = tilted(middle)
        low, high = (low, middle) if over >= 0 else (middle, high)
    raise SolverError("an interval's end was not found")
