"""The star mechanism: columns are scaled shortest-path kernels, in closed form.

``Z = W diag(x)``, ``W_is = exp(-eps D_is)``, ``W x = 1``. Its columns are extreme rays of the cone and
its weights depend on the geometry alone. Column ``s`` serves the output that is cheapest for it; with
``b_s = min_k (W' cost)_sk`` the prices are ``y = W^-T b``. It is a mechanism when ``x >= 0``, and the
optimal one when pricing at ``y`` finds no ray of negative value; where every column of ``cost - y``
has at most one negative entry the shortest-path tree proves that without a pivot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import SolverError, StoppedError
from privopt.execution.limits import check_end, ending_at, in_threads
from privopt.interfaces import Progress
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.components import solve_by_component
from privopt_metric_dp.solvers.instance import Instance, Solution, dual_bound
from privopt_metric_dp.solvers.path_graph import Graph, make_graph, shortest_paths
from privopt_metric_dp.solvers.symmetry import Symmetry, find_symmetry
from privopt_metric_dp.solvers.tree_pricing import Priced, Trees, price, tree_multipliers

__all__ = [
    "GRACE",
    "Star",
    "anchored_bound",
    "gradients",
    "kernel_of",
    "make_star",
    "price_all",
    "proof",
    "solution_of",
    "solve_star",
    "star_trees",
]


BETWEEN_LOOKS = 1
"""Outputs priced between two looks at the clock."""

VISITS = 200_000_000
"""Entries of the graph that pricing one output goes through, at most, where the clock matters: about a second."""

GRACE = 1.0
"""Seconds that multipliers may take after a deadline at which pricing was done."""

DEEPEST = 230.0
"""Log-ratios are cut here: min(D, r) keeps all ratios allowed, and no product leaves the range of doubles."""


@frozen(kw_only=True, eq=False)
class Star:
    """Kernel, weights, services and prices of the star mechanism of a connected instance.

    Attributes:
        graph: required-pairs graph.
        kernel: ``(N, N)`` the matrix W transposed: row s is column s of W. Symmetric up to the graph's
            random shrinking, every row inside the cone.
        weights: ``(N,)`` the solution x of ``W x = 1``; negative entries mean that there is no star.
        serves: ``(N,)`` output that column s serves.
        prices: ``(N,)`` the dual candidate y.
        anchors: ``(R,)`` record whose column comes nearest to pricing out for each representative output.
    """

    graph: Graph
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
        """The matrix ``(N, K)``."""
        z = np.zeros((len(self.weights), outputs))
        if len(np.unique(self.serves)) == len(self.serves):
            z[:, self.serves] = self.kernel.T * self.weights
        else:
            for s, k in enumerate(self.serves):
                z[:, k] += self.kernel[s] * self.weights[s]
        return z


def kernel_of(graph: Graph, symmetry: Symmetry) -> Floats:
    """Rows ``exp(-eps D(s, .))``, each one ray of the cone."""
    rows = np.unique(symmetry.records.min(axis=0))

    def rays(a: int, b: int) -> Floats:
        length = shortest_paths(graph, rows[a:b])[0]
        return np.asarray(np.exp(-np.minimum(length, DEEPEST)))

    few: Floats = np.concatenate(in_threads(rays, len(rows)))
    if symmetry.order == 1:
        return few
    kernel = np.empty((graph.records, graph.records))
    for image in symmetry.records:
        kernel[np.ix_(image[rows], image)] = few
    return kernel


def gradients(kernel: Floats, right: Floats, *, steps: int = 60, share: float = 1e-12) -> Floats | None:
    """Conjugate gradients, down to a share of the right side; None where they need more steps."""
    from scipy.sparse.linalg import cg

    x, failed = cg(kernel, right, rtol=share, atol=0.0, maxiter=steps)
    return None if failed else np.asarray(x)


def _solver(kernel: Floats) -> Callable[[Floats], Floats]:
    """Approximate inverse of the kernel: conjugate gradients while they converge fast, else a factor."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve, lu_factor, lu_solve

    if gradients(kernel, np.ones(len(kernel))) is not None:

        def iterative(right: Floats) -> Floats:
            answer = gradients(kernel, right)
            return np.asarray(np.linalg.solve(kernel, right)) if answer is None else answer

        return iterative
    try:
        factor = cho_factor(kernel, lower=True, check_finite=False)
        return lambda right: np.asarray(cho_solve(factor, right, check_finite=False))
    except LinAlgError:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # singularity shows in the residual
            mixed = lu_factor(kernel, check_finite=False)
        return lambda right: np.asarray(lu_solve(mixed, right, check_finite=False))


