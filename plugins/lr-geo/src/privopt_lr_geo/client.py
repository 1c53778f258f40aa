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
        around: its LR set, n records.
        order: (n,) random order in which rows travel.
        package: what it uploads, rows in that order; its free entries are those near a record (section 4.3).
    """

    around: LRSet
    order: Ints
    package: Package

    @property
    def costs(self) -> Floats:
        """(n, K) prior-weighted costs of its records, as it knows them: none below the true one."""
        return self._sorted(self.package.costs)

    def _sorted(self, rows: Floats) -> Floats:
        """Return rows (n, K) that travelled, in the order of its records."""
        found = np.empty_like(rows)
        found[self.order] = rows
        return found

    def accept(self, answer: Answer, epsilon: Fraction) -> RepairedWeights:
        """Put rows back in order, make integers of them, and certify them over every required pair of the LR set.

        Raises:
            InputError: the answer is of another size.
            CertificationError: it could not be made to keep the promise.
        """
        around, costs = self.around, self.costs
        if answer.z.shape != costs.shape:
            raise InputError([Fault("answer", "z", f"shape {answer.z.shape}", f"shape {costs.shape}")])
        return repair(self._sorted(answer.z), around.pairs, around.lengths, epsilon, loss=costs)
