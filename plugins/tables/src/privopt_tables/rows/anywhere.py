"""Protect rows with a release that draws reports for any position on Earth, without records."""

from __future__ import annotations

from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.numbers.sampling import make_source
from privopt_metric_dp.matrix.release import PositionRelease
from privopt_metric_dp.problem.read_points import COORDINATES
from privopt_tables.charge_rows import RowCharger
from privopt_tables.find_positions import RowSecrets
from privopt_tables.nearest_record import unusable_reasons
from privopt_tables.options import ApplyOptions, check_options, list_positions
from privopt_tables.rows.protector import SEEDED, RowProtector
from privopt_tables.secret_columns import Secret, positions_of

__all__ = ["AnywhereProtector", "wrap_longitudes"]

_AXES: Final = COORDINATES["geographic"]


def wrap_longitudes(longitudes: Floats) -> Floats:
    """Convert longitudes between -180 and 360 degrees to the range from -180 to 180, without rounding errors."""
    return np.where(longitudes > 180.0, longitudes - 360.0, longitudes)


@frozen(kw_only=True, eq=False)
class AnywhereProtector(RowProtector):
    """A protector that draws reports for positions in degrees, from a release without records.

    Attributes:
        release: The release to draw reports from.
    """

    release: PositionRelease

    @classmethod
    def of(
        cls, release: PositionRelease, secret: Secret, options: ApplyOptions, charger: RowCharger | None = None
    ) -> AnywhereProtector:
        """Create a protector for a release that draws reports for positions, after checking the options.

        Args:
            release: The release to draw reports from.
            secret: The columns that hold the secret.
            options: The options for applying the release.
            charger: The object that charges the rows, which must be open before the first row is protected. If None,
                nothing is charged.

        Raises:
            UsageError: The secret is an id or a position in km, or an option is set that requires records (a batch,
                stored reports or a maximum distance).
        """
        positions = list_positions(secret, options, None)
        if any(columns.kind != "geographic" for _, columns in positions):
            expectation = "latitude and longitude, or geometry"
            raise UsageError(f"columns of the secret must be {expectation}: this release draws for positions on Earth")
        needs_records = {
            "batch": options.batch is not None,
            "sticky": options.charge is not None and options.charge.sticky,
            "max-snap": options.max_snap is not None,
        }
        if names := [name for name, is_given in needs_records.items() if is_given]:
            raise UsageError(f"{names[0]} must be omitted: this release draws for positions, and has no records")
        check_options(positions, options, traces=False)
        return cls(
            release=release,
            secret=secret,
            charger=charger,
            positions=positions,
            source=make_source(options.seed),
            is_seeded=options.seed is not None,
        )

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The names of the report and coordinate columns, followed by ``seeded`` if reports are drawn with a seed."""
        names = [name for report in self.report_columns for name in (report, *self._coordinate_columns(report))]
        return (*names, *((SEEDED,) if self.is_seeded else ()))

    def _coordinate_columns(self, report: str) -> tuple[str, ...]:
        """Return the names of the latitude and longitude columns that belong to the report column ``report``."""
        return tuple(f"{report}_{axis}" for axis in _AXES)

    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Return the rows with reports in place of positions, and count the rows that get no report.

        With a ledger, reports are drawn only for rows that were charged.

        Args:
            frame: Rows of the table.
            first: The index of the frame's first row in the whole table.
        """
        # Rows are charged before any secret is read, so that the charges reveal nothing about it.
        is_granted, reason = np.ones(len(frame), dtype=np.bool_), np.full(len(frame), -1, dtype=np.int64)
        if self.charger is not None:
            is_granted, reason = self.charger.charge_table(frame)
        granted_rows = np.flatnonzero(is_granted)
        positions_by_column = [self._read_positions(frame, columns) for _, columns in self.positions]
        # A row is reported completely or not at all, as the guarantee for several positions requires.
        for _, unusable in positions_by_column:
            is_refused = (reason[granted_rows] < 0) & (unusable[granted_rows] >= 0)
            reason[granted_rows[is_refused]] = unusable[granted_rows[is_refused]]
        rows = np.flatnonzero(is_granted & (reason < 0))
        self.count_refusals(reason, first)
        columns = []
        for report, (places, _) in zip(self.report_columns, positions_by_column, strict=True):
            ids, coordinates = self.release.draw(*places[rows].T, source=self.source)
            # Only the rows in ``rows`` have a report. Every other row gets -1, which becomes null.
            numbers = np.full(len(frame), -1, dtype=np.int64)
            numbers[rows] = np.arange(len(rows))
            reported = pl.Series(numbers).replace(-1, None)
            columns.append(pl.Series(report, ids, dtype=pl.String).gather(reported))
            for axis, name in enumerate(self._coordinate_columns(report)):
                columns.append(pl.Series(name, coordinates[:, axis], dtype=pl.Float64).gather(reported))
        if self.is_seeded:
            columns.append(pl.Series(SEEDED, [True]).new_from_index(0, len(frame)))
        return self.replace_secret(frame, columns)

    def _read_positions(self, frame: nw.DataFrame[Any], columns: Secret) -> tuple[Floats, Ints]:
        """Read one position from each row of a table.

        Args:
            frame: B rows of the table.
            columns: The columns of the position.

        Returns:
            Two arrays. The first, of shape (B, 2), contains latitudes and longitudes. The second, of shape (B,),
            contains -1 for each row with a usable position. For any other row, it contains the reason why the position
            is unusable, as an index into :data:`.nearest_record.REASONS`.
        """
        positions, fault = positions_of(frame, columns)
        reason = unusable_reasons(positions, fault, geographic=True)
        return np.column_stack([positions[:, 0], wrap_longitudes(positions[:, 1])]), reason

    def row_secrets(self, frame: nw.DataFrame[Any]) -> list[RowSecrets]:
        """Return the positions of the rows, which must not appear in other columns."""
        secrets = []
        for _, columns in self.positions:
            positions, reason = self._read_positions(frame, columns)
            usable = np.where((reason < 0)[:, None], positions, np.nan)
            secrets.append(
                RowSecrets(positions=usable, is_geographic=True, texts=(), text_rows=np.zeros(0, dtype=np.int64))
            )
        return secrets
