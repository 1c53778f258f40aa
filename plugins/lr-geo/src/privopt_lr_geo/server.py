"""The server's side: CLR-Geo over what users uploaded (Equations (20) to (22)), whole or by Benders decomposition.

It sees packages alone: no record has a name here, rows are in the users' own random order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from privopt.problem.pairs import reduce_pairs
from privopt_lr_geo.package import Answer, Package, Terms

if TYPE_CHECKING:
    from privopt.dsl import Model
    from privopt.interfaces import SolveContext

__all__ = ["Central", "Piece", "Solved", "solve"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SWEEPS: Final = 3
"""Turns that each user's program has at most before the decomposition starts."""
ASCENT: Final = 2e-3
"""Relative gain of a sweep below which no other follows."""


@frozen(kw_only=True, eq=False)
class Piece:
    """A user's block of CLR-Geo.

    Attributes:
        entries: (E, 2) row and column of each free entry.
        mass: (n, K) coefficient of y_k in the row's sum; 0 where the entry is free.
        above, below: (E,) a free entry lies between exp(below) y_k and exp(above) y_k; infinite where no tied record
            is near.
        rows: (R, 2) free entries e, g with z_e <= exp(budget) z_g.
        budgets: (R,) eps d.
        costs: (n, K) scaled.
    """

    entries: Ints
    mass: Floats
    above: Floats
    below: Floats
    rows: Ints
    budgets: Floats
    costs: Floats


@frozen(kw_only=True, eq=False)
class Central:
    """CLR-Geo as arrays.

    y is scaled so that 1 is the greatest tied probability of a column.

    Attributes:
        pieces: one a user.
        columns: (C,) the outputs that y is over.
        shift: (K,) log of what y was scaled by; nan where no entry of the column is tied.
        scale: what costs were divided by.
        flat: the output that stands for all those at r_obf or more from every record of every user, or -1. They
            differ in cost alone, so the cheapest takes their mass in some optimal solution.
    """

    pieces: tuple[Piece, ...]
    columns: Ints
    shift: Floats
    scale: float
    flat: int


@frozen(kw_only=True, eq=False)
class Solved:
    """What the server found.

    Attributes:
        answers: one a package, rows in its order.
        value: of CLR-Geo's objective, in the unit of the packages' costs.
        lower_bound: proved for the program solved; None without one.
        y: (K,) scaled weights.
    """

    answers: tuple[Answer, ...]
    value: float
    lower_bound: float | None
    y: Floats
    stopped: bool
    solver: dict[str, Any]
    details: dict[str, Any] = field(factory=dict)

    @property
    def gap(self) -> float | None:
        """Relative gap of the program; None without a bound."""
        if self.lower_bound is None:
            return None
        return max(0.0, self.value - self.lower_bound) / max(abs(self.value), 1e-12)


def assemble(packages: Sequence[Package], terms: Terms) -> Central:
    """Put packages together. Cost: needed pairs times outputs, a user."""
    exponents = [
        -terms.epsilon * terms.exponent * np.minimum(package.reach, terms.obfuscation_radius) for package in packages
    ]
    tied = [np.where(package.free, -np.inf, part) for package, part in zip(packages, exponents, strict=True)]
    top = np.max([part.max(axis=0) for part in tied], axis=0)
    shift = np.where(np.isfinite(top), top, np.nan)
    far = np.isfinite(top) & np.all([(part == top).all(axis=0) for part in tied], axis=0)
    total = np.sum([package.costs.sum(axis=0) for package in packages], axis=0)
    flat = int(np.flatnonzero(far)[total[far].argmin()]) if far.any() else -1
    used = np.isfinite(top) & ~far
    if flat >= 0:
        used[flat] = True
    scale = float(np.mean([np.abs(package.costs).mean() for package in packages])) or 1.0
    pieces = tuple(
        _piece(package, part - np.where(np.isfinite(top), top, 0.0), used, terms, scale)
        for package, part in zip(packages, exponents, strict=True)
    )
    return Central(pieces=pieces, columns=np.flatnonzero(used), shift=shift, scale=scale, flat=flat)


