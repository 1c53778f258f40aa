"""Programs with more outputs than memory or time allow: few of them at first, the others by their prices.

Any output may be left out: what remains is a mechanism for all records. A sample by farthest points costs little (400
cells of Rome at epsilon 1 with a quarter of the cells .9377 for .9156 with all; the optimum itself puts 99 % of its
mass on 173 outputs). The bound has to speak of all outputs: all are priced by network simplex at the prices of the
records (`privopt_metric_dp.solvers.tree_pricing`); those priced worst join the next round. Gaps there were 20, 9.6, 2.7
and .4 % over four rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.execution.clock import clock
from privopt.interfaces.offers import made
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.instance import Instance, dual_bound
from privopt_metric_dp.solvers.solver import Part, PartOffers, Solver
from privopt_metric_dp.solvers.star import price_all, proof, star_trees
from privopt_metric_dp.solvers.symmetry import Symmetry

__all__ = ["FewOutputs", "most_outputs", "sample_outputs"]

JOIN: Final = 0.5
"""Outputs that join, at most, of those at hand."""
PIVOTS: Final = 2_000
"""An output is priced by so many pivots, at most."""
ROUGH: Final = 0.05
"""Relative gap to which a sample that nobody prices is solved: what it leaves out costs more."""


def sample_outputs(instance: Instance, count: int) -> Ints:
    """So many outputs, each as far as can be from those before: by the sum over records of the difference in cost.

    The loss rises by no more when one output takes the other's place. The first is the cheapest for all.
    """
    cost = instance.cost
    chosen = [int(cost.sum(axis=0).argmin())]
    near = np.abs(cost - cost[:, chosen]).sum(axis=0)
    while len(chosen) < min(count, instance.outputs):
        chosen.append(int(near.argmax()))
        near = np.minimum(near, np.abs(cost - cost[:, chosen[-1:]]).sum(axis=0))
    return np.unique(chosen)


def most_outputs(part: Part, inner: Solver, room: float) -> int:
    """Return how many outputs a round may have that takes no more bytes than there is room for; 8 at least."""
    few, many = (FewOutputs(count, inner, most=count).peak_bytes(part) for count in (8, 16))
    if room == np.inf:
        return part.instance.outputs
    return min(part.instance.outputs, 8 * (1 + max(0, int((room - few) / max(many - few, 1.0)))))


class FewOutputs:
    """A program over some outputs, farthest from one another.

    Attributes:
        count: outputs of the first round.
        most: to which others join, priced worst first; with None there is one round, and nothing is priced.
    """

    name = "few-outputs"

    def __init__(self, count: int, inner: Solver, *, most: int | None = None) -> None:
        self.count, self.inner, self.most = count, inner, most

    def peak_bytes(self, part: Part) -> float:
        """Return about how much memory a round takes: its program, and the trees and rays of all outputs if priced."""
        count = min(self.count if self.most is None else self.most, part.instance.outputs)
        program = self.inner.peak_bytes(part.with_outputs(np.arange(count)))
        return program + (0.0 if self.most is None else 8.0 * 7 * part.instance.cost.size)

    def solve(self, part: Part, offers: PartOffers) -> None:
        """See :class:`privopt_metric_dp.solvers.solver.Solver`."""
        instance = part.instance
        chosen = sample_outputs(instance, self.count)
        while True:
            small = part.with_outputs(chosen)
            inner: PartOffers = offers.through(self.name, _lifting(chosen, instance.outputs), None)
            inner.gap = ROUGH if self.most is None else offers.gap / 4
            self.inner.solve(small, inner)
            offers.note("", outputs=len(chosen), of=instance.outputs)
            if self.most is None or inner.best.proof is None:
                return
            values = self._priced(part, small, made(inner.best.proof), offers)
            if offers.reached:
                return
            values[chosen] = 0.0
            new = np.argsort(values)[: max(0, min(max(1, int(JOIN * len(chosen))), self.most - len(chosen)))]
            new = new[values[new] < 0]
            if not len(new):
                return
            chosen = np.union1d(chosen, new)

    def _priced(self, part: Part, small: Part, multipliers: Multipliers, offers: PartOffers) -> Floats:
        """Offer what the program's prices prove over all outputs.

        Returns:
            The outputs' values, ``(K,)``; where pricing does not end in half of the time, those of the trees' roots.
        """
        instance = part.instance
        prices = dual_bound(small.instance, multipliers)[1]
        reduced = instance.cost - prices[:, None]
        trees, values = star_trees(part.graph, reduced.argmin(axis=0)), reduced.min(axis=0)
        with clock().share(0.5):
            values = price_all(part.graph, instance, prices, trees, most=PIVOTS).value
        whole = proof(instance, Symmetry.trivial(instance), prices, trees)
        offers.offer(self.name, bound=dual_bound(instance, whole)[0], proof=whole)
        return values


def _lifting(chosen: Ints, outputs: int) -> Callable[[Floats], Floats]:
    """What puts columns of chosen outputs where they belong."""

    def lift(z: Floats) -> Floats:
        whole = np.zeros((len(z), outputs))
        whole[:, chosen] = z
        return whole

    return lift
