"""Keys of the problem file of the mechanism predictive."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.declare.schema import key, non_negative, positive
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.traces.prediction import Terms

__all__ = ["PredictiveKeys", "PredictiveProblem"]

_SHARE_PARTS = 8  # shares are few round numbers: no last bit of a distance shall decide


@frozen(kw_only=True)
class PredictiveKeys:
    """Options of predictive; every epsilon is per unit of distance, as ``privacy.epsilon``, that of a fresh report."""

    good_within: Fraction | None = key(
        None,
        help="distance up to which the last report is good; default: 2 / epsilon + 3 / test_epsilon",
        unit="units of distance",
        check=non_negative,
    )
    threshold_epsilon: Fraction | None = key(
        None,
        help="of a segment's noisy threshold; default: half of epsilon to all of it, by the map",
        unit="per unit",
        check=positive,
    )
    test_epsilon: Fraction | None = key(
        None,
        help="of the noise of each test; default: half of epsilon to all of it, by the map",
        unit="per unit",
        check=positive,
    )
    total: Fraction | None = key(
        None,
        help="what a subject may spend in one table: no report comes after; default: no limit",
        unit="per unit",
        check=positive,
    )


@frozen(kw_only=True)
class PredictiveProblem(MetricProblem):
    """A metric problem, and how traces are reported."""

    predictive: PredictiveKeys = key(factory=PredictiveKeys, help="options of predictive")

    def terms(self, data: MetricData) -> Terms:
        """Return the epsilons and the distance that the keys imply; data give what is omitted (ADR 16)."""
        report, keys = Fraction(self.privacy.epsilon), self.predictive
        part_epsilon = (
            report * _part_of_epsilon(report, data)
            if keys.test_epsilon is None or keys.threshold_epsilon is None
            else report
        )
        test = keys.test_epsilon or part_epsilon
        return Terms(
            report=report,
            threshold=keys.threshold_epsilon or part_epsilon,
            test=test,
            good_within=2 / report + 3 / test if keys.good_within is None else keys.good_within,
            total=keys.total,
        )


def _part_of_epsilon(report: Fraction, data: MetricData) -> Fraction:
    """Share of a report's epsilon that threshold and tests get: the least from 1/2 with good_within on the map's scale.

    That scale is how far one output for all is off, by the prior. A last report that is farther is worth nothing.
    """
    distances = data.to_outputs if data.region is None else data.distance.to_outputs()
    is_finite = np.isfinite(distances)
    scale = float((data.prior @ np.where(is_finite, distances, distances[is_finite].max(initial=0.0))).min())
    scale *= 1.0 + 2.0**-30  # even numbers meet the limit exactly, on every machine
    eighths = (Fraction(n, _SHARE_PARTS) for n in range(_SHARE_PARTS // 2, _SHARE_PARTS))
    return next((part for part in eighths if 2 + 3 / part <= report * Fraction(scale)), Fraction(1))
