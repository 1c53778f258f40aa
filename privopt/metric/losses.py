"""Losses: each emits the objective of a model and evaluates a release."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.interfaces import UtilityLoss
from privopt.metric.matrix import UNIT, MatrixRelease

if TYPE_CHECKING:
    from privopt.dsl import Model
    from privopt.metric.data import MetricData

__all__ = ["ExpectedLoss"]


@frozen(kw_only=True, eq=False)
class ExpectedLoss(UtilityLoss):
    """Expected loss under the prior: sum over records i and outputs k of p_i c_ik z_ik.

    Attributes:
        weighted: (N, K) p_i c_ik, in ``unit``.
        unit: of the loss, e.g. ``"km"``.
    """

    weighted: NDArray[np.float64]
    unit: str = field(default="")

    @classmethod
    def of(cls, data: MetricData) -> ExpectedLoss:
        """The loss that a metric problem asks for."""
        return cls(weighted=data.weighted, unit=data.loss_unit)

    def emit(self, model: Model, **symbols: Any) -> None:
        """Minimise it: ``symbols`` are ``z``, ``i``, ``k`` and the parameter ``c`` (weighted cost)."""
        from privopt.dsl import total

        z, i, k, c = (symbols[name] for name in ("z", "i", "k", "c"))
        model.minimize(total(c[i, k] * z[i, k], over=(i, k)))

    def evaluate(self, release: MatrixRelease) -> float:
        """Loss of the integers released, rows summed pairwise, then without rounding."""
        rows = [
            float(np.sum(release.weights[i].astype(np.float64) * self.weighted[i])) for i in range(len(release.records))
        ]
        return math.fsum(rows) / float(UNIT)
