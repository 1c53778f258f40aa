"""The base class of protectors, which replace a table's secret columns with reports.

The base class drops and adds columns, and creates notes and warnings for the table's owner and publisher. Its
subclasses in :mod:`.by_position`, :mod:`.by_id`, :mod:`.by_word` and :mod:`.anywhere` draw the reports.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import field, frozen

from privopt.arrays import Ints
from privopt.declare.column_texts import REPORT, prefix_name, texts_of
from privopt.declare.toml_text import exact_text
from privopt.errors import Fault, InputError, UsageError, cut, number_of
from privopt.interfaces import Guarantee
from privopt.ledger.batches import Coins, Digest
from privopt.numbers.sampling import Source
from privopt_tables.charge_rows import RowCharger
from privopt_tables.clear_columns import ColumnHashes
from privopt_tables.column_cells import spread_rows
from privopt_tables.column_names import LeakyColumns, select_place_names, select_position_names
from privopt_tables.find_positions import PositionColumn, RowSecrets
from privopt_tables.nearest_record import MALFORMED, REASONS
from privopt_tables.options import describe_limits, format_counts
from privopt_tables.secret_columns import Secret
from privopt_tables.secret_texts import MAX_TEXT_ROWS

__all__ = ["SEEDED", "RowProtector"]

SEEDED: Final = "seeded"
"""The name of the column that marks a table whose reports were drawn with a seed."""


@frozen(kw_only=True, eq=False)
class RowProtector(ABC):
    """Base class of protectors, which replace the secret in a table with reports.

    A protector also counts the rows that get no report, and collects what the table's owner should know before
    publishing it.

    Attributes:
        secret: The columns that hold or reveal the secret, which are dropped.
        positions: For each position in a row, the prefix of the report columns and the columns of the secret. The
            prefix is None if the report columns have none.
        source: The source of random bytes.
        is_seeded: Whether the source is a seeded generator. Reports drawn with a seed are not private.
        coins: The source of a batch's random bytes, with a separate stream for each draw. If None, ``source`` is used.
        charger: The object that charges each row to its subject before its reports are drawn. None if nothing is
            charged.
        refusals: The number of rows without a report so far, keyed by reason.
        first_malformed: The index of the first row with a malformed cell, keyed by reason. Only the reasons in
            :data:`.nearest_record.MALFORMED` are recorded.
        leaks: The columns in which the secret was found. Columns listed in ``secret.also`` are dropped, and all others
            remain.
        leaky_columns: A search for remaining columns that reveal the secret through their values or field names.
        column_hashes: The objects that replace cells with keyed hashes. The list is filled after the ledger has been
            opened, because the ledger's key is not known until then.
    """

    secret: Secret
    positions: tuple[tuple[str | None, Secret], ...]
    source: Source = os.urandom
    is_seeded: bool = False
    coins: Coins | None = None
    charger: RowCharger | None = None
    refusals: Counter[str] = field(factory=Counter)
    first_malformed: dict[str, int] = field(factory=dict)
    leaks: tuple[PositionColumn, ...] = ()
    leaky_columns: LeakyColumns = field(init=False, factory=LeakyColumns)
    column_hashes: list[ColumnHashes] = field(factory=list)

    @property
    @abstractmethod
    def added_columns(self) -> tuple[str, ...]:
        """The names of the columns that are added to the table."""

    @property
    def report_columns(self) -> tuple[str, ...]:
        """The names of the report columns, one per position."""
        return tuple(prefix_name(prefix, REPORT) for prefix, _ in self.positions)

    @abstractmethod
    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Return the rows with reports in place of the secret's columns, and count the rows that get no report.

        Args:
            frame: Rows of the table.
            first: The index of the frame's first row in the whole table.
        """

    def row_secrets(self, frame: nw.DataFrame[Any]) -> list[RowSecrets]:
        """Return the secrets that must not appear in other columns, with one item for each position in a row.

        The base class returns the ids or sentences in an evenly spaced sample of the rows.
        """
        rows = spread_rows(len(frame), MAX_TEXT_ROWS)
        return [
            RowSecrets(
                positions=None,
                is_geographic=False,
                texts=(texts_of(frame[columns.columns[0]]).gather(rows).to_list(),),
                text_rows=rows,
            )
            for _, columns in self.positions
        ]

    def look_at_secrets(self, frame: nw.DataFrame[Any]) -> None:  # noqa: B027
        """Count the secrets that are written differently from the records, for use in warnings.

        The base class counts nothing.
        """

    @property
    def price(self) -> str | None:
        """A sentence that states the charge per row and how many rows the limit allows, or None if nothing is charged.

        If reports are stored, it refers to places instead of rows.
        """
        return None if self.charger is None else self.charger.price("place" if self.is_sticky else "row")

    @property
    def sequence(self) -> str | None:
        """A sentence that states the guarantee for all reports about a subject together. None if nothing is charged."""
        return None if self.charger is None else self.charger.sequence

    @property
    def is_sticky(self) -> bool:
        """Whether a subject's first report at a place is stored and repeated at later visits."""
        return self.charger is not None and self.charger.charge.sticky

    @property
    def counts(self) -> dict[str, int]:
        """Additional counts printed by ``apply --json``, keyed by name."""
        return {}

    def check(self, names: list[str], table: str) -> None:
        """Check that a table has all required columns and none of the columns that would be added.

        Args:
            names: The names of the table's columns.
            table: The table's name, used in error messages.

        Raises:
            InputError: A required column is missing or is a column of the secret, two columns have the same name, or a
                column to be added already exists. The error contains one fault per column.
        """
        self.secret.check(names, table)
        if self.charger is not None:
            roles = {self.charger.subject: "whom each row is about"}
            if self.charger.time is not None:
                roles[self.charger.time] = "when each row was"
            self.secret.check_other_columns(roles, names, table)
        # An added column may share its name with a column that is dropped, but not with one that stays.
        expected = "no such column (reports go there, or under a prefix)"
        faults = [
            Fault(table, f"column {name}", "a column of that name", expected)
            for name in self.added_columns
            if name in names and name not in (*self.secret.columns, *self.secret.omitted)
        ]
        if faults:
            raise InputError(faults)

    def add_rows(self, digest: Digest, frame: nw.DataFrame[Any], first: int) -> None:
        """Add rows to a batch's digest. Each row is represented by its index, subject, calendar period and secrets.

        Args:
            digest: The digest, which is modified in place.
            frame: Rows of the table.
            first: The index of the frame's first row in the whole table.
        """
        assert self.charger is not None  # a batch has a ledger
        # An empty string can stand for a row without a subject, because no subject's name is empty.
        subjects = [name or "" for name in self.charger.subjects(frame)]
        periods = [period or "" for period in self.charger.periods(frame)]
        # Secrets are part of the digest, because a changed secret would need a report that nobody was charged for.
        secrets = [columns.bytes_of(frame) for _, columns in self.positions]
        rows = zip(subjects, periods, *secrets, strict=True)
        for number, (subject, period, *row_secrets) in enumerate(rows, start=first):
            digest.add(b"row", number.to_bytes(8, "big"), subject.encode("utf-8"), period.encode(), *row_secrets)

    def count_refusals(self, reason: Ints, first: int) -> None:
        """Count the rows without a report for each reason, and remember the first row with each kind of malformed cell.

        Args:
            reason: (B,) The reason why each row has no report, as an index into :data:`REASONS`, or -1 for a row with a
                report.
            first: The index of the first of these rows in the whole table.
        """
        # The first row is noted only for reasons that concern malformed cells, because the owner can correct these.
        for index in MALFORMED:
            if (rows := np.flatnonzero(reason == index)).size:
                self.first_malformed.setdefault(REASONS[index], first + int(rows[0]))
        for index, count in enumerate(np.bincount(reason[reason >= 0], minlength=len(REASONS)).tolist()):
            if count:
                self.refusals[REASONS[index]] += count

    def replace_secret(self, frame: nw.DataFrame[Any], columns: Iterable[pl.Series]) -> nw.DataFrame[Any]:
        """Return the rows with new columns in place of the secret's columns.

        All remaining columns are examined for copies of the secret. Columns to hash are then replaced by their hashes.

        Args:
            frame: Rows of the table.
            columns: The columns to add.
        """
        backend = frame.implementation
        # Reports are polars series, but a pandas or pyarrow table needs columns from its own library.
        native_columns = [
            nw.from_native(column, series_only=True)
            if backend.is_polars()
            else nw.new_series(
                column.name, column.to_list(), nw.from_native(column, series_only=True).dtype, backend=backend
            )
            for column in columns
        ]
        public_frame = self.secret.without(frame)
        self.leaky_columns.examine_part(public_frame, frame.select(*self.secret.columns))
        for hashes in self.column_hashes:
            public_frame = hashes.replace(public_frame)
        return public_frame.with_columns(*native_columns)

    @property
    def malformed_rows(self) -> tuple[str, ...]:
        """Notes on the first row with each kind of malformed cell. They do not quote cells, which may be secret."""
        noun = "column" if len(self.secret.columns) == 1 else "columns"
        columns = f"{noun} {', '.join(map(cut, self.secret.columns))}"
        # Indices count from 0 and the header is row 1, so the first row of data is row 2.
        return tuple(
            f"row {row + 2:,}, {columns}: expected a position, got {reason}"
            for reason, row in self.first_malformed.items()
        )

    def no_report_error(self, table: str) -> UsageError:
        """Return the error to raise if no row of a table got a report. Its message says how many rows were charged.

        Args:
            table: The table's name.
        """
        reasons = format_counts(self.refusals) or "it has no rows"
        skipped_rows = () if self.charger is None else self.charger.skipped_rows
        # Rows are charged before it is known whether a report can be drawn, so there may be charges although there is
        # no report.
        charge_count = 0 if self.charger is None else self.charger.charged_count
        charges = f"; charged all the same: {number_of(charge_count, 'row')}" if charge_count else ""
        lines = (reasons + charges, *skipped_rows, *self.malformed_rows)
        return UsageError(f"{table}: no row could be reported: {'; '.join(lines)}")

    def notes(self, guarantee: Guarantee) -> tuple[str, ...]:
        """Return notes on the release's guarantee for the publisher of the protected table."""
        sequence = () if self.sequence is None else (self.sequence,)
        return (*describe_limits(guarantee), *sequence, *_describe_several_positions(len(self.positions), guarantee))

    @property
    def leak_warnings(self) -> tuple[str, ...]:
        """Warnings about the columns in which the secret was found."""
        return tuple(_leak_warning(leak, is_dropped=leak.name in self.secret.also) for leak in self.leaks)

    def warnings(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return warnings that the table's owner should consider before publishing the table.

        Args:
            names: The names of the original table's columns and of its index.
        """
        named_elsewhere = {*self.secret.columns, *self.secret.omitted, *self.secret.geometries}
        # Hashed columns are left out, because the other warnings say that a column stays as it is. Those that copy the
        # secret have a warning of their own.
        hashed_names = {name for hashes in self.column_hashes for name in hashes.columns}
        hashed_copies = [name for name in self.leaky_columns.copies if name in hashed_names - named_elsewhere]
        named_elsewhere |= hashed_names
        copies = [name for name in self.leaky_columns.copies if name not in named_elsewhere]
        # A column in which the secret was found already has a warning, so its name needs none.
        named_elsewhere |= {leak.name for leak in self.leaks}
        # Each column is named in at most one warning.
        remaining = [name for name in names if name not in {*named_elsewhere, *copies}]
        positions = [*select_position_names(remaining), *self.leaky_columns.positions]
        places = [*select_place_names(remaining), *self.leaky_columns.places]
        return (
            *(() if self.charger is None else self.charger.skipped_rows),
            *self.malformed_rows,
            *self.leak_warnings,
            *(
                f"column {cut(name)} is hashed, and equal to what is protected: equal hashes show which rows were at "
                "the same place, so leave it out"
                for name in hashed_copies
            ),
            *_exposed_columns_warning(copies, "equal to what is protected, but not protected there"),
            *_exposed_columns_warning(self.secret.geometries, "of geometries, which are not protected"),
            *_exposed_columns_warning(positions, "named like positions, which are not protected"),
            *_exposed_columns_warning(places, "named like places, which may reveal positions and are not protected"),
        )


def _describe_several_positions(count: int, guarantee: Guarantee) -> tuple[str, ...]:
    """Return a note on how the guarantee adds up over a row's positions, or an empty tuple for a single position.

    Args:
        count: The number of positions.
        guarantee: The guarantee for one report.
    """
    if count < 2:
        return ()
    epsilon = "" if guarantee.epsilon is None else f" epsilon {exact_text(Fraction(guarantee.epsilon))} each:"
    return (
        f"the guarantee for a row adds up over its {count} positions,{epsilon} between tables in which the same rows "
        "have usable positions, because a row is reported completely or not at all",
    )


def _leak_warning(leak: PositionColumn, *, is_dropped: bool) -> str:
    """Return a warning about a column in which the secret was found.

    Args:
        leak: The column, the form in which it contains the secret, and the number of rows in which it was found.
        is_dropped: Whether the column was dropped from the table.
    """
    rows = f"{leak.rows:,} of {number_of(leak.sampled, 'row')}"
    if is_dropped:
        return f"column {cut(leak.name)} was dropped: it states the secret ({leak.form}) in {rows} (--keep keeps it)"
    return f"column {cut(leak.name)} stays and states the secret ({leak.form}) in {rows}: leave it out"


def _exposed_columns_warning(names: Sequence[str], reason: str) -> tuple[str, ...]:
    """Return a warning about remaining columns that may reveal the secret, or an empty tuple if there are none.

    Args:
        names: The names of the columns. The warning lists at most ten of them.
        reason: The reason why the columns may reveal the secret, worded to follow "is" or "are".
    """
    if not names:
        return ()
    listed = ", ".join(map(cut, names[:10])) + (", ..." if len(names) > 10 else "")
    subject, pronoun = (
        (f"columns {listed} stay as they are and are", "them")
        if len(names) > 1
        else (f"column {listed} stays as it is and is", "it")
    )
    cure = f"leave {pronoun} out, or protect {pronoun} too (--position takes several positions of a row)"
    return (f"{subject} {reason}: {cure}",)
