"""Places: ids with coordinates, and regular grids.

Coordinates are doubles. Their differences from the declared decimals are also stored (``rests``, ``written``) or
bounded (``off``), because a guarantee must hold for the declared places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen
from attrs.converters import optional
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, doubles, no_doubles
from privopt.errors import DoesNotHoldError, Fault, Faults, InputError, UsageError
from privopt.numbers.distances import EARTH_RADIUS_KM, position_text
from privopt.numbers.exp_log_bounds import ball_of
from privopt_metric_dp.space.projection import Projection

__all__ = [
    "MAX_COORDINATE",
    "Kind",
    "Space",
    "check_places",
    "check_resolution",
    "grid_points",
    "places_at_most",
    "rests_of",
]

Kind = Literal["planar", "geographic", "vector", "plain"]

MAX_COORDINATE = 1e150  # the largest absolute value of a coordinate, so small that squares of differences are finite


# The limit set by `places_at_most`. None if there is no limit.
_PLACE_LIMIT: ContextVar[int | None] = ContextVar("_PLACE_LIMIT", default=None)


@contextmanager
def places_at_most(count: int | None) -> Iterator[None]:
    """Limit the number of places in problems loaded within a ``with`` block.

    A few numbers in a problem file can declare millions of places. When a release is verified, the limit is the number
    of rows or columns in the release. A file that declares more places is then rejected before its places are computed.

    Args:
        count: The maximum number of places to allow. If None, there is no limit.
    """
    token = _PLACE_LIMIT.set(count)
    try:
        yield
    finally:
        _PLACE_LIMIT.reset(token)


def check_places(count: int, subject: str) -> None:
    """Check the number of places in a grid or a mesh before the places are computed.

    Args:
        count: A lower bound on the number of places.
        subject: The file and key that declare the places, for the error message.

    Raises:
        DoesNotHoldError: The number of places exceeds the limit set by :func:`places_at_most`.
    """
    limit = _PLACE_LIMIT.get()
    if limit is not None and count > limit:
        raise DoesNotHoldError(
            f"{subject}: must have at most {limit:,} places, the release's rows or columns, got {count:,}"
        )


def _to_texts(values: Iterable[object]) -> tuple[str, ...]:
    """Convert the ids of a :class:`Space` to strings."""
    return tuple(map(str, values))


def _to_coordinates(values: npt.ArrayLike) -> Floats:
    """Convert the coordinates of a :class:`Space` to doubles.

    Raises:
        UsageError: A coordinate is an integer beyond 2^53, which a double cannot represent exactly.
    """
    if no_doubles(np.asarray(values)).any():
        raise UsageError("coordinates must be doubles, or whole numbers up to 2^53, got whole numbers beyond")
    return doubles(values)


@frozen(kw_only=True, eq=False)
class Space:
    """A set of places: ids and, unless the kind is plain, coordinates.

    >>> Space(ids=("a", "b"), coordinates=[[0.0, 0.0], [3.0, 4.0]], kind="planar").coordinates.shape
    (2, 2)

    Attributes:
        ids: N distinct strings.
        coordinates: The coordinates of each place: for planar places, (N, 2) x and y in ``unit``; for geographic
            places, (N, 2) latitudes and longitudes in degrees; for vectors, (N, dim) components. None for plain places.
        kind: planar, geographic, vector or plain.
        source: The name of the file, for error messages.
        off: An upper bound on the difference between a declared coordinate and its double, in the unit of the axis.
            Metrics account for it, so that distances never exceed those between the declared places.
        rests: The declared coordinates minus their doubles, in an array with the same shape as ``coordinates``. None if
            they are not known.
        written: (N, dim) The declared coordinates as strings that contain decimals or fractions. None if they are not
            known, or if they equal the doubles (``off`` is 0).
        corner: For a geographic grid, the latitude and longitude of its first place in degrees. ``written`` then
            contains the distances in km north and east of the corner. None for other places.
        triangles: (S, 3) The place indices of each triangle's corners, counter-clockwise. None unless the places form a
            mesh or a grid.
        projection: The projection from degrees that produced the planar coordinates. None if they were not projected.
        names: The display names of the N places, or None.
        unit: The unit of planar coordinates, in the singular.

    Raises:
        InputError: There are no ids, ids are repeated, the shape is wrong, or a coordinate is not finite or is out of
            range (latitudes beyond 90 degrees, longitudes outside [-180, 360] degrees). All errors are reported
            together.
        UsageError: ``rests`` and the coordinates have different shapes, or integers are too large for doubles.
    """

    ids: tuple[str, ...] = field(converter=_to_texts)
    coordinates: Floats | None = field(default=None, converter=optional(_to_coordinates))
    kind: Kind = "plain"
    source: str = "records"
    off: float = 0.0
    rests: Floats | None = field(default=None, converter=optional(_to_coordinates))
    written: NDArray[np.str_] | None = None
    corner: tuple[Fraction, Fraction] | None = None
    triangles: Ints | None = None
    projection: Projection | None = None
    names: tuple[str, ...] | None = None
    unit: str = "km"

    def __attrs_post_init__(self) -> None:
        """Check ids and coordinates, and raise the errors listed in the class docstring."""
        faults = list(self._id_faults())
        if self.coordinates is None:
            if self.kind != "plain":
                faults.append(Fault(self.source, "", "no coordinates", f"coordinates of kind {self.kind}"))
        else:
            faults += self._coordinate_faults(self.coordinates)
        if faults:
            raise InputError(faults)
        shape = None if self.coordinates is None else self.coordinates.shape
        # Compiled code reads coordinates and rests at the same indices, without checking bounds.
        if self.rests is not None and self.rests.shape != shape:
            raise UsageError(f"rests have shape {self.rests.shape}, coordinates {shape}")

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Ints) -> Space:
        """Return the M places with the indices ``rows``, in that order and without triangles."""
        return evolve(
            self,
            ids=[self.ids[row] for row in rows.tolist()],
            coordinates=None if self.coordinates is None else self.coordinates[rows],
            rests=None if self.rests is None else self.rests[rows],
            written=None if self.written is None else self.written[rows],
            triangles=None,
            names=None if self.names is None else tuple(self.names[row] for row in rows.tolist()),
        )

    @property
    def on_map(self) -> Floats | None:
        """The (N, 2) coordinates of geographic or planar places. None for vectors and plain ids."""
        return self.coordinates if self.kind in ("geographic", "planar") else None

    def description(self, index: int) -> str:
        """Return a place's name, its position as a string if it has no name, or an empty string if it has neither."""
        if self.names is not None and self.names[index]:
            return self.names[index]
        if self.on_map is None:
            return ""
        x, y = self.on_map[index].tolist()
        return position_text(*((y, x) if self.kind == "geographic" else (x, y)), self.kind, self.unit)

    def label(self, index: int) -> str:
        """Return the id of a place, followed by its description in brackets if there is one."""
        description = self.description(index)
        return f"{self.ids[index]} ({description})" if description else self.ids[index]

    def numbers(self, ids: Iterable[str]) -> Ints:
        """Return the indices of the places with the given ids, in the order of the ids.

        Raises:
            KeyError: An id does not belong to any place.
        """
        index_by_id = {name: index for index, name in enumerate(self.ids)}
        return np.array([index_by_id[name] for name in ids], dtype=np.int64)

    @property
    def remaining_error(self) -> float:
        """An upper bound on the error of any coordinate after its rest has been added to its double.

        The error is the difference from the declared coordinate.
        """
        if self.rests is None or self.coordinates is None or self.off == 0.0:
            return self.off
        # Rests are rounded to doubles too. The bound covers this and the rounding of differences between two places.
        return 2.0**-50 * self.off + 2.0**-103 * float(np.abs(self.coordinates).max())

    def _id_faults(self) -> Iterator[Fault]:
        """Yield a fault if there are no places, and a fault for each id that occurs more than once."""
        if not self.ids:
            yield Fault(self.source, "", "no records at all", "at least one")
        duplicates = [name for name, times in Counter(self.ids).items() if times > 1]
        faults = (
            Fault(self.source, f"id {name!r}", "the same id more than once", "distinct ids") for name in duplicates
        )
        yield from Faults(faults).listed

    def _coordinate_faults(self, points: Floats) -> list[Fault]:
        """Return the faults found in the coordinates.

        If places of this kind have no coordinates, or if the array has the wrong shape, that is the only fault.
        Otherwise, there is one fault per place with an invalid coordinate.

        Args:
            points: The given coordinates. A valid array has one row per id, and two columns unless the kind is vector.
        """
        shape = "(N, dim)" if self.kind == "vector" else "(N, 2)"
        wrong_width = points.ndim != 2 or points.shape[1] < 1 or (self.kind != "vector" and points.shape[1] != 2)
        if self.kind == "plain":
            return [Fault(self.source, "", "coordinates", "no coordinates, for ids alone")]
        if wrong_width or len(points) != len(self.ids):
            actual = f"an array of shape {points.shape} for {len(self.ids)} ids"
            return [Fault(self.source, "", actual, f"shape {shape}, one row per id")]
        is_invalid = ~np.isfinite(points) | (np.abs(points) > MAX_COORDINATE)
        limit = f"finite numbers, at most {MAX_COORDINATE:g}"
        if self.kind == "geographic":
            is_invalid[:, 0] |= np.abs(points[:, 0]) > 90.0
            # Longitudes up to 360 are accepted, because some data sets count them from 0 to 360.
            is_invalid[:, 1] |= (points[:, 1] < -180.0) | (points[:, 1] > 360.0)
            limit = "a latitude in [-90, 90] and a longitude in [-180, 360] degrees"
        return Faults(
            Fault(self.source, f"id {self.ids[row]!r}", ", ".join(map(repr, points[row].tolist())), limit)
            for row in np.flatnonzero(is_invalid.any(axis=1))
        ).listed


