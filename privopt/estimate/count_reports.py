"""Count the reports in tables, and read tables of groups and noisy counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from attrs import define, field

from privopt.arrays import DataFrame, Floats, Ints
from privopt.declare.column_texts import FIRST, KEPT, REPORT, STICKY, naming, number_ids, subjects_of, texts_of
from privopt.declare.name_forms import normal_column
from privopt.declare.problems_in_memory import text_frame
from privopt.declare.schema import File
from privopt.declare.table_files import TableSource
from privopt.declare.tables import Column, each_once, read_table
from privopt.errors import Fault, Faults, InputError
from privopt.estimate.shares import ReportCounts
from privopt.interfaces import Channel, NoisyCounts


@define
class Counter:
    """A counter of one release's reports in a table read in batches.

    Attributes:
        channel: The channel whose outputs are counted.
        table: The table's name, used in faults.
        column: The column that contains the reports.
        subject: The column that names each report's subject. Only a subject's first report counts, because several
            reports about one subject are not independent. In traces, the first report is the earliest in time, because
            earlier reports determine whether a later one is redrawn.
        counted_subjects: The subjects who already have a counted report. The counters of several releases share this
            set, because reports about one subject from two releases are not independent either.
        report_counts: The counts so far.
        _rows: The number of rows read so far, for the row numbers in faults.
        _first_column: The column that marks each trace's first report, or None if the reports are not from traces.
    """

    channel: Channel
    table: str
    column: str = field(converter=normal_column)
    subject: str | None = field(converter=normal_column)
    counted_subjects: set[str]
    report_counts: ReportCounts = field(init=False)
    _rows: int = 0
    _first_column: str | None = None

    def __attrs_post_init__(self) -> None:
        self.report_counts = ReportCounts(
            channel=self.channel, counts=np.zeros(len(self.channel.outputs), dtype=np.int64)
        )

    def check_columns(self, names: Sequence[str]) -> None:
        """Check that a table has the required columns, and that no repeated reports would be counted.

        In addition to the reports, ``apply`` writes columns that mark reports repeated for the same place (sticky),
        reports repeated in a trace (kept), and the first report of each trace. These columns are recognised by their
        names. A table with repeated reports must have a subject column and, for traces, the column that marks first
        reports.

        Args:
            names: The names of the table's columns.

        Raises:
            InputError: A required column is missing, or a column marks repeated reports that would be counted. There is
                one fault for each such column.
        """
        required = [name for name in (self.column, self.subject) if name is not None]
        faults = [
            Fault(self.table, "header", f"columns {', '.join(names)}", f"a column {name}")
            for name in required
            if name not in names
        ]
        # The columns of marks have the same prefix as the report column, such as start_ in start_report.
        prefix = self.column.removesuffix(REPORT) if self.column.endswith(f"_{REPORT}") else ""
        # If the report column was renamed, its marks do not share its prefix, so the marks without a prefix are used.
        if REPORT not in names and not any(f"{prefix}{mark}" in names for mark in (STICKY, KEPT, FIRST)):
            prefix = ""
        sticky_column, kept_column, first_column = (f"{prefix}{mark}" for mark in (STICKY, KEPT, FIRST))
        repeats = {sticky_column: "the first of a subject's place", kept_column: "the last of a subject"}
        for name, repeated_part in repeats.items() if self.subject is None else ():
            if name in names:
                actual = f"reports that repeat {repeated_part}, which are not independent"
                remedy = "the subject of each report (--subject), so that one of each counts"
                faults.append(Fault(self.table, f"column {name}", actual, remedy))
        if kept_column in names and first_column not in names:
            actual = f"reports of traces without a column {first_column}"
            remedy = "the table as apply wrote it, where one report of each counts"
            faults.append(Fault(self.table, f"column {kept_column}", actual, remedy))
        if faults:
            raise InputError(faults)
        self._first_column = first_column if kept_column in names else None

    def count_rows(self, frame: pl.DataFrame) -> None:
        """Count the reports in a batch of rows.

        Raises:
            InputError: A report is not an output of the release, or has no subject even though there is a subject
                column.
        """
        numbers = self.number_reports(frame)
        has_report = numbers >= 0
        is_first = self.mark_counted_rows(frame, has_report)
        self.pass_rows(frame)
        previous, counted_numbers = self.report_counts, numbers.filter(has_report & is_first).to_numpy()
        self.report_counts = ReportCounts(
            channel=self.channel,
            counts=previous.counts + np.bincount(counted_numbers, minlength=len(self.channel.outputs)),
            skipped=previous.skipped + int((~has_report).sum()),
            repeated=previous.repeated + int((has_report & ~is_first).sum()),
        )

    def number_reports(self, frame: pl.DataFrame) -> pl.Series:
        """Return the index of each row's report among the release's outputs, or -1 for rows without a report.

        Raises:
            InputError: A report is not an output of the release.
        """
        output_numbers = {name: k for k, name in enumerate(self.channel.outputs)}
        report = self._read_texts(frame, self.column)
        # Unknown outputs get the index -1, and so do rows without a report.
        numbers = pl.Series(number_ids(report, output_numbers))
        self._refuse_rows(
            report.is_not_null() & (numbers < 0),
            self.column,
            # The message does not quote the value. It was not drawn from the release, so it may be a secret from a
            # column that was named by mistake.
            lambda row: "an output that the release does not have",
            f"one of the release's {len(output_numbers):,} outputs, or nothing",
        )
        return numbers

    def pass_rows(self, frame: pl.DataFrame) -> None:
        """Add a batch's length to the number of rows read, so that faults in later batches give correct row numbers."""
        self._rows += len(frame)

    def _read_texts(self, frame: pl.DataFrame, column: str) -> pl.Series:
        """Return a column's values as strings. Conversion errors name the table."""
        with naming(self.table):
            return texts_of(nw.from_native(frame[column], series_only=True))

    def _refuse_rows(self, is_wrong: pl.Series, column: str, describe: Callable[[int], str], expectation: str) -> None:
        """Raise an InputError for the first invalid row in a batch, if any.

        Args:
            is_wrong: A mask of the invalid rows in the batch.
            column: The column that contains the invalid value.
            describe: A function that takes a row's index in the batch and describes what the row contains.
            expectation: A description of the values allowed in the column.
        """
        rows = is_wrong.arg_true()
        if len(rows):
            # Rows are counted from 1, and the header is row 1.
            where = f"row {self._rows + int(rows[0]) + 2:,}, column {column}"
            raise InputError(
                [Fault(self.table, where, f"{describe(int(rows[0]))} ({len(rows):,} such rows)", expectation)]
            )

    def mark_counted_rows(self, frame: pl.DataFrame, has_report: pl.Series) -> pl.Series:
        """Return a mask of the rows whose reports are counted: those with the first report about their subject.

        In traces, the first report is the earliest in time. Otherwise, it is the first one in the table. Without a
        subject column, all reports are counted.

        Args:
            frame: A batch of rows.
            has_report: A mask of the rows that have a report.

        Raises:
            InputError: A report has no subject even though there is a subject column, or a trace's first-report mark is
                neither true nor false.
        """
        if self.subject is None:
            return has_report
        with naming(self.table):
            names = subjects_of(nw.from_native(frame[self.subject], series_only=True)).fill_null("")
        has_no_subject = has_report & (names == "")
        self._refuse_rows(
            has_no_subject, self.subject, lambda row: "no subject with a report", "the subject of each report"
        )
        # In a trace, only the row marked as the first report can count, even if it comes later in the table.
        if self._first_column is not None:
            marks = frame[self._first_column].cast(pl.String, strict=False).str.to_lowercase().fill_null("")
            is_invalid = ~marks.is_in(["true", "false"])
            self._refuse_rows(is_invalid, self._first_column, lambda row: "neither", "true or false")
            has_report = has_report & (marks == "true")
        # This needs a loop, because a counted subject no longer counts in later rows, batches or releases.
        is_first = []
        for name, counts in zip(names.to_list(), has_report.to_list(), strict=True):
            is_first.append(counts and name not in self.counted_subjects)
            if counts:
                self.counted_subjects.add(name)
        return pl.Series(is_first, dtype=pl.Boolean)


