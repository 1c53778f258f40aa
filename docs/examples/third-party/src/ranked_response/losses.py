"""The squared distance from record to output: large errors count for more."""

from typing import ClassVar

from attrs import frozen

from privopt_metric_dp.problem.declared import LossKind


@frozen(kw_only=True)
class SquaredDistance(LossKind):
    """`[utility] kind = "squared-distance"`."""

    kind: ClassVar[str] = "squared-distance"

    def cost(self, spaces):
        """(N, K)."""
        return spaces.metric.to_outputs() ** 2

    def unit(self, distance):
        """For example km^2."""
        return f"{distance}^2"
