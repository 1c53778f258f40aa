"""The solver interface for the optimal mechanism's program, and the connected component that a solver is given."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol, runtime_checkable

from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.search.offers import Offers
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.elimination import Elimination, eliminate
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.path_graph import Graph, make_graph
from privopt_metric_dp.solvers.symmetry import Symmetry, find_symmetry

__all__ = ["Part", "PartOffers", "Solver"]

PartOffers = Offers[Floats, Multipliers]
"""Where a solver offers mechanisms (N, K) of its part, and multipliers of its pairs."""


class Part:
    """A connected instance: no implied pair, no two records at distance 0, no output that is the cheapest for all.

    What several solvers need of it is made once, when it is first asked for.

    Attributes:
        starred: whether the star is a mechanism here; False before its solver has made one.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.starred = False

    @cached_property
    def symmetry(self) -> Symmetry:
        """Its symmetries; the trivial group where there are none."""
        return find_symmetry(self.instance)

    @cached_property
    def graph(self) -> Graph:
        """The graph of required pairs."""
        return make_graph(self.instance)

    @cached_property
    def elimination(self) -> Elimination:
        """The pattern of the sparse factor that all outputs share."""
        return eliminate(self.instance)

    def with_outputs(self, outputs: Ints) -> Part:
        """Return the part with some of its outputs alone, which shares what depends on its pairs."""
        part = Part(evolve(self.instance, cost=self.instance.cost[:, outputs]))
        part.__dict__.update({name: self.__dict__[name] for name in ("graph", "elimination") if name in self.__dict__})
        return part


@runtime_checkable
class Solver(Protocol):
    """One method. It knows neither limits nor what is kept of memory, and may look at the clock.

    Attributes:
        name: under which it offers, and which the path of an answer states.
    """

    name: str

    def peak_bytes(self, part: Part) -> float:
        """Return the greatest memory that it takes beyond the part itself, its own kept copies included."""

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Offer mechanisms and bounds until the gap is reached, or it cannot go on.

        Raises:
            SolverError: it does not apply, or its numbers broke down; the next method has its turn.
            OutOfTime: the time was over; earlier offers are kept.
        """