def _piece(package: Package, exponents: Floats, used: NDArray[np.bool_], terms: Terms, scale: float) -> Piece:
    free = package.free
    pairs, lengths = _pairs(package, terms)
    above, below = np.full(free.shape, np.inf), np.full(free.shape, -np.inf)
    number = np.full(free.shape, -1, dtype=np.int64)
    entries = np.argwhere(free)
    number[free] = np.arange(len(entries))
    rows, budgets = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0)]
    for (i, j), length in zip(pairs.tolist(), lengths.tolist(), strict=True):
        budget = terms.epsilon * length
        for one, other in ((i, j), (j, i)):
            both = np.flatnonzero(free[one] & free[other])
            rows.append(np.column_stack([number[one, both], number[other, both]]))
            budgets.append(np.full(len(both), budget))
            edge = np.flatnonzero(free[one] & ~free[other])
            above[one, edge] = np.minimum(above[one, edge], exponents[other, edge] + budget)
            below[one, edge] = np.maximum(below[one, edge], exponents[other, edge] - budget)
    mass = np.where(free | ~used, 0.0, np.exp(np.minimum(exponents, 0.0)))
    return Piece(
        entries=entries,
        mass=mass,
        above=above[free],
        below=below[free],
        rows=np.concatenate(rows),
        budgets=np.concatenate(budgets),
        costs=package.costs / scale,
    )


def _pairs(package: Package, terms: Terms) -> tuple[Ints, Floats]:
    """Required pairs of a package that imply all its others."""
    i, j = np.triu_indices(len(package.distances), 1)
    lengths = package.distances[i, j]
    wanted = np.isfinite(lengths) if terms.within is None else lengths <= terms.within
    pairs, lengths = np.column_stack([i, j])[wanted].astype(np.int64), lengths[wanted]
    needed = reduce_pairs(pairs, lengths)
    return pairs[needed], lengths[needed]


def central_model(central: Central, surcharge: Floats | None = None) -> Model:
    """CLR-Geo in the modelling language: y shared, and for each user its own free entries z.

    Args:
        central: the arrays.
        surcharge: (C,) added to the costs of y.
    """
    from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, exp, total

    m = Model("CLR-Geo")
    Y = IndexSet("Y", central.columns.tolist())
    place = np.full(len(central.shift), -1, dtype=np.int64)
    place[central.columns] = np.arange(len(central.columns))
    k = Index("k", Y)
    y = m.variable("y", Y, lower=0, upper=1)
    whole = sum((piece.mass * piece.costs).sum(axis=0) for piece in central.pieces)
    a = m.param("a", np.asarray(whole)[central.columns] + (0.0 if surcharge is None else surcharge))
    objective = total(a[k] * y[k], over=k)
    for n, piece in enumerate(central.pieces):
        row, column = piece.entries.T
        X, E = IndexSet(f"X{n}", len(piece.mass)), IndexSet(f"E{n}", max(1, len(piece.entries)))
        i, e, h = Index("i", X), Index("e", E), Index("h", E)
        z = m.variable(f"z{n}", E, lower=0, upper=1 if len(piece.entries) else 0)
        c = m.param(f"c{n}", piece.costs[row, column] if len(row) else np.zeros(1))
        objective = objective + total(c[e] * z[e], over=e)
        member = np.zeros((len(piece.mass), len(E)))
        member[row, np.arange(len(row))] = 1.0
        b, g = m.param(f"in{n}", member), m.param(f"g{n}", piece.mass[:, central.columns])
        total_mass = total(b[i, e] * z[e], over=e) + total(g[i, k] * y[k], over=k)
        m.require(f"mass {n}", Eq(total_mass, 1), forall=i)
        if len(piece.rows):
            ratio = np.full((len(E), len(E)), 0.0) if len(E) <= 1500 else None
            if ratio is not None:
                ratio[piece.rows[:, 0], piece.rows[:, 1]] = piece.budgets
            budget = m.param(f"d{n}", ratio if ratio is not None else _lookup(piece.rows, piece.budgets, len(E)))
            m.require(f"geo-ind {n}", Le(z[e], exp(budget[e, h]) * z[h]), forall=(e, h), where=piece.rows)
        for name, limits, relation in (("above", piece.above, Le), ("below", piece.below, Ge)):
            found = np.flatnonzero(np.isfinite(limits))
            if len(found):
                bound = m.param(f"{name}{n}", limits)
                where = np.column_stack([found, place[column[found]]])
                m.require(
                    f"{name} {n}", relation(z[e], exp(bound[e]) * y[k]), forall=(e, k), where=where, privacy=False
                )
    m.minimize(objective)
    return m


