"""The locations of a classifier: S2 cells, nearest centres, or boxes with equally many photos."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

import numpy as np
import s2cell
from attrs import field, frozen

from privopt.arrays import Floats, doubles
from privopt.declare import File
from privopt.declare.tables import Column, read_table
from privopt.errors import Faults
from privopt.numbers.distances import directions

__all__ = ["Boxes", "Cells", "Centres", "S2Cells", "read_cells"]


CENTRE: Final = ("lat", "lon")
BOX: Final = ("south", "west", "north", "east")


class Cells(ABC):
    """Locations by column of the scores.

    Attributes:
        names: of the places, in order; empty where they have none.
    """

    names: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of locations."""

    @abstractmethod
    def locate(self, latitude: float, longitude: float) -> int | None:
        """Return the column of the cell that holds a point (degrees); None if no cell does."""

    @abstractmethod
    def rows(self) -> list[list[str]]:
        """Return header and rows of the table that :func:`read_cells` reads, without names."""

    @abstractmethod
    def centres(self) -> Floats:
        """Return (M, 2) latitude and longitude of a point in each cell, degrees."""

    def write(self, path: Path) -> None:
        """Write them as CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows())
        path.write_text(text.getvalue(), "utf-8")


@frozen(kw_only=True, eq=False)
class Centres(Cells):
    """A point belongs to the nearest centre, on the sphere.

    Attributes:
        points: (M, 2) latitude and longitude, degrees.
    """

    points: Floats = field(converter=doubles)
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        """See :class:`Cells`."""
        return len(self.points)

    def locate(self, latitude: float, longitude: float) -> int | None:
        """See :class:`Cells`."""
        here = directions(np.array([[latitude, longitude]]))[0]
        return int(np.argmax(directions(self.points) @ here))

    def rows(self) -> list[list[str]]:
        """See :class:`Cells`."""
        return [["lat", "lon"], *([repr(float(a)), repr(float(b))] for a, b in self.points)]

    def centres(self) -> Floats:
        """See :class:`Cells`."""
        return self.points


@frozen(kw_only=True, eq=False)
class Boxes(Cells):
    """Boxes of latitude and longitude that cover the globe, south and west edges included.

    Attributes:
        edges: (M, 4) south, west, north, east, degrees.
    """

    edges: Floats = field(converter=doubles)
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        """See :class:`Cells`."""
        return len(self.edges)

    def locate(self, latitude: float, longitude: float) -> int | None:
        """See :class:`Cells`."""
        south, west, north, east = self.edges.T
        lon = (longitude + 180.0) % 360.0 - 180.0
        inside = (south <= latitude) & ((latitude < north) | (north >= 90.0)) & (west <= lon) & (lon < east)
        found = np.flatnonzero(inside)
        return int(found[0]) if found.size else None

    def rows(self) -> list[list[str]]:
        """See :class:`Cells`."""
        return [["south", "west", "north", "east"], *([repr(float(e)) for e in box] for box in self.edges)]

    def centres(self) -> Floats:
        """See :class:`Cells`."""
        south, west, north, east = self.edges.T
        return np.column_stack([(south + north) / 2.0, (west + east) / 2.0])


@frozen(kw_only=True, eq=False)
class S2Cells(Cells):
    """S2 cells of any levels, none inside another.

    Attributes:
        ids: in the order of the scores' columns.
    """

    ids: tuple[int, ...]
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        """See :class:`Cells`."""
        return len(self.ids)

    def locate(self, latitude: float, longitude: float) -> int | None:
        """See :class:`Cells`."""
        leaf = s2cell.lat_lon_to_cell_id(latitude, longitude)
        around = {s2cell.cell_id_to_parent_cell_id(leaf, level) for level in range(30)} | {leaf}
        return next((place for place, identifier in enumerate(self.ids) if identifier in around), None)

    def rows(self) -> list[list[str]]:
        """See :class:`Cells`."""
        return [["s2"], *([s2cell.cell_id_to_token(identifier)] for identifier in self.ids)]

    def centres(self) -> Floats:
        """See :class:`Cells`."""
        return np.array([s2cell.cell_id_to_lat_lon(identifier) for identifier in self.ids])


def read_cells(path: Path) -> Cells:
    """Read the cells of a classifier: a CSV with columns ``s2``, or ``lat,lon``, or ``south,west,north,east``.

    A column ``name`` contains the places' names.

    Raises:
        InputError: every fault found.
    """
    degrees = [Column(name=n, optional=True, least=-90.0, most=90.0, unit="degrees") for n in ("lat", "south", "north")]
    degrees += [
        Column(name=n, optional=True, least=-180.0, most=180.0, unit="degrees") for n in ("lon", "west", "east")
    ]
    texts = [Column(name="s2", kind="id", optional=True), Column(name="name", kind="text", optional=True)]
    file = File.read(path, wanted="a table of cells")
    table = read_table(file, [*degrees, *texts], any_of=[("s2",), CENTRE, BOX])
    names = tuple(name.strip() for name in table["name"].tolist()) if "name" in table else ()
    if "lat" in table:
        return Centres(points=np.column_stack([table[name] for name in CENTRE]), names=names)
    if "south" in table:
        return Boxes(edges=np.column_stack([table[name] for name in BOX]), names=names)
    tokens = table["s2"].tolist()
    bad = [row for row, token in enumerate(tokens) if len(token) > 16 or not s2cell.token_is_valid(token)]
    faults = Faults()
    faults.add_rows(file.name, "s2", bad, tokens.__getitem__, "an S2 token")
    faults.check()
    return S2Cells(ids=tuple(int(s2cell.token_to_cell_id(token)) for token in tokens), names=names)