def grid_points(
    rows: int,
    cols: int,
    cell_km: float | Fraction,
    south_west: Sequence[float | Fraction] | None = None,
    *,
    source: str = "problem.toml",
    key: str = "records.grid",
) -> Space:
    """Return the centres of a grid's cells, row by row from the south, with ids such as "r0c1".

    >>> grid_points(2, 2, 0.5).coordinates.tolist()
    [[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.5, 0.5]]

    Args:
        rows, cols: The number of rows and the number of columns, each at least 1.
        cell_km: The side length of a cell in km.
        south_west: The latitude and longitude of the centre of "r0c0", in degrees. Steps to the east are ``cell_km``
            long at this latitude, with R = 6371.0 km. By default, the grid is planar, with "r0c0" at (0, 0).
        source, key: The names of the file and the key, for error messages.

    Raises:
        InputError: A size is not positive, or the grid crosses a pole or wraps all the way around the earth.
        DoesNotHoldError: The grid has more places than the release being verified (see :func:`check_places`).
    """
    if faults := list(_grid_faults(rows, cols, cell_km, south_west, source, key)):
        raise InputError(faults)
    check_places(rows * cols, f"{source}: {key}")
    ids = tuple(f"r{r}c{c}" for r in range(rows) for c in range(cols))
    # The declared side is exact, so a cell's position is a rational. `rests` contains its difference from the double.
    steps = [Fraction(cell_km) * step for step in range(max(rows, cols))]
    offsets = np.array([float(step) for step in steps])
    # texts[s] is the exact position after s steps in either direction, such as "3/10", for the `written` attribute.
    triangles, texts = _split_squares(rows, cols), np.array([str(step) for step in steps])
    east_first = [np.tile(texts[:cols], rows), np.repeat(texts[:rows], cols)]
    if south_west is None:
        points = np.column_stack([np.tile(offsets[:cols], rows), np.repeat(offsets[:rows], cols)])
        residuals = np.array(
            [float(step - Fraction(double)) for step, double in zip(steps, offsets.tolist(), strict=True)]
        )
        rests = np.column_stack([np.tile(residuals[:cols], rows), np.repeat(residuals[:rows], cols)])
        position_error = float(np.abs(residuals).max())
        return Space(
            ids=ids,
            coordinates=points,
            kind="planar",
            source=source,
            triangles=triangles,
            off=position_error,
            rests=rests,
            written=np.column_stack(east_first),
        )
    north, north_rests, east, east_rests = _degrees_of_steps(steps, rows, cols, south_west)
    if north[-1] > 90.0 or east[-1] - float(south_west[1]) >= 360.0:
        raise InputError([Fault(source, key, "a grid that passes a pole or goes round the earth", "a smaller grid")])
    residuals = np.concatenate([north_rests, east_rests])
    span = max(float(north[-1]) - float(south_west[0]), float(east[-1]) - float(south_west[1]))
    # A grid may cross the 180th meridian, beyond which longitudes continue from -180. The subtraction is exact.
    east = np.where(east > 180.0, east - 360.0, east)
    return Space(
        ids=ids,
        coordinates=np.column_stack([np.repeat(north, cols), np.tile(east, rows)]),
        kind="geographic",
        source=source,
        triangles=triangles,
        # The bound is at least 2^-50 times the span, which covers the rounding of the rests if these are tiny.
        off=max(float(np.abs(residuals).max()) * (1.0 + 2.0**-50), 2.0**-50 * span),
        rests=np.column_stack([np.repeat(north_rests, cols), np.tile(east_rests, rows)]),
        written=np.column_stack(east_first[::-1]),  # north before east, because latitudes come before longitudes
        corner=(Fraction(south_west[0]), Fraction(south_west[1])),
    )


