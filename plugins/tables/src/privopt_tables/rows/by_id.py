"""Protect rows of ids with a release that draws its reports from a sampler rather than a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import frozen

from privopt.declare.column_texts import texts_of
from privopt.errors import UnknownNameError, UsageError
from privopt.interfaces import Release
from privopt_tables.charge_rows import RowCharger
from privopt_tables.nearest_record import REASONS
from privopt_tables.options import ApplyOptions, check_options, list_positions
from privopt_tables.rows.protector import RowProtector
from privopt_tables.secret_columns import Secret

__all__ = ["IdProtector"]

_UNKNOWN: Final = REASONS.index("unknown id")


@frozen(kw_only=True, eq=False)
class IdProtector(RowProtector):
    """A protector that draws a report for each id by calling :meth:`privopt.interfaces.release.Release.sample`.

    Attributes:
        release: The release to draw reports from. It overrides ``sample``, and uses the operating system's entropy.
    """

    release: Release

    @classmethod
    def of(
        cls, release: Release, secret: Secret, options: ApplyOptions, charger: RowCharger | None = None
    ) -> IdProtector:
        """Create a protector for a release without a matrix, after checking the options.

        Args:
            release: The release to draw reports from.
            secret: The columns that hold the secret.
            options: The options for applying the release.
            charger: The object that charges the rows, which must be open before the first row is protected. If None,
                nothing is charged.

        Raises:
            UsageError: The secret is a position, or an option is set that requires a matrix (a seed, a batch, stored
                reports or a maximum distance).
        """
        positions = list_positions(secret, options, None)
        if any(columns.kind != "id" for _, columns in positions):
            raise UsageError("columns of the secret must be id, got a position: this release draws for its records")
        needs_matrix = {
            "seed": options.seed is not None,
            "batch": options.batch is not None,
            "sticky": options.charge is not None and options.charge.sticky,
            "max-snap": options.max_snap is not None,
        }
        if names := [name for name, is_given in needs_matrix.items() if is_given]:
            raise UsageError(f"{names[0]} must be omitted: this release draws for itself, and has no matrix")
        check_options(positions, options, traces=False)
        return cls(release=release, secret=secret, charger=charger, positions=positions)

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The names of the report columns, one per position."""
        return self.report_columns

    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Return the rows with reports in place of ids, and count the rows that get no report.

        With a ledger, reports are drawn only for rows that were charged.

        Args:
            frame: Rows of the table.
            first: The index of the frame's first row in the whole table.
        """
        # Rows are charged before any secret is read, so that the charges reveal nothing about it.
        is_granted, reason = np.ones(len(frame), dtype=bool), np.full(len(frame), -1, dtype=np.int64)
        if self.charger is not None:
            is_granted, reason = self.charger.charge_table(frame)
        rows = np.flatnonzero(is_granted)
        reports_by_position = [
            self._draw_reports(texts_of(frame[position.columns[0]]).gather(rows).to_list())
            for _, position in self.positions
        ]
        row_reports = zip(*reports_by_position, strict=True)
        # A row is reported completely or not at all, as the guarantee for several positions requires.
        is_complete = np.array([all(report is not None for report in reports) for reports in row_reports], dtype=bool)
        reason[rows[~is_complete]] = _UNKNOWN
        self.count_refusals(reason, first)
        columns = []
        for name, reports in zip(self.added_columns, reports_by_position, strict=True):
            texts = np.full(len(frame), None, dtype=object)
            texts[rows[is_complete]] = np.array(reports, dtype=object)[is_complete]
            columns.append(pl.Series(name, texts.tolist(), dtype=pl.String))
        return self.replace_secret(frame, columns)

    def _draw_reports(self, ids: Sequence[str | None]) -> list[str | None]:
        """Draw a report for each id, and return the reports, with None for ids that are missing or unknown."""
        rows_by_id: dict[str, list[int]] = {}
        for row, name in enumerate(ids):
            if name is not None:
                rows_by_id.setdefault(name, []).append(row)
        reports: list[str | None] = [None] * len(ids)
        for name, rows in rows_by_id.items():
            try:
                # The reports for all rows with the same id are drawn in one call, because a release's sampler may be
                # slow.
                samples = self.release.sample(name, len(rows))
            except UnknownNameError:
                continue
            for row, report in zip(rows, samples, strict=True):
                reports[row] = report
        return reports
