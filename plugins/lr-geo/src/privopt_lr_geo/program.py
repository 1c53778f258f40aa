"""The CLR-Geo linear program, built from the users' packages.

:func:`assemble` combines the packages into one block of arrays per user, from which :func:`central_model` builds a
model in privopt's modelling language.

The program consists of Equations (20) to (22) of Qiu et al., PoPETs 2025. An entry (i, k) of a user's matrix is free if
it is a variable of its own, and tied if it is a coefficient times the variable y_k, which is shared by all users. The
coefficient falls exponentially with the distance between record i and output k, up to the distance r_obf (the
obfuscation radius), and is constant beyond it.

Every row must sum to one, so all variables y occur in every row's constraint. To keep the constraint matrix sparse, the
part of the sum that is common to all of a user's rows becomes an auxiliary variable, the user's far mass. It takes the
smallest coefficient of each column, which belongs to the records at distance r_obf or more from the output, if there
are any. A row's constraint then needs coefficients only for the outputs near its record.
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
    """A user's block of the CLR-Geo program: its free entries, their constraints, and the coefficients of tied entries.

    A free entry of the user's matrix is a variable of its own. A tied entry in column k is a fixed multiple of the
    variable y_k, which is shared by all users.

    Attributes:
        entries: (E, 2) The row and column of each free entry in the user's (n, K) matrix.
        mass: (n, K) The coefficient of y_k in each tied entry, and 0 for free entries.
        upper, lower: (E,) The exponents in the constraints exp(lower) y_k <= z_e <= exp(upper) y_k on each free entry
            z_e, where k is the entry's column. They are infinite if no required pair connects the entry with a tied
            one.
        rows: (R, 2) The indices e and g of free entries with the constraint z_e <= exp(budget) z_g.
        budgets: (R,) The budget in each of these constraints, which is epsilon times the distance between the two
            records.
        costs: (n, K) The costs of the entries, divided by :attr:`Central.scale`.
    """

    entries: Ints
    mass: Floats
    upper: Floats
    lower: Floats
    rows: Ints
    budgets: Floats
    costs: Floats

    def split(self, columns: Ints) -> tuple[Floats, Floats]:
        """Split the coefficients of y into a part that is common to all rows and the remainder in each row.

        Args:
            columns: (C,) The indices of the outputs that have a variable y.

        Returns:
            A (C,) array with the smallest positive coefficient of each column, or 0 if none is positive, and an (n, C)
            array of the coefficients minus these values.
        """
        mass = self.mass[:, columns]
        min_mass = np.where(mass > 0, mass, np.inf).min(axis=0)
        common_mass = np.where(np.isfinite(min_mass), min_mass, 0.0)
        return common_mass, mass - common_mass


@frozen(kw_only=True, eq=False)
class Central:
    """The CLR-Geo program for all users, as one block of arrays per user.

    The shared variables y are scaled so that y_k equals the largest tied entry in column k over all users.

    Attributes:
        pieces: One block of the program for each user.
        columns: (C,) The indices of the outputs that have a variable y.
        shift: (K,) The logarithm of the scale of each y_k, or NaN if no entry in the column is tied.
        scale: The number by which all costs were divided.
        flat: The index of the output that represents all outputs at distance r_obf or more from every record of every
            user, or -1 if there are none. These outputs differ only in their costs, so some optimal solution assigns
            all of their mass to the cheapest of them.
    """

    pieces: tuple[Piece, ...]
    columns: Ints
    shift: Floats
    scale: float
    flat: int

    @property
    def largest_exponent(self) -> float:
        """The largest exponent in the constraints on free entries, which are described in :class:`Piece`.

        A constraint exp(lower) y_k <= z_e has the exponent -lower, because it means y_k <= exp(-lower) z_e.
        """
        parts = [part for piece in self.pieces for part in (piece.budgets, piece.upper, -piece.lower)]
        return max((float(part[np.isfinite(part)].max(initial=0.0)) for part in parts), default=0.0)


BYTES_A_NUMBER: Final = 1500.0
"""The peak memory in bytes per coefficient of the program, as measured by tests/test_lr_geo_memory.py."""


def program_bytes(central: Central) -> float:
    """Estimate the peak memory needed to build and solve the program, in bytes.

    The estimate applies both to solving the program as a whole and to Benders decomposition.
    """
    total = 0.0
    for piece in central.pieces:
        entries, limits = len(piece.entries), np.isfinite(piece.upper).sum() + np.isfinite(piece.lower).sum()
        # The coefficients of y in the constraints on row sums, apart from the columns' common parts, which are in the
        # far mass.
        own_mass_count = int((piece.split(central.columns)[1] != 0).sum())
        # A constraint between two variables has two coefficients, and a constraint on a row sum has one per variable.
        total += BYTES_A_NUMBER * (
            2 * len(piece.rows) + 2 * int(limits) + entries + own_mass_count + len(central.columns)
        )
        total += 8.0 * 15 * piece.mass.size  # there are about 15 arrays of doubles with the shape of `mass`
    return total


def assemble(packages: Sequence[Package], terms: Terms) -> Central:
    """Combine the users' packages into one program.

    The time per user is proportional to the number of outputs times the number of pairs that are not made redundant by
    the triangle inequality.

    Args:
        packages: One package per user.
        terms: The public parameters announced by the server.
    """
    # This is Equation (19), but with distances cut off at r_obf from each row's record. The paper cuts them off at
    # r_obf from the user, with which Theorem 4.4 fails. The theorem requires that min(d, r_obf) differs between two
    # records by at most their distance ("What is corrected" in docs/papers/lr-geo.md).
    exponents = [
        -terms.epsilon * terms.exponent * np.minimum(package.reach, terms.obfuscation_radius) for package in packages
    ]
    tied = [np.where(package.free, -np.inf, part) for package, part in zip(packages, exponents, strict=True)]
    # The largest exponent of a tied entry in each column, over all users, is the scale of y.
    max_exponents = np.max([part.max(axis=0) for part in tied], axis=0)
    shift = np.where(np.isfinite(max_exponents), max_exponents, np.nan)
    # A column is flat if its output is r_obf or more from every record of every user, so that all coefficients are
    # equal. Free entries are -inf here, so a flat column is tied in every row of every user.
    is_flat = np.isfinite(max_exponents) & np.all([(part == max_exponents).all(axis=0) for part in tied], axis=0)
    total = np.sum([package.costs.sum(axis=0) for package in packages], axis=0)
    # All flat columns have the same coefficients, so the cheapest one can represent them.
    flat = int(np.flatnonzero(is_flat)[total[is_flat].argmin()]) if is_flat.any() else -1
    is_used = np.isfinite(max_exponents) & ~is_flat
    if flat >= 0:
        is_used[flat] = True
    # Costs are divided by a common number so that the program's costs are about 1, unless all of them are 0.
    scale = float(np.mean([np.abs(package.costs).mean() for package in packages])) or 1.0
    pieces = tuple(
        _make_piece(package, part - np.where(np.isfinite(max_exponents), max_exponents, 0.0), is_used, terms, scale)
        for package, part in zip(packages, exponents, strict=True)
    )
    return Central(pieces=pieces, columns=np.flatnonzero(is_used), shift=shift, scale=scale, flat=flat)


def _make_piece(package: Package, exponents: Floats, is_used: NDArray[np.bool_], terms: Terms, scale: float) -> Piece:
    """Build a user's block of the program from the user's package.

    Args:
        package: The user's package.
        exponents: (n, K) The logarithms of the tied coefficients, relative to the scale of y.
        is_used: (K,) Whether each output has a variable y.
        terms: The public parameters announced by the server.
        scale: The number by which costs are divided.
    """
    free = package.free
    pairs, lengths = _implying_pairs(package, terms)
    upper, lower = np.full(free.shape, np.inf), np.full(free.shape, -np.inf)
    number = np.full(free.shape, -1, dtype=np.int64)  # the index of each free entry, or -1 for tied ones
    entries = np.argwhere(free)
    number[free] = np.arange(len(entries))
    rows, budgets = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0)]
    # In each direction, a pair yields constraints between two free entries of a column, and limits on a free entry if
    # the other one is tied. Two tied entries satisfy their inequality by construction.
    for (i, j), length in zip(pairs.tolist(), lengths.tolist(), strict=True):
        budget = terms.epsilon * length
        for first, second in ((i, j), (j, i)):
            free_in_both = np.flatnonzero(free[first] & free[second])
            rows.append(np.column_stack([number[first, free_in_both], number[second, free_in_both]]))
            budgets.append(np.full(len(free_in_both), budget))
            # The outputs whose entries are free in the first row and tied in the second.
            only_first = np.flatnonzero(free[first] & ~free[second])
            # A tied entry equals exp(exponent) y_k. A required pair keeps a free entry of the same output between
            # exp(-budget) and exp(budget) times that.
            upper[first, only_first] = np.minimum(upper[first, only_first], exponents[second, only_first] + budget)
            lower[first, only_first] = np.maximum(lower[first, only_first], exponents[second, only_first] - budget)
    # Exponents are relative to the largest tied exponent of the column, so only those of free entries can be above 0.
    # Free entries have no mass, so taking the minimum changes nothing except that exp cannot overflow.
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
    """Select required row pairs of a package such that their constraints imply all others by the triangle inequality.

    Args:
        package: A user's package.
        terms: The public parameters, which include the largest distance between the records of a required pair.

    Returns:
        The (P, 2) pairs and their (P,) distances.
    """
    i, j = np.triu_indices(len(package.distances), 1)
    lengths = package.distances[i, j]
    is_required = np.isfinite(lengths) if terms.within is None else lengths <= terms.within
    pairs, lengths = np.column_stack([i, j])[is_required].astype(np.int64), lengths[is_required]
    needed = reduce_pairs(pairs, lengths)
    return pairs[needed], lengths[needed]


def central_model(central: Central) -> Model:
    """Formulate CLR-Geo, the joint program for all users' matrices, in privopt's modelling language.

    All users share the variables y. Each user n also has variables z<n> for the free entries and a variable s<n> for
    the far mass, which is the part of a row's sum that is common to all of the user's rows (:meth:`Piece.split`).

    Args:
        central: The program, as one block of arrays per user.
    """
    from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total

    m = Model("CLR-Geo")
    Y = IndexSet("Y", central.columns.tolist())
    # The position of each output among the variables y, or -1 if it has none.
    positions = np.full(len(central.shift), -1, dtype=np.int64)
    positions[central.columns] = np.arange(len(central.columns))
    k = Index("k", Y)
    y = m.variable("y", Y, lower=0, upper=1)
    total_costs = sum((piece.mass * piece.costs).sum(axis=0) for piece in central.pieces)
    # The cost of a unit of y_k, summed over all tied entries of the column and over all users.
    a = m.param("a", np.asarray(total_costs)[central.columns])
    objective = total(a[k] * y[k], over=k)
    # One block of variables and constraints for each user.
    for n, piece in enumerate(central.pieces):
        row, column = piece.entries.T
        # X contains the user's records, with index i, and E the free entries, with indices e and h. If there are no
        # free entries, E has one variable that is fixed at 0.
        X, E = IndexSet(f"X{n}", len(piece.mass)), IndexSet(f"E{n}", max(1, len(piece.entries)))
        i, e, h = Index("i", X), Index("e", E), Index("h", E)
        z = m.variable(f"z{n}", E, lower=0, upper=1 if len(piece.entries) else 0)
        c = m.param(f"c{n}", piece.costs[row, column] if len(row) else np.zeros(1))
        objective = objective + total(c[e] * z[e], over=e)
        common_mass, own_mass = piece.split(central.columns)
        # s contains the common part of every column, even where an entry is free. There, the row's own coefficient is
        # negative and subtracts the common part again. So s can exceed 1, but only by the smallest amount that any row
        # subtracts.
        s = m.variable(f"s{n}", lower=0, upper=1.0 + float(((own_mass < 0) * common_mass).sum(axis=1).min()))
        b, g = m.param(f"far{n}", common_mass), m.param(f"g{n}", own_mass)
        m.require(f"far mass {n}", Eq(total(b[k] * y[k], over=k), s))
        # Each row of `where` contains one position per index: a record and a position in Y here, and a record and a
        # free entry below.
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
                # The model is given exponents instead of coefficients, because their exponentials can exceed a solver's
                # range.
                bound = m.param(f"{name}{n}", limits)
                where = np.column_stack([limited, positions[column[limited]]])
                smaller, larger = (z[e], y[k]) if name == "above" else (y[k], z[e])
                m.require(f"{name} {n}", Le(smaller, exp(bound[e]) * larger), forall=(e, k), where=where)
    m.minimize(objective)
    return m


def _make_lookup(rows: Ints, budgets: Floats, width: int) -> Any:
    """Return a function that maps two arrays of entry indices, e and h, to the budget of each pair (e, h).

    The modelling language accepts such a function for parameters that are defined only for some pairs.

    Args:
        rows: (R, 2) The pairs of entries that have a budget.
        budgets: (R,) The budget of each pair.
        width: A number greater than all entry indices, used to encode a pair as one integer.
    """
    keys = rows[:, 0] * width + rows[:, 1]
    order = np.argsort(keys)
    keys, values = keys[order], budgets[order]
    return lambda e, h: values[np.searchsorted(keys, np.asarray(e) * width + np.asarray(h))]
