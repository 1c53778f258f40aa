"""Count reports in tables, from files or in memory, and read groups and priors for an estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import narwhals as nw
import numpy as np
import polars as pl
from attrs import define, field

from privopt.arrays import Floats, Ints
from privopt.declare.column_texts import FIRST, KEPT, REPORT, STICKY, naming, subjects_of, texts_of
from privopt.declare.name_forms import normal_column
from privopt.declare.schema import File, show
from privopt.declare.table_files import TableSource
from privopt.declare.tables import Column, each_once, read_table
from privopt.errors import Fault, Faults, InputError
from privopt.estimate.shares import ReportCounts
from privopt.interfaces import Channel, NoisyCounts


@define
class Counter:
    """Counts the reports of one release, batch by batch.

    Attributes:
        channel: whose outputs they are.
        table: name of the table, for faults.
        column: with the reports.
        subject: column of who sent each; of each only the first report counts, for several are not independent. Of
            traces it is the first in time: which of the others are fresh depends on the reports before.
        counted_subjects: subjects of the reports that count. The counters of several releases share it, because one
            person's reports to two of them are not independent either.
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
        """Refuse a table that lacks the columns, or whose reports repeat others without a column of subjects."""
        required = [name for name in (self.column, self.subject) if name is not None]
        faults = [
            Fault(self.table, "header", f"columns {', '.join(names)}", f"a column {name}")
            for name in required
            if name not in names
        ]
        prefix = self.column.removesuffix(REPORT) if self.column.endswith(f"_{REPORT}") else ""
        # A renamed report column has no prefix in common with its marks: then the marks next to it are taken.
        if REPORT not in names and not any(f"{prefix}{mark}" in names for mark in (STICKY, KEPT, FIRST)):
            prefix = ""  # a column that was renamed: the marks next to it are those of its reports
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
        """Count the reports of a batch of rows.

        Raises:
            InputError: an output that the release does not have, or a report without a subject where subjects are asked
                for.
        """
        output_numbers = {name: k for k, name in enumerate(self.channel.outputs)}
        report = self._read_texts(frame, self.column)
        has_report = report.is_not_null()
        numbers = report.replace_strict(output_numbers, default=-1, return_dtype=pl.Int64)
        unknown = has_report & (numbers < 0)
        self._refuse_rows(
            unknown,
            self.column,
            lambda row: f"{show(str(report[row]))}, an output that the release does not have",
            f"one of the release's {len(output_numbers):,} outputs, or nothing",
        )
        is_first = self._mark_counted_rows(frame, has_report)
        self._rows += len(frame)
        previous, counted_numbers = self.report_counts, numbers.filter(has_report & is_first).to_numpy()
        self.report_counts = ReportCounts(
            channel=self.channel,
            counts=previous.counts + np.bincount(counted_numbers, minlength=len(output_numbers)),
            skipped=previous.skipped + int((~has_report).sum()),
            repeated=previous.repeated + int((has_report & ~is_first).sum()),
        )

    def _read_texts(self, frame: pl.DataFrame, column: str) -> pl.Series:
        """Read a column as texts; faults name the table."""
        with naming(self.table):
            return texts_of(nw.from_native(frame[column], series_only=True))

    def _refuse_rows(self, is_wrong: pl.Series, column: str, describe: Callable[[int], str], expectation: str) -> None:
        """Refuse a table by its first wrong row. ``describe`` returns the row's content."""
        rows = is_wrong.arg_true()
        if len(rows):
            where = f"row {self._rows + int(rows[0]) + 2:,}, column {column}"
            raise InputError(
                [Fault(self.table, where, f"{describe(int(rows[0]))} ({len(rows):,} such rows)", expectation)]
            )

    def _mark_counted_rows(self, frame: pl.DataFrame, has_report: pl.Series) -> pl.Series:
        """Mark the rows whose report counts: the first of their subject in the table or, for traces, in time."""
        if self.subject is None:
            return has_report
        with naming(self.table):
            names = subjects_of(nw.from_native(frame[self.subject], series_only=True)).fill_null("")
        has_no_subject = has_report & (names == "")
        self._refuse_rows(
            has_no_subject, self.subject, lambda row: "no subject with a report", "the subject of each report"
        )
        if self._first_column is not None:
            marks = frame[self._first_column].cast(pl.String, strict=False).str.to_lowercase().fill_null("")
            is_invalid = ~marks.is_in(["true", "false"])
            self._refuse_rows(is_invalid, self._first_column, lambda row: "neither", "true or false")
            has_report = has_report & (marks == "true")
        # A loop, since each subject that counts changes what counts in later rows, batches and releases.
        is_first = []
        for name, counts in zip(names.to_list(), has_report.to_list(), strict=True):
            is_first.append(counts and name not in self.counted_subjects)
            if counts:
                self.counted_subjects.add(name)
        return pl.Series(is_first, dtype=pl.Boolean)


def count_tables(
    tables: Sequence[tuple[Channel, TableSource]], *, column: str, subject: str | None
) -> list[ReportCounts]:
    """Count the reports of several releases.

    Args:
        tables: of each the channel, and a table of its reports.
        column, subject: as of :class:`Counter`.
    """
    counted_subjects: set[str] = set()
    results = []
    for channel, source in tables:
        counter = Counter(
            channel=channel, table=source.name, column=column, subject=subject, counted_subjects=counted_subjects
        )
        counter.check_columns(source.columns)
        for frame in source.batches():
            counter.count_rows(frame.to_polars())
        results.append(counter.report_counts)
    return results


def noisy_counts_of(channel: NoisyCounts, path: Path, column: str) -> Floats:
    """Read (N,) noisy counts, in the order of the inputs, from a table with columns id and ``column``.

    Rows of other ids whose count is empty are omitted: sites where no one is counted.
    """
    file, column = File(name=path.name, path=path), normal_column(column)
    count_column = Column(name="count", label=column, unit="people", blank=math.nan)
    table = read_table(file, [Column(name="id", kind="id"), count_column])
    is_kept = ~(np.isnan(table["count"]) & ~np.isin(table["id"], channel.inputs))
    faults, missing_rows = Faults(), np.flatnonzero(is_kept & np.isnan(table["count"])).tolist()
    faults.add_rows(file.name, column, missing_rows, lambda row: "nothing", "a finite number (people)")
    faults.check()
    counts = np.zeros(len(channel.inputs))
    counts[each_once(file, table["id"][is_kept], channel.inputs)] = table["count"][is_kept]
    return counts


def read_groups(path: Path, ids: Sequence[str]) -> dict[str, Ints]:
    """Read the records of each group from a table id,group, in order of first appearance."""
    file = File(name=path.name, path=path)
    table = read_table(file, [Column(name="id", kind="id"), Column(name="group", kind="id")])
    return groups_of(dict(zip(each_once(file, table["id"], ids).tolist(), table["group"].tolist(), strict=True)))


def groups_of(group: Mapping[int, str]) -> dict[str, Ints]:
    """Return the records of each group, from the group of each record's number."""
    places_by_group: dict[str, list[int]] = {}
    for number, name in group.items():
        places_by_group.setdefault(name, []).append(number)
    return {name: np.array(places, dtype=np.int64) for name, places in places_by_group.items()}
