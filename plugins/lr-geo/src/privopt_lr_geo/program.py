"""CLR-Geo as arrays and as a model, from the users' uploads together (Equations (20) to (22)).

y enters every row's sum, but beyond r_obf with one coefficient a column. So a user's least coefficients are taken out
into one number, its far mass, and rows keep the columns around their own place: the matrix is sparse.
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

    def split(self, columns: Ints) -> tuple[Floats, Floats]:
        """Return (C,) the least coefficient of each column of y where it is tied, and (n, C) what rows have beyond."""
        mass = self.mass[:, columns]
        least = np.where(mass > 0, mass, np.inf).min(axis=0)
        far = np.where(np.isfinite(least), least, 0.0)
        return far, mass - far


@frozen(kw_only=True, eq=False)
class Central:
    """CLR-Geo as arrays.

    y is scaled so that 1 is the greatest tied probability of a column.

    Attributes:
        pieces: one a user.
        columns: (C,) the outputs that y is over.
        shift: (K,) log of what y was scaled by; nan where no entry of the column is tied.
        scale: what costs were divided by.
        flat: the output that represents all those at r_obf or more from every record of every user, or -1. They
            differ in cost alone, so the cheapest takes their mass in some optimal solution.
    """

    pieces: tuple[Piece, ...]
    columns: Ints
    shift: Floats
    scale: float
    flat: int

    @property
    def largest_exponent(self) -> float:
        """The largest exponent of rows z_e <= exp(budget) z_g, z_e <= exp(above) y_k and y_k <= exp(-below) z_e."""
        parts = [part for piece in self.pieces for part in (piece.budgets, piece.above, -piece.below)]
        return max((float(part[np.isfinite(part)].max(initial=0.0)) for part in parts), default=0.0)


BYTES_A_NUMBER: Final = 1500.0
"""What a coefficient of the program takes while it is made and solved, measured (tests/test_lr_geo_memory.py)."""


def program_bytes(central: Central) -> float:
    """Return about how many bytes the program of all users takes while it is made and solved, by either method."""
    total = 0.0
    for piece in central.pieces:
        entries, limits = len(piece.entries), np.isfinite(piece.above).sum() + np.isfinite(piece.below).sum()
        beyond = int((piece.split(central.columns)[1] != 0).sum())
        total += BYTES_A_NUMBER * (2 * len(piece.rows) + 2 * int(limits) + entries + beyond + len(central.columns))
        total += 8.0 * 15 * piece.mass.size
    return total


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
    """Return the required pairs of a package that imply all its others."""
    i, j = np.triu_indices(len(package.distances), 1)
    lengths = package.distances[i, j]
    wanted = np.isfinite(lengths) if terms.within is None else lengths <= terms.within
    pairs, lengths = np.column_stack([i, j])[wanted].astype(np.int64), lengths[wanted]
    needed = reduce_pairs(pairs, lengths)
    return pairs[needed], lengths[needed]


def central_model(central: Central) -> Model:
    """Write CLR-Geo in the modelling language: y shared; for each user its free entries z and far mass s."""
    from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total

    m = Model("CLR-Geo")
    Y = IndexSet("Y", central.columns.tolist())
    place = np.full(len(central.shift), -1, dtype=np.int64)
    place[central.columns] = np.arange(len(central.columns))
    k = Index("k", Y)
    y = m.variable("y", Y, lower=0, upper=1)
    whole = sum((piece.mass * piece.costs).sum(axis=0) for piece in central.pieces)
    a = m.param("a", np.asarray(whole)[central.columns])
    objective = total(a[k] * y[k], over=k)
    for n, piece in enumerate(central.pieces):
        row, column = piece.entries.T
        X, E = IndexSet(f"X{n}", len(piece.mass)), IndexSet(f"E{n}", max(1, len(piece.entries)))
        i, e, h = Index("i", X), Index("e", E), Index("h", E)
        z = m.variable(f"z{n}", E, lower=0, upper=1 if len(piece.entries) else 0)
        c = m.param(f"c{n}", piece.costs[row, column] if len(row) else np.zeros(1))
        objective = objective + total(c[e] * z[e], over=e)
        far, rest = piece.split(central.columns)
        s = m.variable(f"s{n}", lower=0, upper=1.0 + float(((rest < 0) * far).sum(axis=1).min()))
        b, g = m.param(f"far{n}", far), m.param(f"g{n}", rest)
        m.require(f"far mass {n}", Eq(total(b[k] * y[k], over=k), s))
        total_mass = s + total(g[i, k] * y[k], over=k, where=((i, k), np.argwhere(rest != 0)))
        if len(row):
            total_mass = total_mass + total(z[e], over=e, where=((i, e), np.column_stack([row, np.arange(len(row))])))
        m.require(f"mass {n}", Eq(total_mass, 1), forall=i)
        if len(piece.rows):
            budget = m.param(f"d{n}", _lookup(piece.rows, piece.budgets, len(E)))
            m.require(f"geo-ind {n}", Le(z[e], exp(budget[e, h]) * z[h]), forall=(e, h), where=piece.rows)
        for name, limits in (("above", piece.above), ("below", -piece.below)):
            found = np.flatnonzero(np.isfinite(limits))
            if len(found):
                bound = m.param(f"{name}{n}", limits)
                where = np.column_stack([found, place[column[found]]])
                one, other = (z[e], y[k]) if name == "above" else (y[k], z[e])
                m.require(f"{name} {n}", Le(one, exp(bound[e]) * other), forall=(e, k), where=where)
    m.minimize(objective)
    return m


def _lookup(rows: Ints, budgets: Floats, width: int) -> Any:
    """Return a sparse table over pairs of entries, as a function of their numbers."""
    keys = rows[:, 0] * width + rows[:, 1]
    order = np.argsort(keys)
    keys, values = keys[order], budgets[order]
    return lambda e, h: values[np.searchsorted(keys, np.asarray(e) * width + np.asarray(h))]
