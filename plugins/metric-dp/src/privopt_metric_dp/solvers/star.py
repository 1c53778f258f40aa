"""The star mechanism: columns are scaled shortest-path kernels, in closed form.

``Z = W diag(x)``, ``W_is = exp(-eps D_is)``, ``W x = 1``. Its columns are extreme rays of the cone and
its weights depend on the geometry alone. Column ``s`` serves the output that is cheapest for it; with
``b_s = min_k (W' cost)_sk`` the prices are ``y = W^-T b``. It is a mechanism when ``x >= 0``, and the
optimal one when pricing at ``y`` finds no ray of negative value; where every column of ``cost - y``
has at most one negative entry the shortest-path tree proves that without a pivot.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import SolverError
from privopt.execution.clock import check, clock
from privopt.execution.limits import in_threads
from privopt.search.offers import Later
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.instance import Instance, dual_bound
from privopt_metric_dp.solvers.path_graph import Graph, make_graph, shortest_paths
from privopt_metric_dp.solvers.solver import Part, PartOffers
from privopt_metric_dp.solvers.symmetry import Symmetry
from privopt_metric_dp.solvers.tree_pricing import PricingResult, Trees, price_all, tree_multipliers

__all__ = [
    "Star",
    "StarSolver",
    "anchored_bound",
    "gradients",
    "kernel_of",
    "make_star",
    "proof",
    "quick_bound",
    "star_trees",
]


PIVOTS = (50, 1_000_000)
"""Limits on the pivots of an output's pricing: first a few, which mostly prove the gap (500 cells with 100 outputs: .2
s, with all pivots 28 s), then enough for the optimum."""
QUICK_SHARES = (0.25, 0.35, 0.5, 0.7, 1.0)
"""Shares of the mean costs that are used as prices of the first bounds, in order, until a bound gets worse."""
MAX_LOG_RATIO = 230.0
"""Log-ratios are capped at this: min(D, r) still satisfies all ratios, and no product leaves the range of doubles."""


@frozen(kw_only=True, eq=False)
class Star:
    """Kernel, weights, served outputs and prices of the star mechanism of a connected instance.

    Attributes:
        kernel: ``(N, N)`` the transpose of W: row s is column s of W. It is symmetric up to the random shrinking of the
            graph, and every row is inside the cone.
        weights: ``(N,)`` the solution x of ``W x = 1``. With a negative entry the star is not a mechanism.
        serves: ``(N,)`` output that column s serves.
        prices: ``(N,)`` the dual candidate y.
        anchors: ``(R,)`` record whose column has the smallest reduced cost for each representative output.
    """

    kernel: Floats
    weights: Floats
    serves: Ints
    prices: Floats
    anchors: Ints

    @property
    def feasible(self) -> bool:
        """Whether all weights are non-negative, so that the star is a mechanism."""
        return bool(self.weights.min() >= 0)

    def mechanism(self, outputs: int) -> Floats:
        """Return the matrix ``(N, K)``."""
        z = np.zeros((len(self.weights), outputs))
        if len(np.unique(self.serves)) == len(self.serves):
            z[:, self.serves] = self.kernel.T * self.weights
        else:
            for s, k in enumerate(self.serves):
                z[:, k] += self.kernel[s] * self.weights[s]
        return z


def kernel_of(graph: Graph, symmetry: Symmetry) -> Floats:
    """Return the kernel, whose rows ``exp(-eps D(s, .))`` are rays of the cone; one row per orbit is computed."""
    rows = np.unique(symmetry.records.min(axis=0))

    def rays(start: int, stop: int) -> Floats:
        length = shortest_paths(graph, rows[start:stop])[0]
        return np.asarray(np.exp(-np.minimum(length, MAX_LOG_RATIO)))

    orbit_rows: Floats = np.concatenate(in_threads(rays, len(rows)))
    if symmetry.order == 1:
        return orbit_rows
    kernel = np.empty((graph.records, graph.records))
    for image in symmetry.records:
        kernel[np.ix_(image[rows], image)] = orbit_rows
    return kernel


def gradients(kernel: Floats, right: Floats) -> Floats | None:
    """Solve by at most 60 conjugate gradient steps, to 1e-12 of the right side; return None if they do not suffice."""
    from scipy.sparse.linalg import cg

    x, failed = cg(kernel, right, rtol=1e-12, atol=0.0, maxiter=60)
    return None if failed else np.asarray(x)


def _invert_kernel(kernel: Floats) -> Callable[[Floats], Floats]:
    """Return a function that solves with the kernel: by conjugate gradients if they converge fast, else by factors."""
    from scipy.linalg import lu_factor, lu_solve

    if gradients(kernel, np.ones(len(kernel))) is not None:

        def solve_iteratively(right: Floats) -> Floats:
            answer = gradients(kernel, right)
            return np.asarray(np.linalg.solve(kernel, right)) if answer is None else answer

        return solve_iteratively
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # singularity shows in the residual
        mixed = lu_factor(kernel, check_finite=False)
    return lambda right: np.asarray(lu_solve(mixed, right, check_finite=False))


def make_star(instance: Instance, symmetry: Symmetry, graph: Graph) -> Star:
    """Build the star of a connected instance.

    Raises:
        OutOfTime: The time limit has come.
        SolverError: The kernel is singular, which is possible for graph metrics.
    """
    kernel = kernel_of(graph, symmetry)
    check()
    solve = _invert_kernel(kernel)
    ones = np.ones(instance.records)
    with np.errstate(all="ignore"):
        weights = solve(ones)
        for _ in range(3):  # iterative refinement
            check()
            residual = ones - weights @ kernel
            if np.abs(residual).max() < 1e-14:
                break
            weights = weights + solve(residual)
        if not (np.abs(ones - weights @ kernel).max() < 1e-11):
            raise SolverError("its kernel is singular")
        best, serves, anchors = _assign_outputs(instance, symmetry, kernel)
        prices = solve(best)
        prices = prices + solve(best - kernel @ prices)
    return Star(kernel=kernel, weights=weights, serves=serves, prices=prices, anchors=anchors)


def _assign_outputs(instance: Instance, symmetry: Symmetry, kernel: Floats) -> tuple[Floats, Ints, Ints]:
    """Return the cheapest cost and output of each column, and the anchors; one column per orbit is computed."""
    rows = np.unique(symmetry.records.min(axis=0))
    number = np.arange(instance.outputs)
    min_values, nearest = np.full(instance.outputs, np.inf), np.zeros(instance.outputs, dtype=np.int64)
    best, serves = np.empty(instance.records), np.empty(instance.records, dtype=np.int64)
    step = max(1, 40_000_000 // instance.outputs)
    for a in range(0, len(rows), step):
        check()
        block = rows[a : a + step]
        part = kernel[block] @ instance.cost
        serves[block], best[block] = part.argmin(axis=1), part.min(axis=1)
        part -= best[block, None]
        min_rows = part.argmin(axis=0)
        value = part[min_rows, number]
        closer = value < min_values
        min_values[closer], nearest[closer] = value[closer], block[min_rows[closer]]
    for records, outputs in zip(symmetry.records, symmetry.outputs, strict=True):
        best[records[rows]] = best[rows]
        serves[records[rows]] = outputs[serves[rows]]
    orbit_number, member = symmetry.origin()
    order = np.lexsort((min_values, orbit_number))
    best_members = order[np.unique(orbit_number[order], return_index=True)[1]]
    back = np.argsort(symmetry.records[member[best_members]], axis=1)
    anchors = np.take_along_axis(back, nearest[best_members][:, None], axis=1)[:, 0]
    return best, serves, anchors


def star_trees(graph: Graph, anchors: NDArray[Any]) -> Trees:
    """Return shortest-path trees, one for each output, rooted at its anchor."""
    parts = in_threads(lambda a, b: shortest_paths(graph, anchors[a:b], trees=True)[1:], len(anchors))
    parent = np.concatenate([part[0] for part in parts])
    entry = np.concatenate([part[1] for part in parts])
    return Trees(parent=parent, entry=entry, side=np.full(parent.shape, -1, dtype=np.int8))


def proof(instance: Instance, symmetry: Symmetry, y: Floats, trees: Trees, *, pivots: bool = True) -> Multipliers:
    """Return multipliers from the trees as they are, or priced again at the true log-ratios, whichever prove more.

    A tree whose accumulated reduced costs have the right signs is a proof whether or not its ray is feasible. So ties
    do no harm, nor do outputs that were not priced within half of the remaining time. Without ``pivots`` the trees are
    used unchanged, which takes moments.
    """
    reduced_instance, exact, candidates = symmetry.reduced(instance), make_graph(instance, shrink=0.0), [trees]
    if pivots:
        candidates.append(trees.copy())
        with clock().share(0.5):
            price_all(exact, reduced_instance, y, candidates[1], max_pivots=4 * instance.records)
    return symmetry.lift_multipliers(instance, tree_multipliers(reduced_instance, exact, y, candidates))


def anchored_bound(symmetry: Symmetry, y: Floats, priced: PricingResult) -> float:
    """Return the Lagrangian bound: since rows sum to one, each price falls by its largest deficit over the outputs.

    A relative 1e-12 is subtracted for rounding errors.
    """
    max_deficits = np.zeros(len(symmetry.size))
    np.maximum.at(max_deficits, symmetry.orbit, priced.deficit)
    return float(y.sum() - max_deficits @ symmetry.size - 1e-12 * np.abs(y).sum())


def quick_bound(part: Part, offers: PartOffers) -> None:
    """Offer bounds of shortest-path trees without pivots, with shares of each record's mean cost as prices.

    No system is solved, and the first bound takes moments, so there is a bound even if no method finishes in time.

    Raises:
        OutOfTime: The time limit came first; earlier offers remain.
    """
    instance, symmetry, best_bound = part.instance, part.symmetry, -math.inf
    reduced_instance, min_costs = symmetry.reduced(instance), instance.cost.min(axis=1)
    mean = instance.cost.mean(axis=1) - min_costs
    for price_share in QUICK_SHARES:
        y = min_costs + price_share * mean
        trees = star_trees(part.graph, (reduced_instance.cost - y[:, None]).argmin(axis=0))
        bound = anchored_bound(symmetry, y, price_all(part.graph, reduced_instance, y, trees, max_pivots=0))
        if bound < best_bound:
            return
        offers.offer("trees", bound=bound, proof=Later(partial(proof, pivots=False), instance, symmetry, y, trees))
        best_bound = bound


class StarSolver:
    """The star mechanism, whose gap pricing proves."""

    name = "star"

    def peak_bytes(self, part: Part) -> float:
        """Return about how much memory the star and its proof take."""
        records, outputs = part.instance.cost.shape
        return float(8 * (5 * records**2 + 5 * records * outputs))

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Offer the star if it is a mechanism, and in any case the bound that its prices prove.

        Raises:
            SolverError: The kernel is singular, or a weight is negative, so that the star is not a mechanism.
        """
        instance, symmetry = part.instance, part.symmetry
        star = make_star(instance, symmetry, part.graph)
        part.starred = star.feasible
        y, trees = symmetry.average(star.prices), star_trees(part.graph, star.anchors)
        if star.feasible:
            z = star.mechanism(instance.outputs)
            offers.offer(self.name, candidate=z, value=instance.loss(z))
        if clock().left < math.inf:
            multipliers = proof(instance, symmetry, y, trees.copy(), pivots=False)
            offers.offer(self.name, bound=dual_bound(instance, multipliers)[0], proof=multipliers)
        if not star.feasible:
            raise SolverError(f"{int((star.weights < 0).sum())} of its {len(star.weights)} weights are negative")
        for pivot_limit in PIVOTS:
            priced = price_all(part.graph, symmetry.reduced(instance), y, trees, max_pivots=pivot_limit)
            offers.note("", pivots=priced.pivots, least_weight=float(star.weights.min()), symmetries=symmetry.order)
            bound = anchored_bound(symmetry, y, priced)
            offers.offer(self.name, bound=bound, proof=Later(proof, instance, symmetry, y, trees.copy()))
            if offers.reached and offers.confirm():
                return
