"""The problem file for spherical-laplace, which declares epsilon and the rule for rounding positions."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, Literal

from attrs import field, frozen

from privopt.arrays import Floats
from privopt.declare import File, key
from privopt.errors import Fault, Faults, InputError
from privopt_metric_dp.problem.data import prior_of
from privopt_metric_dp.problem.read_points import Columns, read_points
from privopt_metric_dp.space.places import Space
from privopt_spherical_laplace.law import LARGEST_EPSILON, SMALLEST_EPSILON
from privopt_spherical_laplace.sampler.exact import Digits, GridCells, NearestPoint, Rounding

__all__ = ["MAX_DIGITS", "MAX_PRIOR_POINTS", "SphereInstance", "SphereProblem", "check_epsilon"]

MAX_DIGITS: Final = 9
"""The maximum number of decimal digits in reported degrees."""
MAX_PRIOR_POINTS: Final = 400
"""The maximum number of points for which the loss is integrated and points can be remapped."""

_SMALLEST_SIDE: Final = Fraction(1, 10**MAX_DIGITS)


def check_epsilon(value: Fraction) -> str | None:
    """Check whether epsilon (per km) is in the range for which draws are proved to be exact.

    Returns:
        None if it is, and a description of the valid range otherwise.
    """
    in_range = SMALLEST_EPSILON <= value <= LARGEST_EPSILON
    return None if in_range else "a number of at least 0.000001 and at most 1000000"


def _check_digits(value: int) -> str | None:
    """Check whether coordinates can be rounded to a given number of decimal digits.

    Returns:
        None if they can, and a description of the valid range otherwise.
    """
    return None if 0 <= value <= MAX_DIGITS else f"a whole number from 0 to {MAX_DIGITS}"


def _check_side(value: Fraction) -> str | None:
    """Check whether a grid can have cells with a given side, in degrees.

    Returns:
        None if it can, and a description of valid sides otherwise.
    """
    is_divisor = value >= _SMALLEST_SIDE and (90 / value).denominator == 1
    return None if is_divisor else "a number of degrees that divides 90, at least 1e-9"


@frozen(kw_only=True)
class Privacy:
    """The ``[privacy]`` table of a problem file, with the privacy budget per km."""

    epsilon: Fraction = key(help="privacy budget, 1e-6 to 1e6", unit="per km", check=check_epsilon)


@frozen(kw_only=True)
class Outputs:
    """The ``[outputs]`` table of a problem file, which selects what is reported.

    Exactly one of ``digits``, ``grid`` and ``points`` must be set, unless a ``[records]`` table lists the points.
    """

    digits: int | None = key(None, help="decimal digits of latitude and longitude, 0 to 9", check=_check_digits)
    grid: Fraction | None = key(
        None, help="side of the cells of a grid, which divides 90", unit="degrees", check=_check_side
    )
    points: File | None = key(None, help="CSV: id,lat,lon; the nearest is reported")
    columns: Columns | None = key(None, help="names of the columns of the points")


@frozen(kw_only=True)
class Records:
    """The ``[records]`` table of a problem file, which may list the points in place of the ``[outputs]`` table.

    Other metric mechanisms list their points in a table of the same name.
    """

    points: File = key(help="CSV: id,lat,lon; the nearest is reported, as with outputs.points")
    columns: Columns | None = key(None, help="names of the columns of the points")


@frozen(kw_only=True)
class Distance:
    """The ``[distance]`` table of a problem file. Only great-circle distances are supported."""

    kind: Literal["haversine"] = key("haversine", help="great circles in km, R = 6371.0088")


@frozen(kw_only=True)
class Utility:
    """The ``[utility]`` table of a problem file: the loss, the prior over points, and whether points are remapped."""

    kind: Literal["distance"] = key("distance", help="the distance from the position to its report")
    prior: File | None = key(None, help="CSV: id,p over the points; default: uniform")
    remap: bool | None = key(
        None,
        help="whether each point is replaced by the best guess under the prior, at no privacy cost; default: if there "
        "is a prior",
    )


@frozen(kw_only=True)
class SphereProblem:
    """A problem file for spherical-laplace, which adds noise to positions anywhere on Earth and then rounds them."""

    privacy: Privacy = key(help="how much may leak")
    outputs: Outputs = key(factory=Outputs, help="what is reported")
    records: Records | None = key(None, help="in place of outputs: points, of which the nearest is reported")
    distance: Distance = key(factory=Distance, help="the metric")
    utility: Utility = key(factory=Utility, help="what the loss is weighted by")


@frozen(kw_only=True, eq=False)
class SphereInstance:
    """A loaded problem: the problem file together with the contents of the files that it names.

    Attributes:
        declared: The problem file.
        rounding: The rule that maps positions to outputs.
        points: The N points that can be reported. None for digits and grids.
        prior: (N,) The prior probability of each point. None if the problem declares none.
    """

    declared: SphereProblem
    rounding: Rounding
    points: Space | None = None
    prior: Floats | None = field(default=None)

    @property
    def epsilon(self) -> Fraction:
        """The privacy budget epsilon, per km."""
        return self.declared.privacy.epsilon

    @property
    def is_remapped(self) -> bool:
        """Whether the best guess under the prior is reported instead of the nearest point.

        By default, this is the case if and only if the problem declares a prior.
        """
        remap = self.declared.utility.remap
        return self.points is not None and (self.prior is not None if remap is None else remap)

    @property
    def side(self) -> Fraction | None:
        """The side of a cell in degrees, or None if reports are points. Positions are rounded to cell centres."""
        outputs = self.declared.outputs
        # Rounding to digits has cells too. Their side is one unit of the last digit.
        return outputs.grid if outputs.digits is None else Fraction(1, 10**outputs.digits)

    @classmethod
    def of(cls, declared: SphereProblem, file: str) -> SphereInstance:
        """Load a problem: check that its keys are compatible, and read the points and the prior.

        Args:
            declared: The parsed problem file.
            file: The name of the problem file, for error messages.

        Raises:
            InputError: The problem file, or a file that it names, is invalid.
        """
        outputs, utility = declared.outputs, declared.utility
        source: Outputs | Records = outputs if declared.records is None else declared.records
        choices = {
            "digits": outputs.digits,
            "grid": outputs.grid,
            "points": outputs.points,
            "records": declared.records,
        }
        names, faults = [name for name, value in choices.items() if value is not None], Faults()
        if len(names) != 1:
            faults.add(file, "outputs", " and ".join(names) or "nothing", "one of digits, grid, points; or [records]")
        # Each of these keys is only allowed if the table paired with it lists points. outputs.columns is paired with
        # [outputs] in any case, because [records] has its own key for columns.
        source_by_key = {
            "utility.prior": (utility.prior, source),
            "utility.remap": (utility.remap or None, source),
            "outputs.columns": (outputs.columns, outputs),
        }
        for name, (value, table) in source_by_key.items():
            if value is not None and table.points is None:
                faults.add(file, name, "a value", "outputs.points with it")
        faults.check()
        if outputs.digits is not None:
            return cls(declared=declared, rounding=Digits(outputs.digits))
        if outputs.grid is not None:
            return cls(declared=declared, rounding=GridCells(outputs.grid))
        assert source.points is not None  # checked above
        points = read_points(source.points, source.columns, ids_alone=False)  # coordinates are required
        if points.kind != "geographic" or points.coordinates is None:
            raise InputError([Fault(source.points.name, "header", "no latitudes and longitudes", "id,lat,lon")])
        # With more points, the loss is not integrated, so neither a prior nor a remap is allowed. `remap = false`
        # requests nothing, so it is ignored.
        weighted_keys = {"utility.prior": utility.prior, "utility.remap": utility.remap or None}
        for name, value in weighted_keys.items():
            if value is not None and len(points.ids) > MAX_PRIOR_POINTS:
                faults.add(file, name, f"{len(points.ids)} points", f"at most {MAX_PRIOR_POINTS} points with it")
        faults.check()
        places = tuple(_canonical(*row) for row in points.coordinates.tolist())
        _check_distinct(places, source.points.name)
        return cls(
            declared=declared,
            rounding=NearestPoint(places),
            points=points,
            prior=None if utility.prior is None else prior_of(utility.prior, points),
        )


def _canonical(latitude: float, longitude: float) -> tuple[Fraction, Fraction]:
    """Return a position's exact coordinates in degrees, in a canonical form.

    The longitude is in [-180, 180), and is 0 at the poles.
    """
    degrees = Fraction(latitude), (Fraction(longitude) + 180) % 360 - 180
    return (degrees[0], Fraction(0)) if abs(degrees[0]) == 90 else degrees


def _check_distinct(places: tuple[tuple[Fraction, Fraction], ...], file: str) -> None:
    """Check that no two points are at the same place.

    Otherwise, the nearest point would not always be unique.

    Args:
        places: The latitude and longitude of each point, as returned by :func:`_canonical`.
        file: The name of the file with the points, for error messages.

    Raises:
        InputError: Two points are at the same place.
    """
    first_rows: dict[tuple[Fraction, Fraction], int] = {}
    faults = Faults()
    for row, place in enumerate(places):
        if (first := first_rows.setdefault(place, row)) != row:
            # Row numbers in messages start from 1, and row 1 is the header.
            faults.add(file, f"row {row + 2}", f"the place of row {first + 2}", "a place of its own")
    faults.check()