def _lookup(rows: Ints, budgets: Floats, width: int) -> Any:
    """A table over pairs of entries too large to hold, as a function."""
    keys = rows[:, 0] * width + rows[:, 1]
    order = np.argsort(keys)
    keys, values = keys[order], budgets[order]
    return lambda e, h: values[np.searchsorted(keys, np.asarray(e) * width + np.asarray(h))]


def solve(packages: Sequence[Package], terms: Terms, context: SolveContext) -> Solved:
    """CLR-Geo over packages, by ``context.method`` ``benders`` or ``full``.

    Raises:
        InfeasibleError: no weights y >= 0 make the rows sum to one.
        StoppedError: the time limit came before anything feasible.
        SolverError: the solver failed.
    """
    central = assemble(packages, terms)
    context.check()
    context.report(f"{len(packages)} users, {len(central.columns):,} shared columns")
    model = central_model(central)
    if context.method == "benders":
        return _benders(central, model, packages, terms, context)
    return _full(central, model, context)


def _full(central: Central, model: Model, context: SolveContext) -> Solved:
    solution = model.solve(context.solver, time_limit=context.remaining, gap=context.gap)
    form = solution.form
    bound = None if solution.duals is None else dual_bound(form, np.asarray(solution.duals))
    return _solved(
        central,
        form,
        np.asarray(solution.x),
        bound,
        solution.status != "optimal",
        {"name": context.solver, "version": solution.solver, "iterations": solution.iterations},
        {},
    )


def dual_bound(form: Any, duals: Floats) -> float:
    """Weak duality in doubles: what multipliers prove of a minimum whose columns lie between finite bounds."""
    rows = np.where(duals > 0, form.row_lower, form.row_upper)
    usable = np.isfinite(rows)
    multipliers = np.where(usable, duals, 0.0)
    reduced = form.c - form.A.T @ multipliers
    sides = np.where(reduced > 0, form.col_lower, form.col_upper)
    return float(multipliers[usable] @ rows[usable] + reduced @ sides + form.c0)


def _benders(
    central: Central, model: Model, packages: Sequence[Package], terms: Terms, context: SolveContext
) -> Solved:
    from privopt import __version__
    from privopt.decompose import Benders, Start

    form = model.compile()
    blocks = []
    for n in range(len(central.pieces)):
        block = form.variable(f"z{n}")
        blocks.append(np.arange(block.start, block.stop))
    start = Start(x=start_point(central, form, packages, terms), multipliers=_separate(central, form, context))
    found = Benders(solver="highs").solve(form, blocks, context, start=start)
    return _solved(
        central,
        form,
        np.asarray(found.x),
        found.bound,
        found.status == "stopped",
        {"name": "benders, highs", "version": __version__, "iterations": found.rounds},
        {
            "trajectory": [(s, low * central.scale, high * central.scale) for s, low, high in found.trajectory],
            "benders": found.details,
        },
    )


