"""What protects rows of tables, in whatever way; and what does by a release that draws for itself, by ids alone."""

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
    """Puts reports into tables in place of the secret, and counts the rows that get none.

    Attributes:
        secret: the columns that are omitted.
        positions: of a row: the prefix of each one's added columns, None for nothing, and its own columns.
        source: of random bytes.
        marked: whether a seed is that source.
        coins: of a batch, from which each draw has a stream of its own; None for ``source``.
        charging: charges each row to its subject, before the secret is looked at; None to charge no one.
        refused: how often each reason has come so far.
        leaks: columns whose values state the secret: those in ``secret.also`` are dropped, the others stay.
        leaky_columns: columns that stay and reveal the secret whatever their names are, so far.
    """

    secret: Secret
    positions: tuple[tuple[str | None, Secret], ...]
    source: Source = os.urandom
    marked: bool = False
    coins: Coins | None = None
    charging: RowCharger | None = None
    refused: Counter[str] = field(factory=Counter)
    leaks: tuple[PositionColumn, ...] = ()
    leaky_columns: LeakyColumns = field(init=False, factory=LeakyColumns)

    @property
    @abstractmethod
    def added(self) -> tuple[str, ...]:
        """Name the columns that are added to the table."""

    @property
    def reports(self) -> tuple[str, ...]:
        """Names of the columns of reports, one a position."""
        return tuple(prefixed(prefix, REPORT) for prefix, _ in self.positions)

    @abstractmethod
    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Return the table without the secret's columns, with reports; what is refused has none, and is counted.

        Args:
            frame: rows of the table.
            first: number of the first of them in the whole table.
        """

    def row_secrets(self, frame: nw.DataFrame[Any]) -> list[RowSecrets]:
        """Return what must not occur in other columns of some rows: here their ids, or sentences."""
        return [
            RowSecrets(positions=None, is_geographic=False, texts=(texts_of(frame[columns.columns[0]]).to_list(),))
            for _, columns in self.positions
        ]

    @property
    def price(self) -> str | None:
        """What a row costs its subject, and how many rows the limit is enough for; None where nothing is charged."""
        return None if self.charging is None else self.charging.price("place" if self.keeps else "row")

    @property
    def sequence(self) -> str | None:
        """What holds of all reports of a subject, where that is counted."""
        return None if self.charging is None else self.charging.sequence

    @property
    def keeps(self) -> bool:
        """Whether the first report of each subject's place is kept and repeated."""
        return self.charging is not None and self.charging.to.sticky

    @property
    def counts(self) -> dict[str, int]:
        """What ``apply --json`` counts in addition to rows and refusals, by name."""
        return {}

    def check(self, names: list[str], table: str) -> None:
        """Refuse a table that lacks the secret's columns, or has some that are to be added.

        Raises:
            InputError: a fault for each.
        """
        self.secret.check(names, table)
        if self.charging is not None:
            when = {} if self.charging.time is None else {self.charging.time: "when each row was"}
            self.secret.check_other_columns({self.charging.subject: "whom each row is about", **when}, names, table)
        wanted = "no such column (reports go there, or under a prefix)"
        faults = [
            Fault(table, f"column {name}", "a column of that name", wanted)
            for name in self.added
            if name in names and name not in (*self.secret.columns, *self.secret.also)
        ]
        if faults:
            raise InputError(faults)

    def add_rows(self, digest: Digest, frame: nw.DataFrame[Any], first: int) -> None:
        """Add rows to the digest of a batch: their numbers, secrets, subjects and times.

        Args:
            digest: is changed.
            frame: rows of the table.
            first: number of the first of them in the whole table.
        """
        assert self.charging is not None  # a batch has a ledger
        whose = [name or "" for name in self.charging.subjects(frame)]
        when = [period or "" for period in self.charging.periods(frame)]
        secrets = [columns.bytes_of(frame) for _, columns in self.positions]
        for number, (name, period, *of_row) in enumerate(zip(whose, when, *secrets, strict=True), start=first):
            digest.add(b"row", number.to_bytes(8, "big"), name.encode("utf-8"), period.encode(), *of_row)

    def refuse(self, reason: Ints) -> None:
        """Count rows by why they have no report, as places in :data:`REASONS`; -1 of those that have one."""
        for why, count in enumerate(np.bincount(reason[reason >= 0], minlength=len(REASONS)).tolist()):
            if count:
                self.refused[REASONS[why]] += count

    def with_columns(self, frame: nw.DataFrame[Any], columns: Iterable[pl.Series]) -> nw.DataFrame[Any]:
        """Return rows without the secret's columns and with others, and look at what stays."""
        backend = frame.implementation
        made = [
            nw.from_native(column, series_only=True)
            if backend.is_polars()
            else nw.new_series(
                column.name, column.to_list(), nw.from_native(column, series_only=True).dtype, backend=backend
            )
            for column in columns
        ]
        left = self.secret.without(frame)
        self.leaky_columns.look(left, frame.select(*self.secret.columns))
        return left.with_columns(*made)

    def no_report_error(self, table: str) -> UsageError:
        """Return the error of a table without a single report, and what was charged for it."""
        why = format_counts(self.refused) or "it has no rows"
        charged = 0 if self.charging is None else self.charging.charged
        all_the_same = f"; charged all the same: {number_of(charged, 'row')}" if charged else ""
        return UsageError(f"{table}: no row could be reported: {why}{all_the_same}")

    def notes(self, guarantee: Guarantee) -> tuple[str, ...]:
        """Return what the publisher of such a table must know, a sentence each, from what the release promises."""
        sequence = () if self.sequence is None else (self.sequence,)
        return (*describe_limits(guarantee), *sequence, *_several(len(self.positions), guarantee))

    def warnings(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return what the table's owner must look at before publishing it, a sentence each.

        Args:
            names: of the table's columns before, and of its index.
        """
        gone = {*self.secret.columns, *self.secret.also, *self.secret.geometries}
        copies = [name for name in self.leaky_columns.same if name not in gone]
        gone |= {leak.name for leak in self.leaks}
        left = [name for name in names if name not in {*gone, *copies}]
        positions = [*like_positions(left), *self.leaky_columns.positions]
        places = [*like_places(left), *self.leaky_columns.places]
        return (
            *(_leak_warning(leak, is_dropped=leak.name in self.secret.also) for leak in self.leaks),
            *_stays(copies, "equal to what is protected, which nothing protects there"),
            *_stays(self.secret.geometries, "of geometries, which nothing protects"),
            *_stays(positions, "named like positions, which nothing protects"),
            *_stays(places, "named like places, which may reveal where and which nothing protects"),
        )


def _several(count: int, guarantee: Guarantee) -> tuple[str, ...]:
    """Say what holds of a row with several positions, in a sentence; nothing of one."""
    if count < 2:
        return ()
    epsilon = "" if guarantee.epsilon is None else f" epsilon {exact_text(Fraction(guarantee.epsilon))} each:"
    return (
        f"what holds of a row adds up over its {count} positions,{epsilon} between tables in "
        "which the same rows have usable positions, for a row is reported completely or not at all",
    )


def _leak_warning(leak: PositionColumn, *, is_dropped: bool) -> str:
    """Say in a sentence that a column's values state the secret, and what became of it."""
    rows = f"{leak.rows:,} of {number_of(leak.sampled, 'row')} of a sample"
    if is_dropped:
        return f"column {cut(leak.name)} was dropped: it states the secret ({leak.form}) in {rows} (--keep keeps it)"
    return f"column {cut(leak.name)} stays and states the secret ({leak.form}) in {rows}: leave it out"


def _stays(names: Sequence[str], reason: str) -> tuple[str, ...]:
    """Say in a sentence that columns reveal more than their row's report does; empty without such columns."""
    if not names:
        return ()
    listed = ", ".join(map(cut, names[:10])) + (", ..." if len(names) > 10 else "")
    found, them = (
        (f"columns {listed} stay as they are and are", "them")
        if len(names) > 1
        else (f"column {listed} stays as it is and is", "it")
    )
    return (f"{found} {reason}: leave {them} out, or protect {them} too (--position takes several positions of a row)",)
