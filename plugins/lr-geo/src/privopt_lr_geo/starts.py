"""Where Benders decomposition begins: a feasible point, and multipliers that give every block its first cut.

``whole``: one interior-point solve of all users' programs together (4.5 s for four users on Rome's 1,331 cells, where
rounds from other starts had a gap of 4.3 % after 240 s). ``separate``: each user's program by itself, in turns.
``star``: the exponential form alone, without multipliers, as the paper begins; it shows what rounds do by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt.backends import Outcome, get
from privopt.decompose import Start
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError, StoppedError
from privopt.interfaces import SolveContext
from privopt_lr_geo.package import Package, Terms
from privopt_lr_geo.program import Central, central_model

__all__ = ["Warmth", "start_of", "start_point"]

Warmth = Literal["whole", "separate", "star"]

SWEEPS: Final = 3
"""Turns that each user's program has at most before the decomposition starts."""
ASCENT: Final = 2e-3
"""Relative gain of a sweep below which no other follows."""
SHARE_OF_TIME: Final = 0.6
"""Of the time that is left, what the whole program may take at most."""
ROW_TOLERANCE: Final = 1e-7
"""An interior point may miss rows by this, relative to what they add up; it is a start, and answers are repaired."""


def start_of(
    warmth: Warmth,
    central: Central,
    form: StandardForm,
    packages: Sequence[Package],
    terms: Terms,
    context: SolveContext,
    *,
    warm_only: bool = False,
) -> Start:
    """A start for :class:`privopt.decompose.Benders`; from the next kind where one does not come in time.

    Raises:
        StoppedError: with ``warm_only``, where the whole program does not.
    """
    from privopt.decompose import Start

    if warmth == "whole":
        context.report("whole program")
        remaining = context.remaining
        found = _interior(form, None if remaining is None else SHARE_OF_TIME * remaining)
        if found is not None:
            return Start(x=found[0], multipliers=[found[1]])
        if warm_only:
            raise StoppedError("the whole program did not come in its share of the time")
    multipliers = [] if warmth == "star" else _separate(central, form, context)
    return Start(x=start_point(central, form, packages, terms), multipliers=multipliers)


def _interior(form: StandardForm, limit: float | None) -> tuple[Floats, Floats] | None:
    """A near-optimal point and multipliers by HiGHS's interior point without crossover; None where it gives none."""
    session = get("highs").session(form, tolerance=ROW_TOLERANCE, method="ipm", options={"run_crossover": "off"})
    try:
        answer = session.solve(time_limit=limit)
    except SolverError:  # it gave up: the next start is as good as none
        return None
    if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
        return None
    x = np.clip(answer.x, form.col_lower, form.col_upper)
    activity, size = form.A @ x, abs(form.A) @ np.abs(x)
    miss = np.maximum(form.row_lower - activity, activity - form.row_upper)
    return (x, answer.duals) if (miss <= ROW_TOLERANCE * (1.0 + size)).all() else None


def _separate(central: Central, form: StandardForm, context: SolveContext) -> list[Floats]:
    """Multipliers from each user's program by itself, dual feasible for all together.

    First each with y of its own. Then coordinate ascent in the dual: a user's y carries, beside its own costs, what the
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
            alone = central_model(evolve(central, pieces=(piece,)), others).compile()
            found = _interior(alone, context.remaining)
            if found is None:
                return [] if sweep == 0 else [np.concatenate(duals)]
            duals[n], y = found[1], alone.variable("y")
            left[n] = whole[n] - (alone.A.T @ duals[n])[y.start : y.stop]
            values[n] = float(alone.c @ found[0] + alone.c0)
        context.report("separate programs", sweep + 1)
        if sweep and values.sum() - before <= ASCENT * abs(before):
            break
    every = np.concatenate(duals)
    return [every] if len(every) == form.shape[0] else []


def start_point(central: Central, form: StandardForm, packages: Sequence[Package], terms: Terms) -> Floats | None:
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
    elif central.flat >= 0:
        x[first + int(np.searchsorted(central.columns, central.flat))] = 1.0
    else:
        return None
    for n, piece in enumerate(central.pieces):
        far, _ = piece.split(central.columns)
        x[form.variable(f"s{n}").start] = far @ x[first : first + len(far)]
    return x


def _star(central: Central, packages: Sequence[Package], terms: Terms) -> tuple[Floats, list[Floats]] | None:
    """Weights y (K,) >= 0 with which the form alone makes rows that sum to one, and the forms (n, K), scaled as y."""
    shift = np.where(np.isnan(central.shift), 0.0, central.shift)
    rate = terms.epsilon * terms.exponent
    with np.errstate(over="ignore"):  # a form beyond doubles is no start
        forms = [np.exp(-rate * np.minimum(p.reach, terms.obfuscation_radius) - shift) for p in packages]
    if not all(np.isfinite(part).all() for part in forms):
        return None
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
