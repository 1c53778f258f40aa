"""Lagrangian prices on the rows' sums: outputs priced one by one, and the best mechanism mixed from them by an LP.

With prices ``y`` on the rows that sum to one the problem falls apart by outputs; each is priced exactly over the whole
mDP graph. The result is a dual-feasible vector of the whole problem (one cut for each block) and rays. A small LP mixes
the best mechanism from these (Van Roy 1983; the rays as in column generation). Benders' own prices are tried too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from attrs import define

from privopt.arrays import Floats
from privopt.errors import SolverError
from privopt.interfaces.offers import BestOffer, Later, evaluate
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.instance import Instance, dual_bound, one_output
from privopt_metric_dp.solvers.path_graph import Graph
from privopt_metric_dp.solvers.restricted_master import Mixture
from privopt_metric_dp.solvers.solver import Part, PartOffers
from privopt_metric_dp.solvers.star import (
    anchored_bound,
    kernel_of,
    make_star,
    price_all,
    proof,
    star_trees,
)
from privopt_metric_dp.solvers.symmetry import Symmetry
from privopt_metric_dp.solvers.tree_pricing import Trees

__all__ = ["MAX_PIVOTS", "Lagrangian"]


NAME: Final = "lagrangian"
"""Origin of what steps offer."""
MAX_PIVOTS: Final = 2_000
PROBING_PIVOTS: Final = 50
"""An output is priced by so many pivots at most, fewer at first; its ray and its bound hold in any case."""

MIXING_PIVOTS: Final = 20
"""Pivots of one mixture, at most, in multiples of the records: where they do not do, the rays mix badly."""


@define(eq=False)
class Lagrangian:
    """Steps of the dual half, and the best so far.

    Attributes:
        lower, upper: bound and loss.
        y: prices that give the bound. trees: of the outputs, warm.
        steps: pricings so far.
        pivots: at most, for each output of a pricing.
        starred: whether the star is a mechanism here. Where it is not, its rays are far from the optimum's.
        offers: where bounds and mechanisms go as they are found.
    """

    instance: Instance
    graph: Graph
    symmetry: Symmetry
    mixture: Mixture
    trees: Trees
    y: Floats
    offers: PartOffers
    lower: float = -np.inf
    upper: float = np.inf
    pull: float = 0.5
    reach: float = 1.0
    steps: int = 0
    pivots: int = PROBING_PIVOTS
    starred: bool = False

    @classmethod
    def begin(cls, part: Part, *, star: bool, offers: PartOffers) -> Lagrangian:
        """Begin at the star mechanism and its multipliers, or cold: at one output for all, and no bound.

        If the star has negative weights, or does not exist, its rays and prices are used all the same. If every
        record's cheapest output proves the gap already, they are not priced.

        Raises:
            OutOfTime: the time was over; earlier offers are kept.
        """
        instance, graph, symmetry = part.instance, part.graph, Symmetry.trivial(part.instance)
        z, flat = one_output(instance).z, np.ones((1, instance.records))
        y, rays = np.zeros(instance.records), flat
        anchors, starred = instance.cost.argmin(axis=0), False
        if star:
            kernel = kernel_of(graph, symmetry)
            half = np.sqrt(kernel)  # its columns, once rows sum to one, are the exponential mechanism: it always mixes
            rays = np.concatenate([kernel, half, (half / half.sum(axis=1, keepdims=True)).T, flat])
            anchors = (kernel @ instance.cost).argmin(axis=0)
            try:
                found = make_star(instance, symmetry, graph)
                y, anchors, starred = found.prices, found.anchors, found.feasible
                if starred and instance.loss(found.mechanism(instance.outputs)) < instance.loss(z):
                    z = found.mechanism(instance.outputs)
            except SolverError:
                y = np.zeros(instance.records)
        begun = cls(
            instance=instance,
            graph=graph,
            symmetry=symmetry,
            mixture=Mixture(instance, symmetry, rays, pivots=MIXING_PIVOTS * instance.records),
            trees=star_trees(graph, anchors),
            y=y,
            offers=offers,
            starred=starred,
        )
        begun._take(z)
        if star:
            begun.price(instance.cost.min(axis=1))  # takes no pivot
        if star and not offers.reached:
            begun.price(y)
        return begun

    def _take(self, z: Floats) -> bool:
        """Take a mechanism that loses less; whether it does."""
        loss = self.instance.loss(z)
        if loss >= self.upper:
            return False
        self.upper = loss
        self.offers.offer(NAME, candidate=z, value=loss)
        return True

    def price(self, y: Floats) -> tuple[int, bool]:
        """Price all outputs at ``y``: how many rays were new, and whether the bound rose.

        Raises:
            OutOfTime: the time was over first.
        """
        priced = price_all(self.graph, self.instance, y, self.trees, max_pivots=self.pivots)
        self.steps += 1
        bound = anchored_bound(self.symmetry, y, priced)
        better = bound > self.lower
        if better:
            self.lower, self.y = bound, y
            kept = Later(proof, self.instance, self.symmetry, y, self.trees.copy())
            self.offers.offer(NAME, bound=bound, proof=kept)
        return self.mixture.add_priced(priced.ray, priced.value), better

    def step(self) -> bool:
        """Mix the rays, price between the best prices and the mixture's. Whether anything moved.

        Raises:
            OutOfTime: the time was over first; moves made before are kept.
            StoppedError: the mixture takes more pivots than it may.
        """
        z, cost, prices = self.mixture.solve()
        better = z is not None and cost < self.upper and self._take(z)
        for share, wanted in self._asked(prices):
            added, rose = self.price(self.y + (1.0 - share) * (wanted - self.y) if share else wanted)
            better = better or rose
            if added:
                self.pull = min(0.8, self.pull + 0.1) if rose and share else max(0.3, self.pull - 0.2)
                return True
        return better

    def _asked(self, prices: Floats) -> Iterator[tuple[float, Floats]]:
        """Prices to try, until there are new rays: within reach of the best ones, further out, the mixture's own.

        Where few rays mix, the mixture's prices are far off on both sides, and pricing at them takes minutes.
        """
        size = float(np.abs(self.y).max())
        if np.isfinite(self.lower) and size > 0.0:
            while (np.abs(prices - self.y) > self.reach * size).any():
                yield self.pull, np.clip(prices, self.y - self.reach * size, self.y + self.reach * size)
                self.reach *= 4.0
        if np.isfinite(self.lower):
            yield self.pull, prices
        yield 0.0, prices

    def adopt(self, best: BestOffer[Floats, Multipliers]) -> None:
        """Take the best of all methods: its columns as rays, its multipliers' prices."""
        if best.candidate is not None and best.value < self.upper:
            z, self.upper = evaluate(best.candidate), best.value
            self.mixture.add(z.T[z.max(axis=0) > 0.0])
        if best.proof is not None and best.bound > self.lower:
            bound, prices = dual_bound(self.instance, evaluate(best.proof))
            self.lower, self.y = min(bound, self.upper), prices

    @property
    def gap(self) -> float:
        """Relative gap between bound and loss."""
        return (self.upper - self.lower) / max(abs(self.upper), 1e-300)