def _separate(central: Central, form: Any, context: SolveContext) -> list[Floats]:
    """Multipliers from each user's program by itself, dual feasible for all together.

    First each with y of its own. Then coordinate ascent in the dual: a user's y bears, beside its own costs, what the
    others' multipliers leave of theirs, and no program solved lowers the bound. Nothing where the time runs out
    before every user had its turn.
    """
    whole = [(piece.mass * piece.costs).sum(axis=0)[central.columns] for piece in central.pieces]
    left = list(whole)  # what each user's multipliers leave of its own costs of y
    duals: list[Floats] = [np.zeros(0)] * len(whole)
    values = np.zeros(len(whole))
    for sweep in range(SWEEPS if len(whole) > 1 else 1):
        before = values.sum()
        for n, piece in enumerate(central.pieces):
            if context.remaining == 0.0:
                return [] if sweep == 0 else [np.concatenate(duals)]
            others = np.sum([part for m, part in enumerate(left) if m != n], axis=0) if sweep else None
            alone = central_model(evolve(central, pieces=(piece,)), others)
            solution = alone.solve("highs", time_limit=context.remaining, gap=context.gap)
            if solution.duals is None:
                return [] if sweep == 0 else [np.concatenate(duals)]
            duals[n], y = np.asarray(solution.duals), solution.form.variable("y")
            left[n] = whole[n] - (solution.form.A.T @ duals[n])[y.start : y.stop]
            values[n] = solution.objective
        context.report("separate programs", sweep + 1)
        if sweep and values.sum() - before <= ASCENT * abs(before):
            break
    found = np.concatenate(duals)
    return [found] if len(found) == form.shape[0] else []


def start_point(central: Central, form: Any, packages: Sequence[Package], terms: Terms) -> Floats | None:
    """A feasible point to begin with, or None.

    Every entry, also the free ones, in the exponential form, with weights that make all rows sum to one: the star of
    the users' own records (rows of one record are the same in every package). Where no such weights are positive:
    all mass on the output that is far from everybody, where there is one.
    """
    x = np.zeros(form.shape[1])
    first = form.variable("y").start
    star = _star(central, packages, terms)
    if star is not None:
        y, forms = star
        x[first : first + len(central.columns)] = y[central.columns]
        for n, piece in enumerate(central.pieces):
            block, (row, column) = form.variable(f"z{n}"), piece.entries.T
            if len(row):
                x[block.start : block.stop] = forms[n][row, column] * y[column]
        return x
    if central.flat < 0:
        return None
    x[first + int(np.searchsorted(central.columns, central.flat))] = 1.0
    return x


def _star(central: Central, packages: Sequence[Package], terms: Terms) -> tuple[Floats, list[Floats]] | None:
    """Weights y (K,) >= 0 with which the form alone makes rows that sum to one, and the forms (n, K), scaled as y."""
    shift = np.where(np.isnan(central.shift), 0.0, central.shift)
    rate = terms.epsilon * terms.exponent
    forms = [np.exp(-rate * np.minimum(p.reach, terms.obfuscation_radius) - shift) for p in packages]
    named = np.concatenate([np.where((p.reach == 0).any(axis=1), (p.reach == 0).argmax(axis=1), -1) for p in packages])
    if (named < 0).any():
        return None
    outputs, first = np.unique(named, return_index=True)
    if not np.isin(outputs, central.columns).all():
        return None
    kernel = np.concatenate(forms)[first][:, outputs]
    try:
        weights = np.linalg.solve(kernel, np.ones(len(outputs)))
    except np.linalg.LinAlgError:
        return None
    if weights.min() < 0 or not np.abs(kernel @ weights - 1.0).max() <= 1e-9:
        return None
    y = np.zeros(len(shift))
    y[outputs] = weights
    usable = all((part[:, outputs] * weights).max() <= 1.0 + 1e-9 for part in forms) and weights.max() <= 1.0
    return (y, forms) if usable else None


def _solved(
    central: Central,
    form: Any,
    x: Floats,
    bound: float | None,
    stopped: bool,
    solver: dict[str, Any],
    details: dict[str, Any],
) -> Solved:
    y = np.zeros(len(central.shift))
    block = form.variable("y")
    y[central.columns] = np.maximum(x[block.start : block.stop], 0.0)
    answers = []
    for n, piece in enumerate(central.pieces):
        block = form.variable(f"z{n}")
        z = piece.mass * y
        if len(piece.entries):
            z[piece.entries[:, 0], piece.entries[:, 1]] = np.maximum(x[block.start : block.stop], 0.0)
        answers.append(Answer(z=z))
    return Solved(
        answers=tuple(answers),
        value=float(form.c @ x + form.c0) * central.scale,
        lower_bound=None if bound is None else bound * central.scale,
        y=y,
        stopped=stopped,
        solver=solver,
        details={"rows": form.shape[0], "columns": form.shape[1], "shared_columns": len(central.columns), **details},
    )
