"""The expected loss of an obfuscation matrix, evaluated in double precision with error bounds."""

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
    """The expected loss under the prior: the sum of p_i c_ik z_ik over all records i and outputs k.

    Here p_i is the prior of record i, c_ik the cost of reporting k for i, and z_ik the probability of this report.

    Attributes:
        weighted: Array of shape (N, K) with the prior times the cost, p_i c_ik, in ``unit``.
        unit: The unit of the loss, e.g. ``"km"``.
        doubt: A function that bounds the errors in ``weighted``, or None if no bounds are known. The exact value of an
            entry is the prior times the exact cost in the files. The function returns an array of shape (N,) with upper
            bounds on how far the entries of each row exceed their exact values, and an array of shape (N, K) or (N, 1)
            with upper bounds on how far entries fall short of those values.
    """

    weighted: Floats
    unit: str = field(default="")
    doubt: Callable[[], tuple[Floats, Floats]] | None = field(default=None)

    @classmethod
    def of(cls, data: MetricData) -> ExpectedLoss:
        """Return the expected loss declared by a metric problem."""
        return cls(weighted=data.weighted, unit=data.loss_unit, doubt=lambda: (data.excess, data.shortfall()))

    def emit(self, model: dsl.Model, **symbols: Any) -> None:
        """Set a model's objective to minimise the sum of ``c[i, k] z[i, k]`` over records and outputs.

        Args:
            model: The model whose objective is set.
            symbols: The model's variable ``z``, its indices ``i`` and ``k``, and its parameter ``c`` with the weighted
                costs.
        """
        from privopt.dsl import total

        z, i, k, c = (symbols[name] for name in ("z", "i", "k", "c"))
        model.minimize(total(c[i, k] * z[i, k], over=(i, k)))

    def evaluate(self, release: MatrixRelease) -> float:
        """Return the expected loss of a release's weights, computed in double precision (see :meth:`loss_of_rows`)."""
        return self.loss_of_rows(release.weights, [Fraction(TOTAL)] * len(release.records))

    def enclose(self, release: MatrixRelease) -> tuple[float, float] | None:
        """Return a lower and an upper bound on the loss with exact costs, or None if no error bounds are known.

        Both bounds are doubles. They allow for errors in the costs and for rounding errors in this evaluation. The
        weights are exact.
        """
        value = self.evaluate(release)
        # The interface allows an implementation, such as a subclass of this one, to return None for some releases.
        if value is None or self.doubt is None:
            return None
        excess, shortfall = self.doubt()
        # The sum of the absolute values of all terms. If no cost is negative, this is the loss itself.
        magnitude = (
            value if self.weighted.min() >= 0.0 else ExpectedLoss(weighted=np.abs(self.weighted)).evaluate(release)
        )
        # The rounding errors of all sums and products are below 2^-45 times that sum.
        rounding_error = 2.0**-45 * magnitude
        # Rows sum to 1, so an error that is the same for all outputs of a record counts once.
        is_per_record = shortfall.shape[1] == 1 < self.weighted.shape[1]
        shortfall_loss = float(shortfall.sum()) if is_per_record else ExpectedLoss(weighted=shortfall).evaluate(release)
        # The factors 1 + 2**-40 and the steps to the neighbouring doubles cover the rounding errors of these sums.
        lower, upper = (
            value - (rounding_error + float(excess.sum())) * (1.0 + 2.0**-40),
            value + (rounding_error + shortfall_loss) * (1.0 + 2.0**-40),
        )
        return math.nextafter(lower, -math.inf), math.nextafter(upper, math.inf)

    def loss_of_rows(self, values: NDArray[Any], sums: Sequence[Fraction]) -> float:
        """Return the expected loss of a matrix after dividing each row by its sum.

        NumPy sums the terms of each row pairwise, and the losses of all rows are then added with a single rounding.

        Args:
            values: Array of shape (N, K) with weights or other non-negative entries.
            sums: The N exact row sums.

        Raises:
            OutOfTime: The time limit has expired.
        """
        rows = []
        for row, weighted, total in zip(values, self.weighted, sums, strict=True):
            check()
            rows.append(float(np.sum(row.astype(np.float64) * weighted)) / float(total))
        return math.fsum(rows)


def costs_of(loss: UtilityLoss[MatrixRelease], data: MetricData) -> MetricData | None:
    """Return a problem's data with the costs that a mechanism's loss is based on, for use in reports.

    The costs of records with a prior of 0 cannot be derived from the expected loss, so they are set to 0.

    Args:
        loss: The mechanism's loss.
        data: The problem's data.

    Returns:
        The data, or None if the loss is not an :class:`ExpectedLoss`. Other losses need not be based on costs.
    """
    if not isinstance(loss, ExpectedLoss):
        return None
    if loss.weighted is data.weighted and loss.unit == data.loss_unit:
        return data
    prior = data.prior[:, None]
    cost = np.divide(loss.weighted, prior, out=np.zeros(data.shape), where=prior > 0)
    return evolve(data, cost=read_only(cost), loss_unit=loss.unit)
