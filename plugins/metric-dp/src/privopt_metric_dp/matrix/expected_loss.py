"""The expected loss of an obfuscation matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from privopt import dsl
from privopt.arrays import Floats, read_only
from privopt.execution.clock import check
from privopt.interfaces import UtilityLoss
from privopt.numbers.sampling import TOTAL
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["ExpectedLoss", "costs_of"]


@frozen(kw_only=True, eq=False)
class ExpectedLoss(UtilityLoss[MatrixRelease]):
    """The expected loss under the prior: the sum over records i and outputs k of p_i c_ik z_ik.

    Attributes:
        weighted: (N, K) p_i c_ik, in ``unit``.
        unit: Unit of the loss, e.g. ``"km"``.
        doubt: Returns upper bounds (N,) of the amount by which ``weighted`` exceeds the exact costs of the files, and
            upper bounds (N, K) or (N, 1) of the amount by which it falls short of them. None if no bounds are known.
    """

    weighted: Floats
    unit: str = field(default="")
    doubt: Callable[[], tuple[Floats, Floats]] | None = field(default=None)

    @classmethod
    def of(cls, data: MetricData) -> ExpectedLoss:
        """Return the expected loss that a metric problem declares."""
        return cls(weighted=data.weighted, unit=data.loss_unit, doubt=lambda: (data.excess, data.shortfall()))

    def emit(self, model: dsl.Model, **symbols: Any) -> None:
        """Set the objective of a model: the sum of ``c[i, k] z[i, k]`` over records and outputs.

        Args:
            model: The model.
            symbols: The model's variable ``z``, its indices ``i`` and ``k``, and its parameter ``c`` (weighted costs).
        """
        from privopt.dsl import total

        z, i, k, c = (symbols[name] for name in ("z", "i", "k", "c"))
        model.minimize(total(c[i, k] * z[i, k], over=(i, k)))

    def evaluate(self, release: MatrixRelease) -> float:
        """Return the loss of the released integers, in floating point (see :meth:`loss_of_rows`)."""
        return self.loss_of_rows(release.weights, [Fraction(TOTAL)] * len(release.records))

    def enclose(self, release: MatrixRelease) -> tuple[float, float] | None:
        """Return two doubles that enclose the loss at the exact costs, or None if the errors of the costs are unknown.

        The weights are exact. The interval covers the errors of the costs and of this evaluation.
        """
        value = self.evaluate(release)
        # A subclass may have no loss for some releases, as the interface allows.
        if value is None or self.doubt is None:
            return None
        excess, shortfall = self.doubt()
        # The sum of the absolute terms, which is the loss itself if no cost is negative.
        magnitude = (
            value if self.weighted.min() >= 0.0 else ExpectedLoss(weighted=np.abs(self.weighted)).evaluate(release)
        )
        # Sums and products lose less than 2^-45 of the sum of absolute terms.
        rounding_error = 2.0**-45 * magnitude
        # Rows sum to 1, so an error that is the same for all outputs of a record counts once.
        is_per_record = shortfall.shape[1] == 1 < self.weighted.shape[1]
        shortfall_loss = float(shortfall.sum()) if is_per_record else ExpectedLoss(weighted=shortfall).evaluate(release)
        # The factors 1 + 2**-40 and the last steps to the next doubles cover the rounding of these lines.
        lower, upper = (
            value - (rounding_error + float(excess.sum())) * (1.0 + 2.0**-40),
            value + (rounding_error + shortfall_loss) * (1.0 + 2.0**-40),
        )
        return math.nextafter(lower, -math.inf), math.nextafter(upper, math.inf)

    def loss_of_rows(self, values: NDArray[Any], sums: Sequence[Fraction]) -> float:
        """Return the loss of a matrix (N, K) whose rows, divided by their exact sums (N,), are probabilities.

        The terms of a row are summed pairwise, and the losses of the rows with a single rounding.
        """
        rows = []
        for row, weighted, total in zip(values, self.weighted, sums, strict=True):
            check()
            rows.append(float(np.sum(row.astype(np.float64) * weighted)) / float(total))
        return math.fsum(rows)


def costs_of(loss: UtilityLoss[MatrixRelease], data: MetricData) -> MetricData | None:
    """Return a problem's data with the costs of a mechanism's loss, for figures, or None if the loss has no costs.

    An expected loss does not determine the costs of records of probability 0; they are set to 0.
    """
    if not isinstance(loss, ExpectedLoss):
        return None
    if loss.weighted is data.weighted and loss.unit == data.loss_unit:
        return data
    prior = data.prior[:, None]
    cost = np.divide(loss.weighted, prior, out=np.zeros(data.shape), where=prior > 0)
    return evolve(data, cost=read_only(cost), loss_unit=loss.unit)
