"""Protectors: they put reports into a table in place of the columns that hold the secret.

The base class knows which columns go, which are added, who is charged, and what a table's owner and its publisher must
be told. How a row is drawn for is in :mod:`.by_position`, :mod:`.by_id` and :mod:`.by_word`.
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
from privopt.declare.column_texts import REPORT, prefixed, texts_of
from privopt.declare.exact_text import exact_text
from privopt.errors import Fault, InputError, UsageError, cut, number_of
from privopt.interfaces import Guarantee
from privopt.ledger.batches import Coins, Digest
from privopt.numbers.sampling import Source
from privopt_tables.charge_rows import RowCharger
from privopt_tables.column_names import LeakyColumns, like_places, like_positions
from privopt_tables.find_positions import PositionColumn, RowSecrets
from privopt_tables.nearest_record import REASONS
from privopt_tables.options import describe_limits, format_counts
from privopt_tables.secret_columns import Secret

__all__ = ["SEEDED", "RowProtector"]

SEEDED: Final = "seeded"
"""The column that marks a table that a seed drew."""


@frozen(kw_only=True, eq=False)
class RowProtector(ABC):
    """Puts reports into tables in place of the secret, and counts the rows without a report.

    Attributes:
        secret: The columns that are omitted.
        positions: The positions of each row: the prefix of their report columns (None for none) and their columns.
        source: Source of random bytes.
        is_seeded: Whether the source is a seed, so that the reports are not private.
        coins: A batch's random bytes, with a stream of its own for each draw; None for ``source``.
        charger: Charges each row to its subject, before the secret is looked at; None if nothing is charged.
        refusals: Number of rows without a report so far, by reason.
        leaks: Columns whose values state the secret: those in ``secret.also`` are dropped, the others stay.
        leaky_columns: Columns that stay and were found to reveal the secret so far, whatever their names are.
    """

    secret: Secret
    positions: tuple[tuple[str | None, Secret], ...]
    source: Source = os.urandom
    is_seeded: bool = False
    coins: Coins | None = None
    charger: RowCharger | None = None
    refusals: Counter[str] = field(factory=Counter)
    leaks: tuple[PositionColumn, ...] = ()
    leaky_columns: LeakyColumns = field(init=False, factory=LeakyColumns)

    @property
    @abstractmethod
    def added_columns(self) -> tuple[str, ...]:
        """Names of the columns that are added to the table."""

    @property
    def report_columns(self) -> tuple[str, ...]:
        """Names of the columns of reports, one for each position."""
        return tuple(prefixed(prefix, REPORT) for prefix, _ in self.positions)

    @abstractmethod
    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Return rows with reports in place of the secret's columns, and count the rows without a report.

        Args:
            frame: Rows of the table.
            first: Number of the first of them in the whole table.
        """

    def row_secrets(self, frame: nw.DataFrame[Any]) -> list[RowSecrets]:
        """Return what must not occur in other columns of some rows: here their ids or sentences."""
        return [
            RowSecrets(positions=None, is_geographic=False, texts=(texts_of(frame[columns.columns[0]]).to_list(),))
            for _, columns in self.positions
        ]

    @property
    def price(self) -> str | None:
        """What a row costs its subject, and how many rows the limit allows; None if nothing is charged."""
        return None if self.charger is None else self.charger.price("place" if self.is_sticky else "row")

    @property
    def sequence(self) -> str | None:
        """What holds of all reports of a subject, in words; None if nothing is charged."""
        return None if self.charger is None else self.charger.sequence

    @property
    def is_sticky(self) -> bool:
        """Whether the first report of each subject's place is stored and repeated."""
        return self.charger is not None and self.charger.to.sticky

    @property
    def counts(self) -> dict[str, int]:
        """Further counts of ``apply --json``, by name."""
        return {}

    def check(self, names: list[str], table: str) -> None:
        """Refuse a table that lacks needed columns, or already has some that would be added.

        Raises:
            InputError: A fault for each column.
        """
        self.secret.check(names, table)
        if self.charger is not None:
            roles = {self.charger.subject: "whom each row is about"}
            if self.charger.time is not None:
                roles[self.charger.time] = "when each row was"
            self.secret.check_other_columns(roles, names, table)
        expected = "no such column (reports go there, or under a prefix)"
        faults = [
            Fault(table, f"column {name}", "a column of that name", expected)
            for name in self.added_columns
            if name in names and name not in (*self.secret.columns, *self.secret.also)
        ]
        if faults:
            raise InputError(faults)

    def add_rows(self, digest: Digest, frame: nw.DataFrame[Any], first: int) -> None:
        """Add rows to the digest of a batch: their numbers, secrets, subjects and times.

        Args:
            digest: The digest; it is changed in place.
            frame: Rows of the table.
            first: Number of the first of them in the whole table.
        """
        assert self.charger is not None  # a batch has a ledger
        subjects = [name or "" for name in self.charger.subjects(frame)]
        periods = [period or "" for period in self.charger.periods(frame)]
        secrets = [columns.bytes_of(frame) for _, columns in self.positions]
        rows = zip(subjects, periods, *secrets, strict=True)
        for number, (subject, period, *row_secrets) in enumerate(rows, start=first):
            digest.add(b"row", number.to_bytes(8, "big"), subject.encode("utf-8"), period.encode(), *row_secrets)

    def count_refusals(self, reason: Ints) -> None:
        """Count rows by the reason why they have no report.

        Args:
            reason: (B,) indices into :data:`REASONS`; -1 for rows with a report.
        """
        for index, count in enumerate(np.bincount(reason[reason >= 0], minlength=len(REASONS)).tolist()):
            if count:
                self.refusals[REASONS[index]] += count

    def replace_secret(self, frame: nw.DataFrame[Any], columns: Iterable[pl.Series]) -> nw.DataFrame[Any]:
        """Return rows with other columns in place of the secret's, and look for columns that reveal it."""
        backend = frame.implementation
        native_columns = [
            nw.from_native(column, series_only=True)
            if backend.is_polars()
            else nw.new_series(
                column.name, column.to_list(), nw.from_native(column, series_only=True).dtype, backend=backend
            )
            for column in columns
        ]
        public_frame = self.secret.without(frame)
        self.leaky_columns.look(public_frame, frame.select(*self.secret.columns))
        return public_frame.with_columns(*native_columns)

    def no_report_error(self, table: str) -> UsageError:
        """Return the error for a table without a single report; it says what was charged for it."""
        reasons = format_counts(self.refusals) or "it has no rows"
        skipped_rows = () if self.charger is None else self.charger.skipped_rows
        charge_count = 0 if self.charger is None else self.charger.charged
        charges = f"; charged all the same: {number_of(charge_count, 'row')}" if charge_count else ""
        return UsageError(f"{table}: no row could be reported: {'; '.join((reasons + charges, *skipped_rows))}")

    def notes(self, guarantee: Guarantee) -> tuple[str, ...]:
        """Return sentences that the publisher of such a table must know, given what the release promises."""
        sequence = () if self.sequence is None else (self.sequence,)
        return (*describe_limits(guarantee), *sequence, *_describe_several_positions(len(self.positions), guarantee))

    def warnings(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return sentences on what the table's owner must look at before publishing it.

        Args:
            names: The names of the table's columns before, and of its index.
        """
        named_elsewhere = {*self.secret.columns, *self.secret.also, *self.secret.geometries}
        copies = [name for name in self.leaky_columns.same if name not in named_elsewhere]
        named_elsewhere |= {leak.name for leak in self.leaks}
        remaining = [name for name in names if name not in {*named_elsewhere, *copies}]
        positions = [*like_positions(remaining), *self.leaky_columns.positions]
        places = [*like_places(remaining), *self.leaky_columns.places]
        return (
            *(() if self.charger is None else self.charger.skipped_rows),
            *(_leak_warning(leak, is_dropped=leak.name in self.secret.also) for leak in self.leaks),
            *_exposed_columns_warning(copies, "equal to what is protected, which nothing protects there"),
            *_exposed_columns_warning(self.secret.geometries, "of geometries, which nothing protects"),
            *_exposed_columns_warning(positions, "named like positions, which nothing protects"),
            *_exposed_columns_warning(places, "named like places, which may reveal where and which nothing protects"),
        )


def _describe_several_positions(count: int, guarantee: Guarantee) -> tuple[str, ...]:
    """Return a sentence on how the guarantees of a row's positions add up; nothing for a single position."""
    if count < 2:
        return ()
    epsilon = "" if guarantee.epsilon is None else f" epsilon {exact_text(Fraction(guarantee.epsilon))} each:"
    return (
        f"what holds of a row adds up over its {count} positions,{epsilon} between tables in "
        "which the same rows have usable positions, for a row is reported completely or not at all",
    )


def _leak_warning(leak: PositionColumn, *, is_dropped: bool) -> str:
    """Return a sentence on a column whose values state the secret, and on what became of it."""
    rows = f"{leak.rows:,} of {number_of(leak.sampled, 'row')} of a sample"
    if is_dropped:
        return f"column {cut(leak.name)} was dropped: it states the secret ({leak.form}) in {rows} (--keep keeps it)"
    return f"column {cut(leak.name)} stays and states the secret ({leak.form}) in {rows}: leave it out"


def _exposed_columns_warning(names: Sequence[str], reason: str) -> tuple[str, ...]:
    """Return a sentence on columns that reveal more than the reports do; nothing if there are none."""
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
