"""The paper's cost reference table (section 4.5), which the server has and users query.

Places are the map's records and outputs, and cells are squares of a public grid. The centre of a cell is joined to the
nearest place by a straight line, and travel from the cell begins with it. So travel obeys the triangle inequality, and
Lemmas B.1 and B.2 hold for it. Only cells that are the nearest to some place have rows, because no others are looked
up.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt.numbers.distances import EARTH_RADIUS_KM, directions, euclidean, haversine
from privopt_lr_geo.messages import Extract, Request
from privopt_lr_geo.problem import LRGeoInstance
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.loss_kinds import TravelCost, travel_cost
from privopt_metric_dp.space.roads import Roads

__all__ = ["LARGEST_BYTES", "Cells", "Places", "ReferenceTable", "grid_of"]

LARGEST_BYTES: Final = 4e9
"""Largest size of a table, or of the travel that it is computed from."""


def _travel_loss(problem: LRGeoInstance) -> TravelCost:
    assert isinstance(problem.declared.utility, TravelCost)  # problem.py sees to that
    return problem.declared.utility


@frozen(kw_only=True, eq=False)
class Places:
    """The records, and then the outputs if they are others. They are public, and the same on both sides.

    Attributes:
        data: The map.
        coordinates: (P, 2) latitude and longitude, or km.
        roads: The roads of travel. None if travel is the distance itself.
    """

    data: MetricData
    coordinates: Floats
    roads: Roads | None

    @classmethod
    def from_problem(cls, problem: LRGeoInstance) -> Places:
        """Return the places of a problem whose loss is travel between places with coordinates (it was checked)."""
        data = problem.data
        spaces = [data.records] if data.outputs is data.records else [data.records, data.outputs]
        points = np.concatenate([np.asarray(space.coordinates) for space in spaces])
        roads, _, _ = _travel_loss(problem).ends(data.records, data.metric)
        return cls(data=data, coordinates=points, roads=roads)

    @property
    def is_geographic(self) -> bool:
        """Whether coordinates are degrees."""
        return self.data.records.kind == "geographic"

    @property
    def ids(self) -> list[str]:
        """(P,) names."""
        names = list(self.data.records.ids)
        return names if self.data.outputs is self.data.records else names + list(self.data.outputs.ids)

    @property
    def first_output(self) -> int:
        """Number of the place of output 0."""
        return 0 if self.data.outputs is self.data.records else len(self.data.records)

    def straight_km(self, a: Floats, b: Floats) -> Floats:
        """Return km in a straight line between coordinates, pair by pair."""
        return np.asarray(haversine(a, b) if self.is_geographic else euclidean(a, b))

    def to_euclidean(self, points: Floats) -> Floats:
        """Return coordinates in a Euclidean space with the same nearest neighbours."""
        return directions(points) if self.is_geographic else points

    def travel(self, origins: Ints, destinations: Ints) -> Floats:
        """Return (A, B) km of travel between places, in the longer direction."""
        if self.roads is not None:
            ids = np.asarray(self.ids, dtype=np.str_)
            outward = self.roads.travel(ids[origins], ids[destinations])
            return (
                np.maximum(outward, self.roads.travel(ids[destinations], ids[origins]).T)
                if self.roads.directed
                else outward
            )
        return self.straight_km(self.coordinates[origins][:, None], self.coordinates[destinations][None, :])


@frozen(kw_only=True, eq=False)
class Cells:
    """The public grid's cells that are the nearest to some place.

    Attributes:
        coordinates: (C, 2) centres.
        node: (C,) the place to which a centre is joined.
        access: (C,) km between a centre and that place.
        nearest: (P,) the nearest cell of each place.
        shift: (P,) km of travel between a place and its cell, in the longer direction.
    """

    coordinates: Floats
    node: Ints
    access: Floats
    nearest: Ints
    shift: Floats

    @classmethod
    def over(cls, places: Places, cell_km: float) -> Cells:
        """Lay the grid over the places, and keep the cells that some place is in."""
        corner, step = grid_of(places, cell_km)
        cell_numbers = np.rint((places.coordinates - corner) / step).astype(np.int64)
        return cls.around(places, corner + step * np.unique(cell_numbers, axis=0))

    @classmethod
    def around(cls, places: Places, centres: Floats) -> Cells:
        """Join centres (C, 2) to the places."""
        from scipy.spatial import cKDTree

        points = places.coordinates
        nodes, squares = cKDTree(places.to_euclidean(points)), cKDTree(places.to_euclidean(centres))
        node = nodes.query(places.to_euclidean(centres))[1].astype(np.int64)
        access = places.straight_km(centres, points[node])
        nearest = squares.query(places.to_euclidean(points))[1].astype(np.int64)
        places_own_number = np.arange(len(points))
        shift = access[nearest].copy()
        for number in np.flatnonzero(node[nearest] != places_own_number).tolist():
            shift[number] += places.travel(places_own_number[number : number + 1], node[nearest[number : number + 1]])[
                0, 0
            ]
        return cls(coordinates=centres, node=node, access=access, nearest=nearest, shift=shift)


def grid_of(places: Places, cell_km: float) -> tuple[Floats, Floats]:
    """Return the grid's corner (2,), and the sides (2,) of a cell in units of the coordinates."""
    points, step = places.coordinates, np.array([cell_km, cell_km])
    if places.is_geographic:
        degree = EARTH_RADIUS_KM * np.pi / 180.0
        narrow = max(1e-6, float(np.cos(np.radians(points[:, 0].mean()))))
        step = step / np.array([degree, degree * narrow])
    return points.min(axis=0), step


