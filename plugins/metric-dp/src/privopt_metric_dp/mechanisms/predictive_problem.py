"""The keys of the ``predictive`` mechanism in problem files, and their default values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.declare.schema import key, non_negative, positive
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.traces.prediction import Terms

__all__ = ["PredictiveKeys", "PredictiveProblem"]

# Shares of epsilon are multiples of an eighth, so that the last bit of a distance hardly ever changes a share.
_SHARE_PARTS = 8


@frozen(kw_only=True)
class PredictiveKeys:
    """The keys of the ``[predictive]`` table.

    Every epsilon is per unit of distance. A fresh report costs ``privacy.epsilon``.
    """

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
        help="what a subject may spend in one table, after which it gets no more reports; default: no limit",
        unit="per unit",
        check=positive,
    )


@frozen(kw_only=True)
class PredictiveProblem(MetricProblem):
    """A metric problem with options for the ``predictive`` mechanism."""

    predictive: PredictiveKeys = key(factory=PredictiveKeys, help="options of predictive")

    def terms(self, data: MetricData) -> Terms:
        """Return the epsilons, the largest distance at which a previous report counts as good, and the total budget.

        Omitted keys get defaults, which ADR 16 explains.

        Args:
            data: The data of the problem. Default epsilons depend on its mean distances.
        """
        report, keys = Fraction(self.privacy.epsilon), self.predictive
        # The default epsilon for thresholds and tests is computed only if one of the two keys is omitted.
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
    """Return the default epsilon of the threshold and of each test, as a fraction of a fresh report's epsilon.

    The fraction is a multiple of 1/8 from 1/2 to 1. It is the smallest one for which the default of ``good_within`` is
    at most the mean distance from the records to the best single output, because a previous report farther away than
    that is no better than that output. If no fraction is large enough, 1 is returned.

    Args:
        report: The epsilon of a fresh report, per unit of distance.
        data: The data of the problem.
    """
    distances = data.to_outputs if data.region is None else data.distance.to_outputs()
    is_finite = np.isfinite(distances)
    # The mean distance to the best single output. Where no path leads to an output, the largest finite distance counts.
    scale = float((data.prior @ np.where(is_finite, distances, distances[is_finite].max(initial=0.0))).min())
    # With round numbers, such as a grid with whole kilometres, the limit can be met exactly. The margin decides such a
    # tie in the same way on every machine, although the last bits of the mean may differ.
    scale *= 1.0 + 2.0**-30
    eighths = (Fraction(n, _SHARE_PARTS) for n in range(_SHARE_PARTS // 2, _SHARE_PARTS))
    # 2 / report + 3 / (part report) <= scale, multiplied by the report's epsilon.
    return next((part for part in eighths if 2 + 3 / part <= report * Fraction(scale)), Fraction(1))
