"""The squared distance from record to output: large errors count for more."""

from typing import ClassVar

from attrs import frozen

from privopt_metric_dp.problem.declared import LossKind


@frozen(kw_only=True)
class SquaredDistance(LossKind):
    """`[utility] kind = "squared-distance"`."""

    kind: ClassVar[str] = "squared-distance"

    def cost(self, spaces):
        """Return the (N, K) squared distances from records to outputs."""
        return spaces.metric.to_outputs() ** 2

    def unit(self, distance):
        """Return the unit of the loss, for example km^2."""
        return f"{distance}^2"
