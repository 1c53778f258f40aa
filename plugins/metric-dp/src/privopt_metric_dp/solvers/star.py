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
"""Pivots of an output's pricing, at most: first few, which mostly prove the gap (500 cells with 100 outputs: .2 s, by
all pivots 28 s), then all."""
QUICK_SHARES = (0.25, 0.35, 0.5, 0.7, 1.0)
"""Shares of mean costs that are prices of the first bounds, up to the best of them."""
MAX_LOG_RATIO = 230.0
"""Log-ratios are cut here: min(D, r) keeps all ratios allowed, and no product leaves the range of doubles."""


@frozen(kw_only=True, eq=False)
class Star:
    """Kernel, weights, services and prices of the star mechanism of a connected instance.

    Attributes:
        kernel: ``(N, N)`` the matrix W transposed: row s is column s of W. Symmetric up to the graph's
            random shrinking, every row inside the cone.
        weights: ``(N,)`` the solution x of ``W x = 1``; negative entries mean that the star does not exist.
        serves: ``(N,)`` output that column s serves.
        prices: ``(N,)`` the dual candidate y.
        anchors: ``(R,)`` record whose column comes nearest to pricing out for each representative output.
    """

    kernel: Floats
    weights: Floats
    serves: Ints
    prices: Floats
    anchors: Ints

    @property
    def feasible(self) -> bool:
        """Whether the weights make a mechanism."""
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
    """Return rows ``exp(-eps D(s, .))``, each one ray of the cone."""
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
    """Solve by at most 60 conjugate gradients, to 1e-12 of the right side; None where they need more."""
    from scipy.sparse.linalg import cg

    x, failed = cg(kernel, right, rtol=1e-12, atol=0.0, maxiter=60)
    return None if failed else np.asarray(x)


def _invert_kernel(kernel: Floats) -> Callable[[Floats], Floats]:
    """Return an approximate inverse of the kernel: conjugate gradients while they converge fast, else a factor."""
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
        OutOfTime: the end of the time limit has come.
        SolverError: the kernel is singular (it can be for graph metrics).
    """
    kernel = kernel_of(graph, symmetry)
    check()
    solve = _invert_kernel(kernel)
    ones = np.ones(instance.records)
    with np.errstate(all="ignore"):
        weights = solve(ones)
        for _ in range(3):
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
    """Cheapest cost and output of each column, and the anchors; one column of each orbit is looked at."""
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
    """Return multipliers from trees unchanged or priced once more at the true log-ratios, whichever prove more.

    A tree whose accumulated reduced costs have the right signs is a proof whether or not its ray is feasible, so ties
    do no harm here, nor outputs that had no turn in half of the time that is left. Without ``pivots`` trees are
    unchanged, and prove something in moments.
    """
    reduced_instance, exact, candidates = symmetry.reduced(instance), make_graph(instance, shrink=0.0), [trees]
    if pivots:
        candidates.append(trees.copy())
        with clock().share(0.5):
            price_all(exact, reduced_instance, y, candidates[1], max_pivots=4 * instance.records)
    return symmetry.lift_multipliers(instance, tree_multipliers(reduced_instance, exact, y, candidates))


def anchored_bound(symmetry: Symmetry, y: Floats, priced: PricingResult) -> float:
    """Bound by Lagrange: a row sums to one, so a record loses at most the greatest deficit of any output there.

    A share of 1e-12 is taken off for rounding errors.
    """
    max_deficits = np.zeros(len(symmetry.size))
    np.maximum.at(max_deficits, symmetry.orbit, priced.deficit)
    return float(y.sum() - max_deficits @ symmetry.size - 1e-12 * np.abs(y).sum())


def quick_bound(part: Part, offers: PartOffers) -> None:
    """Offer bounds of shortest-path trees without a pivot, at a few shares of every record's mean cost as prices.

    No system is solved, and the first takes moments: there is a bound where time is too short for any method.

    Raises:
        OutOfTime: the end came first; earlier offers are kept.
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
    """The star, its gap proved by pricing."""

    name = "star"

    def peak_bytes(self, part: Part) -> float:
        """Return about how much memory the star and its proof take."""
        records, outputs = part.instance.cost.shape
        return float(8 * (5 * records**2 + 5 * records * outputs))

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Offer the star where its weights make a mechanism, and what its prices prove in any case.

        Raises:
            SolverError: singular kernel or negative weights: the star is not a mechanism here.
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
