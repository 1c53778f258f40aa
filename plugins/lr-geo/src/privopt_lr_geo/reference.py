"""The cost reference table of Qiu et al., PoPETs 2025, section 4.5, which the server stores and users query.

The table contains the expected cost between any two cells of a public grid. If the true place is in one cell and the
reported place in the other, the cost is the difference between the cells' travel distances to a random target. Only the
server knows the targets.

The places are the map's records and outputs. Travel from a cell begins along a straight line from the cell's centre to
the nearest place. Travel distances therefore satisfy the triangle inequality, as required by Lemmas B.1 and B.2. Only
cells that are nearest to at least one place are ever looked up in the table.
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
"""The maximum size in bytes of a table extract, or of the travel distances from which it is computed."""


def _travel_loss(problem: LRGeoInstance) -> TravelCost:
    """Return the declared loss, which is a travel cost if the problem has a reference table."""
    assert isinstance(problem.declared.utility, TravelCost)  # LRGeoInstance.of has checked this
    return problem.declared.utility


@frozen(kw_only=True, eq=False)
class Places:
    """The P public places: the records, followed by the outputs unless they are the same places.

    Attributes:
        data: The map with the records and outputs.
        coordinates: (P, 2) The latitude and longitude of each place in degrees, or its x and y in km.
        roads: The roads along which travel is measured, or None if travel follows straight lines.
    """

    data: MetricData
    coordinates: Floats
    roads: Roads | None

    @classmethod
    def from_problem(cls, problem: LRGeoInstance) -> Places:
        """Collect the places of a problem. Its loss must be a travel cost, and its places must have coordinates."""
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
        """The index of the first output among the places."""
        return 0 if self.data.outputs is self.data.records else len(self.data.records)

    def straight_km(self, a: Floats, b: Floats) -> Floats:
        """Return the distances in km between coordinates, along straight lines or great circles.

        Args:
            a, b: Arrays of shape (..., 2), which are broadcast against each other.
        """
        return np.asarray(haversine(a, b) if self.is_geographic else euclidean(a, b))

    def to_euclidean(self, points: Floats) -> Floats:
        """Map points to a Euclidean space in a way that preserves nearest neighbours.

        Args:
            points: (n, 2) The points' coordinates. Degrees are converted to unit vectors, and km are returned
                unchanged.
        """
        return directions(points) if self.is_geographic else points

    def travel(self, origins: Ints, destinations: Ints) -> Floats:
        """Return the travel distances in km between places, each in the longer of the two directions.

        Args:
            origins, destinations: (A,) and (B,) The indices of the places.

        Returns:
            An array of shape (A, B).
        """
        if self.roads is not None:
            ids = np.asarray(self.ids, dtype=np.str_)
            outward = self.roads.travel(ids[origins], ids[destinations])
            # Lemmas B.1 and B.2 require the same distance in both directions, so the longer one is used if there are
            # one-way roads.
            return (
                np.maximum(outward, self.roads.travel(ids[destinations], ids[origins]).T)
                if self.roads.directed
                else outward
            )
        return self.straight_km(self.coordinates[origins][:, None], self.coordinates[destinations][None, :])


@frozen(kw_only=True, eq=False)
class Cells:
    """The C cells of the public grid that are in use, and how they are connected to the P places.

    Attributes:
        coordinates: (C, 2) The cells' centres, in the same unit as the places' coordinates.
        node: (C,) The index of the place to which each centre is connected by a straight line.
        access: (C,) The length of this line in km.
        nearest: (P,) The index of the cell whose centre is nearest to each place.
        shift: (P,) The travel distance in km between each place and its nearest cell, in the longer of the two
            directions.
    """

    coordinates: Floats
    node: Ints
    access: Floats
    nearest: Ints
    shift: Floats

    @classmethod
    def over(cls, places: Places, cell_km: float) -> Cells:
        """Lay a grid over the places, and return the cells that contain at least one place.

        Args:
            places: The public places.
            cell_km: The side length of a cell in km.
        """
        corner, step = grid_of(places, cell_km)
        # The corner of the grid is the centre of a cell, so rounding to integers yields the cell that contains a place.
        cell_numbers = np.rint((places.coordinates - corner) / step).astype(np.int64)
        return cls.around(places, corner + step * np.unique(cell_numbers, axis=0))

    @classmethod
    def around(cls, places: Places, centres: Floats) -> Cells:
        """Return the cells with the given centres, connected to their nearest places.

        Args:
            places: The public places.
            centres: (C, 2) The cells' centres, in the same unit as the places' coordinates.
        """
        from scipy.spatial import cKDTree

        points = places.coordinates
        place_tree, cell_tree = cKDTree(places.to_euclidean(points)), cKDTree(places.to_euclidean(centres))
        node = place_tree.query(places.to_euclidean(centres))[1].astype(np.int64)
        access = places.straight_km(centres, points[node])
        nearest = cell_tree.query(places.to_euclidean(points))[1].astype(np.int64)
        numbers = np.arange(len(points))
        shift = access[nearest].copy()
        # Travel between a cell and the place it is connected to is just the straight line. For any other place, the
        # travel between the two places is added.
        for number in np.flatnonzero(node[nearest] != numbers).tolist():
            shift[number] += places.travel(numbers[number : number + 1], node[nearest[number : number + 1]])[0, 0]
        return cls(coordinates=centres, node=node, access=access, nearest=nearest, shift=shift)


def grid_of(places: Places, cell_km: float) -> tuple[Floats, Floats]:
    """Return the grid's south-west corner and the side lengths of its cells.

    Args:
        places: The public places, all of which must be covered by the grid.
        cell_km: The side length of a cell in km.

    Returns:
        Two arrays of shape (2,), in the same unit as the places' coordinates.
    """
    points, step = places.coordinates, np.array([cell_km, cell_km])
    if places.is_geographic:
        degree = EARTH_RADIUS_KM * np.pi / 180.0  # km
        # A degree of longitude gets shorter away from the equator. The mean latitude is good enough: cells need not be
        # square, because the actual travel between places and cells is computed. The floor of 1e-6 keeps cells finite
        # near a pole.
        shortening = max(1e-6, float(np.cos(np.radians(points[:, 0].mean()))))
        step = step / np.array([degree, degree * shortening])
    return points.min(axis=0), step


class ReferenceTable:
    """The server's cost reference table, which answers requests for the costs between all cells in a circle.

    Costs are computed on request from the travel distances to the targets.

    Attributes:
        shares: (T,) The weight of each target in the expected cost.
        places: The P public places.
        cells: The cells of the public grid.
        _travel_to_targets: (P, T) The travel distance in km from each place to each target.
    """

    def __init__(self, problem: LRGeoInstance, places: Places, cells: Cells) -> None:
        """Compute the travel distance from each place to each target.

        Args:
            problem: The problem. Its targets are known only to the server.
            places: The public places.
            cells: The cells of the public grid.
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
        """Return the part of the table for a circle.

        It covers every cell that is nearest to at least one place inside the circle.

        Args:
            request: The circle, whose centre is a record.

        Raises:
            InputError: The extract would take more than 4 GB.
        """
        data = self.places.data
        centre = np.array([request.centre])
        is_inside = data.metric.rows(centre)[0] <= request.radius
        if data.outputs is not data.records:
            is_inside = np.concatenate([is_inside, data.metric.to_outputs(centre)[0] <= request.radius])
        return self.rows(np.unique(self.cells.nearest[is_inside]))

    def rows(self, cell_numbers: Ints) -> Extract:
        """Return the part of the table with the expected costs between the given cells.

        Args:
            cell_numbers: (B,) The indices of the cells, in ascending order.

        Raises:
            InputError: The extract would take more than 4 GB.
        """
        # The size of the extract in single precision, or that of the travel from each cell to the targets in doubles.
        size = max(4.0 * len(cell_numbers) ** 2, 8.0 * len(cell_numbers) * len(self.shares))
        if size > LARGEST_BYTES:
            actual = f"a table of {len(cell_numbers):,} cells in the circle, {size / 1e9:.1f} GB"
            expectation = f"at most {LARGEST_BYTES / 1e9:g} GB (take a larger cell, or smaller radii)"
            raise InputError([Fault(self.places.data.file, "lr-geo.reference_cell_km", actual, expectation)])
        # Travel from a cell begins with the straight line to the place that it is connected to (see the module
        # docstring).
        travel = self._travel_to_targets[self.cells.node[cell_numbers]] + self.cells.access[cell_numbers, None]
        beta = travel_cost(travel, None, self.shares, source=self.places.data.file)
        return Extract(cells=cell_numbers, beta=beta.astype(np.float32))
