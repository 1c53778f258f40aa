"""LR-Geo's utility loss: the expected cost of the rows from which users draw their reports, averaged over the users."""

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
    """The expected cost of a report, averaged over the M users.

    Attributes:
        cost: (M, K) The true cost of each output for each user's record, not weighted by the prior.
        unit: The unit of the costs and of the loss.
    """

    cost: NDArray[np.float64]
    unit: str = ""

    def evaluate(self, release: MatrixRelease) -> float:
        """Return the loss of a release, in the same unit as the costs.

        Args:
            release: The release. The weights in each row must sum to 2**63.
        """
        rows = np.einsum("ik,ik->i", release.weights.astype(np.float64), self.cost)
        return math.fsum(rows.tolist()) / TOTAL / len(rows)
