"""Upper bounds on the number of photos that can stay if given locations must rank at or above the true one.

Let z_i be 1 if photo i stays and 0 if it is deleted. The advantage d_ij of photo i for location j is its score for j,
minus its score for the true location, minus the margin. For a set A of locations, the linear relaxation maximises
``sum_i z_i`` subject to ``sum_i z_i d_ij >= 0`` for all j in A and ``0 <= z_i <= 1`` for all i. By Lagrangian duality,
at most ``sum_i max(0, 1 + sum_j f_j d_ij)`` photos can stay, for any multipliers f_j >= 0 of the locations j in A. For
photos that must stay, the maximum with 0 is omitted.

The multipliers come from HiGHS or, if there are many photos, from Newton's method. When a single location is added, a
line search finds its multiplier. The bound is always the sum above plus its largest possible rounding error, never the
objective reported by a solver.
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
"""The cost of violating a scaled row of the linear program by 1. A retained photo is worth 1."""
LARGEST_POWER: Final = 700
"""The largest allowed exponent of a multiplier 2**power. The checker converts multipliers to units of 2**-256."""
BLOCK_ENTRIES: Final = 100_000
"""The maximum number of (photo, location) pairs processed at once. Each pair takes about 120 bytes."""
MANY_PHOTOS: Final = 1_000
"""The minimum number of photos for which bounds are computed by Newton's method.

This method takes 0.6 ms for 1,000 photos and 5 locations, and 0.8 ms for 10,000, compared to 2 and 26 ms for HiGHS.
"""
DESCENT_WORK: Final = 500
"""The work counted for one minimisation by Newton's method, in the same units as :attr:`Program.work`."""
SMOOTH_RATIO: Final = 16
"""The number of photos per location below which a bound from Newton's method is refined by a linear program.

The fewer photos can be kept according to a bound, the less smooth the bound is. Between 8 and 16 photos per location,
Newton's bounds exceeded the linear program's by up to 0.23 photos, and by up to 3 below 1 photo per location. Above 16,
the difference was at most 0.08, which hardly ever changes the rounded bound.
"""
REFINED_PHOTOS: Final = 256
"""The minimum number of photos in a linear program that refines a bound."""
REFINED_SHARE: Final = 8
"""The number of additional photos in a linear program that refines a bound, for each photo that can be kept according
to the bound."""
WHOLE_TOLERANCE: Final = 1e-6
"""The distance from 0 or 1 within which a value in the linear program counts as 0 or 1."""


@frozen(eq=False)
class Photos:
    """A partial decision about N photos, each of which is retained, deleted or undecided.

    Attributes:
        must: (N,) Whether each photo must be kept.
        may: (N,) Whether each photo may be kept. True for all photos that must be kept.
    """

    must: Bools
    may: Bools

    def drop_photos(self, killed: Bools) -> Photos | None:
        """Return a copy of this decision in which the photos that rule out a location are deleted.

        If one of these photos must be kept, the location cannot be protected, and the result is None.

        Args:
            killed: (N,) A mask of the photos that rule out the location.
        """
        return None if (self.must & killed).any() else Photos(self.must, self.may & ~killed)


@frozen(eq=False)
class Certificate:
    """Lagrange multipliers, and the bound they prove on the number of retained photos.

    Attributes:
        bound: The bound, not yet rounded down to an integer.
        rows: (r,) The locations with multipliers, as rows of :class:`Alternates`.
        force: (r,) The multiplier f of each of these locations, which is non-negative.
    """

    bound: float
    rows: Ints
    force: Floats


def _max_rounding_error(photos: int, locations: int, size: Floats) -> Floats:
    """Return an upper bound on the rounding error of each Lagrangian sum.

    A Lagrangian sum has one term per photo, and each term is itself a sum over locations, so about
    ``photos + locations`` operations are rounded. The factor 8 is a safety margin.

    Args:
        photos: The number of photos.
        locations: The number of locations with multipliers.
        size: For each Lagrangian sum, a bound on the absolute values of its terms.
    """
    return np.asarray(8.0 * EPS * (photos + locations + 8) * photos * size)


