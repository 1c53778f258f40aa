"""The user's side of CLR-Geo: the package that a user uploads, and the certification of the server's answer."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt_lr_geo.lr_sets import LRSet
from privopt_lr_geo.messages import Answer, Package
from privopt_metric_dp.matrix.repair import RepairedWeights, repair

__all__ = ["Client"]

MAX_ENTRY: Final = 2.0
"""The largest absolute value accepted in the server's answer, whose entries are probabilities up to solver errors."""


@frozen(kw_only=True, eq=False)
class Client:
    """A user of CLR-Geo, who uploads a package and certifies the server's answer.

    Attributes:
        around: The user's LR set, which consists of the n records near the user. The user's matrix has one row for each
            of them.
        order: (n,) The random permutation of the rows in the upload. Row i of the upload belongs to the record at
            position ``order[i]`` in the LR set.
        package: The upload, with rows permuted by ``order``. It marks the matrix entries for outputs near a record as
            free variables. All other entries decrease exponentially with the distance (Qiu et al., PoPETs 2025, section
            4.3).
    """

    around: LRSet
    order: Ints
    package: Package

    @property
    def costs(self) -> Floats:
        """(n, K) The cost of each output for each record in the LR set, times the prior.

        The costs are either exact or upper bounds.
        """
        return self._restore_order(self.package.costs)

    def _restore_order(self, rows: Floats) -> Floats:
        """Return rows in the order of the LR set, by undoing the permutation of the upload.

        Args:
            rows: (n, K) The rows in the order of the upload.
        """
        restored = np.empty_like(rows)
        restored[self.order] = rows
        return restored

    def accept(self, answer: Answer, epsilon: Fraction) -> RepairedWeights:
        """Repair the server's answer, and certify the resulting integer weights for all required pairs in the LR set.

        Args:
            answer: The server's answer, with its rows in the same order as the package's rows.
            epsilon: The promised epsilon, as an exact fraction.

        Raises:
            InputError: The answer has the wrong size, or an entry is NaN or larger in absolute value than `MAX_ENTRY`.
            CertificationError: No repair of the answer satisfies the guarantee.
        """
        around, costs = self.around, self.costs
        if answer.z.shape != costs.shape:
            # The message does not quote sizes, because the number of records around a user reveals something about its
            # place.
            raise InputError([Fault("answer", "z", "another shape", "the shape of the package")])
        # The user does not trust the server and uses only what it has certified itself.
        if not (np.abs(answer.z) <= MAX_ENTRY).all():
            raise InputError([Fault("answer", "z", "other numbers", "probabilities, up to small errors")])
        return repair(self._restore_order(answer.z), around.pairs, around.lengths, epsilon, loss=costs)
