"""The star mechanism, a closed form whose columns are scaled shortest-path kernels.

The star is ``Z = W diag(x)`` with ``W x = 1`` and ``W_is = exp(-eps D_is)``, where ``D_is`` is the length of the
shortest path from i to s. The columns of ``W`` are extreme rays of the privacy cone (the vectors that satisfy every
privacy row). The weights ``x`` do not depend on the costs. Column ``s`` is assigned to the output k for which its cost,
``(W' cost)_sk``, is smallest. Let ``b_s`` be this smallest cost. The prices are ``y = W^-T b``. The star is a mechanism
if ``x >= 0``. It is optimal if pricing at ``y`` finds no output k and ray z for which ``(cost_k - y) . z`` is negative.
If every column of ``cost - y`` has at most one negative entry, the shortest-path tree proves this without any pivots of
the network simplex method.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import SolverError
from privopt.execution.clock import check, clock
from privopt.execution.resources import in_threads
from privopt.search.offers import Later
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers.instance import Instance, dual_bound
from privopt_metric_dp.solvers.solver import Graph, Part, PartOffers, make_graph, shortest_paths
from privopt_metric_dp.solvers.symmetry import Symmetry
from privopt_metric_dp.solvers.tree_pricing import PricingResult, Trees, price_all, tree_multipliers

__all__ = [
    "Star",
    "StarSolver",
    "anchored_bound",
    "fits_granted_time",
    "gradients",
    "is_star_affordable",
    "kernel_of",
    "make_star",
    "proof",
    "quick_bound",
    "quick_bound_operations",
    "star_trees",
]


PIVOTS = (50, 1_000_000)
"""The limits on the number of pivots when pricing an output. The first is small but usually enough to prove the gap.
(For 500 cells with 100 outputs, it takes 0.2 s, compared to 28 s with all pivots.) The second is large enough to reach
the optimum."""
QUICK_SHARES = (0.25, 0.35, 0.5, 0.7, 1.0)
"""The prices used for the first bounds, as positions between each record's smallest cost (0) and its mean cost (1).
They are tried in order until a bound gets worse."""
OPERATIONS_PER_SECOND = 5e9
"""The speed of dense products and factorisations that any idle machine is assumed to reach, in operations per
second."""
HELD_SHARE = 0.5
"""The fraction of the granted time within which an idle machine must be able to compute the star. If it can, the star
is completed even if a busy machine then exceeds the time limit."""
OPERATIONS_PER_STEP = 100.0
"""The number of operations counted per step of a path search. Such a step is slow because its memory accesses are
irregular."""
MAX_GRANTED_SECONDS = 20.0
"""The time limit to assume if none is given, in seconds."""
MAX_LOG_RATIO = 230.0
"""The cap r on log ratios eps D, which keeps products within the range of doubles. Rays computed from min(eps D, r)
still satisfy all privacy rows."""


@frozen(kw_only=True, eq=False)
class Star:
    """The star of a connected instance, a closed-form matrix that is a mechanism if none of its weights is negative.

    The star is ``W diag(x)`` with ``W_is = exp(-eps D_is)``, where ``D_is`` is the length of the shortest path from i
    to s.

    Attributes:
        kernel: Array of shape (N, N) with the transpose of W, so row s is column s of W. The kernel is symmetric
            up to the random shrinking of the graph's log ratios. Every row satisfies the privacy constraints.
        weights: Array of shape (N,) with the solution x of ``W x = 1``. If an entry is negative, the star is not a
            mechanism.
        serves: Array of shape (N,) with the index of the output to which each column is assigned.
        prices: Array of shape (N,) with candidates for the dual prices y of the records.
        anchors: Array of shape (R,) with the index, for each representative output, of the record whose column has the
            smallest reduced cost.
    """

    kernel: Floats
    weights: Floats
    serves: Ints
    prices: Floats
    anchors: Ints

    @property
    def feasible(self) -> bool:
        """Whether the star is a mechanism, i.e. all weights are non-negative."""
        return bool(self.weights.min() >= 0)

    def mechanism(self, outputs: int) -> Floats:
        """Return the star's matrix.

        The column of an output is the weighted sum of the columns of W assigned to it.

        Args:
            outputs: The number of outputs, K.

        Returns:
            Array of shape (N, K).
        """
        z = np.zeros((len(self.weights), outputs))
        if len(np.unique(self.serves)) == len(self.serves):
            # If no output is served twice, all columns can be assigned at once.
            z[:, self.serves] = self.kernel.T * self.weights
        else:
            for s, k in enumerate(self.serves):
                z[:, k] += self.kernel[s] * self.weights[s]
        return z


def kernel_of(graph: Graph, symmetry: Symmetry) -> Floats:
    """Return the star's kernel, an array of shape (N, N) whose rows satisfy every privacy constraint.

    Row s is ``exp(-eps D(s, .))``, where ``D(s, .)`` are the lengths of the shortest paths from record s. Only one row
    is computed for each orbit, which is a set of records mapped to one another by symmetries. The other rows are
    derived by symmetry.

    Args:
        graph: The graph of required pairs.
        symmetry: The symmetries of the instance.
    """
    # The smallest image of a record under all symmetries represents its orbit.
    rows = np.unique(symmetry.records.min(axis=0))

    def rays(start: int, stop: int) -> Floats:
        """Return the kernel's rows for the records ``rows[start:stop]``, each of which represents an orbit."""
        length = shortest_paths(graph, rows[start:stop])[0]
        return np.asarray(np.exp(-np.minimum(length, MAX_LOG_RATIO)))

    orbit_rows: Floats = np.concatenate(in_threads(rays, len(rows)))
    if symmetry.order == 1:
        return orbit_rows
    kernel = np.empty((graph.records, graph.records))
    # A symmetry g preserves distances, D(g s, g t) = D(s, t), so it permutes the kernel's entries.
    for image in symmetry.records:
        kernel[np.ix_(image[rows], image)] = orbit_rows
    return kernel


