"""The table of a curve: in memory, where it draws itself, and as a file that grows point by point."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, get_args

import polars as pl
from attrs import define, field, fields

from privopt.declare.exact_text import exact_text
from privopt.errors import Fault, InputError, UsageError
from privopt_tables.studies.curve_points import Point, Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["CurveTable", "Key", "PointsFile"]

Key = tuple[str, Fraction]
"""Of a point: mechanism and epsilon."""

_TEXTS: Final = {"mechanism", "epsilon", "status"}

SCHEMA: Final = {each.name: pl.String if each.name in _TEXTS else pl.Float64 for each in fields(Point)}
"""Columns of the table."""


class CurveTable(pl.DataFrame):  # type: ignore[misc]  # mypy does not look into polars
    """A row a point: ``mechanism``, ``epsilon`` as its exact text, and the figures of :class:`Point`.

    What is selected from it may be a plain table of polars, which has no units and does not draw itself.

    Attributes:
        unit: of losses, bounds and the attacker's errors.
        distance_unit: of the other errors, and what epsilon is per.
    """

    unit: str = ""
    distance_unit: str = ""

    @classmethod
    def of(cls, points: Iterable[Point], unit: str = "", distance_unit: str = "") -> Self:
        """Make the table of some points."""
        rows = [
            [exact_text(point.epsilon) if name == "epsilon" else getattr(point, name) for name in SCHEMA]
            for point in points
        ]
        table = cls(rows, schema=SCHEMA, orient="row")
        table.unit, table.distance_unit = unit, distance_unit
        return table

    @property
    def points(self) -> list[Point]:
        """Return the rows as points.

        Raises:
            ValueError: a row is none.
        """
        found = [Point(**{**row, "epsilon": Fraction(row["epsilon"])}) for row in self.to_dicts()]
        if wrong := {point.status for point in found} - {*get_args(Status)}:
            raise ValueError(f"unknown status {min(wrong, key=str)}")
        return found

    def plot(self) -> Figure:
        """Draw loss (lines) and proved bound (dashes) over epsilon: a figure of matplotlib."""
        from privopt_tables.studies.curve_pictures import figure_of

        return figure_of(self.points, self.unit, self.distance_unit)


@define(kw_only=True, eq=False)
class PointsFile:
    """A CSV of points that grows while they are found, so that no kill loses one.

    A hidden file next to it holds a digest of what its points follow from. The same command goes on from the CSV; a
    command with another problem is refused.

    Attributes:
        path: the CSV.
        force: begin again, whatever the file holds.
    """

    path: Path
    force: bool = False
    _digest: str | None = field(default=None, init=False)

    @property
    def mark(self) -> Path:
        """Return the path of the hidden file."""
        return self.path.with_name(f".{self.path.name}.curve")

    @property
    def begun(self) -> bool:
        """Return whether an earlier run has begun it, of this command or of another."""
        return not self.force and self.path.is_file() and self.mark.is_file()

    def begin(self, digest: str, names: Sequence[str], epsilons: Sequence[Fraction]) -> dict[Key, Point]:
        """Return the points of earlier runs, or begin the file at its first point.

        Args:
            digest: of what points follow from.
            names: of mechanisms.
            epsilons: of the curve.

        Raises:
            UsageError: the file was begun with another problem or other options, or has points that are not asked for.
            InputError: the file is another kind of table.
        """
        cure = f"--out {self.path}: exists already; --force replaces it: it was begun with"
        found: dict[Key, Point] = {}
        if self.begun:
            if self.mark.read_bytes() != digest.encode():
                raise UsageError(f"{cure} another problem, gap or solver")
            for point in self._read():
                key = (point.mechanism, point.epsilon)
                if point.epsilon not in epsilons or point.mechanism not in names:
                    raise UsageError(f"{cure} {point.mechanism} at epsilon {exact_text(point.epsilon)}")
                if point.loss is not None or point.status == "infeasible":
                    found[key] = point
        else:
            self._digest = digest  # what stands there stays until there is a point
        return found

    def _read(self) -> list[Point]:
        """Return the points of the file; a last line that was not written whole is none, and is cut off."""
        whole = self.path.read_bytes()
        kept = whole[: whole.rfind(b"\n") + 1]
        if kept != whole:
            os.truncate(self.path, len(kept))
        if not kept:  # a kill came before the first line was whole
            return []
        try:
            table = pl.read_csv(BytesIO(kept), schema=SCHEMA)
            return CurveTable(table).points
        except (pl.exceptions.PolarsError, ValueError, ZeroDivisionError) as error:
            found, wanted = str(error).partition("\n")[0], "a table of curve (--force begins again)"
            raise InputError([Fault(str(self.path), "", found, wanted)]) from None

    def start(self) -> None:
        """Replace what another command left, once there is something to write."""
        if self._digest is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
            self.mark.write_text(self._digest, "utf-8")
            self._digest = None

    def append(self, point: Point) -> None:
        """Write a point at the file's end, durably."""
        line = CurveTable.of([point])
        self.start()
        with self.path.open("ab") as file:
            file.write(line.write_csv(include_header=file.tell() == 0).encode())
            file.flush()
            os.fsync(file.fileno())
