"""The paper's cost reference table (section 4.5), which the server stores and users query.

A cost is the expected difference between the travel to the targets from a place and from its report; only the server
knows the targets. Places are the map's records and outputs, and cells are squares of a public grid. A straight line
joins the centre of a cell to its nearest place, and travel from the cell begins along this line. So travel satisfies
the triangle inequality, and Lemmas B.1 and B.2 hold. Only cells that are the nearest to some place have rows, because
no other cells are looked up.
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
"""The largest size in bytes of a table, or of the travel distances from which it is computed."""


def _travel_loss(problem: LRGeoInstance) -> TravelCost:
    """Return the declared loss, which is a travel cost in every problem with a reference table."""
    assert isinstance(problem.declared.utility, TravelCost)  # LRGeoInstance.of has checked this
    return problem.declared.utility


@frozen(kw_only=True, eq=False)
class Places:
    """The public places, known to users and server: the records, followed by the outputs if these are other places.

    Attributes:
        data: The map.
        coordinates: (P, 2) The latitudes and longitudes in degrees, or x and y in km.
        roads: The roads along which travel is measured; None if travel is measured in a straight line.
    """

    data: MetricData
    coordinates: Floats
    roads: Roads | None

    @classmethod
    def from_problem(cls, problem: LRGeoInstance) -> Places:
        """Return the places in a problem whose loss is travel between places that have coordinates."""
        data = problem.data
        spaces = [data.records] if data.outputs is data.records else [data.records, data.outputs]
        points = np.concatenate([np.asarray(space.coordinates) for space in spaces])
        roads, _, _ = _travel_loss(problem).travel_targets(data.records, data.metric)
        return cls(data=data, coordinates=points, roads=roads)

    @property
    def is_geographic(self) -> bool:
        """Whether coordinates are degrees of latitude and longitude."""
        return self.data.records.kind == "geographic"

    @property
    def ids(self) -> list[str]:
        """The ids of the P places."""
        names = list(self.data.records.ids)
        return names if self.data.outputs is self.data.records else names + list(self.data.outputs.ids)

    @property
    def first_output(self) -> int:
        """The index, among the places, of output 0."""
        return 0 if self.data.outputs is self.data.records else len(self.data.records)

    def straight_km(self, a: Floats, b: Floats) -> Floats:
        """Return the straight-line (or great-circle) distances in km between coordinates (..., 2), which broadcast."""
        return np.asarray(haversine(a, b) if self.is_geographic else euclidean(a, b))

    def to_euclidean(self, points: Floats) -> Floats:
        """Map (n, 2) points to a Euclidean space with the same nearest neighbours: degrees become unit vectors."""
        return directions(points) if self.is_geographic else points

    def travel(self, origins: Ints, destinations: Ints) -> Floats:
        """Return the travel between places in km, in the longer of the two directions.

        Args:
            origins, destinations: (A,) and (B,) The indices of the places.

        Returns:
            (A, B) travel in km.
        """
        if self.roads is not None:
            ids = np.asarray(self.ids, dtype=np.str_)
            outward = self.roads.travel(ids[origins], ids[destinations])
            # Lemmas B.1 and B.2 need one value for both directions. With one-way roads, the longer one is used.
            return (
                np.maximum(outward, self.roads.travel(ids[destinations], ids[origins]).T)
                if self.roads.directed
                else outward
            )
        return self.straight_km(self.coordinates[origins][:, None], self.coordinates[destinations][None, :])


@frozen(kw_only=True, eq=False)
class Cells:
    """The cells of the public grid that are the nearest to at least one place.

    Attributes:
        coordinates: (C, 2) The cells' centres, in the unit of the places' coordinates.
        node: (C,) The place to which each centre is joined by a straight line.
        access: (C,) The distance in km between each centre and that place.
        nearest: (P,) The cell that is nearest to each place.
        shift: (P,) The travel in km between each place and its nearest cell, in the longer direction.
    """

    coordinates: Floats
    node: Ints
    access: Floats
    nearest: Ints
    shift: Floats

    @classmethod
    def over(cls, places: Places, cell_km: float) -> Cells:
        """Lay the grid over the places, and keep the cells that contain a place.

        Args:
            places: The public map.
            cell_km: Side length of a cell in km.
        """
        corner, step = grid_of(places, cell_km)
        # The corner of the grid is the centre of a cell, so rounding to the nearest integers gives the cell that
        # contains a place.
        cell_numbers = np.rint((places.coordinates - corner) / step).astype(np.int64)
        return cls.around(places, corner + step * np.unique(cell_numbers, axis=0))

    @classmethod
    def around(cls, places: Places, centres: Floats) -> Cells:
        """Join cell centres to their nearest places, and places to their nearest cells.

        Args:
            places: The public map.
            centres: (C, 2) The centres, in the unit of the places' coordinates.
        """
        from scipy.spatial import cKDTree

        points = places.coordinates
        place_tree, cell_tree = cKDTree(places.to_euclidean(points)), cKDTree(places.to_euclidean(centres))
        node = place_tree.query(places.to_euclidean(centres))[1].astype(np.int64)
        access = places.straight_km(centres, points[node])
        nearest = cell_tree.query(places.to_euclidean(points))[1].astype(np.int64)
        numbers = np.arange(len(points))
        shift = access[nearest].copy()
        # Travel between a cell and the place to which it is joined is just the straight line. Travel to any other place
        # continues from there.
        for number in np.flatnonzero(node[nearest] != numbers).tolist():
            shift[number] += places.travel(numbers[number : number + 1], node[nearest[number : number + 1]])[0, 0]
        return cls(coordinates=centres, node=node, access=access, nearest=nearest, shift=shift)


def grid_of(places: Places, cell_km: float) -> tuple[Floats, Floats]:
    """Return the (2,) south-west corner of the places and the (2,) side lengths of a cell, in units of the coordinates.

    Args:
        places: The public map.
        cell_km: The side length of a cell in km.
    """
    points, step = places.coordinates, np.array([cell_km, cell_km])
    if places.is_geographic:
        degree = EARTH_RADIUS_KM * np.pi / 180.0  # km
        # A degree of longitude gets shorter away from the equator. Cells need not be exactly square, because the actual
        # travel between places and cells is computed. The floor of 1e-6 keeps cells finite near a pole.
        shortening = max(1e-6, float(np.cos(np.radians(points[:, 0].mean()))))
        step = step / np.array([degree, degree * shortening])
    return points.min(axis=0), step


class ReferenceTable:
    """The server's cost reference table, which stores travel to the targets and answers requests for circles.

    Attributes:
        shares: (T,) The weight of each target in the averages.
        places: The public map.
        cells: The public grid.
        _travel_to_targets: (P, T) The travel in km from each place to each target.
    """

    def __init__(self, problem: LRGeoInstance, places: Places, cells: Cells) -> None:
        """Compute the travel from each of the P places to each of the T targets.

        Args:
            problem: The problem. Its targets are the server's secret.
            places: The public map.
            cells: The public grid.
        """
        _, targets, self.shares = _travel_loss(problem).travel_targets(problem.data.records, problem.data.metric)
        self.places, self.cells = places, cells
        if places.roads is not None:
            self._travel_to_targets = np.asarray(places.roads.travel(places.ids, targets))
        else:
            self._travel_to_targets = places.travel(
                np.arange(len(places.ids)), problem.data.records.numbers(targets.tolist())
            )

    def circle(self, request: Request) -> Extract:
        """Return the part of the table for the cells that are nearest to the places inside a circle.

        Args:
            request: The circle. Its centre is a record, and its radius is in units of distance.

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
        """Return the table of expected costs between the given cells.

        Args:
            cell_numbers: (B,) The indices of the cells, ascending.

        Raises:
            InputError: The table would take more than 4 GB.
        """
        # The larger of the table in single precision and the travel from each cell to the targets in doubles.
        size = max(4.0 * len(cell_numbers) ** 2, 8.0 * len(cell_numbers) * len(self.shares))
        if size > LARGEST_BYTES:
            actual = f"a table of {len(cell_numbers):,} cells in the circle, {size / 1e9:.1f} GB"
            expectation = f"at most {LARGEST_BYTES / 1e9:g} GB (take a larger cell, or smaller radii)"
            raise InputError([Fault(self.places.data.file, "lr-geo.reference_cell_km", actual, expectation)])
        # Travel from a cell begins with the straight line to the place that it is joined to (module docstring).
        travel = self._travel_to_targets[self.cells.node[cell_numbers]] + self.cells.access[cell_numbers, None]
        beta = travel_cost(travel, None, self.shares, source=self.places.data.file)
        return Extract(cells=cell_numbers, beta=beta.astype(np.float32))
