"""Exact integer least-squares fits of small hierarchies (Models 1 and 2), squares as piecewise-linear costs.

The squared distance is a convex piecewise-linear term with a bend at every integer near the
continuous optimum. Further out its pieces are fewer, twice as far each time, and lie below the parabola,
so a solution that stays between the close bends is optimal; one that does not becomes their new centre.
Values are counted from the bends' centres, and costs from the cost there: solvers work to a share of
what they see, and counts of millions would leave nothing of a difference of 1.
For small inputs: the size is refused otherwise, since half-prices solve Model 1 exactly at any size
and the joint projection bounds Model 2.
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
_FIRST_BENDS = 4  # bends on either side of the centre at first
_MAX_ROUNDS = 40


@frozen(kw_only=True, eq=False)
class Fit:
    """Fitted integers, and a bound on their objective.

    Attributes:
        counts: For each level (R_l, N) the counts, or the cumulative counts of an integer program; for several tables,
            for each table.
        lower_bound: A lower bound on the objective of every valid release; None if there is none.
        iterations: The number of iterations of ADMM or of the solver.
        solver: The name of the solver.
        proved: Whether the integers are proved to be optimal.
        details: Further statements of the method, which are not verified.
    """

    counts: list[Any]
    solver: str
    lower_bound: Fraction | float | None = None
    iterations: int = 0
    proved: bool = False
    details: Mapping[str, Any] = field(factory=dict)


def refuse(tree: Tree, sizes: int, method: str, instead: str) -> None:
    """Refuse a problem that is too large for an integer program.

    Raises:
        UsageError: The problem's size, and the greatest possible size.
    """
    # One integer variable for each region and size.
    nodes = tree.regions * sizes
    if nodes > MOST_NODES:
        raise UsageError(
            f"method {method} solves an integer program with one variable for each region and size: "
            f"{tree.regions:,} regions x {sizes:,} sizes = {nodes:,}, and at most {MOST_NODES:,} are taken; {instead}"
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
    """Build Model 1 (counts) or Model 2 (cumulative counts) in the modelling language.

    Args:
        tree: the hierarchy.
        noisy: for each level (R_l, N) noisy values.
        bends: for each level (R_l, N) centres of the bends.
        reach: bends on either side of a centre.
        total: G.
        totals: for each level (R_l,) region totals, where they are published.
        weights: for each level its weight: a number or (N,).
        cumulative: Model 2.

    Returns:
        The model, its variable x[region, size] (the count less its centre), and the cost of the centres, which the
        model's objective omits.
    """
    from privopt.dsl import Eq, Index, IndexSet, Le, Model
    from privopt.dsl import total as summed

    size = noisy[0].shape[1]
    names = [label for level in range(tree.depth) for label in tree.labels(level)]
    regions, steps = IndexSet("R", names), IndexSet("S", list(range(1, size + 1)))
    r, p, s = Index("r", regions), Index("p", regions), Index("s", steps)
    model = Model("Model 2" if cumulative else "Model 1")
    centre = np.concatenate([np.asarray(level, dtype=np.int64) for level in bends])
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
    t = model.piecewise("cost", x[r, s], points, values=cost, forall=(r, s))
    model.minimize(summed(t[r, s], over=(r, s)))
    inner = [(name,) for name in names[: -tree.widths[-1]]]
    if inner:
        members = _membership(tree)
        child = model.param("child", members, regions, regions)
        lacking = model.param("lacking", _to_doubles(centre - members.astype(np.int64) @ centre), regions, steps)
        consistent = Eq(summed(child[p, r] * x[r, s], over=r), x[p, s] + lacking[p, s])
        model.require("consistent", consistent, forall=(p, s), where=((p,), inner))
    if cumulative and size > 1:
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
    """Return where the costs ``k (2 away + k)`` bend, and their values there, (R, S, B) each.

    The line through k = j and j + 1, ``(2 away + 2j + 1) k - j (j + 1)``, is at most the cost at every integer. All
    lines with -reach <= j < reach are taken, and beyond them every j twice as far as the one before.
    """
    outer_bends = [2 * reach]
    while outer_bends[-1] < max(1024, 4 * int(np.abs(offsets).max(initial=0))):
        outer_bends.append(2 * outer_bends[-1])
    right = np.array(outer_bends)
    j = np.concatenate([-1 - right[::-1], np.arange(-reach, reach), right])
    bend_points = np.concatenate([[j[0]], (j[:-1] + j[1:] + 1) / 2, [j[-1] + 1]])
    line = np.append(j, j[-1])
    values = (2 * offsets[:, :, None] + 2 * line + 1) * bend_points - line * (line + 1)
    return np.broadcast_to(bend_points, values.shape).copy(), values


def _to_doubles(values: Any) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)


def _flatten_levels(totals: Sequence[Ints]) -> list[int]:
    return [int(value) for level in totals for value in level]


def _membership(tree: Tree) -> NDArray[np.float64]:
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

    Args:
        tree, noisy, total, totals, weights, cumulative: see `build`.
        start: for each level (R_l, N) a guess that the bends are laid around.
        backend: ``"cbc"`` or ``"highs"``.

    Raises:
        UsageError: more than `MOST_NODES` variables (call `refuse` before, with the method's name).
        StoppedError: no time is left, or it ran out before anything feasible.
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
        table = np.round(np.asarray(solution.value(x.name)).reshape(tree.regions, -1))
        moves = [part.astype(np.int64) for part in np.split(table, edges)]
        values = [c + m for c, m in zip(centre, moves, strict=True)]
        max_move = max(int(np.abs(m).max(initial=0)) for m in moves)
        is_optimal = solution.status == "optimal"
        # Between the close bends the cost is exact, so a solution that stays there is optimal for the squares too.
        if max_move <= reach or not is_optimal:
            return Fit(
                counts=values,
                lower_bound=-math.inf if solution.bound is None else float(solution.bound) + base,
                iterations=iteration_count,
                solver=solution.solver,
                proved=is_optimal,
            )
        # The solution left the close bends, where costs are only bounded from below: centre them there and widen them.
        centre = values
        reach *= 2
    raise SolverError("the bends never caught up with the solution: the start lies too far from the optimum")