def gradients(kernel: Floats, right: Floats) -> Floats | None:
    """Solve ``kernel x = right`` by conjugate gradients, to a relative residual of 1e-12.

    Args:
        kernel: Array of shape (N, N) with the star's kernel. It is treated as symmetric, although the random shrinking
            of log ratios makes it slightly asymmetric.
        right: Array of shape (N,) with the right-hand side.

    Returns:
        Array of shape (N,) with the solution, or None if 60 steps are not enough.
    """
    from scipy.sparse.linalg import cg

    x, failed = cg(kernel, right, rtol=1e-12, atol=0.0, maxiter=60)
    return None if failed else np.asarray(x)


def _invert_kernel(kernel: Floats) -> Callable[[Floats], Floats]:
    """Return a function that solves ``kernel x = right``.

    Conjugate gradients are used if they converge. Otherwise, the system is solved directly.
    """
    from scipy.linalg import lu_factor, lu_solve

    # If conjugate gradients converge, a few products with the kernel take less time than its factorisation.
    if gradients(kernel, np.ones(len(kernel))) is not None:

        def solve_iteratively(right: Floats) -> Floats:
            """Solve by conjugate gradients, or directly if the iteration does not converge."""
            answer = gradients(kernel, right)
            return np.asarray(np.linalg.solve(kernel, right)) if answer is None else answer

        return solve_iteratively
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the caller's check of the residual shows whether the kernel is singular
        factors = lu_factor(kernel, check_finite=False)
    return lambda right: np.asarray(lu_solve(factors, right, check_finite=False))


def make_star(instance: Instance, symmetry: Symmetry, graph: Graph) -> Star:
    """Build the star of a connected instance, a closed-form matrix that is a mechanism if its weights are non-negative.

    Args:
        instance: The problem.
        symmetry: The symmetries of the problem.
        graph: The problem's graph of required pairs.

    Raises:
        OutOfTime: The time limit expired.
        SolverError: The kernel is singular, which can happen for graph metrics.
    """
    kernel = kernel_of(graph, symmetry)
    check()
    solve = _invert_kernel(kernel)
    ones = np.ones(instance.records)
    with np.errstate(all="ignore"):
        weights = solve(ones)
        # `solve` is used as if the kernel were W, its transpose. The two differ only by the random shrinking of log
        # ratios. Iterative refinement uses the true residual, so it removes this difference as well as rounding errors.
        for _ in range(3):
            check()
            residual = ones - weights @ kernel
            if np.abs(residual).max() < 1e-14:
                break
            weights = weights + solve(residual)
        # If the residual is still larger than this, the kernel is singular up to rounding. The comparison is negated so
        # that NaN counts as larger.
        if not (np.abs(ones - weights @ kernel).max() < 1e-11):
            raise SolverError("its kernel is singular")
        best, serves, anchors = _assign_outputs(instance, symmetry, kernel)
        # y = W^-T b, and the kernel is W'. Conjugate gradients assume a symmetric matrix, which the kernel is up to the
        # random shrinking of log ratios by at most 1e-11. One step of refinement removes the resulting error.
        prices = solve(best)
        prices = prices + solve(best - kernel @ prices)
    return Star(kernel=kernel, weights=weights, serves=serves, prices=prices, anchors=anchors)