def bound_photos(data: Alternates, rows: Ints, force: Floats, photos: Photos) -> Floats:
    """Return upper bounds on the number of photos that can be kept, one for each vector of multipliers.

    Each bound is a Lagrangian sum plus its largest possible rounding error.

    Args:
        data: The album.
        rows: (r,) The protected locations.
        force: (..., r) Non-negative multipliers for these locations. Each vector along the last axis yields one bound.
        photos: The photos that must be kept, and the photos that may be kept.

    Returns:
        The bounds, with the same shape as ``force`` but without its last axis.
    """
    # A photo that must stay counts even if its weight is negative, any other photo only if its weight is positive.
    weight = 1.0 + force @ data.diff[rows]
    total = np.where(photos.may & (photos.must | (weight > 0.0)), weight, 0.0).sum(axis=-1)
    return np.asarray(total + _max_rounding_error(data.diff.shape[1], len(rows), 1.0 + force @ data.size[rows]))


def bound_extensions(data: Alternates, certificate: Certificate, rows: Ints, photos: Photos) -> tuple[Floats, Floats]:
    """Bound the number of photos that can be kept if one more location must be protected.

    A bound is computed for each of c candidates for this location. The multipliers of the locations that are already
    protected stay fixed, and only the candidate's multiplier is optimised.

    Args:
        data: The album.
        certificate: The multipliers of the locations that are already protected.
        rows: (c,) The candidates.
        photos: The photos that must be kept, and the photos that may be kept. Photos that rule out a protected location
            must already be deleted.

    Returns:
        Two arrays of shape (c,): the bounds, and the candidates' multipliers. If no location is protected yet, the
        bounds are tight.
    """
    size = max(1, BLOCK_ENTRIES // data.diff.shape[1])
    parts = [
        _bound_block(data, certificate, rows[start : start + size], photos)
        for start in range(0, max(1, len(rows)), size)
    ]
    bounds, force = (np.concatenate(blocks) for blocks in zip(*parts, strict=True))
    return bounds, force


def _bound_block(data: Alternates, certificate: Certificate, rows: Ints, photos: Photos) -> tuple[Floats, Floats]:
    """Compute :func:`bound_extensions` for a batch of locations that is small enough to fit in memory.

    Args:
        data: The album.
        certificate: The multipliers of the locations that are already protected.
        rows: (c,) The candidates for the new location.
        photos: The photos that must be kept, and the photos that may be kept.

    Returns:
        Two arrays of shape (c,): the bounds on the number of photos that can be kept, and the multipliers that minimise
        them.
    """
    # The bound is convex and piecewise linear in the multiplier: the sum of max(0, base + multiplier * diff). Its slope
    # changes (a turn) where a term changes sign. Its minimum is the first turn after which the slope is not negative.
    # `base` (N,) has the weights of the photos with the known multipliers. `counts` says which terms are positive just
    # above a multiplier of 0. `data.kills` marks the photos that rule a location out. `turn` (c, N) is the multiplier
    # at which a term changes sign, infinite if there is none.
    base = 1.0 + certificate.force @ data.diff[certificate.rows]
    diff, may = data.diff[rows], photos.may & ~data.kills[rows]
    free = may & ~photos.must
    counts = free & ((base > 0.0) | ((base == 0.0) & (diff > 0.0)))
    # The largest rounding error grows with the multiplier, so its slope is added. Without it, the slope after the last
    # turn would be 0 for a location that no photo favours, but slightly negative when summed in doubles, and the
    # multiplier would become far too large.
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
    # If the slope stays negative, the bound decreases without limit, so no set of photos will do. A multiplier far
    # enough beyond the last turn makes the bound negative.
    with np.errstate(divide="ignore", over="ignore"):
        decisive_force = last_turn + 2.0 * (len(base) + np.abs(base).sum()) / np.abs(slope + steps.sum(axis=1))
    is_unbounded = ~rising.any(axis=1) | ~np.isfinite(optimal_turn)
    force = np.where(slope >= 0.0, 0.0, np.where(is_unbounded, decisive_force, optimal_turn))
    force = np.minimum(force, 2.0**LARGEST_POWER)
    weight = base + force[:, None] * diff
    total = np.where(may & (photos.must | (weight > 0.0)), weight, 0.0).sum(axis=1)
    size = 1.0 + float(certificate.force @ data.size[certificate.rows]) + force * data.size[rows]
    bounds = total + _max_rounding_error(len(base), len(certificate.rows) + 1, size)
    # Where the new multiplier gains less than rounding errors cost, it is set to 0.
    base_bound = bound_photos(data, certificate.rows, certificate.force, photos)
    bounds, force = np.minimum(bounds, base_bound), np.where(bounds < base_bound, force, 0.0)
    # If a photo that must stay rules the location out, not even 0 photos can stay, so the bound is -1.
    return np.where((photos.must & data.kills[rows]).any(axis=1), -1.0, bounds), force


def exact_certificate(data: Alternates, row: int, retained: Bools) -> Certificate | None:
    """Return a certificate that a location is not protected if exactly the given photos are kept.

    Returns None if the location is protected, or if the multiplier would be too large for a proof file.

    Args:
        data: The album.
        row: The location, as a row of :class:`Alternates`.
        retained: (N,) A mask of the photos that are kept.
    """
    total = sum((data.gain(row, i) for i in np.flatnonzero(retained).tolist()), Fraction(0))
    if total >= 0:
        return None
    # With this multiplier, the sum of 1 + force * gain over the photos is negative. A power of two is exact in doubles.
    power = ceil((len(retained) + 1) / -total).bit_length()
    return Certificate(-1.0, np.array([row]), np.array([2.0**power])) if power <= LARGEST_POWER else None


class Program:
    """The linear relaxation for a set of locations, held in a single HiGHS model that is modified for each new set.

    Each solve starts from the previous solution. The variables are the value z_i of each photo (see the module
    docstring), and a single violation variable shared by all rows, which keeps the program feasible.

    Attributes:
        data: The album.
        scale: (m,) The largest absolute advantage of any photo for each location. The location's row is divided by it.
        solved: The number of programs solved so far, exactly or approximately.
        work: The work done so far: the total number of photos across all programs solved by HiGHS, plus
            :data:`DESCENT_WORK` for each minimisation by Newton's method. A unit takes about 2 microseconds.
        _solver: The HiGHS solver, with the rows and bounds of the last program.
        _endless, _optimal: HiGHS's value for infinity, and its status for an optimal solution.
        _columns: (N + 1,) The column indices of the variables: the photos, then the violation.
        _rows: The locations of the program's rows, in order.
        _lower, _upper: (N,) The bounds of the photos' variables.
    """

    def __init__(self, data: Alternates) -> None:
        """Create the program for an album, without any locations and with all photos undecided."""
        import highspy

        self.data = data
        # Rows are scaled to a largest coefficient of 1, so that a violation costs the same in each of them.
        self.scale = np.maximum(np.abs(data.diff).max(axis=1, initial=0.0), 1e-300)
        self.solved = 0
        self.work = 0
        self._endless = highspy.kHighsInf
        self._optimal = highspy.HighsModelStatus.kOptimal
        n = data.diff.shape[1]
        self._columns = np.arange(n + 1, dtype=np.int32)
        # Presolve is switched off, so that each program can start from the basis of the previous one.
        solver: Any = new_solver(tolerance=1e-9, method="simplex")
        solver.setOptionValue("presolve", "off")
        # The last variable, the violation, makes the program feasible whatever its rows are.
        solver.addVars(n + 1, np.zeros(n + 1), np.append(np.ones(n), self._endless))
        solver.changeColsCost(n + 1, self._columns, np.append(-np.ones(n), MISSING_COST))
        self._solver = solver
        self._rows: list[int] = []
        self._lower, self._upper = np.zeros(n), np.ones(n)

    def _update_program(self, rows: Ints, photos: Photos) -> None:
        """Update the rows and bounds of the HiGHS program where they have changed since the previous call.

        Args:
            rows: (r,) The locations.
            photos: The photos that must be kept, whose variables are fixed at 1, and the photos that may be kept. The
                variables of all others are fixed at 0.
        """
        target_rows = rows.tolist()
        # The search adds locations one by one, so successive programs mostly share their first rows.
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
        """Solve the linear relaxation for a set of locations, and return the bound proved by its dual multipliers.

        Args:
            rows: (r,) The locations that must be protected.
            photos: The photos that must be kept, and the photos that may be kept. No photo that must be kept may rule
                out one of the locations.

        Returns:
            The certificate with the bound, and two arrays of shape (N,) with the values and the reduced costs of the
            photos. If HiGHS fails, the multipliers are 0, all values are 0.5 and all costs are 1.
        """
        force, values, costs = self._run_solver(rows, photos)
        # Any multipliers give a valid bound, even those of an inexact or failed solution.
        bound = float(bound_photos(self.data, rows, force, photos))
        return Certificate(bound, rows, force), values, costs

    def _run_solver(self, rows: Ints, photos: Photos) -> tuple[Floats, Floats, Floats]:
        """Solve the linear relaxation with HiGHS (see :meth:`solve`).

        Returns:
            The multipliers, of shape (r,), and the values and reduced costs of the photos, each of shape (N,).
        """
        self._update_program(rows, photos)
        self._solver.run()
        self.solved += 1
        n = len(self._lower)
        # The basis is dropped, because it may have caused the failure.
        if self._solver.getModelStatus() != self._optimal:
            self._solver.clearSolver()
            force, values, costs = np.zeros(len(rows)), np.full(n, 0.5), np.ones(n)
        else:
            # The duals of the scaled rows are converted to multipliers of the unscaled rows. Negative ones are due to
            # rounding and become 0.
            solution = self._solver.getSolution()
            force = np.maximum(np.array(solution.row_dual), 0.0) / self.scale[rows]
            values, costs = np.array(solution.col_value)[:n], np.array(solution.col_dual)[:n]
        self.work += n
        return force, values, costs

    def bound_locations(self, rows: Ints, photos: Photos, start: Certificate, enough: float) -> Certificate:
        """Bound the number of photos that can be kept if a set of locations must be protected.

        The result is the linear program's bound or, with many photos, a slightly weaker bound that can be computed much
        faster. The weaker bound never exceeds the bound of ``start``.

        Args:
            rows: (r,) The locations that must be protected.
            photos: The photos that must be kept, and the photos that may be kept. No photo that must be kept may rule
                out one of the locations.
            start: The initial multipliers, for some of these locations, with a bound that is valid for these photos.
                Used only if there are many photos.
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
            # Deleted photos are left out, and rows are scaled as in the linear program.
            scale = self.scale[rows]
            diff = self.data.diff[np.ix_(rows, photos.may)] / scale[:, None]
            force = minimise_bound(diff, photos.must[photos.may], force * scale, enough) / scale
            certificate = Certificate(float(bound_photos(self.data, rows, force, photos)), rows, force)
        if enough <= certificate.bound < few:
            refined = self._refine_certificate(certificate, photos)
            certificate = min(refined, certificate, key=lambda entry: entry.bound)
        return certificate

    def _refine_certificate(self, certificate: Certificate, photos: Photos) -> Certificate:
        """Solve a linear program restricted to the photos most likely to be kept, and return the resulting certificate.

        The program contains the photos that must be kept and those with the largest weights. Usually no other photo has
        a positive weight under the new multipliers, in which case the bound equals the bound of the linear program over
        all photos.

        Args:
            certificate: Multipliers that nearly minimise the bound, and the bound they prove.
            photos: The photos that must be kept, and the photos that may be kept.
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
