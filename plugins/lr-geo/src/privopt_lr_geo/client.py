"""One user: what it uploads, and how it repairs and certifies the server's answer."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt_lr_geo.lr_sets import LRSet
from privopt_lr_geo.messages import Answer, Package
from privopt_metric_dp.matrix.repair import RepairedWeights, repair

__all__ = ["Client"]


@frozen(kw_only=True, eq=False)
class Client:
    """One user.

    Attributes:
        around: Its LR set of n records.
        order: (n,) random order in which rows are sent.
        package: Its upload, with rows in that order. Its free entries are those near a record (section 4.3).
    """

    around: LRSet
    order: Ints
    package: Package

    @property
    def costs(self) -> Floats:
        """(n, K) prior-weighted costs of its records, as the user knows them. None is below the true one."""
        return self._restore_order(self.package.costs)

    def _restore_order(self, rows: Floats) -> Floats:
        """Return sent rows (n, K) in the order of the user's records."""
        restored = np.empty_like(rows)
        restored[self.order] = rows
        return restored

    def accept(self, answer: Answer, epsilon: Fraction) -> RepairedWeights:
        """Restore the order of the rows, repair them into integers, and certify all required pairs of the LR set.

        Raises:
            InputError: The answer has another size.
            CertificationError: No repair of it keeps the promise.
        """
        around, costs = self.around, self.costs
        if answer.z.shape != costs.shape:
            raise InputError([Fault("answer", "z", f"shape {answer.z.shape}", f"shape {costs.shape}")])
        return repair(self._restore_order(answer.z), around.pairs, around.lengths, epsilon, loss=costs)
