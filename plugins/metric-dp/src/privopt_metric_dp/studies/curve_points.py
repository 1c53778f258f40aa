"""The points of a curve: one mechanism at one epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, slices
from privopt.interfaces import UtilityLoss
from privopt_metric_dp.attacks.matrix_figures import bayes_error
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData, MetricInstance

__all__ = ["OF_RELEASE", "Point", "Status", "adversary_error", "point_of"]

OF_RELEASE: Final = ("bayes_error", "error_p50", "error_p95", "epsilon_achieved", "adversary_error")
"""Figures of a point that its release has, whichever epsilon it stands at."""

BLOCK: Final = 1 << 24
"""Entries of a block of expected losses, at most."""

Status = Literal["optimal", "feasible", "infeasible", "stopped", "refused"]


@frozen(kw_only=True)
class Point:
    """One mechanism at one epsilon. Figures are None where nothing was found.

    Attributes:
        mechanism: its name.
        epsilon: exact.
        loss: of a certified release.
        lower_bound: proved for every release with this promise.
        gap: relative, as in result.json.
        bayes_error: how often an attacker's best guess from one report is wrong, under the prior.
        error_p50, error_p95: quantiles of the distance from record to report, under the prior.
        seconds: that it took.
        status: "optimal" where the gap asked for is met, else "feasible"; "infeasible", "stopped"; "refused" by a
            mechanism that cannot take the problem.
        epsilon_achieved: the least epsilon that the release keeps over the required pairs, exact and rounded up.
        adversary_error: expected loss of the attacker's best guess from one report under the prior, in the loss's own
            unit, among the outputs. None where the loss is not one of single reports.
    """

    mechanism: str
    epsilon: Fraction
    loss: float | None = None
    lower_bound: float | None = None
    gap: float | None = None
    bayes_error: float | None = None
    error_p50: float | None = None
    error_p95: float | None = None
    seconds: float = 0.0
    status: Status = "stopped"
    epsilon_achieved: float | None = None
    adversary_error: float | None = None


def point_of(
    name: str,
    epsilon: Fraction,
    release: MatrixRelease,
    problem: MetricInstance[Any],
    loss: UtilityLoss[MatrixRelease],
    achieved: float | None,
) -> Point:
    """Return a certified release as a point, its bound and status to come.

    Args:
        name, epsilon: of the point.
        release: certified, of the problem's records, or of some of them.
        problem: with its prior and distances.
        loss: by which the release, and the guesses of an attacker, are judged.
        achieved: the least epsilon that the release keeps.
    """
    rows, prior = release.probabilities, problem.data.prior
    chosen = problem.data.records.numbers(release.records.tolist())  # all, or the senders alone
    prior = prior[chosen] / prior[chosen].sum()
    mass = np.zeros(problem.data.shape)
    mass[chosen] = prior[:, None] * rows
    middle, most = _error_quantiles(problem.data, mass)
    return Point(
        mechanism=name,
        epsilon=epsilon,
        loss=loss.evaluate(release),
        bayes_error=bayes_error(rows, prior),
        error_p50=middle,
        error_p95=most,
        status="feasible",
        epsilon_achieved=achieved,
        adversary_error=adversary_error(rows, loss.weighted) if isinstance(loss, ExpectedLoss) else None,
    )


def _error_quantiles(data: MetricData, mass: Floats) -> Sequence[float | None]:
    """Return the distances from record to report that hold half and 95 % of the mass (N, K); None where not known."""
    if not data.crossed:
        return None, None
    distances = (data.to_outputs if data.region is None else data.distance.to_outputs()).ravel()
    order = np.argsort(distances, kind="stable")
    cumulated = np.cumsum(mass.ravel()[order])
    places = np.searchsorted(cumulated, np.array([0.5, 0.95]) * cumulated[-1])
    quantiles: list[float] = distances[order[np.minimum(places, len(order) - 1)]].tolist()
    return quantiles


def adversary_error(probabilities: Floats, weighted: Floats) -> float:
    """Return the expected loss of the best guess at the record behind one report (Shokri et al., S&P 2011).

    For output k an attacker who knows the prior guesses the output y with the least sum_i p_i z_ik c_iy. The result is
    at most the loss of the release, which takes each output for itself.

    Args:
        probabilities: (N, K) z.
        weighted: (N, K) p_i c_ik.

    Notes:
        N K^2 multiplications, in blocks.
    """
    used = np.flatnonzero(probabilities.any(axis=0))
    count = probabilities.shape[1]
    parts = [used[part] for part in slices(len(used), count, BLOCK)]
    return math.fsum(least for part in parts for least in (probabilities[:, part].T @ weighted).min(axis=1).tolist())