def make_star(instance: Instance, symmetry: Symmetry) -> Star:
    """Build the star of a connected instance.

    Raises:
        StoppedError: the end of the time limit has come.
        SolverError: the kernel is singular (it can be for graph metrics).
    """
    graph = make_graph(instance)
    kernel = kernel_of(graph, symmetry)
    check_end()
    solve = _solver(kernel)
    one = np.ones(instance.records)
    with np.errstate(all="ignore"):
        weights = solve(one)
        for _ in range(3):
            check_end()
            residual = one - weights @ kernel
            if np.abs(residual).max() < 1e-14:
                break
            weights = weights + solve(residual)
        if not (np.abs(one - weights @ kernel).max() < 1e-11):
            raise SolverError("its kernel is singular")
        best, serves, anchors = _serve(instance, symmetry, kernel)
        prices = solve(best)
        prices = prices + solve(best - kernel @ prices)
    return Star(graph=graph, kernel=kernel, weights=weights, serves=serves, prices=prices, anchors=anchors)


def _serve(instance: Instance, symmetry: Symmetry, kernel: Floats) -> tuple[Floats, Ints, Ints]:
    """Cheapest cost and output of each column, and the anchors; one column of each orbit is looked at."""
    rows = np.unique(symmetry.records.min(axis=0))
    number = np.arange(instance.outputs)
    least, nearest = np.full(instance.outputs, np.inf), np.zeros(instance.outputs, dtype=np.int64)
    best, serves = np.empty(instance.records), np.empty(instance.records, dtype=np.int64)
    step = max(1, 40_000_000 // instance.outputs)
    for a in range(0, len(rows), step):
        check_end()
        here = rows[a : a + step]
        part = kernel[here] @ instance.cost
        serves[here], best[here] = part.argmin(axis=1), part.min(axis=1)
        part -= best[here, None]
        at = part.argmin(axis=0)
        value = part[at, number]
        closer = value < least
        least[closer], nearest[closer] = value[closer], here[at[closer]]
    for records, outputs in zip(symmetry.records, symmetry.outputs, strict=True):
        best[records[rows]] = best[rows]
        serves[records[rows]] = outputs[serves[rows]]
    place, member = symmetry.origin()
    order = np.lexsort((least, place))
    first = order[np.unique(place[order], return_index=True)[1]]
    back = np.argsort(symmetry.records[member[first]], axis=1)
    anchors = np.take_along_axis(back, nearest[first][:, None], axis=1)[:, 0]
    return best, serves, anchors


def star_trees(graph: Graph, anchors: NDArray[Any]) -> Trees:
    """Shortest-path trees, one for each output, rooted at its anchor."""
    parts = in_threads(lambda a, b: shortest_paths(graph, anchors[a:b], trees=True)[1:], len(anchors))
    parent = np.concatenate([part[0] for part in parts])
    entry = np.concatenate([part[1] for part in parts])
    return Trees(parent=parent, entry=entry, side=np.full(parent.shape, -1, dtype=np.int8))


def price_all(
    graph: Graph, instance: Instance, y: Floats, trees: Trees, *, most: int = 1_000_000, deadline: float | None = None
) -> Priced:
    """Price every output of an instance, in threads; at most so many pivots an output, fewer under a deadline.

    Raises:
        StoppedError: the deadline (of `time.monotonic`) came first.
    """

    def one(first: int, end: int) -> list[Priced]:
        step, pivots = end - first, most
        if deadline is not None:
            step, pivots = BETWEEN_LOOKS, min(most, 1 + VISITS // max(1, len(graph.other)))
        found = []
        for a in range(first, end, step):
            if deadline is not None and time.monotonic() >= deadline:
                raise StoppedError("the time limit came before all outputs were priced")
            b = min(a + step, end)
            part = Trees(parent=trees.parent[a:b], entry=trees.entry[a:b], side=trees.side[a:b])
            found.append(price(graph, instance.cost[:, a:b], y, part, most=pivots))
        return found

    parts = [part for found in in_threads(one, instance.outputs) for part in found]
    return Priced(
        value=np.concatenate([part.value for part in parts]),
        deficit=np.max([part.deficit for part in parts], axis=0),
        ray=np.concatenate([part.ray for part in parts]),
        optimal=all(part.optimal for part in parts),
        pivots=sum(part.pivots for part in parts),
    )


def proof(
    instance: Instance, symmetry: Symmetry, y: Floats, trees: Trees, *, deadline: float | None = None
) -> Multipliers:
    """Multipliers from trees as they are and priced once more at the true log-ratios, whichever prove more.

    A tree whose accumulated reduced costs have the right signs is a proof whether or not its ray is feasible,
    so ties do no harm here, nor outputs that had no turn before the deadline.
    """
    few, exact = symmetry.reduced(instance), make_graph(instance, shrink=0.0)
    again = Trees(parent=trees.parent.copy(), entry=trees.entry.copy(), side=trees.side.copy())
    with suppress(StoppedError):
        price_all(exact, few, y, again, most=4 * instance.records, deadline=deadline)
    return symmetry.lift_multipliers(instance, tree_multipliers(few, exact, y, (trees, again)))


def anchored_bound(symmetry: Symmetry, y: Floats, priced: Priced) -> float:
    """Lagrangian bound: a row sums to one, so each record loses at most the most that any output lacks there.

    A share of 1e-12 is taken off for rounding errors.
    """
    most = np.zeros(len(symmetry.size))
    np.maximum.at(most, symmetry.orbit, priced.deficit)
    return float(y.sum() - most @ symmetry.size - 1e-12 * np.abs(y).sum())


def solution_of(
    instance: Instance, symmetry: Symmetry, star: Star, gap: float, deadline: float | None, progress: Progress | None
) -> Solution:
    """The star as an answer, its gap proved by pricing; where the deadline comes first, by trees without a pivot.

    Raises:
        SolverError: negative weights: the star is no mechanism here.
    """
    began = time.monotonic()
    if not star.feasible:
        negative = int((star.weights < 0).sum())
        raise SolverError(f"{negative} of its {len(star.weights)} weights are negative")
    z = star.mechanism(instance.outputs)
    objective = instance.loss(z)
    few = symmetry.reduced(instance)
    y = symmetry.average(star.prices)
    trees = star_trees(star.graph, star.anchors)
    try:
        priced = price_all(star.graph, few, y, trees, deadline=deadline)
        bound, pivots = anchored_bound(symmetry, y, priced), priced.pivots
        multipliers = proof(instance, symmetry, y, trees, deadline=None if deadline is None else deadline + GRACE)
    except StoppedError:
        multipliers, pivots = proof(instance, symmetry, y, trees, deadline=deadline), 0
        try:
            with ending_at(None if deadline is None else deadline + GRACE):
                bound = dual_bound(instance, multipliers)[0]
        except StoppedError:  # no time is left for any: each record's cheapest output needs none
            multipliers = Multipliers.zero(len(instance.pairs), instance.outputs)
            bound = float(instance.cost.min(axis=1).sum())
    if progress is not None:
        progress("star", 1, bound, objective)
    late = deadline is not None and time.monotonic() >= deadline
    reached = instance.reached(objective, bound, gap)
    return Solution(
        z=z,
        objective=objective,
        lower_bound=bound,
        multipliers=multipliers,
        method="star",
        iterations=1,
        trajectory=((time.monotonic() - began, bound, objective),),
        status="optimal" if reached else "stopped" if late else "feasible",
        details={
            "pivots": pivots,
            "least_weight": float(star.weights.min()),
            "symmetries": symmetry.order,
        },
    )


def _solve_connected(instance: Instance, gap: float, deadline: float | None, progress: Progress | None) -> Solution:
    symmetry = find_symmetry(instance, deadline=deadline)
    with ending_at(deadline):
        star = make_star(instance, symmetry)
    return solution_of(instance, symmetry, star, gap, deadline, progress)


def solve_star(
    instance: Instance, *, gap: float = 1e-6, deadline: float | None = None, progress: Progress | None = None
) -> Solution:
    """Build the star mechanism and prove its gap by pricing.

    Raises:
        SolverError: singular kernel or negative weights: the star is no mechanism here.
    """
    try:
        return solve_by_component(
            instance, lambda part: _solve_connected(part, gap, deadline, progress), gap, deadline=deadline
        )
    except SolverError as error:
        raise SolverError(f"no star here: {error}; take interior-point or column-generation") from error
