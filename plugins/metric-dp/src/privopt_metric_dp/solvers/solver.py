"""The interface of solvers for the optimal mechanism, and the connected parts of an instance to be solved."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Indices, Ints
from privopt.execution.clock import check, clock
from privopt.numbers.graphs import neighbours
from privopt.search.offers import Offers
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers.elimination import Elimination, eliminate
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.symmetry import Symmetry, find_symmetry
from privopt_metric_dp.space.pairs import has_implied_pairs

__all__ = ["Graph", "Part", "PartOffers", "Solver", "make_graph", "shortest_paths"]


EXPONENT_SHRINKAGE = 1e-11
"""The largest fraction by which log ratios are shrunk at random, so that no two paths have the same length."""
MIN_EARLY_RECORDS = 100
"""The minimum number of records for which early offers are made even without a time limit, because the search may take
long enough to be interrupted."""
TRIANGLE_TOLERANCE = 1e-9
"""The minimum fraction by which a path must be shorter than the direct pair, to rule out rounding errors."""


@frozen(kw_only=True, eq=False)
class Graph:
    """The graph of an instance's pairs, in CSR form with two entries per pair, one for each direction.

    The log ratio of a pair, ``epsilon * distance``, is the largest allowed difference between the logarithms of an
    output's probabilities for the two records.

    Attributes:
        start: Array of shape (N + 1,) with the offset of each record's first entry.
        other: Array of shape (2 P,) with each entry's neighbour. The entries of a record are sorted by neighbour.
        length: Array of shape (2 P,) with the log ratio of each entry's pair, shrunk slightly so that no two paths have
            the same length.
        pair: Array of shape (2 P,) with the index of each entry's pair.
        direct: Whether the pairs themselves are used as shortest paths, which avoids a search that takes N^3 steps.
            This is the case if there are more than 1,000 records, every two records form a pair, and none of the
            sampled paths through a third record is shorter than the direct one.
    """

    start: NDArray[np.int64]
    other: Indices
    length: Floats
    pair: NDArray[np.int64]
    direct: bool = False

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.start) - 1


def make_graph(instance: Instance, *, shrink: float = EXPONENT_SHRINKAGE) -> Graph:
    """Build the graph of an instance, shrinking log ratios at random so that no two paths have the same length.

    Args:
        instance: The problem, with N records and P pairs.
        shrink: The largest fraction by which a log ratio is shrunk, or 0 for the true log ratios.

    Raises:
        OutOfTime: The time limit expired.
    """
    start, targets, pair = neighbours(instance.records, instance.pairs)
    check()
    # The seed is fixed so that runs are reproducible. Shrinking makes rows stricter, so rays of this graph satisfy the
    # true rows.
    shrinkage = np.random.default_rng(0).uniform(0, shrink, len(instance.pairs))
    return Graph(
        start=start,
        other=targets.astype(np.int32),
        length=instance.lengths[pair] * (1 - shrinkage[pair]),
        pair=pair,
        # With a negative slack, a path counts only if it is shorter by more than rounding errors. With `rare` = 0, not
        # even a few such paths are accepted.
        direct=not has_implied_pairs(instance.pairs, instance.distances, slack=-TRIANGLE_TOLERANCE, rare=0.0),
    )


def shortest_paths(graph: Graph, sources: NDArray[Any], *, trees: bool = False) -> tuple[Floats, Indices, Indices]:
    """Compute the shortest paths from the given records to all records.

    Args:
        graph: The graph.
        sources: Array of shape (S,) with the indices of the records where the paths start.
        trees: Whether to return the shortest-path trees as well.

    Returns:
        Three arrays of shape (S, N): the log ratios along the paths, the parent of each record, and the CSR entry that
        leads from the parent to the record. Parent and entry are -1 at the source. If ``trees`` is False, the last two
        arrays are empty.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    # Each pair is in the graph in both directions, so a directed search is enough.
    n = graph.records
    if graph.direct:
        return _direct_paths(graph, sources, trees)
    matrix = csr_array((graph.length, graph.other, graph.start), shape=(n, n))
    none = np.zeros((0, 0), dtype=np.int32)
    if not trees:
        return dijkstra(matrix, directed=True, indices=sources), none, none
    lengths, parent = dijkstra(matrix, directed=True, indices=sources, return_predecessors=True)
    # SciPy marks the source, which has no parent, with -9999.
    parent = np.maximum(parent, -1)
    # Each record's neighbours are sorted, so these keys are in ascending order and a binary search finds an edge's
    # entry.
    number = np.repeat(np.arange(n), np.diff(graph.start)) * n + graph.other
    entry = np.searchsorted(number, parent.astype(np.int64) * n + np.arange(n)).astype(np.int32)
    entry[parent < 0] = -1
    return lengths, parent, entry


