"""The keys of a metric problem's file: places, grid, mesh, and `MetricProblem`, which contains them.

:class:`MetricProblem` mirrors the problem file. :class:`MetricInstance` joins it with the contents of its files,
:class:`MetricData`: records, outputs, distances, required pairs, cost and prior as read-only arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from attrs import frozen

from privopt.declare.schema import File, key, positive
from privopt_metric_dp.problem.kinds import DistanceKind, LossKind, MetricNotion
from privopt_metric_dp.problem.read_points import Columns, points_as_csv

__all__ = ["Grid", "Mesh", "MetricProblem", "Places"]


def _check_corner(value: tuple[float, ...]) -> str | None:
    if len(value) == 2 and -90 <= value[0] <= 90 and -180 <= value[1] <= 180:
        return None
    return "two numbers, latitude in [-90, 90] and longitude in [-180, 180]"


MOST_RECORDS: Final = 10_000_000
"""Largest number of records or outputs: not even the ids of more would fit into memory."""


def _check_count(value: int) -> str | None:
    return None if 1 <= value <= MOST_RECORDS else f"a whole number from 1 to {MOST_RECORDS:,}"


@frozen(kw_only=True)
class Grid:
    """A rectangle of equal cells; ids "r-c", row 0 in the south, row-major."""

    rows: int = key(help="rows of cells, south to north", check=_check_count)
    cols: int = key(help="columns of cells, west to east", check=_check_count)
    cell_km: Fraction = key(help="side of a cell", unit="km", check=positive)
    south_west: tuple[Fraction, ...] | None = key(
        None, help="[lat, lon] of the centre of cell r0c0; default: a plane", unit="degrees", check=_check_corner
    )


@frozen(kw_only=True)
class Mesh:
    """Corners of equilateral triangles that cover a region; ids 0, 1, ... from the south west, row by row."""

    region: File = key(help="GeoJSON: polygons in longitude and latitude, with holes and in several parts")
    side_km: float = key(help="side of a triangle", unit="km", check=positive)
    planar: bool = key(False, help="whether the region's coordinates are x and y in km instead")


@frozen(kw_only=True)
class Places:
    """Records or outputs: one of grid, points, vectors, count, mesh; of outputs also choose."""

    grid: Grid | None = key(None, help="even cells")
    points: File | None = key(None, help="CSV, Parquet or GeoJSON: id,lat,lon (degrees) or id,x,y (km), or id alone")
    columns: Columns | None = key(None, help="names of the columns of points, where they are others")
    vectors: File | None = key(None, help=".npy of shape (N, dim)")
    ids: File | None = key(None, help="ids of the vectors, one a line; default: 0, 1, ...")
    count: int | None = key(None, help="that many, ids 0, 1, ...; where distance.kind takes it", check=_check_count)
    mesh: Mesh | None = key(None, help="corners of triangles that cover a region; a plane, after projection")
    choose: int | None = key(
        None, help="of outputs: so many of the records, chosen by their use (optimal-lp)", check=_check_count
    )

    def as_csv(self) -> Mapping[str, bytes]:
        """Return the points file converted to CSV, by its name; empty if it is a CSV file already."""
        csv_bytes = None if self.points is None else points_as_csv(self.points, self.columns)
        return {} if csv_bytes is None or self.points is None else {self.points.name: csv_bytes}

    @property
    def given_key(self) -> str:
        """The key that states the places."""
        return next(name for name in _GIVEN if getattr(self, name) is not None)


_GIVEN: Final = ("grid", "points", "vectors", "count", "mesh", "choose")


def _check_places(value: Places) -> str | None:
    given_keys = [name for name in _GIVEN if getattr(value, name) is not None]
    if len(given_keys) != 1:
        return "exactly one of " + ", ".join(_GIVEN)
    if value.grid is not None and value.grid.rows * value.grid.cols > MOST_RECORDS:
        return f"a grid of at most {MOST_RECORDS:,} cells"
    if value.ids is not None and value.vectors is None:
        return "ids only beside vectors"
    if value.columns is not None and value.points is None:
        return "columns only beside points"
    return None


def _check_listed_places(value: Places) -> str | None:
    return "places, not a number of those to choose" if value.choose is not None else _check_places(value)


@frozen(kw_only=True)
class ConstOpt:
    """Options of const-opt."""

    radius: float = key(help="beyond it the exponential form", unit="units of distance", check=positive)


@frozen(kw_only=True)
class MetricProblem:
    """A problem of metric DP as its file declares it; :meth:`MetricInstance.of` reads its files."""

    records: Places = key(help="the secrets", check=_check_listed_places)
    outputs: Places | None = key(
        None, help="what may be released; default: the records themselves", check=_check_places
    )
    distance: DistanceKind = key(help="the metric", kinds="distance")
    privacy: MetricNotion = key(help="the privacy asked for", kinds="notion", kind="metric-dp")
    utility: LossKind = key(help="the loss", kinds="loss")
