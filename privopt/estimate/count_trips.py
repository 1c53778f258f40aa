"""Count trips: rows with two independent reports from one release, one about a trip's start and one about its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from attrs import define, field, frozen
from scipy.sparse import csr_array

from privopt.arrays import Ints
from privopt.declare.column_texts import FIRST, KEPT, REPORT, STICKY
from privopt.declare.name_forms import normal_column
from privopt.declare.table_files import TableSource
from privopt.errors import Fault, InputError
from privopt.estimate.count_reports import Counter, to_polars
from privopt.interfaces import Channel


@frozen(kw_only=True)
class TripColumns:
    """The names of the relevant columns in a table of trips.

    Attributes:
        start, end: The columns with the reports for each trip's start and end.
        subject: The column that names each trip's subject, or None if there is no such column. Only a subject's first
            trip with both reports counts.
    """

    start: str
    end: str
    subject: str | None = None


@frozen(kw_only=True, eq=False)
class TripCounts:
    """The number of trips for each pair of outputs reported for a start and an end.

    Attributes:
        channel: The release's channel.
        counts: (K, K) The number of trips for each pair of the K outputs, as a sparse array. Rows are the outputs
            reported for starts, and columns are those reported for ends.
        skipped: The number of rows with a missing report.
        repeated: The number of trips that were omitted because their subject already had a counted trip.
    """

    channel: Channel
    counts: csr_array
    skipped: int = 0
    repeated: int = 0

    @property
    def n(self) -> int:
        """The number of counted trips."""
        return int(self.counts.sum())

    def margin(self, end: int) -> Ints:
        """Return how often each output was reported for starts or for ends of trips, as an array of shape (outputs,).

        Args:
            end: 0 for the starts of trips, 1 for their ends.
        """
        counts: Ints = np.asarray(self.counts.sum(axis=1 - end)).ravel()
        return counts


@define
class _TripCounter:
    """A counter of the trips in a table read in batches.

    Attributes:
        start, end: The counters that check and number the reports of starts and of ends.
        pair_counts: The number of trips counted so far for each pair of outputs. A pair's key is ``s * K + e``, where s
            and e are the indices of the outputs for start and end, and K is the number of outputs.
        skipped: The number of rows with a missing report so far.
        repeated: The number of trips omitted so far because their subject already had a counted trip.
    """

    start: Counter
    end: Counter
    pair_counts: dict[int, int] = field(factory=dict)
    skipped: int = 0
    repeated: int = 0

    def count_rows(self, frame: pl.DataFrame) -> None:
        """Count the trips in a batch of rows.

        Raises:
            InputError: A report is not an output of the release, or a trip has no subject even though there is a
                subject column.
        """
        starts, ends = self.start.number_reports(frame), self.end.number_reports(frame)
        has_both = (starts >= 0) & (ends >= 0)
        is_counted = has_both & self.start.mark_counted_rows(frame, has_both)
        for counter in (self.start, self.end):
            counter.pass_rows(frame)
        self.skipped += int((~has_both).sum())
        self.repeated += int((has_both & ~is_counted).sum())
        outputs = len(self.start.channel.outputs)
        pairs = starts.filter(is_counted).to_numpy().astype(np.int64) * outputs + ends.filter(is_counted).to_numpy()
        for pair, count in zip(*(part.tolist() for part in np.unique(pairs, return_counts=True)), strict=True):
            self.pair_counts[pair] = self.pair_counts.get(pair, 0) + count


def count_trips(channel: Channel, source: TableSource, columns: TripColumns) -> TripCounts:
    """Count the trips in a table for each pair of reported outputs.

    Args:
        channel: The channel of the release from which both reports of a trip were drawn.
        source: The table.
        columns: The names of the table's report and subject columns.

    Raises:
        InputError: A column is missing, reports were not drawn independently, or a row has an unknown output or no
            subject.
    """
    check_trip_columns(source.name, source.columns, columns)
    start_counter, end_counter = (
        Counter(channel=channel, table=source.name, column=column, subject=columns.subject, counted_subjects=set())
        for column in (columns.start, columns.end)
    )
    counter = _TripCounter(start=start_counter, end=end_counter)
    for frame in source.batches():
        counter.count_rows(to_polars(frame))
    outputs = len(channel.outputs)
    pairs = np.fromiter(counter.pair_counts, dtype=np.int64, count=len(counter.pair_counts))
    values = np.fromiter(counter.pair_counts.values(), dtype=np.int64, count=len(counter.pair_counts))
    counts: Any = csr_array((values, (pairs // outputs, pairs % outputs)), shape=(outputs, outputs))
    return TripCounts(channel=channel, counts=counts, skipped=counter.skipped, repeated=counter.repeated)


def check_trip_columns(table: str, names: tuple[str, ...], columns: TripColumns) -> None:
    """Reject a table if a column is missing, or if a trip's two reports may not be independent.

    Reports that are reused for the same place (``--sticky``) or within a trace are not independent: a trip that ends
    where it began would have the same report twice.

    Args:
        table: The table's name, used in faults.
        names: The names of the table's columns.
        columns: The columns to read.

    Raises:
        InputError: A column is missing, is given twice, or marks repeated reports. There is one fault for each such
            column.
    """
    start_name, end_name = normal_column(columns.start), normal_column(columns.end)
    roles = {"--from": start_name, "--to": end_name}
    if columns.subject is not None:
        roles["--subject"] = normal_column(columns.subject)
    faults = [
        Fault(table, "header", f"columns {', '.join(names)}", f"a column {name} ({option})")
        for option, name in roles.items()
        if name not in names
    ]
    if start_name == end_name:
        faults.append(Fault(table, f"column {start_name}", "the same column for --from and --to", "two columns"))
    # Marks without a prefix belong to a column "report" or, if there is no such column, to renamed columns.
    prefixes = {name.removesuffix(REPORT) if name.endswith(f"_{REPORT}") else "" for name in (start_name, end_name)}
    for prefix in sorted(prefixes | (set() if REPORT in names else {""})):
        faults += [
            Fault(
                table,
                f"column {prefix}{mark}",
                "reports that are kept and repeated, so that the two of a trip are not independent",
                "reports drawn for each trip alone (apply without --sticky)",
            )
            for mark in (STICKY, KEPT, FIRST)
            if f"{prefix}{mark}" in names
        ]
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