def _direct_paths(graph: Graph, sources: NDArray[Any], trees: bool) -> tuple[Floats, Indices, Indices]:
    """Return the result of :func:`shortest_paths` for a ``direct`` graph, where each shortest path is a single pair.

    Args:
        graph: The graph, in which every two records form a pair.
        sources: Array of shape (S,) with the indices of the records where the paths start.
        trees: Whether to compute parents and entries. If False, these two arrays are empty.

    Returns:
        Three arrays of shape (S, N): the log ratios along the paths, the parent of each record, and the CSR entry that
        leads from the parent to the record. Parent and entry are -1 at the source.
    """
    n, shape = graph.records, (len(sources), graph.records)
    is_other = np.arange(n)[None] != np.asarray(sources)[:, None]
    lengths = np.zeros(shape)
    entry = np.full(shape, -1, dtype=np.int32)
    # Each record has all other records as neighbours, in order.
    entry[is_other] = (graph.start[sources][:, None] + np.arange(n - 1)).ravel()
    lengths[is_other] = graph.length[entry[is_other]]
    if not trees:
        none = np.zeros((0, 0), dtype=np.int32)
        return lengths, none, none
    parent = np.where(is_other, np.asarray(sources, dtype=np.int32)[:, None], np.int32(-1))
    return lengths, parent, entry


PartOffers = Offers[Floats, Multipliers]
"""The offers for a part: mechanisms of shape (N, K) over its records and outputs, and multipliers for its pairs."""


class Part:
    """A connected instance with no implied pairs and no two records at distance 0.

    Results that several solvers need are computed only once, on first access.

    Attributes:
        instance: The instance.
        starred: Whether the star, a closed-form matrix, is a mechanism for this part. It is False until
            :class:`StarSolver` has run.
    """

    def __init__(self, instance: Instance) -> None:
        """Store the instance without computing any results."""
        self.instance = instance
        self.starred = False

    @property
    def needs_early_offers(self) -> bool:
        """Whether to offer a mechanism and a bound early, in case a time limit or an interrupt ends the search."""
        return clock().left < math.inf or self.instance.records >= MIN_EARLY_RECORDS

    @cached_property
    def symmetry(self) -> Symmetry:
        """The symmetries of the instance, or the trivial group if it has none."""
        return find_symmetry(self.instance)

    @cached_property
    def graph(self) -> Graph:
        """The graph of required pairs."""
        return make_graph(self.instance)

    @cached_property
    def elimination(self) -> Elimination:
        """The elimination order and the sparsity pattern of the factors, which are the same for all outputs."""
        return eliminate(self.instance)

    def with_outputs(self, outputs: Ints) -> Part:
        """Return a part with only a subset of the outputs, reusing results that do not depend on the outputs.

        Args:
            outputs: The indices of the outputs to keep.
        """
        part = Part(evolve(self.instance, cost=self.instance.cost[:, outputs]))
        # Cached properties are stored in `__dict__`. Symmetries are not shared because they depend on the outputs'
        # costs.
        part.__dict__.update({name: self.__dict__[name] for name in ("graph", "elimination") if name in self.__dict__})
        return part


@runtime_checkable
class Solver(Protocol):
    """The interface of methods that solve a part (a connected component of an instance).

    The caller enforces limits on time and memory.

    Attributes:
        name: The name of the method in offers and in the list of steps that led to an answer.
    """

    name: str

    def peak_bytes(self, part: Part) -> float:
        """Estimate the peak memory use in bytes, including stored offers but not the part itself."""

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Offer mechanisms and bounds until the gap is reached or no further progress is possible.

        Args:
            part: The part to solve.
            offers: The search that receives the results. It determines the gap to reach.

        Raises:
            SolverError: The method does not apply, or broke down numerically. The caller then tries the next method.
            OutOfTime: The time limit expired. Earlier offers remain valid.
        """
