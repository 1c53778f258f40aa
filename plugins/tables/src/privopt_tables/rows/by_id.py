"""Protect rows by a release that draws for itself: one report for each id, without a matrix."""

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
    """Draws one report a row by :meth:`privopt.interfaces.release.Release.sample`, for ids alone.

    Attributes:
        release: that draws, from the operating system's entropy.
    """

    release: Release

    @classmethod
    def of(
        cls, release: Release, secret: Secret, asked: ApplyOptions, charging: RowCharger | None = None
    ) -> IdProtector:
        """Prepare for tables.

        Args:
            release: to draw with.
            secret: the columns that hold the secret.
            asked: how.
            charging: charges each row to its subject; to be opened before the first row.

        Raises:
            UsageError: positions, or what takes a matrix: a seed, a batch, kept reports.
        """
        positions = list_positions(secret, asked, None)
        if any(columns.kind != "id" for _, columns in positions):
            raise UsageError("columns of the secret must be id, got a position: this release draws for its records")
        with_matrix = {
            "seed": asked.seed is not None,
            "batch": asked.batch is not None,
            "sticky": asked.charge is not None and asked.charge.sticky,
            "max-snap": asked.max_snap is not None,
        }
        if found := [name for name, here in with_matrix.items() if here]:
            raise UsageError(f"{found[0]} must be omitted: this release draws for itself, and has no matrix")
        check_options(positions, asked, traces=False)
        return cls(release=release, secret=secret, charging=charging, positions=positions)

    @property
    def added(self) -> tuple[str, ...]:
        """One column of reports a position."""
        return self.reports

    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Draw for rows whose subjects were charged, where they are to be."""
        granted, reason = np.ones(len(frame), dtype=bool), np.full(len(frame), -1, dtype=np.int64)
        if self.charging is not None:
            granted, reason = self.charging.granted(frame)
        rows = np.flatnonzero(granted)
        drawn = [self._drawn(texts_of(frame[own.columns[0]]).gather(rows).to_list()) for _, own in self.positions]
        whole = np.array([all(report is not None for report in row) for row in zip(*drawn, strict=True)], dtype=bool)
        reason[rows[~whole]] = _UNKNOWN
        self.refuse(reason)
        columns = []
        for name, reports in zip(self.added, drawn, strict=True):
            texts = np.full(len(frame), None, dtype=object)
            texts[rows[whole]] = np.array(reports, dtype=object)[whole]
            columns.append(pl.Series(name, texts.tolist(), dtype=pl.String))
        return self.with_columns(frame, columns)

    def _drawn(self, ids: Sequence[str | None]) -> list[str | None]:
        """Return a report for each id, None for one that no record has."""
        rows_of: dict[str, list[int]] = {}
        for row, name in enumerate(ids):
            if name is not None:
                rows_of.setdefault(name, []).append(row)
        found: list[str | None] = [None] * len(ids)
        for name, rows in rows_of.items():
            try:
                drawn = self.release.sample(name, len(rows))
            except UnknownNameError:
                continue
            for row, report in zip(rows, drawn, strict=True):
                found[row] = report
        return found