def _assign_outputs(instance: Instance, symmetry: Symmetry, kernel: Floats) -> tuple[Floats, Ints, Ints]:
    """Find the cheapest output for each column of the star, and the best column for each output.

    Only one column is computed for each orbit of records.

    Args:
        instance: The problem.
        symmetry: The symmetries of the problem.
        kernel: Array of shape (N, N) with the star's kernel, whose row s is column s of the star.

    Returns:
        Two arrays of shape (N,), with each column's smallest cost over all outputs and the index of the output that
        attains it, and an array of shape (R,) with the anchors. The anchor of a representative output is the record
        whose column has the smallest reduced cost.
    """
    # The smallest image of a record under all symmetries represents its orbit.
    rows = np.unique(symmetry.records.min(axis=0))
    all_outputs = np.arange(instance.outputs)
    # The smallest reduced cost so far for each output, and the record whose column has it.
    min_values, nearest = np.full(instance.outputs, np.inf), np.zeros(instance.outputs, dtype=np.int64)
    best, serves = np.empty(instance.records), np.empty(instance.records, dtype=np.int64)
    # A block of columns, times all outputs, takes up to 320 MB.
    step = max(1, 40_000_000 // instance.outputs)
    for a in range(0, len(rows), step):
        check()
        block = rows[a : a + step]
        part = kernel[block] @ instance.cost
        serves[block], best[block] = part.argmin(axis=1), part.min(axis=1)
        # These are reduced costs: at the star's prices, a column costs nothing at the output that it serves.
        part -= best[block, None]
        min_rows = part.argmin(axis=0)
        value = part[min_rows, all_outputs]
        closer = value < min_values
        min_values[closer], nearest[closer] = value[closer], block[min_rows[closer]]
    for records, outputs in zip(symmetry.records, symmetry.outputs, strict=True):
        best[records[rows]] = best[rows]
        serves[records[rows]] = outputs[serves[rows]]
    # Only one column of each orbit was tried for each output. For an output k = g(r), the best of these, moved by the
    # inverse of g, is a column with the same value for the representative r. The best over an orbit's outputs is
    # therefore the best of all columns.
    orbit_number, member = symmetry.origin()
    order = np.lexsort((min_values, orbit_number))
    best_members = order[np.unique(orbit_number[order], return_index=True)[1]]
    back = np.argsort(symmetry.records[member[best_members]], axis=1)
    anchors = np.take_along_axis(back, nearest[best_members][:, None], axis=1)[:, 0]
    return best, serves, anchors


def star_trees(graph: Graph, anchors: NDArray[Any]) -> Trees:
    """Return one shortest-path tree for each representative output, rooted at the anchor of the output.

    Args:
        graph: The graph of required pairs.
        anchors: Array of shape (R,) with the index of the record at the root of each output's tree.
    """
    parts = in_threads(lambda a, b: shortest_paths(graph, anchors[a:b], trees=True)[1:], len(anchors))
    parent = np.concatenate([part[0] for part in parts])
    entry = np.concatenate([part[1] for part in parts])
    # Every record is below its parent, because the kernel's entries fall along each path.
    return Trees(parent=parent, entry=entry, side=np.full(parent.shape, -1, dtype=np.int8))


def proof(instance: Instance, symmetry: Symmetry, y: Floats, trees: Trees, *, pivots: bool = True) -> Multipliers:
    """Return the multipliers derived from one tree per output.

    By default, the outputs are first priced again at the true log ratios, for at most half of the remaining time. Each
    output then uses the better of its old and its new tree. The result is valid even if two paths have the same length
    or there is not enough time to price every output, because any tree can be turned into a proof.

    Args:
        instance: The problem with all outputs.
        symmetry: The symmetries of the problem.
        y: Array of shape (N,) with the prices.
        trees: One tree per representative output.
        pivots: Whether to price again. If False, the trees are used as they are, which is much faster.
    """
    reduced_instance, exact, candidates = (
        symmetry.keep_representatives(instance),
        make_graph(instance, shrink=0.0),
        [trees],
    )
    if pivots:
        # The unchanged trees remain candidates because pricing may end before it reaches every output.
        candidates.append(trees.copy())
        # Once half of the remaining time is used up, the scope ends only the pricing.
        with clock().limit_to_share(0.5):
            price_all(exact, reduced_instance, y, candidates[1], max_pivots=4 * instance.records)
    return symmetry.lift_multipliers(instance, tree_multipliers(reduced_instance, exact, y, candidates))


def anchored_bound(symmetry: Symmetry, y: Floats, priced: PricingResult) -> float:
    """Return the Lagrangian lower bound at given prices, i.e. the sum of the prices after making them valid.

    Prices are valid if no ray (a vector that satisfies every privacy constraint) has a negative value at these prices.
    To make them valid, each price is reduced by its largest deficit over all outputs. Since rows sum to one, the sum of
    any valid prices is a lower bound. A relative margin of 1e-12 is subtracted to cover rounding errors.

    Args:
        symmetry: The symmetries. All prices in an orbit are reduced by the same amount.
        y: Array of shape (N,) with the prices.
        priced: The result of pricing at ``y``.
    """
    max_deficits = np.zeros(len(symmetry.size))
    np.maximum.at(max_deficits, symmetry.orbit, priced.deficit)
    return float(y.sum() - max_deficits @ symmetry.size - 1e-12 * np.abs(y).sum())


def quick_bound(part: Part, offers: PartOffers) -> None:
    """Offer bounds from shortest-path trees without pivots, at prices between each record's smallest and mean cost.

    The first bound takes little time, because no linear system is solved. This ensures that a bound exists even if no
    solver finishes.

    Args:
        part: A connected instance.
        offers: The search that receives the bounds and the multipliers that prove them.

    Raises:
        OutOfTime: The time limit expired. Earlier offers remain valid.
    """
    instance, symmetry, best_bound = part.instance, part.symmetry, -math.inf
    reduced_instance, min_costs = symmetry.keep_representatives(instance), instance.cost.min(axis=1)
    mean_excess = instance.cost.mean(axis=1) - min_costs
    for price_share in QUICK_SHARES:
        y = min_costs + price_share * mean_excess
        # Each output's tree is rooted at the record with the smallest reduced cost.
        trees = star_trees(part.graph, (reduced_instance.cost - y[:, None]).argmin(axis=0))
        bound = anchored_bound(symmetry, y, price_all(part.graph, reduced_instance, y, trees, max_pivots=0))
        # Usually the bound rises with the share and then falls, so the search ends at the first bound that is worse.
        if bound < best_bound:
            return
        # The trees need no copy, because nothing changes them once they are offered.
        offers.offer("trees", bound=bound, proof=Later(partial(proof, pivots=False), instance, symmetry, y, trees))
        best_bound = bound


def fits_granted_time(operations: float, share: float) -> bool:
    """Return whether an idle machine can perform a given number of operations within a fraction of the time limit.

    If there is no time limit, `MAX_GRANTED_SECONDS` is used instead.

    Args:
        operations: The number of operations.
        share: The fraction of the time limit, from 0 to 1.
    """
    granted_seconds = clock().granted_seconds
    seconds = MAX_GRANTED_SECONDS if granted_seconds == math.inf else granted_seconds
    return operations <= OPERATIONS_PER_SECOND * share * seconds


def is_star_affordable(records: int, outputs: int) -> bool:
    """Return whether an idle machine could compute the star mechanism within half of the time limit.

    The estimate is based on the number of operations, so it does not depend on the machine's load.

    Args:
        records, outputs: The number of records and the number of outputs.
    """
    # The operations for factorising the kernel, and for multiplying it by the costs of all outputs.
    return fits_granted_time(float(records) ** 2 * (records + 2.0 * outputs), HELD_SHARE)


def quick_bound_operations(instance: Instance) -> float:
    """Estimate the number of operations performed by :func:`quick_bound`, ignoring symmetries.

    For each output, one shortest-path search is counted for each of the ``QUICK_SHARES``.
    """
    steps = 2.0 * len(instance.pairs) + instance.records * math.log2(instance.records + 1.0)
    return OPERATIONS_PER_STEP * len(QUICK_SHARES) * instance.outputs * steps


class StarSolver:
    """A solver that offers the star mechanism, if it exists, and lower bounds from pricing."""

    name = "star"

    def peak_bytes(self, part: Part) -> float:
        """Estimate the peak memory in bytes for the star and its proof: five (N, N) arrays and five (N, K) arrays."""
        records, outputs = part.instance.cost.shape
        return float(8 * (5 * records**2 + 5 * records * outputs))

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Offer the star mechanism if it exists, and the bounds proved by its prices.

        The star is a closed-form matrix. If it is not a mechanism, a bound is offered only if the part needs early
        offers.

        Args:
            part: A connected instance.
            offers: The search that receives the mechanism of shape (N, K), bounds and multipliers. It determines the
                gap at which to stop.

        Raises:
            SolverError: The kernel is singular, or the star is not a mechanism because a weight is negative.
            OutOfTime: The time limit expired.
        """
        has_limit = clock().left < math.inf
        with clock().hold() if has_limit and is_star_affordable(*part.instance.cost.shape) else nullcontext():
            star, y, trees = self._offer_star(part, offers)
            if not star.feasible:
                # A bound that was offered above remains valid, whatever method follows.
                raise SolverError(f"{int((star.weights < 0).sum())} of its {len(star.weights)} weights are negative")
            offers.note("", least_weight=float(star.weights.min()), symmetries=part.symmetry.order)
            # If the requested gap is reached, the rounds of pricing below would only improve the bound.
            if has_limit and offers.has_reached_gap and offers.confirm():
                return
            # The few pivots in the first round take little time compared with the star, and usually prove the gap.
            if self._price(part, y, trees, PIVOTS[0], offers):
                return
        for pivot_limit in PIVOTS[1:]:
            if self._price(part, y, trees, pivot_limit, offers):
                return

    def _price(self, part: Part, y: Floats, trees: Trees, pivot_limit: int, offers: PartOffers) -> bool:
        """Price all outputs at the star's prices, and offer the resulting bound.

        Args:
            part: The part.
            y: Array of shape (N,) with the prices.
            trees: One tree per representative output, which is modified in place.
            pivot_limit: The maximum number of pivots for each output.
            offers: The search that receives the bound.

        Returns:
            Whether the gap is reached, as confirmed by the search (:meth:`Offers.confirm`).
        """
        symmetry, instance = part.symmetry, part.instance
        priced = price_all(part.graph, symmetry.keep_representatives(instance), y, trees, max_pivots=pivot_limit)
        offers.note("", pivots=priced.pivots)
        bound = anchored_bound(symmetry, y, priced)
        # The trees are copied, because the next round of pivots changes them in place.
        offers.offer(self.name, bound=bound, proof=Later(proof, instance, symmetry, y, trees.copy()))
        return offers.has_reached_gap and offers.confirm()

    def _offer_star(self, part: Part, offers: PartOffers) -> tuple[Star, Floats, Trees]:
        """Offer the star mechanism if it exists, and a first bound if the part needs early offers.

        Args:
            part: A connected instance. Its ``starred`` attribute is set to whether the star is a mechanism.
            offers: The search that receives the mechanism and the bound.

        Returns:
            The star, an array of shape (N,) with its prices averaged over orbits of records, and a shortest-path tree
            for each representative output.

        Raises:
            SolverError: The kernel is singular.
        """
        instance, symmetry = part.instance, part.symmetry
        star = make_star(instance, symmetry, part.graph)
        part.starred = star.feasible
        y, trees = symmetry.average(star.prices), star_trees(part.graph, star.anchors)
        if star.feasible:
            z = star.mechanism(instance.outputs)
            offers.offer(self.name, candidate=z, value=instance.loss(z))
        # A bound that takes little time is offered first, in case the pricing that follows does not finish in time.
        if part.needs_early_offers:
            multipliers = proof(instance, symmetry, y, trees.copy(), pivots=False)
            offers.offer(self.name, bound=dual_bound(instance, multipliers)[0], proof=multipliers)
        return star, y, trees