class ReferenceTable:
    """The server's table: travel to the targets, from which the part inside a requested circle is computed.

    Args:
        problem: The problem. Its targets are the server's secret.
        places: The public map.
        cells: The public grid.
    """

    def __init__(self, problem: LRGeoInstance, places: Places, cells: Cells) -> None:
        _, targets, self.shares = _travel_loss(problem).ends(problem.data.records, problem.data.metric)
        self.places, self.cells = places, cells
        if places.roads is not None:
            self._travel_loss = np.asarray(places.roads.travel(places.ids, targets))
        else:
            self._travel_loss = places.travel(
                np.arange(len(places.ids)), problem.data.records.numbers(targets.tolist())
            )

    def circle(self, request: Request) -> Extract:
        """Return the table over the cells of all places inside a circle.

        Raises:
            InputError: The table would take more than 4 GB.
        """
        data = self.places.data
        centre = np.array([request.centre])
        is_inside = data.metric.rows(centre)[0] <= request.radius
        if data.outputs is not data.records:
            is_inside = np.concatenate([is_inside, data.metric.to_outputs(centre)[0] <= request.radius])
        return self.rows(np.unique(self.cells.nearest[is_inside]))

    def rows(self, cell_numbers: Ints) -> Extract:
        """Return the table over some cells.

        Raises:
            InputError: The table would take more than 4 GB.
        """
        size = max(4.0 * len(cell_numbers) ** 2, 8.0 * len(cell_numbers) * len(self.shares))
        if size > LARGEST_BYTES:
            actual = f"a table of {len(cell_numbers):,} cells in the circle, {size / 1e9:.1f} GB"
            expectation = f"at most {LARGEST_BYTES / 1e9:g} GB (take a larger cell, or smaller radii)"
            raise InputError([Fault(self.places.data.file, "lr-geo.reference_cell_km", actual, expectation)])
        travel = self._travel_loss[self.cells.node[cell_numbers]] + self.cells.access[cell_numbers, None]
        beta = travel_cost(travel, None, self.shares, source=self.places.data.file)
        return Extract(cells=cell_numbers, beta=beta.astype(np.float32))
