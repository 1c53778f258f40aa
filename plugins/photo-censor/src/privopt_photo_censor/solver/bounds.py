"""Upper bounds on the number of photos that can stay if given locations must rank at or above the true one.

Let z_i be 1 if photo i stays and 0 if it is deleted. The advantage d_ij of photo i for location j is its score for j,
minus its score for the true location, minus the margin. For a set A of locations, the linear relaxation maximises
``sum_i z_i`` subject to ``sum_i z_i d_ij >= 0`` for all j in A and ``0 <= z_i <= 1`` for all i. By Lagrangian duality,
at most ``sum_i max(0, 1 + sum_j f_j d_ij)`` photos can stay, for any multipliers f_j >= 0 of the locations j in A. For
photos that must stay, the maximum with 0 is omitted.

The multipliers come from HiGHS or, if there are many photos, from Newton's method. If one location is added, its
multiplier comes from a line search. The bound is the sum above plus its largest possible rounding error, never the
objective that a solver reports.
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
from privopt_photo_censor.solver.descent import minimise_bound

__all__ = ["Certificate", "Photos", "Program", "bound_extensions", "bound_photos", "exact_certificate"]

EPS: Final = float(np.finfo(np.float64).eps)
MISSING_COST: Final = 1e6
"""The cost per unit of violation of a scaled row in the linear program, in which a retained photo is worth 1."""
LARGEST_POWER: Final = 700
"""The exponent of the largest multiplier, a power of two. The checker converts multipliers to units of 2**-256."""
BLOCK_ENTRIES: Final = 100_000
"""The maximum number of (photo, location) pairs per batch. Each takes about 120 bytes."""
MANY_PHOTOS: Final = 1_000
"""The number of photos from which on bounds are computed by Newton's method.

It takes 0.6 ms for 1,000 photos and 5 locations, and 0.8 ms for 10,000, where HiGHS takes 2 and 26 ms.
"""
DESCENT_WORK: Final = 500
"""The work of one minimisation by Newton's method, in the unit of :attr:`Program.work`."""
SMOOTH_RATIO: Final = 16
"""Newton's bounds below this number of photos per location are refined by a linear program.

With few photos the bound is not smooth. Between 8 and 16 photos per location, Newton's bounds exceeded the linear
program's by up to 0.23 photos, and below 1 by up to 3; above 16 by 0.08, which hardly ever changes the rounded bound.
"""
REFINED_PHOTOS: Final = 256
"""Minimum number of photos in a refining linear program."""
REFINED_SHARE: Final = 8
"""Number of further photos in it for each photo of the bound that it refines."""
WHOLE_TOLERANCE: Final = 1e-6
"""The tolerance within which a value in the linear program is rounded to 0 or 1."""


@frozen(eq=False)
class Photos:
    """The state of the N photos in a case: retained, deleted or undecided.

    Attributes:
        must: (N,) Whether each photo must stay.
        may: (N,) Whether each photo may stay. True for all photos that must stay.
    """

    must: Bools
    may: Bools

    def drop_photos(self, killed: Bools) -> Photos | None:
        """Delete the photos that rule out a location, and return the new state.

        The result is None if one of these photos must stay, because then the location cannot be protected.

        Args:
            killed: (N,) mask of the photos that rule out the location.
        """
        return None if (self.must & killed).any() else Photos(self.must, self.may & ~killed)


@frozen(eq=False)
class Certificate:
    """Lagrange multipliers, and the bound on the number of retained photos that they prove.

    Attributes:
        bound: The bound, not yet rounded down to an integer.
        rows: (r,) The locations with multipliers, as rows of :class:`Alternates`.
        force: (r,) The non-negative multiplier f of each of these locations.
    """

    bound: float
    rows: Ints
    force: Floats


def _max_rounding_error(photos: int, locations: int, size: Floats) -> Floats:
    """Return a bound on the rounding error of each Lagrangian sum.

    A Lagrangian sum is taken over photos, and each of its terms is a sum over locations. The number of rounding
    operations is at most ``photos + locations`` plus a few. The factor 8 is a safety margin.

    Args:
        photos: The number of photos.
        locations: The number of locations with multipliers.
        size: For each sum, a bound on the absolute values of its terms.
    """
    return np.asarray(8.0 * EPS * (photos + locations + 8) * photos * size)


