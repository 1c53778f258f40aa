"""Upper bounds on the photos kept when given locations must rank at or above the true one (mathematics P5).

For locations A the kept photos z solve ``max sum z, sum_i z_i d_ij >= 0 (j in A), 0 <= z <= 1``. For multipliers
f >= 0 of A at most ``sum_i max(0, 1 + sum_j f_j d_ij)`` photos can stay, those that must stay counted in any case. The
multipliers come from HiGHS, or for one more location from a search along its own multiplier; what is *used* is never a
solver's objective but this sum, evaluated again with all that rounding may have taken off it.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.backends.highs import new_solver
from privopt_photo_censor.album import Alternates

__all__ = ["Certificate", "Photos", "Program", "along", "exact_certificate", "lagrangian"]

EPS: Final = float(np.finfo(np.float64).eps)
MISSING_COST: Final = 1e6
"""Cost of missing a row (scaled to 1) in the program: beyond it a set of locations is called impossible."""
LARGEST_POWER: Final = 700
"""Power of two of the largest multiplier; the checker reads them in 2**-256ths, as doubles."""
BLOCK_ENTRIES: Final = 100_000
"""Photos times locations that are bounded at once; each takes some 120 bytes meanwhile."""
WHOLE_TOLERANCE: Final = 1e-6
"""A value of the program so near 0 or 1 is taken for it; the exact rank judges the photos then."""


@frozen(eq=False)
class Photos:
    """What a case says of the photos.

    Attributes:
        must: (N,) those that stay.
        may: (N,) those that stay or may stay.
    """

    must: Bools
    may: Bools

    def without(self, killed: Bools) -> Photos | None:
        """Return this with photos gone that a location rules out; None where one of them must stay."""
        return None if (self.must & killed).any() else Photos(self.must, self.may & ~killed)


@frozen(eq=False)
class Certificate:
    """Multipliers, and how many photos can stay at most by them.

    Attributes:
        bound: not yet rounded down.
        rows: (r,) locations, by row of the reduced album.
        force: (r,) their multipliers, at least 0.
    """

    bound: float
    rows: Ints
    force: Floats


def _rounding(photos: int, locations: int, size: Floats) -> Floats:
    """Return what rounding can take off Lagrangian sums whose terms are of these sizes at most."""
    return np.asarray(8.0 * EPS * (photos + locations + 8) * photos * size)


def lagrangian(data: Alternates, rows: Ints, force: Floats, photos: Photos) -> Floats:
    """Return more than the photos that can stay, by each of the multipliers (..., r), whatever is rounded."""
    weight = 1.0 + force @ data.diff[rows]
    total = np.where(photos.may & (photos.must | (weight > 0.0)), weight, 0.0).sum(axis=-1)
    return np.asarray(total + _rounding(data.diff.shape[1], len(rows), 1.0 + force @ data.size[rows]))


def along(data: Alternates, known: Certificate, rows: Ints, photos: Photos) -> tuple[Floats, Floats]:
    """Bound a set with each of some locations added, by the best multiplier of that location alone.

    Args:
        data: the album.
        known: multipliers of the set, which stay as they are.
        rows: (c,) the locations.
        photos: what is decided; photos that the set rules out are gone already.

    Returns:
        Bounds (c,), and the multipliers (c,) of the locations. They are exact for an empty set: the bound is below a
        number of photos whenever that number cannot stay.
    """
    size = max(1, BLOCK_ENTRIES // data.diff.shape[1])
    parts = [_along(data, known, rows[first : first + size], photos) for first in range(0, max(1, len(rows)), size)]
    bounds, force = (np.concatenate(each) for each in zip(*parts, strict=True))
    return bounds, force


def _along(data: Alternates, known: Certificate, rows: Ints, photos: Photos) -> tuple[Floats, Floats]:
    """Return what :func:`along` does, for so few locations that all fit into memory at once."""
    base = 1.0 + known.force @ data.diff[known.rows]
    diff, may = data.diff[rows], photos.may & ~data.kills[rows]
    free = may & ~photos.must
    counts = free & ((base > 0.0) | ((base == 0.0) & (diff > 0.0)))
    slope = np.where(counts | (photos.must & may), diff, 0.0).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        turn = np.where(free & ((base > 0.0) != (diff > 0.0)) & (base != 0.0) & (diff != 0.0), -base / diff, np.inf)
    order = np.argsort(turn, axis=1)
    ends = np.take_along_axis(turn, order, axis=1)
    steps = np.where(np.isfinite(ends), np.abs(np.take_along_axis(diff, order, axis=1)), 0.0)
    rising = slope[:, None] + np.cumsum(steps, axis=1) >= 0.0
    first = np.take_along_axis(ends, rising.argmax(axis=1)[:, None], axis=1)[:, 0]
    last = np.where(np.isfinite(ends), ends, 0.0).max(axis=1, initial=0.0)
    with np.errstate(divide="ignore", over="ignore"):
        beyond = last + 2.0 * (len(base) + np.abs(base).sum()) / np.abs(slope + steps.sum(axis=1))
    endless = ~rising.any(axis=1) | ~np.isfinite(first)
    force = np.where(slope >= 0.0, 0.0, np.where(endless, beyond, first))
    force = np.minimum(force, 2.0**LARGEST_POWER)
    weight = base + force[:, None] * diff
    total = np.where(may & (photos.must | (weight > 0.0)), weight, 0.0).sum(axis=1)
    size = 1.0 + float(known.force @ data.size[known.rows]) + force * data.size[rows]
    bounds = total + _rounding(len(base), len(known.rows) + 1, size)
    return np.where((photos.must & data.kills[rows]).any(axis=1), -1.0, bounds), force


def exact_certificate(data: Alternates, row: int, retained: Bools) -> Certificate | None:
    """Return a multiplier of a location that rules it out where exactly these photos stay; None where none does."""
    total = sum((data.gain(row, i) for i in np.flatnonzero(retained).tolist()), Fraction(0))
    if total >= 0:
        return None
    power = ceil((len(retained) + 1) / -total).bit_length()
    return Certificate(-1.0, np.array([row]), np.array([2.0**power])) if power <= LARGEST_POWER else None


class Program:
    """The linear program of a set of locations inside HiGHS, changed and solved again warm."""

    def __init__(self, data: Alternates) -> None:
        """Begin with no location, and with every photo free."""
        import highspy

        self.data = data
        self.scale = np.maximum(np.abs(data.diff).max(axis=1, initial=0.0), 1e-300)
        self.solved = 0
        self._endless = highspy.kHighsInf
        self._optimal = highspy.HighsModelStatus.kOptimal
        n = data.diff.shape[1]
        self._columns = np.arange(n + 1, dtype=np.int32)
        solver: Any = new_solver(tolerance=1e-9, method="simplex")
        solver.setOptionValue("presolve", "off")
        solver.addVars(n + 1, np.zeros(n + 1), np.append(np.ones(n), self._endless))
        solver.changeColsCost(n + 1, self._columns, np.append(-np.ones(n), MISSING_COST))
        self._solver = solver
        self._rows: list[int] = []
        self._low, self._high = np.zeros(n), np.ones(n)

    def _set(self, rows: Ints, photos: Photos) -> None:
        """Change what differs from what was solved last."""
        wanted = rows.tolist()
        same = 0
        while same < min(len(wanted), len(self._rows)) and wanted[same] == self._rows[same]:
            same += 1
        gone = np.arange(same, len(self._rows), dtype=np.int32)
        if len(gone):
            self._solver.deleteRows(len(gone), gone)
        for j in wanted[same:]:
            values = np.append(self.data.diff[j] / self.scale[j], 1.0)
            self._solver.addRow(0.0, self._endless, len(self._columns), self._columns, values)
        self._rows = wanted
        low, high = photos.must.astype(np.float64), photos.may.astype(np.float64)
        other = np.flatnonzero((low != self._low) | (high != self._high)).astype(np.int32)
        if len(other):
            self._solver.changeColsBounds(len(other), other, low[other], high[other])
            self._low, self._high = low, high

    def solve(self, rows: Ints, photos: Photos) -> tuple[Certificate, Floats, Floats]:
        """Solve it.

        Args:
            rows: (r,) the locations.
            photos: what is decided; none that must stay is ruled out by a location.

        Returns:
            A bound with its multipliers, the photos' values (N,) and reduced costs (N,). Where HiGHS gives up the
            bound is that of no multipliers, and all photos are left half.
        """
        self._set(rows, photos)
        self._solver.run()
        self.solved += 1
        n = len(self._low)
        if self._solver.getModelStatus() != self._optimal:
            self._solver.clearSolver()
            force, values, costs = np.zeros(len(rows)), np.full(n, 0.5), np.ones(n)
        else:
            found = self._solver.getSolution()
            force = np.maximum(np.array(found.row_dual), 0.0) / self.scale[rows]
            values, costs = np.array(found.col_value)[:n], np.array(found.col_dual)[:n]
        bound = float(lagrangian(self.data, rows, force, photos))
        return Certificate(bound, rows, force), values, costs
