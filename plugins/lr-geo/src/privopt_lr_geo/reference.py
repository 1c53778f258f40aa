"""The paper's cost reference table (section 4.5): held by the server, queried by users.

Places are the map's records and outputs, cells are squares of a public grid. A cell's centre is joined to the place
nearest to it by a straight way of the length between them; travel from the cell goes by that way. So travel obeys the
triangle inequality, and with it Lemmas B.1 and B.2, in the cost's own metric. Only cells that are the nearest to some
place are ever looked up, and only those have rows.
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
"""Bytes of a table, or of the travel that it is made of, beyond which it is refused."""


def _travel(problem: LRGeoInstance) -> TravelCost:
    assert isinstance(problem.declared.utility, TravelCost)  # problem.py sees to that
    return problem.declared.utility


@frozen(kw_only=True, eq=False)
class Places:
    """Records, then outputs of their own where there are any: public, and the same on both sides.

    Attributes:
        data: the map.
        coordinates: (P, 2) latitude and longitude, or km.
        roads: that travel goes along; None where travel is the distance itself.
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
        roads, _, _ = _travel(problem).ends(data.records, data.metric)
        return cls(data=data, coordinates=points, roads=roads)

    @property
    def geographic(self) -> bool:
        """Whether coordinates are degrees."""
        return self.data.records.kind == "geographic"

    @property
    def ids(self) -> list[str]:
        """(P,) names."""
        own = list(self.data.records.ids)
        return own if self.data.outputs is self.data.records else own + list(self.data.outputs.ids)

    @property
    def first_output(self) -> int:
        """Number of the place that output 0 is."""
        return 0 if self.data.outputs is self.data.records else len(self.data.records)

    def apart(self, a: Floats, b: Floats) -> Floats:
        """Return km in a straight line between coordinates, pair by pair."""
        return np.asarray(haversine(a, b) if self.geographic else euclidean(a, b))

    def flat(self, points: Floats) -> Floats:
        """Return coordinates in a Euclidean space where the nearest is the nearest."""
        return directions(points) if self.geographic else points

    def travel(self, origins: Ints, destinations: Ints) -> Floats:
        """Return (A, B) km of travel between places; of two directions the longer."""
        if self.roads is not None:
            ids = np.asarray(self.ids, dtype=np.str_)
            there = self.roads.travel(ids[origins], ids[destinations])
            return (
                np.maximum(there, self.roads.travel(ids[destinations], ids[origins]).T)
                if self.roads.directed
                else there
            )
        return self.apart(self.coordinates[origins][:, None], self.coordinates[destinations][None, :])


@frozen(kw_only=True, eq=False)
class Cells:
    """The grid's cells that are the nearest to some place: public.

    Attributes:
        coordinates: (C, 2) centres.
        node: (C,) place that a centre is joined to; access: (C,) km of that way.
        nearest: (P,) cell of each place; shift: (P,) km of travel between the two, the longer direction.
    """

    coordinates: Floats
    node: Ints
    access: Floats
    nearest: Ints
    shift: Floats

    @classmethod
    def over(cls, places: Places, cell_km: float) -> Cells:
        """Lay the grid over the places, and keep the cells that can be looked up."""
        corner, step = grid_of(places, cell_km)
        used = np.rint((places.coordinates - corner) / step).astype(np.int64)
        return cls.around(places, corner + step * np.unique(used, axis=0))

    @classmethod
    def around(cls, places: Places, centres: Floats) -> Cells:
        """Join centres (C, 2) to the places."""
        from scipy.spatial import cKDTree

        points = places.coordinates
        nodes, squares = cKDTree(places.flat(points)), cKDTree(places.flat(centres))
        node = nodes.query(places.flat(centres))[1].astype(np.int64)
        access = places.apart(centres, points[node])
        nearest = squares.query(places.flat(points))[1].astype(np.int64)
        own = np.arange(len(points))
        shift = access[nearest].copy()
        for place in np.flatnonzero(node[nearest] != own).tolist():
            shift[place] += places.travel(own[place : place + 1], node[nearest[place : place + 1]])[0, 0]
        return cls(coordinates=centres, node=node, access=access, nearest=nearest, shift=shift)


def grid_of(places: Places, cell_km: float) -> tuple[Floats, Floats]:
    """Return the grid's corner (2,), and a cell's sides (2,) in units of the coordinates."""
    points, step = places.coordinates, np.array([cell_km, cell_km])
    if places.geographic:
        degree = EARTH_RADIUS_KM * np.pi / 180.0
        narrow = max(1e-6, float(np.cos(np.radians(points[:, 0].mean()))))
        step = step / np.array([degree, degree * narrow])
    return points.min(axis=0), step


class ReferenceTable:
    """The server's table: travel to the targets, from which rows are made when a circle is asked for.

    Args:
        problem: its targets are the server's secret.
        places: the public map.
        cells: the public grid.
    """

    def __init__(self, problem: LRGeoInstance, places: Places, cells: Cells) -> None:
        _, targets, self.shares = _travel(problem).ends(problem.data.records, problem.data.metric)
        self.places, self.cells = places, cells
        if places.roads is not None:
            self._travel = np.asarray(places.roads.travel(places.ids, targets))
        else:
            self._travel = places.travel(np.arange(len(places.ids)), problem.data.records.numbers(targets.tolist()))

    def circle(self, request: Request) -> Extract:
        """Return rows and columns of the cells of all places inside a circle.

        Raises:
            InputError: the table would take more than 4 GB.
        """
        data = self.places.data
        centre = np.array([request.centre])
        inside = data.metric.rows(centre)[0] <= request.radius
        if data.outputs is not data.records:
            inside = np.concatenate([inside, data.metric.to_outputs(centre)[0] <= request.radius])
        return self.rows(np.unique(self.cells.nearest[inside]))

    def rows(self, chosen: Ints) -> Extract:
        """Return the table over some cells.

        Raises:
            InputError: it would take more than 4 GB.
        """
        size = max(4.0 * len(chosen) ** 2, 8.0 * len(chosen) * len(self.shares))
        if size > LARGEST_BYTES:
            found = f"a table of {len(chosen):,} cells in the circle, {size / 1e9:.1f} GB"
            wanted = f"at most {LARGEST_BYTES / 1e9:g} GB (take a larger cell, or smaller radii)"
            raise InputError([Fault(self.places.data.file, "lr-geo.reference_cell_km", found, wanted)])
        travel = self._travel[self.cells.node[chosen]] + self.cells.access[chosen, None]
        beta = travel_cost(travel, None, self.shares, source=self.places.data.file)
        return Extract(cells=chosen, beta=beta.astype(np.float32))