def bound_photos(data: Alternates, rows: Ints, force: Floats, photos: Photos) -> Floats:
    """Return upper bounds on the number of photos that can stay.

    Each bound is a Lagrangian sum plus its largest possible rounding error.

    Args:
        data: The album.
        rows: (r,) The protected locations.
        force: (..., r) Non-negative multipliers for these locations. Each vector along the last axis yields one bound.
        photos: The photos that must stay, and the photos that may stay.

    Returns:
        The bounds, with the shape of ``force`` without its last axis.
    """
    # Photos that must stay count even if their weight is negative; others only if it is positive.
    weight = 1.0 + force @ data.diff[rows]
    total = np.where(photos.may & (photos.must | (weight > 0.0)), weight, 0.0).sum(axis=-1)
    return np.asarray(total + _max_rounding_error(data.diff.shape[1], len(rows), 1.0 + force @ data.size[rows]))


def bound_extensions(data: Alternates, certificate: Certificate, rows: Ints, photos: Photos) -> tuple[Floats, Floats]:
    """For each of c locations, bound the number of photos that can stay if that location must be protected as well.

    The multipliers of the already protected locations are fixed. Only the multiplier of the new location is optimised.

    Args:
        data: The album.
        certificate: The multipliers of the already protected locations.
        rows: (c,) The candidates for the additional location.
        photos: The photos that must stay, and the photos that may stay. Photos that rule out a protected location must
            already be deleted.

    Returns:
        Two arrays of shape (c,): the bounds, and the multipliers of the additional locations. If no location is
        protected yet, the bounds are tight.
    """
    size = max(1, BLOCK_ENTRIES // data.diff.shape[1])
    parts = [
        _bound_block(data, certificate, rows[start : start + size], photos)
        for start in range(0, max(1, len(rows)), size)
    ]
    bounds, force = (np.concatenate(blocks) for blocks in zip(*parts, strict=True))
    return bounds, force


def _bound_block(data: Alternates, certificate: Certificate, rows: Ints, photos: Photos) -> tuple[Floats, Floats]:
    """Compute :func:`bound_extensions` for a batch of locations that fits into memory.

    Args:
        data: The album.
        certificate: The multipliers of the already protected locations.
        rows: (c,) The candidates for the additional location.
        photos: The photos that must stay, and the photos that may stay.

    Returns:
        Two arrays of shape (c,): the bounds on the number of photos that can stay, and the multipliers that minimise
        them.
    """
    # The bound is convex and piecewise linear in the multiplier: the sum of max(0, base + multiplier * diff). Its slope
    # changes (a turn) where a term changes sign. Its minimum is the first turn after which the slope is not negative.
    # `base` (N,) has the weights of the photos with the known multipliers. `counts` says which terms are positive just
    # above a multiplier of 0. `turn` (c, N) is the multiplier at which a term changes sign, infinite if there is none.
    base = 1.0 + certificate.force @ data.diff[certificate.rows]
    diff, may = data.diff[rows], photos.may & ~data.kills[rows]
    free = may & ~photos.must
    counts = free & ((base > 0.0) | ((base == 0.0) & (diff > 0.0)))
    # The largest rounding error grows with the multiplier too. Without its slope, the slope after the last turn is 0
    # for a location that no photo favours, and sums in doubles may be below 0. The multiplier would be far too large.
    error_slope = _max_rounding_error(len(base), len(certificate.rows) + 1, data.size[rows])
    slope = np.where(counts | (photos.must & may), diff, 0.0).sum(axis=1) + error_slope
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        turn = np.where(free & ((base > 0.0) != (diff > 0.0)) & (base != 0.0) & (diff != 0.0), -base / diff, np.inf)
    # The slope at 0 is the sum of `diff` over the positive terms. At each turn it rises by |diff|, because either a
    # falling term becomes 0 there, or a rising term becomes positive.
    order = np.argsort(turn, axis=1)
    sorted_turns = np.take_along_axis(turn, order, axis=1)
    steps = np.where(np.isfinite(sorted_turns), np.abs(np.take_along_axis(diff, order, axis=1)), 0.0)
    rising = slope[:, None] + np.cumsum(steps, axis=1) >= 0.0
    optimal_turn = np.take_along_axis(sorted_turns, rising.argmax(axis=1)[:, None], axis=1)[:, 0]
    last_turn = np.where(np.isfinite(sorted_turns), sorted_turns, 0.0).max(axis=1, initial=0.0)
    # If the slope stays negative, the bound falls without end, so no photos can stay. A multiplier far enough beyond
    # the last turn makes the bound negative.
    with np.errstate(divide="ignore", over="ignore"):
        decisive_force = last_turn + 2.0 * (len(base) + np.abs(base).sum()) / np.abs(slope + steps.sum(axis=1))
    is_unbounded = ~rising.any(axis=1) | ~np.isfinite(optimal_turn)
    force = np.where(slope >= 0.0, 0.0, np.where(is_unbounded, decisive_force, optimal_turn))
    force = np.minimum(force, 2.0**LARGEST_POWER)
    weight = base + force[:, None] * diff
    total = np.where(may & (photos.must | (weight > 0.0)), weight, 0.0).sum(axis=1)
    size = 1.0 + float(certificate.force @ data.size[certificate.rows]) + force * data.size[rows]
    bounds = total + _max_rounding_error(len(base), len(certificate.rows) + 1, size)
    # Where rounding errors outweigh what the new multiplier gains, it is 0.
    base_bound = bound_photos(data, certificate.rows, certificate.force, photos)
    bounds, force = np.minimum(bounds, base_bound), np.where(bounds < base_bound, force, 0.0)
    # If a photo that must stay rules the location out, no number of photos is possible, not even 0. So the bound is -1.
    return np.where((photos.must & data.kills[rows]).any(axis=1), -1.0, bounds), force


def exact_certificate(data: Alternates, row: int, retained: Bools) -> Certificate | None:
    """Return a certificate that a location is not protected by a given set of photos.

    The result is None if the location is protected, or if the multiplier would be too large for a proof file.

    Args:
        data: The album.
        row: The location, as a row of :class:`Alternates`.
        retained: (N,) mask of the retained photos.
    """
    total = sum((data.gain(row, i) for i in np.flatnonzero(retained).tolist()), Fraction(0))
    if total >= 0:
        return None
    # The multiplier makes 1 + force * gain sum to less than 0 over the photos. A power of two is exact in doubles.
    power = ceil((len(retained) + 1) / -total).bit_length()
    return Certificate(-1.0, np.array([row]), np.array([2.0**power])) if power <= LARGEST_POWER else None


class Program:
    """The linear relaxation for a set of locations. A single HiGHS program is modified and warm-started for each set.

    The variables are the value z_i of each photo (see the module docstring), and a violation that all rows share.

    Attributes:
        data: The album.
        scale: (m,) For each location, the largest absolute advantage of any photo. The location's row is divided by it.
        solved: The number of programs solved so far, exactly or approximately.
        work: The work so far: the total number of photos in the programs that HiGHS has solved, and
            :data:`DESCENT_WORK` for each minimisation by Newton's method. A unit takes about 2 microseconds.
        _solver: The HiGHS solver, with the rows and bounds of the last program.
        _endless, _optimal: HiGHS's value for infinity, and its status for an optimal solution.
        _columns: (N + 1,) The column indices of the variables: the photos, then the violation.
        _rows: The locations of the program's rows, in order.
        _lower, _upper: (N,) The bounds of the photos' variables.
    """

    def __init__(self, data: Alternates) -> None:
        """Create the program for an album, without rows for locations and with all photos undecided."""
        import highspy

        self.data = data
        # Rows are scaled to 1, so that a violation costs the same in each of them.
        self.scale = np.maximum(np.abs(data.diff).max(axis=1, initial=0.0), 1e-300)
        self.solved = 0
        self.work = 0
        self._endless = highspy.kHighsInf
        self._optimal = highspy.HighsModelStatus.kOptimal
        n = data.diff.shape[1]
        self._columns = np.arange(n + 1, dtype=np.int32)
        # Presolve is off below, so that each program starts from the basis of the previous one.
        solver: Any = new_solver(tolerance=1e-9, method="simplex")
        solver.setOptionValue("presolve", "off")
        # The last variable is the violation of all rows, so the program is always feasible.
        solver.addVars(n + 1, np.zeros(n + 1), np.append(np.ones(n), self._endless))
        solver.changeColsCost(n + 1, self._columns, np.append(-np.ones(n), MISSING_COST))
        self._solver = solver
        self._rows: list[int] = []
        self._lower, self._upper = np.zeros(n), np.ones(n)

    def _update_program(self, rows: Ints, photos: Photos) -> None:
        """Update the HiGHS program, changing only the rows and bounds that differ from those of the last call.

        Args:
            rows: (r,) The locations.
            photos: The photos that must stay, whose variables are fixed at 1, and the deleted photos, whose variables
                are fixed at 0.
        """
        target_rows = rows.tolist()
        # Sets of locations grow one by one, so successive programs mostly share their first rows.
        shared_count = 0
        while (
            shared_count < min(len(target_rows), len(self._rows))
            and target_rows[shared_count] == self._rows[shared_count]
        ):
            shared_count += 1
        deleted_rows = np.arange(shared_count, len(self._rows), dtype=np.int32)
        if len(deleted_rows):
            self._solver.deleteRows(len(deleted_rows), deleted_rows)
        for j in target_rows[shared_count:]:
            values = np.append(self.data.diff[j] / self.scale[j], 1.0)
            self._solver.addRow(0.0, self._endless, len(self._columns), self._columns, values)
        self._rows = target_rows
        lower, upper = photos.must.astype(np.float64), photos.may.astype(np.float64)
        changed_columns = np.flatnonzero((lower != self._lower) | (upper != self._upper)).astype(np.int32)
        if len(changed_columns):
            self._solver.changeColsBounds(
                len(changed_columns), changed_columns, lower[changed_columns], upper[changed_columns]
            )
            self._lower, self._upper = lower, upper

    def solve(self, rows: Ints, photos: Photos) -> tuple[Certificate, Floats, Floats]:
        """Solve the linear relaxation for a set of locations, and return the bound that its dual multipliers prove.

        Args:
            rows: (r,) The locations that must be protected.
            photos: The photos that must stay, and the photos that may stay. None of the locations may be ruled out by a
                photo that must stay.

        Returns:
            The certificate with the bound, and the (N,) values and (N,) reduced costs of the photos. If HiGHS fails,
            the multipliers are 0 and all values are one half.
        """
        force, values, costs = self._run_solver(rows, photos)
        # The bound is valid for any multipliers, even for those of an inexact or failed solution.
        bound = float(bound_photos(self.data, rows, force, photos))
        return Certificate(bound, rows, force), values, costs

    def _run_solver(self, rows: Ints, photos: Photos) -> tuple[Floats, Floats, Floats]:
        """Return the (r,) multipliers, and the (N,) values and (N,) reduced costs of the photos (see :meth:`solve`)."""
        self._update_program(rows, photos)
        self._solver.run()
        self.solved += 1
        n = len(self._lower)
        # After a failure the basis is dropped, because it may be the reason why the simplex method failed.
        if self._solver.getModelStatus() != self._optimal:
            self._solver.clearSolver()
            force, values, costs = np.zeros(len(rows)), np.full(n, 0.5), np.ones(n)
        else:
            # The duals of the scaled rows are converted to multipliers of the unscaled rows. Negative ones are rounding
            # errors, and become 0.
            solution = self._solver.getSolution()
            force = np.maximum(np.array(solution.row_dual), 0.0) / self.scale[rows]
            values, costs = np.array(solution.col_value)[:n], np.array(solution.col_dual)[:n]
        self.work += n
        return force, values, costs

    def bound_locations(self, rows: Ints, photos: Photos, start: Certificate, enough: float) -> Certificate:
        """Return a certified bound on the number of photos that can stay if a set of locations must be protected.

        The bound is that of the linear program. If there are many photos, a slightly weaker bound is computed instead,
        which is much faster. It is at most the bound of ``start``.

        Args:
            rows: (r,) The locations that must be protected.
            photos: The photos that must stay, and the photos that may stay. None of the locations may be ruled out by a
                photo that must stay.
            start: The initial multipliers, for some of these locations, with a bound that is valid for these photos.
            enough: The computation may stop as soon as the bound is below this number.
        """
        n = len(self._lower)
        if n < MANY_PHOTOS:
            certificate, _, _ = self.solve(rows, photos)
            return certificate
        start_multipliers = dict(zip(start.rows.tolist(), start.force.tolist(), strict=True))
        force = np.array([start_multipliers.get(j, 0.0) for j in rows.tolist()])
        certificate = Certificate(start.bound, rows, force)
        few = SMOOTH_RATIO * len(rows)
        if certificate.bound >= max(few, enough):
            self.solved += 1
            self.work += DESCENT_WORK
            # Columns of deleted photos are left out, and rows are scaled, as in the program.
            scale = self.scale[rows]
            diff = self.data.diff[np.ix_(rows, photos.may)] / scale[:, None]
            force = minimise_bound(diff, photos.must[photos.may], force * scale, enough) / scale
            certificate = Certificate(float(bound_photos(self.data, rows, force, photos)), rows, force)
        if enough <= certificate.bound < few:
            refined = self._refine_certificate(certificate, photos)
            certificate = min(refined, certificate, key=lambda entry: entry.bound)
        return certificate

    def _refine_certificate(self, certificate: Certificate, photos: Photos) -> Certificate:
        """Return the certificate of the linear program over the photos that are the most likely to stay.

        These are the photos with the largest weights. If no other photo has a positive weight with the new multipliers,
        which is the rule, the bound is that of the linear program over all photos.

        Args:
            certificate: Multipliers near those that minimise the bound, and their bound.
            photos: The photos that must stay, and the photos that may stay.
        """
        rows = certificate.rows
        weight = 1.0 + certificate.force @ self.data.diff[rows]
        count = REFINED_PHOTOS + REFINED_SHARE * ceil(certificate.bound)
        free = np.flatnonzero(photos.may & ~photos.must)
        likely = free[np.argsort(-weight[free], kind="stable")[:count]]
        may = photos.must.copy()
        may[likely] = True
        force, _, _ = self._run_solver(rows, Photos(photos.must, may))
        return Certificate(float(bound_photos(self.data, rows, force, photos)), rows, force)
