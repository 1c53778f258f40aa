"""The table of a curve's points, both as a plottable data frame and as a file to which points are appended.

An interrupted run can be continued from the file. Each point is written durably as soon as it is found, so an
interruption can only affect the line that is being written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Final, Self, get_args

import polars as pl
from attrs import define, field, fields

from privopt.arrays import Figure
from privopt.declare.toml_text import exact_text
from privopt.errors import Fault, InputError, UsageError
from privopt_tables.studies.curve_points import Point, Status

__all__ = ["CurveTable", "Key", "PointsFile"]

Key = tuple[str, Fraction]
"""The key of a point: its mechanism's name and its epsilon."""

_TEXTS: Final = {"mechanism", "epsilon", "status"}
"""The attributes of :class:`Point` that become string columns. All others become columns of numbers."""

SCHEMA: Final = {attribute.name: pl.String if attribute.name in _TEXTS else pl.Float64 for attribute in fields(Point)}
"""The columns of a table of points, with their polars types."""


class CurveTable(pl.DataFrame):  # type: ignore[misc]  # mypy does not look into polars
    """A polars DataFrame of points, with the attributes of :class:`Point` as columns.

    Epsilons are stored exactly, as strings. Operations on the table may return a plain polars DataFrame, which has no
    units and no ``plot`` method.

    Attributes:
        unit: The unit of losses, bounds and the attacker's errors.
        distance_unit: The unit of distances and their quantiles. Epsilon is given per this unit.
    """

    unit: str = ""
    distance_unit: str = ""

    @classmethod
    def of(cls, points: Iterable[Point], unit: str = "", distance_unit: str = "") -> Self:
        """Create a table from points.

        Args:
            points: The points, one for each row.
            unit: The unit of losses, bounds and the attacker's errors.
            distance_unit: The unit of distances and their quantiles. Epsilon is given per this unit.
        """
        rows = [
            [exact_text(point.epsilon) if name == "epsilon" else getattr(point, name) for name in SCHEMA]
            for point in points
        ]
        table = cls(rows, schema=SCHEMA, orient="row")
        table.unit, table.distance_unit = unit, distance_unit
        return table

    @property
    def points(self) -> list[Point]:
        """The rows, converted to points.

        Raises:
            ValueError: A row cannot be converted to a point.
        """
        rows = self.to_dicts()
        if any(row["epsilon"] is None or row["mechanism"] is None for row in rows):
            raise ValueError("a row without a mechanism or an epsilon")
        points = [Point(**{**row, "epsilon": Fraction(row["epsilon"])}) for row in rows]
        if unknown_statuses := {point.status for point in points} - {*get_args(Status)}:
            raise ValueError(f"unknown status {min(unknown_statuses, key=str)}")
        return points

    def plot(self) -> Figure:
        """Plot the loss and, as dashed lines, the proved bound against epsilon, and return the matplotlib figure."""
        from privopt_tables.studies.curve_pictures import draw_loss

        return draw_loss(self.points, self.unit, self.distance_unit)


@define(kw_only=True, eq=False)
class PointsFile:
    """A CSV file to which each point is appended as soon as it is found, so that no points are lost in an interruption.

    A hidden file next to the CSV file contains a digest of the inputs that determine the points. Unless ``force`` is
    set, repeating the command with the same inputs resumes where the CSV file ends, and running it with different
    inputs raises an error.

    Attributes:
        path: The CSV file.
        force: Whether to replace an existing file instead of continuing it.
        _digest: The digest to write together with the first point. None if an existing file is continued, or once the
            digest has been written.
    """

    path: Path
    force: bool = False
    _digest: str | None = field(default=None, init=False)

    @property
    def mark_path(self) -> Path:
        """The path of the hidden file that contains the digest of the inputs."""
        return self.path.with_name(f".{self.path.name}.curve")

    @property
    def is_begun(self) -> bool:
        """Whether this run continues a file started by an earlier run. Always False if ``force`` is set."""
        return not self.force and self.path.is_file() and self.mark_path.is_file()

    def begin(self, digest: str, names: Sequence[str], epsilons: Sequence[Fraction]) -> dict[Key, Point]:
        """Return the points from earlier runs, or prepare to start a new file if there is none to continue.

        A new file is started only when its first point is written. Points that were stopped without a release are not
        returned, so that they are solved again.

        Args:
            digest: The digest of the problem, gap and solver, which determine the points.
            names: The names of the mechanisms.
            epsilons: The epsilons of the curves.

        Raises:
            UsageError: The file was started for another problem or with other options, or it contains points that were
                not requested.
            InputError: The file does not contain a table of points.
        """
        refusal = f"--out {self.path}: exists already; --force replaces it: it was begun with"
        points_by_key: dict[Key, Point] = {}
        if self.is_begun:
            if self.mark_path.read_bytes() != digest.encode():
                raise UsageError(f"{refusal} another problem, gap or solver")
            for point in self._read():
                key = (point.mechanism, point.epsilon)
                # The finished table will contain only the points that this command asks for, so any other point would
                # be lost.
                if point.epsilon not in epsilons or point.mechanism not in names:
                    raise UsageError(f"{refusal} {point.mechanism} at epsilon {exact_text(point.epsilon)}")
                # Stopped points without a release are left out, so that they are solved as if they were new.
                if point.loss is not None or point.status == "infeasible":
                    points_by_key[key] = point
        else:
            # An old file is replaced only when there is a point to write (see replace_old_file).
            self._digest = digest
        return points_by_key

    def _read(self) -> list[Point]:
        """Read the points in the file, and remove an incomplete last line.

        Raises:
            InputError: The file does not contain a table of points.
        """
        expectation = "a table of points that curve wrote (--force begins again)"
        contents = self.path.read_bytes()
        header = f"{','.join(SCHEMA)}\n".encode()
        # The header is compared first, because a file of another kind must not be truncated. If an earlier run was
        # killed early, even the header may be incomplete.
        if not contents.startswith(header) and not header.startswith(contents):
            raise InputError([Fault(str(self.path), "header", "a file of another kind", expectation)])
        complete_lines = contents[: contents.rfind(b"\n") + 1]
        try:
            points = CurveTable(pl.read_csv(BytesIO(complete_lines), schema=SCHEMA)).points if complete_lines else []
        except (pl.exceptions.PolarsError, ValueError, ZeroDivisionError):
            raise InputError([Fault(str(self.path), "", "a row that is no point of a curve", expectation)]) from None
        if complete_lines != contents:
            os.truncate(self.path, len(complete_lines))
        return points

    def replace_old_file(self) -> None:
        """Remove an old CSV file and write the new digest, unless the CSV file is being continued.

        This is called only when there is something to write, so the old file is kept if the command finds no points.
        """
        if self._digest is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
            # The old table is removed before the new digest is written. If the run is killed in between, the old digest
            # belongs to no table.
            self.mark_path.write_text(self._digest, "utf-8")
            self._digest = None

    def append(self, point: Point) -> None:
        """Durably append a point to the file. The first call replaces an existing file unless a run is resumed."""
        line = CurveTable.of([point])
        self.replace_old_file()
        with self.path.open("ab") as file:
            file.write(line.write_csv(include_header=file.tell() == 0).encode())
            # The point must be on the disk before the next one is solved.
            file.flush()
            os.fsync(file.fileno())
