"""Integer programs that fit small hierarchies exactly by least squares (Models 1 and 2), with piecewise-linear costs.

The squared distance is replaced by a convex piecewise-linear function, which has a bend at every integer close to a
centre, such as the result of a fast method. Between these close bends, the function is exact. Farther out, each bend is
twice as far away as the previous one, and at integers the function is at most the squared distance. A solution between
the close bends is therefore optimal. Any other solution becomes the new centre, and the program is solved again.

Variables are differences from the centre, and costs are differences from the cost at the centre. This is because
solvers have relative tolerances and could not resolve a difference of 1 between counts in the millions. Large inputs
are rejected. For these, :mod:`.half_prices` solves Model 1 exactly, and :mod:`.projection` provides a lower bound for
Model 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.errors import SolverError, UsageError
from privopt_hierarchical_dp.tree import Tree

__all__ = ["MOST_NODES", "Fit", "build", "refuse", "solve_exactly"]

MOST_NODES = 2000
"""The maximum number of variables (regions times sizes) in an integer program."""
_FIRST_BENDS = 4
"""The number of close bends on either side of the centre in the first round."""
_MAX_ROUNDS = 40
"""The maximum number of rounds, each of which moves the centre and doubles the number of close bends."""


@frozen(kw_only=True, eq=False)
class Fit:
    """Fitted integers, with a lower bound on the objective.

    Attributes:
        counts: For each level, a (regions, sizes) array with the fitted counts. For Model 2, :func:`solve_exactly`
            returns cumulative counts. :meth:`.Design.fit` returns one such list per table.
        lower_bound: A lower bound on the objective of every valid release, or None if none was computed.
        iterations: The number of iterations of ADMM or the solver.
        solver: The name of the solver.
        proved: Whether the integers are proved to be optimal.
        details: Further results of the method, which are not verified.
    """

    counts: list[Any]
    solver: str
    lower_bound: Fraction | float | None = None
    iterations: int = 0
    proved: bool = False
    details: Mapping[str, Any] = field(factory=dict)


def refuse(tree: Tree, sizes: int, method: str, instead: str) -> None:
    """Raise UsageError if a problem is too large for an integer program.

    Args:
        tree: The region tree.
        sizes: The number of sizes.
        method: The name of the method, used in the error message.
        instead: A suggestion of alternatives to append to the error message.

    Raises:
        UsageError: The problem is too large. The message gives its size and the limit.
    """
    # The program has one integer variable per region and size.
    nodes = tree.regions * sizes
    if nodes > MOST_NODES:
        raise UsageError(
            f"method {method} solves an integer program with one variable for each region and size: {tree.regions:,} "
            f"regions x {sizes:,} sizes = {nodes:,}, but at most {MOST_NODES:,} are allowed; {instead}"
        )


def build(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    bends: Sequence[Ints],
    reach: int,
    total: int,
    totals: Sequence[Ints] | None,
    weights: Sequence[Any],
    cumulative: bool,
) -> tuple[Any, Any, float]:
    """Build Model 1 (counts) or Model 2 (cumulative counts) in privopt's modelling language.

    Squared distances are replaced by convex piecewise-linear costs. Each variable has a centre, around which the bends
    of its cost are most closely spaced.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy values.
        bends: For each level, a (regions, sizes) array with the centres of the variables.
        reach: The number of closely spaced bends on either side of a centre.
        total: The total number G of groups.
        totals: For each level, a (regions,) array with the published totals, or None if they are not published.
        weights: The weight of each level, as a scalar or a (sizes,) array.
        cumulative: Whether to build Model 2 rather than Model 1.

    Returns:
        The model, its variable x[region, size], and the total cost at the centres. The variable is the difference
        between a value and its centre, and the objective of the model does not include the cost at the centres.
    """
    from privopt.dsl import Eq, Index, IndexSet, Le, Model
    from privopt.dsl import total as summed

    size = noisy[0].shape[1]
    names = [label for level in range(tree.depth) for label in tree.labels(level)]
    regions, steps = IndexSet("R", names), IndexSet("S", list(range(1, size + 1)))
    r, p, s = Index("r", regions), Index("p", regions), Index("s", steps)
    model = Model("Model 2" if cumulative else "Model 1")
    centre = np.concatenate([np.asarray(level, dtype=np.int64) for level in bends])
    # No count exceeds its region's total or, if this is not published, the total number of groups.
    max_counts = np.full((len(names), 1), total) if totals is None else np.array(_flatten_levels(totals))[:, None]
    x = model.variable(
        "x", regions, steps, lower=_to_doubles(-centre), upper=_to_doubles(max_counts - centre), kind="integer"
    )
    offsets = centre - np.concatenate([np.asarray(level) for level in noisy])
    scale = np.concatenate(
        [np.broadcast_to(np.asarray(w, dtype=np.float64), level.shape) for w, level in zip(weights, noisy, strict=True)]
    )
    points, cost = _cost_bends(offsets, reach)
    cost *= scale[:, :, None]
    # The variable t[region, size] is the piecewise-linear cost of x[region, size].
    t = model.piecewise("cost", x[r, s], points, values=cost, forall=(r, s))
    model.minimize(summed(t[r, s], over=(r, s)))
    # Every region except the leaves is the sum of its children.
    inner = [(name,) for name in names[: -tree.widths[-1]]]
    if inner:
        members = _membership(tree)
        child = model.param("child", members, regions, regions)
        # Variables are differences from centres that may themselves be inconsistent, so each row adds the parent's
        # centre minus the sum of its children's centres.
        lacking = model.param("lacking", _to_doubles(centre - members.astype(np.int64) @ centre), regions, steps)
        consistent = Eq(summed(child[p, r] * x[r, s], over=r), x[p, s] + lacking[p, s])
        model.require("consistent", consistent, forall=(p, s), where=((p,), inner))
    if cumulative and size > 1:
        # Cumulative counts are non-decreasing: x[s] + centre[s] <= x[s + 1] + centre[s + 1].
        rise = model.param("rise", _to_doubles(np.diff(centre, axis=1, append=0)), regions, steps)
        next_count = x[r, s + 1] + rise[r, s]
        model.require(
            "rising", Le(x[r, s], next_count), forall=(r, s), where=((s,), [(position,) for position in range(1, size)])
        )
    for position, value in enumerate([total] if totals is None else _flatten_levels(totals)):
        groups = x[names[position], size] if cumulative else summed(x[names[position], s], over=s)
        required_change = value - (centre[position, -1] if cumulative else centre[position].sum())
        model.require(f"total of {names[position]}", Eq(groups, int(required_change)))
    return model, x, float((scale * offsets**2).sum())


def _cost_bends(offsets: Ints, reach: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return piecewise-linear costs that do not exceed the exact costs at any integer.

    The exact cost of a difference k from the centre is (offset + k)^2 - offset^2 = k (2 offset + k). The line through
    its values at k = j and k = j + 1 is (2 offset + 2j + 1) k - j (j + 1), which is at most the cost at every integer
    k. The piecewise-linear cost is the maximum of these lines over -reach <= j < reach, and over a few more values of
    j, whose distance from the centre doubles each time.

    Args:
        offsets: (regions, sizes) The centres minus the noisy values.
        reach: The number of closely spaced bends on either side of the centre.

    Returns:
        Two (regions, sizes, bends) arrays: the differences k at the bends, and the costs there.
    """
    outer_bends = [2 * reach]
    # The outer lines must cover every possible move of the fit. Doubling their distance keeps their number logarithmic.
    while outer_bends[-1] < max(1024, 4 * int(np.abs(offsets).max(initial=0))):
        outer_bends.append(2 * outer_bends[-1])
    right = np.array(outer_bends)
    j = np.concatenate([-1 - right[::-1], np.arange(-reach, reach), right])
    # The lines for j and j' cross at k = (j + j' + 1) / 2.
    bend_points = np.concatenate([[j[0]], (j[:-1] + j[1:] + 1) / 2, [j[-1] + 1]])
    # Each point except the last is evaluated on the line to its right, and the last one on the last line.
    line = np.append(j, j[-1])
    values = (2 * offsets[:, :, None] + 2 * line + 1) * bend_points - line * (line + 1)
    return np.broadcast_to(bend_points, values.shape).copy(), values


