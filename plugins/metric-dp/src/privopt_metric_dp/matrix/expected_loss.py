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
    """Expected loss under the prior: sum over records i and outputs k of p_i c_ik z_ik.

    Attributes:
        weighted: (N, K) p_i c_ik, in ``unit``.
        unit: of the loss, e.g. ``"km"``.
        doubt: gives (N,) by how much at most each record's ``weighted`` exceed what the files mean, and (N, K) or
            (N, 1) by how much at most they lie below that; None where no one knows.
    """

    weighted: Floats
    unit: str = field(default="")
    doubt: Callable[[], tuple[Floats, Floats]] | None = field(default=None)

    @classmethod
    def of(cls, data: MetricData) -> ExpectedLoss:
        """Return the loss that a metric problem asks for."""
        return cls(weighted=data.weighted, unit=data.loss_unit, doubt=lambda: (data.excess, data.shortfall()))

    def emit(self, model: dsl.Model, **symbols: Any) -> None:
        """Minimise it: ``symbols`` are ``z``, ``i``, ``k`` and the parameter ``c`` (weighted cost)."""
        from privopt.dsl import total

        z, i, k, c = (symbols[name] for name in ("z", "i", "k", "c"))
        model.minimize(total(c[i, k] * z[i, k], over=(i, k)))

    def evaluate(self, release: MatrixRelease) -> float:
        """Evaluate the loss of the integers released, rows summed pairwise, then without rounding."""
        return self.expected(release.weights, [Fraction(TOTAL)] * len(release.records))

    def enclose(self, release: MatrixRelease) -> tuple[float, float] | None:
        """Enclose the loss: rows sum to 1, so excess costs count once; sums and products lose less than 2^-45."""
        value = self.evaluate(release)
        if value is None or self.doubt is None:
            return None
        excess, shortfall = self.doubt()
        magnitude = (
            value if self.weighted.min() >= 0.0 else ExpectedLoss(weighted=np.abs(self.weighted)).evaluate(release)
        )
        rounding_error = 2.0**-45 * magnitude
        is_per_record = shortfall.shape[1] == 1 < self.weighted.shape[1]
        shortfall_loss = float(shortfall.sum()) if is_per_record else ExpectedLoss(weighted=shortfall).evaluate(release)
        lower, upper = (
            value - (rounding_error + float(excess.sum())) * (1.0 + 2.0**-40),
            value + (rounding_error + shortfall_loss) * (1.0 + 2.0**-40),
        )
        return math.nextafter(lower, -math.inf), math.nextafter(upper, math.inf)

    def expected(self, values: NDArray[Any], sums: Sequence[Fraction]) -> float:
        """Return the loss of a matrix whose rows (N, K), over their sums, are probabilities."""
        rows = []
        for row, weighted, total in zip(values, self.weighted, sums, strict=True):
            check()
            rows.append(float(np.sum(row.astype(np.float64) * weighted)) / float(total))
        return math.fsum(rows)


def costs_of(loss: UtilityLoss[MatrixRelease], data: MetricData) -> MetricData | None:
    """Return a problem's data with the costs by which its own loss judges, for figures; None if it has none.

    Costs of records of probability 0, which an expected loss does not determine, are 0.
    """
    if not isinstance(loss, ExpectedLoss):
        return None
    if loss.weighted is data.weighted and loss.unit == data.loss_unit:
        return data
    prior = data.prior[:, None]
    cost = np.divide(loss.weighted, prior, out=np.zeros(data.shape), where=prior > 0)
    return evolve(data, cost=read_only(cost), loss_unit=loss.unit)
