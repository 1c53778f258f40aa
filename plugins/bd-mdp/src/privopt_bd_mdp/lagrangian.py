"""The dual half of the cross decomposition: prices of the records, and the rays that price out.

With prices ``y`` on the rows that sum to one the problem falls apart by outputs; each is priced exactly over the
whole mDP graph. What comes back is a dual-feasible vector of the whole problem (one cut a block) and rays, of which a
small LP mixes the best mechanism (Van Roy 1983; the rays as in column generation). Benders' own prices are tried too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import numpy as np
from attrs import define

from privopt.arrays import Floats
from privopt.errors import SolverError, StoppedError
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.instance import Instance, Solution, dual_bound
from privopt_metric_dp.solvers.path_graph import Graph, make_graph
from privopt_metric_dp.solvers.restricted_master import Mixture
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

__all__ = ["PIVOTS", "Lagrangian"]


PIVOTS: Final = 2_000
PROBING: Final = 50
"""An output is priced by so many pivots at most, fewer at first; its ray and its bound hold in any case."""

MIXING: Final = 20
"""Pivots of one mixture, at most, in multiples of the records: where they do not do, the rays mix badly."""


@define(eq=False)
class Lagrangian:
    """Steps of the dual half, and the best so far.

    Attributes:
        lower, upper: bound and loss.
        y: prices that give the bound. trees: of the outputs there.
        z: mechanism of that loss.
        steps: pricings so far.
        pivots: at most, for each output of a pricing.
        given: the proof of the bound where it is not the trees'.
        starred: whether the star is a mechanism here. Where it is not, its rays are far from the optimum's.
        deadline: of ``time.monotonic``, or None. A step that it comes into brings nothing, and the best so far stands.
    """

    instance: Instance
    graph: Graph
    symmetry: Symmetry
    mixture: Mixture
    trees: Trees
    best_trees: Trees
    y: Floats
    z: Floats
    lower: float = -np.inf
    upper: float = np.inf
    pull: float = 0.5
    reach: float = 1.0
    steps: int = 0
    pivots: int = PROBING
    given: Multipliers | None = None
    starred: bool = False
    deadline: float | None = None

    @classmethod
    def begin(cls, instance: Instance, *, star: bool, gap: float = 0.0, deadline: float | None = None) -> Lagrangian:
        """Begin at the star mechanism and its multipliers, or cold: at one output for all, and no bound.

        Where the star has negative weights, or none, its rays and prices are taken all the same; where every record's
        cheapest output proves the gap already, they are not priced.
        """
        graph, symmetry = make_graph(instance), Symmetry.trivial(instance)
        constant = np.zeros(instance.cost.shape)
        constant[:, int(instance.cost.sum(axis=0).argmin())] = 1.0
        flat = np.ones((1, instance.records))
        y, z, rays = np.zeros(instance.records), constant, flat
        anchors, starred = instance.cost.argmin(axis=0), False
        if star:
            kernel = kernel_of(graph, symmetry)
            half = np.sqrt(kernel)  # its columns, once rows sum to one, are the exponential mechanism: it always mixes
            rays = np.concatenate([kernel, half, (half / half.sum(axis=1, keepdims=True)).T, flat])
            anchors = (kernel @ instance.cost).argmin(axis=0)
            try:
                made = make_star(instance, symmetry)
                y, anchors, starred = made.prices, made.anchors, made.feasible
                if starred and instance.loss(made.mechanism(instance.outputs)) < instance.loss(z):
                    z = made.mechanism(instance.outputs)
            except SolverError:
                y = np.zeros(instance.records)
        trees = star_trees(graph, anchors)
        begun = cls(
            instance=instance,
            graph=graph,
            symmetry=symmetry,
            mixture=Mixture(instance, symmetry, rays, pivots=MIXING * instance.records),
            trees=trees,
            best_trees=trees,
            y=y,
            z=z,
            upper=instance.loss(z),
            starred=starred,
        )
        if star:
            begun.price(instance.cost.min(axis=1))  # takes no pivot, so however late it is
        begun.deadline = deadline
        if star and begun.gap > gap:
            with suppress(StoppedError):  # then there is no better bound yet
                begun.price(y)
        return begun

    def price(self, y: Floats) -> tuple[int, bool]:
        """Price all outputs at ``y``: how many rays were new, and whether the bound rose.

        Raises:
            StoppedError: the deadline came first.
        """
        priced = price_all(self.graph, self.instance, y, self.trees, most=self.pivots, deadline=self.deadline)
        self.steps += 1
        bound = anchored_bound(self.symmetry, y, priced)
        better = bound > self.lower
        if better:
            self.lower, self.y, self.given = bound, y, None
            self.best_trees = Trees(
                parent=self.trees.parent.copy(), entry=self.trees.entry.copy(), side=self.trees.side.copy()
            )
        return self.mixture.add_priced(priced.ray, priced.value), better

    def step(self) -> bool:
        """Mix the rays, price between the best prices and the mixture's. Whether anything moved.

        Raises:
            StoppedError: the deadline or the mixture's limit came first; what moved before it stands.
        """
        left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        z, cost, prices = self.mixture.solve(left)
        better = False
        if z is not None and cost < self.upper:
            loss = self.instance.loss(z)
            if loss < self.upper:
                self.z, self.upper, better = z, loss, True
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

    def adopt(self, found: Solution) -> None:
        """Take another method's mechanism, its columns as rays, and its multipliers with their prices."""
        if found.objective < self.upper:
            self.z, self.upper = found.z, found.objective
        columns = found.z.T
        self.mixture.add(columns[columns.max(axis=1) > 0.0])
        if found.multipliers is not None:
            bound, prices = dual_bound(self.instance, found.multipliers)
            if bound > self.lower:
                self.lower, self.y, self.given = min(bound, self.upper), prices, found.multipliers

    def proof(self) -> Multipliers:
        """Multipliers of the privacy rows behind the bound."""
        if self.given is not None:
            return self.given
        return proof(self.instance, self.symmetry, self.y, self.best_trees)

    @property
    def gap(self) -> float:
        """Relative gap between bound and loss."""
        return (self.upper - self.lower) / max(abs(self.upper), 1e-300)