def _to_doubles(values: Any) -> NDArray[np.float64]:
    """Return integers as an array of doubles, as required by the modelling language."""
    return np.asarray(values, dtype=np.float64)


def _flatten_levels(totals: Sequence[Ints]) -> list[int]:
    """Return the totals of all regions as a single list, level by level."""
    return [int(value) for level in totals for value in level]


def _membership(tree: Tree) -> NDArray[np.float64]:
    """Return a (regions, regions) matrix whose entry (i, j) is 1 if region j is a child of region i, otherwise 0."""
    # The row of each level's first region.
    offsets = np.concatenate([[0], np.cumsum(tree.widths)])
    table = np.zeros((offsets[-1], offsets[-1]))
    for level in range(1, tree.depth):
        children = np.arange(tree.widths[level]) + offsets[level]
        table[tree.parents(level) + offsets[level - 1], children] = 1.0
    return table


def solve_exactly(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    start: Sequence[Ints],
    total: int,
    totals: Sequence[Ints] | None = None,
    weights: Sequence[Any] | None = None,
    cumulative: bool = False,
    backend: str = "cbc",
) -> Fit:
    """Solve Model 1 or Model 2 to proven optimality.

    The size of the problem is not checked here, so call :func:`refuse` first.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy values.
        start: For each level, a (regions, sizes) array with an initial guess. The program's piecewise-linear costs
            are initially most accurate near this guess.
        total: The total number G of groups.
        totals: For each level, a (regions,) array with the published totals, or None if they are not published.
        weights: The weight of each level, as a scalar or a (sizes,) array. By default, all weights are 1.
        cumulative: Whether to solve Model 2 (cumulative counts) rather than Model 1 (counts).
        backend: The solver, ``"cbc"`` or ``"highs"``.

    Returns:
        The optimal solution. If time ran out, the best solution found so far is returned, with ``proved`` set to False.

    Raises:
        StoppedError: No time is left, or time ran out before a feasible solution was found.
        SolverError: After `_MAX_ROUNDS` rounds, the solution is still outside the range in which the costs are exact.
    """
    weight = [1.0] * tree.depth if weights is None else list(weights)
    edges = np.cumsum(tree.widths)[:-1]
    centre = [np.asarray(level, dtype=np.int64) for level in start]
    reach, iteration_count = _FIRST_BENDS, 0
    build_around = partial(build, tree, noisy, total=total, totals=totals, weights=weight, cumulative=cumulative)
    for _ in range(_MAX_ROUNDS):
        model, x, base = build_around(bends=centre, reach=reach)
        solution = model.solve(backend, gap=0.0)
        iteration_count += int(solution.iterations or 0)
        # Integer variables are accurate only within the solver's tolerance.
        table = np.round(np.asarray(solution.value(x.name)).reshape(tree.regions, -1))
        moves = [part.astype(np.int64) for part in np.split(table, edges)]
        values = [c + m for c, m in zip(centre, moves, strict=True)]
        max_move = max(int(np.abs(m).max(initial=0)) for m in moves)
        is_optimal = solution.status == "optimal"
        # Costs are exact between the close bends, so an optimal solution there also minimises the squared distance.
        if max_move <= reach or not is_optimal:
            return Fit(
                counts=values,
                # The model's objective leaves out the cost of the centres.
                lower_bound=-math.inf if solution.bound is None else float(solution.bound) + base,
                iterations=iteration_count,
                solver=solution.solver,
                proved=is_optimal,
            )
        # Outside the close bends, costs are only lower bounds, so the bends are centred on the solution and their
        # number is doubled.
        centre = values
        reach *= 2
    raise SolverError("the piecewise costs never covered the solution: the start lies too far from the optimum")