def _degrees_of_steps(
    steps: Sequence[Fraction], rows: int, cols: int, south_west: Sequence[float | Fraction]
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the latitudes of a grid's rows and the longitudes of its columns, which may exceed 180 degrees.

    Args:
        steps: The exact distances in km after 0, 1, 2, ... steps from the corner. There are max(rows, cols) distances.
        rows, cols: The number of rows and the number of columns.
        south_west: The latitude and longitude of the corner in degrees.

    Returns:
        Four arrays in degrees: the doubles nearest to the latitudes of the rows, the exact latitudes minus these
        doubles, and the same two arrays for the longitudes of the columns.
    """
    import flint

    # A double and its rest hold 106 bits. 192 bits are enough for all of them to be correct, even if the degrees are
    # far below 1.
    with flint.ctx.workprec(192):
        degree = flint.arb.pi() / 180
        a_km_north = 1 / (ball_of(Fraction(EARTH_RADIUS_KM)) * degree)
        a_km_east = a_km_north / (ball_of(Fraction(south_west[0])) * degree).cos()
        doubles, rests = [], []
        for start, a_km, count in ((south_west[0], a_km_north, rows), (south_west[1], a_km_east, cols)):
            exact = [ball_of(Fraction(start)) + ball_of(step) * a_km for step in steps[:count]]
            doubles.append(np.array([float(ball.mid()) for ball in exact]))
            rests.append(
                np.array([float((ball - x).mid()) for ball, x in zip(exact, doubles[-1].tolist(), strict=True)])
            )
    return doubles[0], rests[0], doubles[1], rests[1]


def _grid_faults(
    rows: int,
    cols: int,
    cell_km: float | Fraction,
    south_west: Sequence[float | Fraction] | None,
    source: str,
    key: str,
) -> Iterator[Fault]:
    """Yield a fault for each argument of :func:`grid_points` that is out of range.

    Outside these ranges, the formulas for a grid do not hold. For example, a step to the east has length 0 at a pole.
    """
    for name, value in (("rows", rows), ("cols", cols)):
        # True is an int in Python, but not a valid number of rows.
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            yield Fault(source, f"{key}.{name}", repr(value), "a whole number of at least 1")
    if not (math.isfinite(cell_km) and cell_km > 0):
        yield Fault(source, f"{key}.cell_km", repr(float(cell_km)), "a number above 0")
    if south_west is not None and not (
        len(south_west) == 2 and abs(float(south_west[0])) < 90.0 and -180.0 <= south_west[1] <= 180.0
    ):
        expectation = "[lat, lon] in degrees, |lat| below 90, lon in [-180, 180]"
        yield Fault(source, f"{key}.south_west", repr(list(map(float, south_west))), expectation)


def _split_squares(rows: int, cols: int) -> Ints:
    """Divide each square of four neighbouring grid places into two triangles.

    Place r * cols + c is the centre in row r and column c. A single row or column has no squares.

    Returns:
        (S, 3) The place indices of the corners of each triangle, counter-clockwise.
    """
    indices = np.arange(rows * cols, dtype=np.int64).reshape(rows, cols)
    # The corners of each square: a is south-west, b south-east, c north-west and d north-east.
    a, b, c, d = (part.ravel() for part in (indices[:-1, :-1], indices[:-1, 1:], indices[1:, :-1], indices[1:, 1:]))
    return np.column_stack([a, b, c, b, d, c]).reshape(-1, 3)


def rests_of(records: Space, outputs: Space) -> list[Floats]:
    """Return the declared coordinates minus their doubles, for the records and for the outputs.

    Returns:
        Two arrays of shapes (N, dim) and (K, dim), in the same units as the coordinates. If all differences are unknown
        or zero, both have shape (0, dim), so that the compiled functions skip them.
    """
    arrays = [np.array(np.zeros_like(s.coordinates) if s.rests is None else s.rests) for s in (records, outputs)]
    return arrays if any(rests.any() for rests in arrays) else [rests[:0].copy() for rests in arrays]


def check_resolution(space: Space, error: float) -> None:
    """Check that doubles can resolve the distance between any two planar places or vectors.

    A double and its rest (the difference from the declared coordinate) hold 106 bits. On a map 1e15 km wide, the error
    is therefore 1e-16 km, so a distance of 1e-7 km would be rounded down by more than the relative error of 1e-9
    allowed by ``verify`` and the stand-alone checker. Such coordinates are probably typos.

    Args:
        space: The places, with coordinates.
        error: A proved upper bound on the error of a distance, in the unit of the space.

    Raises:
        InputError: Two distinct places are too close to each other.
    """
    assert space.coordinates is not None  # the caller measures distances between them
    # The checkers also allow an absolute difference of 1e-24. The factors 0.9 and 0.8 make both limits slightly
    # stricter, because rounding distances down uses up a small part of the allowed difference.
    if 2.0 * error <= 0.9e-24:
        return
    from scipy.spatial import cKDTree

    min_distance = 2.0 * error / 0.8e-9
    all_digits = space.coordinates if space.rests is None else np.hstack([space.coordinates, space.rests])
    rows = np.unique(all_digits, axis=0, return_index=True)[1]
    distances, nearest = cKDTree(space.coordinates[rows]).query(space.coordinates[rows], k=[2])
    faults = Faults()
    for place in np.flatnonzero(distances[:, 0] < min_distance).tolist():
        name, other = (space.ids[rows[number]] for number in (place, int(nearest[place, 0])))
        actual = f"a distance of {distances[place, 0]:.3g} to {other!r}"
        expectation = f"places at least {min_distance:.3g} {space.unit} apart, since the map is so wide"
        faults.add(space.source, f"id {name!r}", actual, expectation)
    faults.check()
