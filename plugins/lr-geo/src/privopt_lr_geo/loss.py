"""The loss of LR-Geo: the mean cost of the users' own rows."""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.interfaces import UtilityLoss
from privopt.numbers.sampling import TOTAL
from privopt_lr_geo.release import LRGeoRelease
from privopt_metric_dp.matrix.release import MatrixRelease

__all__ = ["MeanOfUsers"]


@frozen(kw_only=True, eq=False)
class MeanOfUsers(UtilityLoss[LRGeoRelease]):
    """The mean over the users of the true expected cost of the row from which each user reports.

    Attributes:
        cost: (M, K) costs of the users' records, not weighted by the prior.
        unit: Unit of the costs and of the loss.
    """

    cost: NDArray[np.float64]
    unit: str = ""

    def evaluate(self, release: MatrixRelease) -> float:
        """Return the loss of the released weights, integers whose rows sum to 2**63, in the unit of the costs."""
        rows = np.einsum("ik,ik->i", release.weights.astype(np.float64), self.cost)
        return math.fsum(rows.tolist()) / TOTAL / len(rows)
