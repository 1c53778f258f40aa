"""The ids and coordinates of the records and outputs in a problem.

``low`` scales a rational by 2**256 and rounds it down to an integer, and ``ONE`` represents 1 in this scale. ``need``
raises RefusedError with code 1 if a release differs from its problem, and with code 2 if it cannot be checked.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import unicodedata
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from privopt.checker.exact import (
    ONE,
    PI,
    RADIUS_KM,
    cosine,
    low,
    need,
    number,
    radians,
    rational,
)
from privopt.checker.files import Problem
from privopt_metric_dp.checkers.lattice import Corners, lattice, polygons
from privopt_metric_dp.checkers.projection import Projection

__all__ = ["Places"]

SOURCES = {"grid", "points", "vectors", "count", "mesh"}
"""The keys that define places. Each of ``[records]`` and ``[outputs]`` must contain exactly one of them."""

TABLE = "grid points vectors ids count columns unit"
"""The keys that ``[records]`` may contain without a mesh. ``[outputs]`` may contain all of them except ``unit``."""


class Places:
    """A list of places, with ids and usually with coordinates.

    Attributes:
        kind: The kind of coordinates: ``planar`` (rationals in ``unit``), ``vector`` (rationals), ``geographic``
            (latitude and longitude in radians, scaled by 2**256) or ``plain`` (no coordinates).
        ids: The id of each place.
        at: The coordinates of each place. Empty if ``kind`` is ``plain``.
        mesh: The triangles of the mesh whose vertices are the places. Empty if they do not form a mesh.
        projection: The map projection of a mesh on the earth, or None for other places.
        unit: The unit of distance between planar places.
    """

    def __init__(self, problem: Problem, name: str) -> None:
        """Read the places from ``[records]`` or ``[outputs]``.

        Args:
            problem: The published problem.
            name: The name of the table, "records" or "outputs".

        Raises:
            RefusedError: The table contains an unsupported key or an invalid value, or ids are empty or repeated.
        """
        meshed = "mesh" in problem.tables[name]
        # Outputs have the records' unit. Another unit would change the meaning of all distances.
        keys = TABLE if name == "records" else TABLE.removesuffix(" unit")
        table = problem.table(name, "mesh" if meshed else keys)
        self.unit = table.get("unit", "km")
        sources = SOURCES & set(table)
        need(len(sources) == 1, f"problem: [{name}]: expected one of grid, points, vectors, count", 2)
        self.kind, self.at = "plain", list[Any]()
        self.mesh: list[Corners] = []
        self.projection: Projection | None = None
        if "grid" in table:
            self._read_grid(table["grid"], problem.most_weights, name)
        elif "points" in table:
            self._read_points(problem, table, name)
        elif "vectors" in table:
            rows = problem.array(table["vectors"]).rows
            self.kind, self.at = "vector", [tuple(map(Fraction, row)) for row in rows]
            self.ids = [str(i) for i in range(len(self.at))]
        elif "mesh" in table:
            self._read_mesh(problem, table["mesh"], name)
        else:
            count = table["count"]
            _check_grid_size(name, [1, count], problem.most_weights)
            self.ids = [str(i) for i in range(count)]
        # A file of ids replaces the default ids 0, 1, ...
        if "ids" in table:
            lines = problem.read(table["ids"]).decode("utf-8-sig").splitlines()
            self.ids = [line.strip() for line in lines]
        are_unique = self.ids and "" not in self.ids and len(set(self.ids)) == len(self.ids)
        fits = are_unique and len(self.at) in (0, len(self.ids))
        need(fits, f"problem: [{name}]: expected unique ids that are not empty, one for each place", 2)
        is_named = "unit" not in table or (self.kind == "planar" and str(self.unit).isalpha())
        need(
            is_named and isinstance(self.unit, str),
            f"problem: [{name}]: expected a unit of letters, and places on a plane, got unit {self.unit!r}",
            2,
        )

    def select(self, ids: list[str], count: object) -> Places:
        """Return the places with the given ids.

        Args:
            ids: The ids of the places to return, which must be in the same order as in ``self.ids``.
            count: The required number of ids.

        Raises:
            RefusedError: An id is unknown, the ids are not in order, or their number is not ``count``.
        """
        index_by_id = {name: i for i, name in enumerate(self.ids)}
        rows = [index_by_id.get(name, -1) for name in ids]
        is_subset = len(rows) == count and min(rows, default=-1) >= 0 and rows == sorted({*rows})
        need(is_subset, f"mechanism.npz: outputs: expected {count} of the records, in their order")
        subset = copy.copy(self)
        subset.ids, subset.mesh = ids, []
        subset.at = [self.at[row] for row in rows] if self.at else []
        return subset

    def _read_grid(self, grid: Mapping[str, Any], max_places: int, name: str) -> None:
        """Compute the centres of a grid's cells, in km on a plane or in radians on the earth.

        Args:
            grid: The table with the keys ``rows``, ``cols``, ``cell_km`` and, for a grid on the earth, ``south_west``.
            max_places: The maximum number of cells, given by the number of weights that the release's file can contain.
            name: The name of the table, for error messages.

        Raises:
            RefusedError: The grid is too large, or extends past a pole or all the way round the earth.
        """
        rows, cols = grid["rows"], grid["cols"]
        _check_grid_size(name, [rows, cols], max_places)
        cell_km, cells = number(grid["cell_km"]), list(itertools.product(range(rows), range(cols)))
        self.ids = [f"r{r}c{c}" for r, c in cells]
        self.kind, self.at = "planar", [(c * cell_km, r * cell_km) for r, c in cells]
        if "south_west" in grid:
            south, west = (radians(number(degrees)) for degrees in grid["south_west"])
            # The angles of a step in radians. A step to the east has a larger angle, because a parallel is shorter than
            # the equator by the cosine of its latitude.
            step_north, step_east = low(cell_km / RADIUS_KM), low(cell_km / RADIUS_KM) * ONE // cosine(south)
            self.kind = "geographic"
            self.at = [(south + r * step_north, west + c * step_east) for r, c in cells]
            # The grid must not pass a pole or extend all the way round the earth.
            north, east = self.at[-1]
            need(
                max(-south, north) <= PI // 2 and east - west < 2 * PI,
                "problem: a grid that passes a pole or goes round the earth",
                2,
            )

    def _read_points(self, problem: Problem, table: Mapping[str, Any], name: str) -> None:
        """Read places from a file with one row per place.

        The problem may give different names to the columns id, lat, lon, x and y, and may form ids by joining several
        columns.

        Args:
            problem: The published problem.
            table: The problem's table. Its ``points`` key names the file, and its optional ``columns`` key names the
                columns.
            name: The name of the table, for error messages.

        Raises:
            RefusedError: A latitude or longitude is out of range, or the file contains both geographic and planar
                positions.
        """
        named: dict[str, Any] = {key: key for key in ("id", "lat", "lon", "x", "y")} | table.get("columns", {})
        columns_by_name, parts = problem.columns(table["points"]), named.pop("id")
        columns = [columns_by_name[_column_name(part)] for part in ([parts] if isinstance(parts, str) else parts)]
        self.ids = ["/".join(cells) for cells in zip(*columns, strict=True)]
        # A missing column counts as empty. Positions are in degrees or in km, or missing, but not both.
        cells = [columns_by_name.get(_column_name(named[key]), []) for key in ("lat", "lon", "x", "y")]
        lat, lon, x, y = ([*map(rational, column)] for column in cells)
        is_in_range = all(abs(a) <= limit for limit, axis in ((90, lat), (360, lon)) for a in axis)
        need(
            is_in_range and not all((lat, lon, x, y)),
            f"problem: [{name}]: expected lat and lon in range, or x and y, but not both",
            2,
        )
        if lat and lon:
            self.kind = "geographic"
            self.at = [(radians(a), radians(b)) for a, b in zip(lat, lon, strict=True)]
        elif x and y:
            self.kind, self.at = "planar", list(zip(x, y, strict=True))

    def _read_mesh(self, problem: Problem, mesh: Mapping[str, Any], name: str) -> None:
        """Compute a mesh of equilateral triangles that covers polygons. The vertices of the mesh become the places.

        Args:
            problem: The published problem, which contains a GeoJSON file of the polygons.
            mesh: The table with the keys ``region`` (the name of the file), ``side_km`` and, optionally, ``planar``.
            name: The name of the table, for error messages.

        Raises:
            RefusedError: A key is unknown or has an invalid value, or the mesh has too many triangles.
        """
        side_mm, planar = float(number(mesh["side_km"])) * 1e6, mesh.get("planar", False)
        is_known = mesh.keys() <= {"region", "side_km", "planar"} and type(planar) is bool
        # As in `solve`, sides must be at least a metre long.
        need(
            is_known and side_mm >= 1e3,
            f"problem: [{name}]: mesh: expected region, side_km of at least 0.001 and perhaps planar, got {mesh}",
            2,
        )
        rings = list(polygons(json.loads(problem.read(mesh["region"]))))
        if planar:
            flat = [[[(x * 1e6, y * 1e6) for x, y in ring] for ring in rings_of_polygon] for rings_of_polygon in rings]
        else:
            # The longitude comes first in GeoJSON.
            corners = [(y, x) for rings_of_polygon in rings for ring in rings_of_polygon for x, y in ring]
            # A triangle that overlaps the region extends beyond it by at most its side and some millimetres of
            # rounding.
            projection = self.projection = Projection(corners, side_mm + 4)
            flat = [
                [[projection.doubles(y, x) for x, y in ring] for ring in rings_of_polygon] for rings_of_polygon in rings
            ]
        vertices, self.mesh = lattice(flat, side_mm, problem.most_weights)
        self.kind, self.ids = "planar", [str(i) for i in range(len(vertices))]
        self.at = [(Fraction(x / 1e6), Fraction(y / 1e6)) for x, y in vertices]

    def doubles(self) -> list[tuple[float, float]]:
        """Return the two coordinates of each place as doubles, in degrees on the earth or in km in a plane."""
        if self.kind == "geographic":
            return [(float(Fraction(180 * a, PI)), float(Fraction(180 * b, PI))) for a, b in self.at]
        return [(float(x), float(y)) for x, y in self.at]


def _check_grid_size(name: str, sides: list[Any], max_places: int) -> None:
    """Check that the numbers of rows and columns of a grid are valid, and that it does not have too many places.

    Args:
        name: The name of the table, for the error message.
        sides: The numbers of rows and columns, as read from the problem.
        max_places: The maximum number of places, given by the number of weights that the release's file can contain.

    Raises:
        RefusedError: A number is not a positive integer, or there are too many places.
    """
    is_valid = {*map(type, sides)} == {int} and min(sides) > 0 and math.prod(sides) <= max_places
    need(is_valid, f"problem: [{name}]: expected sizes that are integers above 0, and at most {max_places} places", 2)


def _column_name(name: str) -> str:
    """Convert a column name to Unicode's NFC form, as used in the headers of published files."""
    return unicodedata.normalize("NFC", name)
