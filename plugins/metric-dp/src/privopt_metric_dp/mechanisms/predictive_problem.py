"""The keys of the ``predictive`` mechanism in problem files, with their defaults."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.declare.schema import key, non_negative, positive
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.traces.prediction import Terms

__all__ = ["PredictiveKeys", "PredictiveProblem"]

# The shares of epsilon are multiples of 1/8, so that a difference in the last bit of a distance hardly ever changes
# them.
_SHARE_PARTS = 8


@frozen(kw_only=True)
class PredictiveKeys:
    """The keys of the ``[predictive]`` table.

    All epsilons are per unit of distance. A fresh report's epsilon is not one of these keys. It is set by
    ``privacy.epsilon``.
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

        Keys missing from the problem have the defaults explained in ADR 16.

        Args:
            data: The data of the problem. The default epsilons depend on its mean distances.
        """
        report, keys = Fraction(self.privacy.epsilon), self.predictive
        # Thresholds and tests share a default epsilon, which is computed only if one of the two keys is omitted.
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

    The fraction is the smallest multiple of 1/8, starting from 1/2, for which the default of ``good_within`` is at most
    the mean distance from the records to the best single output. A previous report farther away than that would be no
    better than this output. The result is 1 if no fraction below 1 is large enough.

    Args:
        report: The epsilon of a fresh report, per unit of distance.
        data: The data of the problem.
    """
    distances = data.to_outputs if data.region is None else data.distance.to_outputs()
    is_finite = np.isfinite(distances)
    # The mean distance to the best single output. If no path leads to an output, the largest finite distance is used.
    scale = float((data.prior @ np.where(is_finite, distances, distances[is_finite].max(initial=0.0))).min())
    # With round numbers, as in a grid of whole kilometres, the mean can equal the limit exactly. The margin ensures
    # that every machine then decides the same way, even if the last bits of the mean differ.
    scale *= 1.0 + 2.0**-30
    eighths = (Fraction(n, _SHARE_PARTS) for n in range(_SHARE_PARTS // 2, _SHARE_PARTS))
    # The condition is 2 / report + 3 / (part report) <= scale, multiplied by the report's epsilon.
    return next((part for part in eighths if 2 + 3 / part <= report * Fraction(scale)), Fraction(1))
