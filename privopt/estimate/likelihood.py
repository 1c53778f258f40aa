"""Maximum likelihood estimation from counts of reports. This convex problem is solved to a proved duality gap.

Let pi be the shares of the records, and z_ik the probability of output k given record i. Output k then has probability
m_k = sum_i pi_i z_ik. If output k was reported n_k times among n reports, the log-likelihood is sum_k n_k ln m_k, which
is concave in pi. Let D_i = sum_k n_k z_ik / m_k. By Jensen's inequality, the log-likelihood of pi is below the maximum
by at most n ln(max_i D_i / n).

The iterative Bayesian update pi_i D_i / n converges to the same maximum, but slowly. The interior point method here
needs about twenty steps. It starts from uniform shares, so that it finds a central maximum if there are many maxima.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, read_only
from privopt.errors import SolverError
from privopt.interfaces import Progress

MOST_STEPS: Final = 300
"""The maximum number of interior point steps."""
MIN_WEIGHT_SHARE: Final = 1e-14
"""The weight, as a fraction of the largest one, at or below which a record is omitted from a step's equations."""

MAX_STALLED_STEPS: Final = 15
"""The number of steps without a smaller gap after which the method restarts in the interior, near the best shares."""

MIN_RESIDUAL_SHARE: Final = 0.1
"""The smallest target for the complementarity p s, relative to the residual of slope + s = 1 (:func:`_take_step`).

This minimum keeps either equation from being satisfied much sooner than the other.
"""

DIAGONAL_RIDGE: Final = 1e-13
"""The amount added to a unit diagonal. Without it, rounding could make a matrix for nearly identical records
indefinite."""


@frozen(kw_only=True, eq=False)
class Fit:
    """Shares that maximise the likelihood of the reports.

    Attributes:
        shares: (N,) The records' shares, which are positive and sum to 1.
        gap: A proved bound on how far the log-likelihood is below its maximum, per report. For smooth shares, the
            maximum is taken over mixtures with the same resolution.
        log_likelihood: The log-likelihood of these shares, per report.
        whole_gap: A proved bound on how far the log-likelihood is below its maximum over all distributions, per report.
        resolution: The resolution of smooth shares, in the same units as distances, or 0 if all distributions were
            allowed.
    """

    shares: Floats
    gap: float
    log_likelihood: float
    whole_gap: float
    resolution: float = 0.0


def gap_of(shares: Floats, columns: Floats, parts: Floats) -> float:
    """Return an upper bound on how far the log-likelihood per report at the given shares is below its maximum.

    The bound is the logarithm of the largest derivative of the log-likelihood per report with respect to a share, or 0
    if the logarithm is negative.

    Args:
        shares: (N,) The shares, which sum to 1.
        columns: (N, K) The probability of each report given each record.
        parts: (K,) Each output's fraction of all reports. The fractions sum to 1.
    """
    slope = columns @ (parts / (shares @ columns))
    return max(0.0, math.log(float(slope.max())))


def fit(columns: Floats, parts: Floats, *, gap: float = 1e-6, progress: Progress | None = None) -> Fit:
    """Return the shares that maximise the likelihood of the reports.

    Args:
        columns: (N, K) The probability of each reported output given each record. Each of these outputs has a positive
            probability for at least one record.
        parts: (K,) Each output's fraction of all reports. The fractions are positive and sum to 1.
        gap: The method stops once the log-likelihood per report is proved to be within this distance of its maximum.
        progress: A function to call with the gap after each step, or None.

    Raises:
        SolverError: The requested gap was not reached.

    Notes:
        A step takes about N K min(N, K) multiplications: 0.3 s at N = K = 2,000 on two free cores, 1 ms at 100.
    """
    count = len(columns)
    # p are the shares, not yet scaled to sum to 1, and s are the multipliers for p >= 0. The minimum for the
    # multipliers (0.1, or 0.001 near the optimum) only serves to start away from the boundary.
    p, s = _start_point(np.full(count, 1.0 / count), columns, parts, 0.1)
    best_gap, best_shares, best_step = math.inf, p, 0
    for step in range(MOST_STEPS):
        # The gap is proved only for shares that sum to 1, which the iterates do only at the optimum.
        shares = p / p.sum()
        current_gap = gap_of(shares, columns, parts)
        if current_gap < best_gap:
            best_gap, best_shares, best_step = current_gap, shares, step
        if progress is not None:
            progress(f"likelihood: gap {best_gap:.2g} per report", step, None, None)
        if best_gap <= gap:
            value = float(parts @ np.log(best_shares @ columns))
            return Fit(shares=read_only(best_shares), gap=best_gap, log_likelihood=value, whole_gap=best_gap)
        if step - best_step >= MAX_STALLED_STEPS:
            # Near the boundary the steps can stall. Restart from the best shares, mixed with a small part of uniform
            # shares.
            best_step = step
            p, s = _start_point(0.999 * best_shares + 0.001 / count, columns, parts, 1e-3)
        p, s = _take_step(p, s, columns, parts)
    raise SolverError(f"the likelihood's gap must be {gap:g} per report, got {best_gap:.3g} after {MOST_STEPS} steps")


