"""CLR-Geo as arrays and as a model, from the uploads of all users (Equations (20) to (22)).

y enters the sum of every row. Beyond r_obf, a column's coefficient is the same in all rows of a user. So each column's
least coefficient is taken out into one variable of the user, its far mass, and rows keep only the columns around their
own place. This makes the matrix sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt_lr_geo.messages import Package, Terms
from privopt_metric_dp.space.pairs import reduce_pairs

if TYPE_CHECKING:
    from privopt.dsl import Model
else:
    Model = Any

__all__ = ["Central", "Piece", "assemble", "central_model", "program_bytes"]


@frozen(kw_only=True, eq=False)
class Piece:
    """A user's block of CLR-Geo.

    Attributes:
        entries: (E, 2) row and column of each free entry.
        mass: (n, K) coefficient of y_k in the row's sum, 0 if the entry is free.
        upper, lower: (E,) a free entry lies between exp(lower) y_k and exp(upper) y_k. They are infinite if no
            required pair joins the entry to a tied one.
        rows: (R, 2) free entries e, g with z_e <= exp(budget) z_g.
        budgets: (R,) epsilon times the distance.
        costs: (n, K) scaled costs.
    """

    entries: Ints
    mass: Floats
    upper: Floats
    lower: Floats
    rows: Ints
    budgets: Floats
    costs: Floats

    def split(self, columns: Ints) -> tuple[Floats, Floats]:
        """Return (C,) the least positive coefficient of each column of y, and (n, C) the differences from it."""
        mass = self.mass[:, columns]
        min_mass = np.where(mass > 0, mass, np.inf).min(axis=0)
        common_mass = np.where(np.isfinite(min_mass), min_mass, 0.0)
        return common_mass, mass - common_mass


@frozen(kw_only=True, eq=False)
class Central:
    """CLR-Geo as arrays.

    y is scaled so that 1 is the largest tied probability of a column.

    Attributes:
        pieces: One piece for each user.
        columns: (C,) the outputs of the variables y.
        shift: (K,) logarithm of the scale of y. nan if no entry of the column is tied.
        scale: Divisor of the costs.
        flat: The output that represents all those at r_obf or more from every record of every user, or -1. They
            differ only in cost, so the cheapest one takes all their mass in some optimal solution.
    """

    pieces: tuple[Piece, ...]
    columns: Ints
    shift: Floats
    scale: float
    flat: int

    @property
    def largest_exponent(self) -> float:
        """The largest exponent of rows z_e <= exp(budget) z_g, z_e <= exp(upper) y_k and y_k <= exp(-lower) z_e."""
        parts = [part for piece in self.pieces for part in (piece.budgets, piece.upper, -piece.lower)]
        return max((float(part[np.isfinite(part)].max(initial=0.0)) for part in parts), default=0.0)


BYTES_A_NUMBER: Final = 1500.0
"""Measured peak memory for each coefficient of the program (tests/test_lr_geo_memory.py)."""


def program_bytes(central: Central) -> float:
    """Estimate the peak memory of building and solving the program of all users, by either method."""
    total = 0.0
    for piece in central.pieces:
        entries, limits = len(piece.entries), np.isfinite(piece.upper).sum() + np.isfinite(piece.lower).sum()
        own_mass_count = int((piece.split(central.columns)[1] != 0).sum())
        total += BYTES_A_NUMBER * (
            2 * len(piece.rows) + 2 * int(limits) + entries + own_mass_count + len(central.columns)
        )
        total += 8.0 * 15 * piece.mass.size
    return total


def assemble(packages: Sequence[Package], terms: Terms) -> Central:
    """Combine packages. For each user this takes the number of implying pairs times outputs."""
    exponents = [
        -terms.epsilon * terms.exponent * np.minimum(package.reach, terms.obfuscation_radius) for package in packages
    ]
    tied = [np.where(package.free, -np.inf, part) for package, part in zip(packages, exponents, strict=True)]
    max_exponents = np.max([part.max(axis=0) for part in tied], axis=0)
    shift = np.where(np.isfinite(max_exponents), max_exponents, np.nan)
    is_flat = np.isfinite(max_exponents) & np.all([(part == max_exponents).all(axis=0) for part in tied], axis=0)
    total = np.sum([package.costs.sum(axis=0) for package in packages], axis=0)
    flat = int(np.flatnonzero(is_flat)[total[is_flat].argmin()]) if is_flat.any() else -1
    is_used = np.isfinite(max_exponents) & ~is_flat
    if flat >= 0:
        is_used[flat] = True
    scale = float(np.mean([np.abs(package.costs).mean() for package in packages])) or 1.0
    pieces = tuple(
        _make_piece(package, part - np.where(np.isfinite(max_exponents), max_exponents, 0.0), is_used, terms, scale)
        for package, part in zip(packages, exponents, strict=True)
    )
    return Central(pieces=pieces, columns=np.flatnonzero(is_used), shift=shift, scale=scale, flat=flat)


def _make_piece(package: Package, exponents: Floats, is_used: NDArray[np.bool_], terms: Terms, scale: float) -> Piece:
    free = package.free
    pairs, lengths = _implying_pairs(package, terms)
    upper, lower = np.full(free.shape, np.inf), np.full(free.shape, -np.inf)
    number = np.full(free.shape, -1, dtype=np.int64)
    entries = np.argwhere(free)
    number[free] = np.arange(len(entries))
    rows, budgets = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0)]
    for (i, j), length in zip(pairs.tolist(), lengths.tolist(), strict=True):
        budget = terms.epsilon * length
        for first, second in ((i, j), (j, i)):
            free_in_both = np.flatnonzero(free[first] & free[second])
            rows.append(np.column_stack([number[first, free_in_both], number[second, free_in_both]]))
            budgets.append(np.full(len(free_in_both), budget))
            edge = np.flatnonzero(free[first] & ~free[second])
            upper[first, edge] = np.minimum(upper[first, edge], exponents[second, edge] + budget)
            lower[first, edge] = np.maximum(lower[first, edge], exponents[second, edge] - budget)
    mass = np.where(free | ~is_used, 0.0, np.exp(np.minimum(exponents, 0.0)))
    return Piece(
        entries=entries,
        mass=mass,
        upper=upper[free],
        lower=lower[free],
        rows=np.concatenate(rows),
        budgets=np.concatenate(budgets),
        costs=package.costs / scale,
    )


def _implying_pairs(package: Package, terms: Terms) -> tuple[Ints, Floats]:
    """Return required pairs of a package that imply all its others."""
    i, j = np.triu_indices(len(package.distances), 1)
    lengths = package.distances[i, j]
    is_required = np.isfinite(lengths) if terms.within is None else lengths <= terms.within
    pairs, lengths = np.column_stack([i, j])[is_required].astype(np.int64), lengths[is_required]
    needed = reduce_pairs(pairs, lengths)
    return pairs[needed], lengths[needed]


def central_model(central: Central) -> Model:
    """Write CLR-Geo in the modelling language: y is shared; each user has its free entries z and its far mass s."""
    from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total

    m = Model("CLR-Geo")
    Y = IndexSet("Y", central.columns.tolist())
    positions = np.full(len(central.shift), -1, dtype=np.int64)
    positions[central.columns] = np.arange(len(central.columns))
    k = Index("k", Y)
    y = m.variable("y", Y, lower=0, upper=1)
    total_costs = sum((piece.mass * piece.costs).sum(axis=0) for piece in central.pieces)
    a = m.param("a", np.asarray(total_costs)[central.columns])
    objective = total(a[k] * y[k], over=k)
    for n, piece in enumerate(central.pieces):
        row, column = piece.entries.T
        X, E = IndexSet(f"X{n}", len(piece.mass)), IndexSet(f"E{n}", max(1, len(piece.entries)))
        i, e, h = Index("i", X), Index("e", E), Index("h", E)
        z = m.variable(f"z{n}", E, lower=0, upper=1 if len(piece.entries) else 0)
        c = m.param(f"c{n}", piece.costs[row, column] if len(row) else np.zeros(1))
        objective = objective + total(c[e] * z[e], over=e)
        common_mass, own_mass = piece.split(central.columns)
        s = m.variable(f"s{n}", lower=0, upper=1.0 + float(((own_mass < 0) * common_mass).sum(axis=1).min()))
        b, g = m.param(f"far{n}", common_mass), m.param(f"g{n}", own_mass)
        m.require(f"far mass {n}", Eq(total(b[k] * y[k], over=k), s))
        total_mass = s + total(g[i, k] * y[k], over=k, where=((i, k), np.argwhere(own_mass != 0)))
        if len(row):
            total_mass = total_mass + total(z[e], over=e, where=((i, e), np.column_stack([row, np.arange(len(row))])))
        m.require(f"mass {n}", Eq(total_mass, 1), forall=i)
        if len(piece.rows):
            budget = m.param(f"d{n}", _make_lookup(piece.rows, piece.budgets, len(E)))
            m.require(f"geo-ind {n}", Le(z[e], exp(budget[e, h]) * z[h]), forall=(e, h), where=piece.rows)
        for name, limits in (("above", piece.upper), ("below", -piece.lower)):
            limited = np.flatnonzero(np.isfinite(limits))
            if len(limited):
                bound = m.param(f"{name}{n}", limits)
                where = np.column_stack([limited, positions[column[limited]]])
                smaller, larger = (z[e], y[k]) if name == "above" else (y[k], z[e])
                m.require(f"{name} {n}", Le(smaller, exp(bound[e]) * larger), forall=(e, k), where=where)
    m.minimize(objective)
    return m


def _make_lookup(rows: Ints, budgets: Floats, width: int) -> Any:
    """Return a function that looks up the budget of a pair of entries."""
    keys = rows[:, 0] * width + rows[:, 1]
    order = np.argsort(keys)
    keys, values = keys[order], budgets[order]
    return lambda e, h: values[np.searchsorted(keys, np.asarray(e) * width + np.asarray(h))]
