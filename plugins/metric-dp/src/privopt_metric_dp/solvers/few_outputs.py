"""Solve LPs with too many outputs by using a sample of outputs that differ as much as possible.

A mechanism need not use every output, so the result is a mechanism for all records. If the sampled outputs are as far
apart as possible, little is lost: for 400 cells in Rome at an epsilon of 1, the loss is 0.9377 with a quarter of the
cells, and 0.9156 with all of them. (The optimum itself puts 99 % of its mass on 173 outputs.) The LP over the sample
gives no lower bound, because it ignores the other outputs. On 2,032 street nodes with a limit of 15 CPU seconds, the
loss was 0.614 with the sample, and 1.02 with all outputs at once. The exponential mechanism has a loss of 1.08.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Floats, Ints
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.solver import Part, PartOffers, Solver

__all__ = ["FewOutputs", "sample_outputs"]

SAMPLE_GAP: Final = 0.05
"""The relative gap at which to stop solving the LP over the sample. Leaving out outputs costs more than this gap."""


def sample_outputs(instance: Instance, count: int) -> Ints:
    """Select outputs one by one, each differing as much as possible from those already selected.

    The distance between two outputs is the sum over records of the absolute differences between their weighted costs.
    Replacing one output with the other raises the loss by at most this distance.

    Args:
        instance: The problem.
        count: The number of outputs to select, at least 1.

    Returns:
        The indices of the selected outputs in ascending order. The first one selected is the output with the lowest
        total cost over all records.
    """
    cost = instance.cost
    selected = [int(cost.sum(axis=0).argmin())]
    min_distances = np.abs(cost - cost[:, selected]).sum(axis=0)
    while len(selected) < min(count, instance.outputs):
        selected.append(int(min_distances.argmax()))
        min_distances = np.minimum(min_distances, np.abs(cost - cost[:, selected[-1:]]).sum(axis=0))
    return np.unique(selected)


class FewOutputs:
    """A solver for the LP restricted to a sample of outputs whose costs differ as much as possible.

    Attributes:
        count: The number of outputs in the sample.
        inner: The solver for the restricted LP.
    """

    name = "few-outputs"

    def __init__(self, count: int, inner: Solver) -> None:
        """Create the solver.

        Args:
            count: The number of outputs in the sample.
            inner: The solver for the LP restricted to the sample.
        """
        self.count, self.inner = count, inner

    def peak_bytes(self, part: Part) -> float:
        """Estimate the peak memory in bytes for the LP restricted to the sample."""
        return self.inner.peak_bytes(part.with_outputs(np.arange(min(self.count, part.instance.outputs))))

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Solve the LP for the sampled outputs, and offer its mechanisms, extended by zeros for all other outputs.

        Args:
            part: A connected instance with all outputs.
            offers: The search that receives the mechanisms, as arrays of shape (N, K).

        Raises:
            SolverError: The inner solver failed.
            OutOfTime: The time limit expired.
        """
        instance = part.instance
        selected = sample_outputs(instance, self.count)

        def lift(z: Floats) -> Floats:
            """Extend ``z``, the columns for the sample, to a mechanism over all outputs by adding columns of zeros."""
            full_matrix = np.zeros(instance.cost.shape)
            full_matrix[:, selected] = z
            return full_matrix

        # Proofs are not passed on, because a bound on mechanisms over these few outputs is not a bound on all
        # mechanisms.
        inner: PartOffers = offers.through(self.name, candidate=lift, proof=None)
        inner.gap = SAMPLE_GAP
        self.inner.solve(part.with_outputs(selected), inner)
        offers.note("", outputs=len(selected), of=instance.outputs)
