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
    """Counts reports, some rows after others.

    Attributes:
        channel: whose outputs they are.
        table: name of the table, for faults.
        column: with the reports.
        subject: column of who sent each; of each only the first report counts, for several are not independent. Of
            traces it is the first in time: which of the others are fresh depends on the reports before.
        known: subjects of the reports that count; shared by the counters of several releases, for one person's reports
            to two of them are not independent either.
    """

    channel: Channel
    table: str
    column: str = field(converter=normal_column)
    subject: str | None = field(converter=normal_column)
    known: set[str]
    found: ReportCounts = field(init=False)
    _rows: int = 0
    _first_column: str | None = None

    def __attrs_post_init__(self) -> None:
        self.found = ReportCounts(channel=self.channel, counts=np.zeros(len(self.channel.outputs), dtype=np.int64))

    def check(self, names: Sequence[str]) -> None:
        """Refuse a table without the columns, or with reports that repeat others and no column of subjects."""
        wanted = [name for name in (self.column, self.subject) if name is not None]
        faults = [
            Fault(self.table, "header", f"columns {', '.join(names)}", f"a column {name}")
            for name in wanted
            if name not in names
        ]
        own = self.column.removesuffix(REPORT) if self.column.endswith(f"_{REPORT}") else ""
        if REPORT not in names and not any(f"{own}{mark}" in names for mark in (STICKY, KEPT, FIRST)):
            own = ""  # a column that was renamed: the marks next to it are those of its reports
        sticky, kept, first = (f"{own}{mark}" for mark in (STICKY, KEPT, FIRST))
        repeats = {sticky: "the first of a subject's place", kept: "the last of a subject"}
        for name, which in repeats.items() if self.subject is None else ():
            if name in names:
                found = f"reports that repeat {which}, which are not independent"
                cure = "the subject of each report (--subject), so that one of each counts"
                faults.append(Fault(self.table, f"column {name}", found, cure))
        if kept in names and first not in names:
            found = f"reports of traces without a column {first}"
            cure = "the table as apply wrote it, where one report of each counts"
            faults.append(Fault(self.table, f"column {kept}", found, cure))
        if faults:
            raise InputError(faults)
        self._first_column = first if kept in names else None

    def add(self, frame: pl.DataFrame) -> None:
        """Count rows.

        Raises:
            InputError: an output that the release does not have, or a report without a subject where subjects are asked
                for.
        """
        place = {name: k for k, name in enumerate(self.channel.outputs)}
        report = self._texts(frame, self.column)
        there = report.is_not_null()
        at = report.replace_strict(place, default=-1, return_dtype=pl.Int64)
        unknown = there & (at < 0)
        self._refuse(
            unknown,
            self.column,
            lambda row: f"{show(str(report[row]))}, an output that the release does not have",
            f"one of the release's {len(place):,} outputs, or nothing",
        )
        first = self._first(frame, there)
        self._rows += len(frame)
        before, kept = self.found, at.filter(there & first).to_numpy()
        self.found = ReportCounts(
            channel=self.channel,
            counts=before.counts + np.bincount(kept, minlength=len(place)),
            skipped=before.skipped + int((~there).sum()),
            repeated=before.repeated + int((there & ~first).sum()),
        )

    def _texts(self, frame: pl.DataFrame, column: str) -> pl.Series:
        with naming(self.table):
            return texts_of(nw.from_native(frame[column], series_only=True))

    def _refuse(self, wrong: pl.Series, column: str, describe: Callable[[int], str], wanted: str) -> None:
        """Refuse a table by its first row that is wrong; ``describe`` says what is in it."""
        rows = wrong.arg_true()
        if len(rows):
            where = f"row {self._rows + int(rows[0]) + 2:,}, column {column}"
            raise InputError([Fault(self.table, where, f"{describe(int(rows[0]))} ({len(rows):,} such rows)", wanted)])

    def _first(self, frame: pl.DataFrame, there: pl.Series) -> pl.Series:
        """Mark rows whose report is the first of their subject, in the table or, of traces, in time."""
        if self.subject is None:
            return there
        with naming(self.table):
            names = subjects_of(nw.from_native(frame[self.subject], series_only=True)).fill_null("")
        nobody = there & (names == "")
        self._refuse(nobody, self.subject, lambda row: "no subject with a report", "the subject of each report")
        if self._first_column is not None:
            said = frame[self._first_column].cast(pl.String, strict=False).str.to_lowercase().fill_null("")
            odd = ~said.is_in(["true", "false"])
            self._refuse(odd, self._first_column, lambda row: "neither", "true or false")
            there = there & (said == "true")
        made = []
        for name, counts in zip(names.to_list(), there.to_list(), strict=True):
            made.append(counts and name not in self.known)
            if counts:
                self.known.add(name)
        return pl.Series(made, dtype=pl.Boolean)


def counted(tables: Sequence[tuple[Channel, TableSource]], *, column: str, subject: str | None) -> list[ReportCounts]:
    """Return the reports of several releases.

    Args:
        tables: of each the channel, and a table of its reports.
        column, subject: as of :class:`Counter`.
    """
    known: set[str] = set()
    made = []
    for channel, source in tables:
        counter = Counter(channel=channel, table=source.name, column=column, subject=subject, known=known)
        counter.check(source.columns)
        for frame in source.batches():
            counter.add(frame.to_polars())
        made.append(counter.found)
    return made


def noisy_counts_of(channel: NoisyCounts, path: Path, column: str) -> Floats:
    """Read (N,) noisy counts, in the order of the inputs, from a table with columns id and ``column``.

    Rows of other ids whose count is empty are omitted: sites where no one is counted.
    """
    file, column = File(name=path.name, path=path), normal_column(column)
    counted = Column(name="count", label=column, unit="people", blank=math.nan)
    table = read_table(file, [Column(name="id", kind="id"), counted])
    kept = ~(np.isnan(table["count"]) & ~np.isin(table["id"], channel.inputs))
    faults, lost = Faults(), np.flatnonzero(kept & np.isnan(table["count"])).tolist()
    faults.add_rows(file.name, column, lost, lambda row: "nothing", "a finite number (people)")
    faults.check()
    counts = np.zeros(len(channel.inputs))
    counts[each_once(file, table["id"][kept], channel.inputs)] = table["count"][kept]
    return counts


def read_groups(path: Path, ids: Sequence[str]) -> dict[str, Ints]:
    """Return records by group, from a table id,group; groups in the order in which they come."""
    file = File(name=path.name, path=path)
    table = read_table(file, [Column(name="id", kind="id"), Column(name="group", kind="id")])
    return groups_of(dict(zip(each_once(file, table["id"], ids).tolist(), table["group"].tolist(), strict=True)))


def groups_of(group: Mapping[int, str]) -> dict[str, Ints]:
    """Return records by group, from the group of each record's place."""
    made: dict[str, list[int]] = {}
    for place, name in group.items():
        made.setdefault(name, []).append(place)
    return {name: np.array(places, dtype=np.int64) for name, places in made.items()}
