"""The locations that a classifier tells apart: S2 cells, nearest centres, or boxes that hold equally many photos."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import s2cell
from attrs import field, frozen

from privopt.arrays import Floats, doubles
from privopt.errors import Fault, InputError
from privopt.files import Unreadable, read_bytes
from privopt.numbers.distances import directions

__all__ = ["Boxes", "Cells", "Centres", "S2Cells", "read_cells"]


class Cells(ABC):
    """Locations by column of the scores.

    Attributes:
        names: of the places, in order; empty where they have none.
    """

    names: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int:
        """Number of locations."""

    @abstractmethod
    def locate(self, latitude: float, longitude: float) -> int | None:
        """Column of the cell that holds a point (degrees); None where none does."""

    @abstractmethod
    def rows(self) -> list[list[str]]:
        """Header and rows of the table that :func:`read_cells` reads, without names."""

    @abstractmethod
    def centres(self) -> Floats:
        """(M, 2) latitude and longitude of a point in each cell, degrees."""

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
    """Read the cells of a classifier: a CSV with columns ``s2``, or ``lat,lon``, or ``south,west,north,east``;
    a last column ``name`` holds the places' names.

    Raises:
        InputError: every fault found.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except Unreadable as error:
        raise InputError([Fault(path.name, "", error.found, "a table of cells")]) from None
    except (UnicodeDecodeError, csv.Error):
        raise InputError([Fault(path.name, "", "no table in UTF-8", "a table of cells")]) from None
    header = [name.strip().lower() for name in rows[0]] if rows else []
    names: tuple[str, ...] = ()
    if header[-1:] == ["name"]:
        header.pop()
        names = tuple(row[-1].strip() for row in rows[1:] if len(row) == len(header) + 1)
        rows = [rows[0], *(row[:-1] if len(row) == len(header) + 1 else [*row, ""] for row in rows[1:])]
    if header == ["s2"]:
        return S2Cells(ids=tuple(_parsed(path, rows[1:], 1, _s2_row)), names=names)
    if header == ["lat", "lon"]:
        return Centres(points=_parsed(path, rows[1:], 2, _numbers), names=names)
    if header == ["south", "west", "north", "east"]:
        return Boxes(edges=_parsed(path, rows[1:], 4, _numbers), names=names)
    wanted = "columns s2, or lat,lon, or south,west,north,east, and a last one name where places have names"
    raise InputError([Fault(path.name, "header", ",".join(header) or "nothing", wanted)])


def _s2_row(row: Sequence[str]) -> int:
    token = row[0].strip()
    if not token or len(token) > 16 or not s2cell.token_is_valid(token):
        raise ValueError(f"{token!r} is no S2 token")
    return int(s2cell.token_to_cell_id(token))


def _numbers(row: Sequence[str]) -> tuple[float, ...]:
    values = tuple(float(cell) for cell in row)
    if not (np.isfinite(values).all() and all(abs(v) <= 180 for v in values)):
        raise ValueError
    return values


def _parsed(path: Path, rows: Sequence[list[str]], width: int, parse: Callable[[Sequence[str]], Any]) -> list[Any]:
    found, faults = [], []
    for number, row in enumerate(rows, start=2):
        try:
            found.append(parse(row) if len(row) == width else None)
        except ValueError:
            found.append(None)
        if found[-1] is None:
            faults.append(Fault(path.name, f"row {number}", ",".join(row), f"{width} fields: degrees, or an S2 token"))
    if not rows:
        faults.append(Fault(path.name, "", "a header alone", "a row for each location"))
    if faults:
        raise InputError(faults[:20])
    return found