def count_tables(
    tables: Sequence[tuple[Channel, TableSource]], *, column: str, subject: str | None
) -> list[ReportCounts]:
    """Count the reports from one or more releases, and return one result for each release.

    Args:
        tables: Each release's channel, and a table of reports drawn from it.
        column: The column that contains the reports.
        subject: The column that names each report's subject, or None if there is no such column. Only a subject's first
            report counts.

    Raises:
        InputError: A column is missing, reports are repeated, or a row has an unknown output or no subject.
    """
    counted_subjects: set[str] = set()
    results = []
    for channel, source in tables:
        counter = Counter(
            channel=channel, table=source.name, column=column, subject=subject, counted_subjects=counted_subjects
        )
        counter.check_columns(source.columns)
        for frame in source.batches():
            counter.count_rows(to_polars(frame))
        results.append(counter.report_counts)
    return results


def to_polars(frame: nw.DataFrame[Any]) -> DataFrame:
    """Convert a table to a polars data frame.

    If a column has mixed types, all columns are converted to strings. Otherwise, Arrow would raise an error that quotes
    a value.
    """
    try:
        return frame.to_polars()
    except (ValueError, TypeError, OverflowError, NotImplementedError):
        return text_frame(frame)


def noisy_counts_of(channel: NoisyCounts, path: Path, column: str) -> Floats:
    """Read the noisy counts from a table with an ``id`` column and the count column ``column``.

    The result has shape (N,), in the order of the channel's N inputs. A row with an unknown id and an empty count is
    skipped, because it belongs to a site where nobody is counted.

    Args:
        channel: The release's channel, which provides the inputs' ids.
        path: The path of the table.
        column: The name of the count column.

    Raises:
        InputError: An input's id is missing or repeated, an id with a count is unknown, or an input's count is not a
            finite number.
    """
    file, column = File(name=path.name, path=path), normal_column(column)
    # Empty cells are read as NaN, so that the faults below can be limited to the ids of inputs.
    count_column = Column(name="count", label=column, unit="people", blank=math.nan)
    table = read_table(file, [Column(name="id", kind="id"), count_column])
    # A row is skipped only if its count is empty and its id unknown. An empty count for an input is a fault.
    is_kept = ~(np.isnan(table["count"]) & ~np.isin(table["id"], channel.inputs))
    faults, missing_rows = Faults(), np.flatnonzero(is_kept & np.isnan(table["count"])).tolist()
    faults.add_rows(file.name, column, missing_rows, lambda row: "nothing", "a finite number (people)")
    faults.check()
    # each_once returns each id's index among the inputs, and requires every input to occur exactly once.
    counts = np.zeros(len(channel.inputs))
    counts[each_once(file, table["id"][is_kept], channel.inputs)] = table["count"][is_kept]
    return counts


def read_groups(path: Path, ids: Sequence[str]) -> dict[str, Ints]:
    """Read the groups of records from a table with the columns ``id`` and ``group``.

    Args:
        path: The path of the table.
        ids: The ids of the release's records.

    Returns:
        A dict from each group's name to the indices of its records in ``ids``, in the order in which the groups first
        appear.
    """
    file = File(name=path.name, path=path)
    table = read_table(file, [Column(name="id", kind="id"), Column(name="group", kind="id")])
    return groups_of(dict(zip(each_once(file, table["id"], ids).tolist(), table["group"].tolist(), strict=True)))


def groups_of(group: Mapping[int, str]) -> dict[str, Ints]:
    """Return the indices of each group's records, keyed by group name.

    Args:
        group: The name of each record's group, keyed by the record's index.
    """
    members_by_group: dict[str, list[int]] = {}
    for number, name in group.items():
        members_by_group.setdefault(name, []).append(number)
    return {name: np.array(members, dtype=np.int64) for name, members in members_by_group.items()}