def _start_point(p: Floats, columns: Floats, parts: Floats, minimum: float) -> tuple[Floats, Floats]:
    """Return an interior starting point: the shares p themselves, and multipliers of at least ``minimum``.

    Both are arrays of shape (N,). A point is interior if all shares and multipliers are positive.

    Args:
        p: (N,) The shares, which are positive and sum to 1.
        columns: (N, K) The probability of each report given each record.
        parts: (K,) Each output's fraction of all reports.
        minimum: The minimum value of the multipliers.
    """
    slope = columns @ (parts / (p @ columns))
    return p, np.maximum(minimum, 1.0 - slope)


def _take_step(p: Floats, s: Floats, columns: Floats, parts: Floats) -> tuple[Floats, Floats]:
    """Take one step of Mehrotra's predictor-corrector method towards the optimality conditions.

    The conditions are slope + s = 1 and p s = mu. The slope is the derivative of the log-likelihood per report with
    respect to each share, and mu is a positive target that decreases towards 0.

    Args:
        p: (N,) The shares, which are positive. They sum to 1 if both equations hold.
        s: (N,) The multipliers for p >= 0, which are positive.
        columns: (N, K) The probability of each report given each record.
        parts: (K,) Each output's fraction of all reports. The fractions sum to 1.

    Returns:
        The next p and s, both positive.
    """
    mass = p @ columns
    # The log-likelihood's slope minus 1, which is the slope's largest value at the optimum.
    excess = columns @ (parts / mass) - 1.0
    # With ds eliminated, Newton's equations are (Z diag(parts / mass^2) Z' + diag(s / p)) dp = right-hand side.
    solve = _Newton(columns, mass**2 / parts, p / s)
    mu = float(p @ s) / len(p)
    # The predictor aims at mu = 0, so its right-hand side, (excess + s) + (0 - p s) / p, is just the excess.
    dp = solve(excess)
    ds = -s - s * dp / p
    predicted_mu = (p + _step_length(p, dp) * dp) @ (s + _step_length(s, ds) * ds) / len(p)
    # Mehrotra's heuristic: the better the predictor step, the smaller the target for the complementarity p s.
    goal = mu * min(1.0, max(0.0, float(predicted_mu) / mu)) ** 3
    goal = max(goal, min(mu, MIN_RESIDUAL_SHARE * float(p @ np.abs(excess + s)) / len(p)))
    # The corrector aims at p s = goal, and takes the predictor's second-order term dp ds into account.
    target = goal - p * s - dp * ds
    dp = solve(excess + s + target / p)
    ds = (target - s * dp) / p
    return p + _step_length(p, dp) * dp, s + _step_length(s, ds) * ds


def _step_length(values: Floats, step: Floats) -> float:
    """Return 99.5 % of the step length at which the first value reaches 0, but at most 1."""
    return float(min(1.0, 0.995 / max(1e-300, float((-step / values).max()))))


class _Newton:
    """A factorisation of Z diag(1 / v) Z' + diag(1 / t), for solving Newton's equations with several right-hand sides.

    Z contains the probability of each report given each record, Z' is its transpose, and v and t are positive vectors.
    If there are at most as many outputs as records, the Woodbury identity reduces the system to one over the outputs.

    Attributes:
        t: (N,) The vector t.
        by_reports: Whether the system was reduced to one over the outputs.
        columns, is_kept: For a reduced system, Z without the records that have almost no weight, and a mask of the
            remaining records.
        size: The square roots of the matrix's diagonal, by which the matrix was scaled to a unit diagonal.
        factor: The Cholesky factor of the scaled matrix, as stored by SciPy.
    """

    def __init__(self, columns: Floats, v: Floats, t: Floats) -> None:
        """Factorise the matrix.

        Args:
            columns: (N, K) The matrix Z, which contains the probability of each report given each record.
            v: (K,) The vector v, with positive entries.
            t: (N,) The vector t, with positive entries.
        """
        from scipy.linalg import cho_factor

        self.t, self.by_reports = t, columns.shape[1] <= columns.shape[0]
        if self.by_reports:
            # Over the outputs, the matrix is Z' diag(t) Z + diag(v). Omitting records with almost no weight saves time
            # and does not change it noticeably.
            is_kept = t > MIN_WEIGHT_SHARE * t.max()
            self.columns, self.is_kept = columns[is_kept], is_kept
            scaled = self.columns * np.sqrt(t[is_kept])[:, None]
            matrix = scaled.T @ scaled
            matrix[np.diag_indices_from(matrix)] += v
        else:
            scaled = columns / np.sqrt(v)
            matrix = scaled @ scaled.T
            matrix[np.diag_indices_from(matrix)] += 1.0 / t
        self.size = np.sqrt(matrix.diagonal())
        # Scaling to a unit diagonal keeps the Cholesky factor accurate.
        matrix /= self.size[:, None]
        matrix /= self.size
        matrix[np.diag_indices_from(matrix)] += DIAGONAL_RIDGE
        self.factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

    def _solve_inner(self, y: Floats) -> Floats:
        """Solve a system with the factorised matrix, undoing the scaling to a unit diagonal."""
        from scipy.linalg import cho_solve

        solution: Floats = cho_solve(self.factor, y / self.size, check_finite=False) / self.size
        return solution

    def __call__(self, y: Floats) -> Floats:
        """Return the solution x for a right-hand side y. Both have shape (N,)."""
        if not self.by_reports:
            return self._solve_inner(y)
        # Woodbury: x = t y - t Z (Z' diag(t) Z + diag(v))^-1 Z' t y.
        x = self.t * y
        x[self.is_kept] -= self.t[self.is_kept] * (self.columns @ self._solve_inner(self.columns.T @ x[self.is_kept]))
        return x
