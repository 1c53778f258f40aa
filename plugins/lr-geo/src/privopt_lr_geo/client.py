"""One user: packages the coefficients that it uploads, and repairs and certifies the server's answer."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
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
        distances: (n, n) between these.
        reach: (n, K) from them to the outputs; never more than a required distance apart.
        costs: (n, K) prior-weighted costs, as it knows them: none below the true one.
        free: (n, K) which entries are variables of their own (q_ik = 0): those of outputs near the record, on which
            users agree (section 4.3).
        order: (n,) random order in which rows travel.
    """

    around: LRSet
    distances: Floats
    reach: Floats
    costs: Floats
    free: Bools
    order: Ints

    def package(self) -> Package:
        """Return what is uploaded: copies, in the random order."""
        order = self.order
        return Package(
            distances=self.distances[np.ix_(order, order)],
            reach=self.reach[order],
            costs=self.costs[order],
            free=self.free[order],
        )

    def accept(self, answer: Answer, epsilon: Fraction) -> RepairedWeights:
        """Put rows back in order, make integers of them, and certify them over every required pair of the LR set.

        Raises:
            InputError: the answer is of another size.
            CertificationError: it could not be made to keep the promise.
        """
        if answer.z.shape != self.costs.shape:
            raise InputError([Fault("answer", "z", f"shape {answer.z.shape}", f"shape {self.costs.shape}")])
        z = np.empty_like(answer.z)
        z[self.order] = answer.z
        around = self.around
        return repair(z, around.pairs, around.lengths, epsilon, loss=self.costs)
