"""Draw reports along traces, in which a report is repeated while the subject stays near it.

A subject's rows are processed in chronological order. Charges depend only on which rows a subject has and on its
earlier reports, and the published table shows both. A charge may therefore be made for a row without a position. It
then covers the subject's next row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final, Self

import narwhals as nw
import numpy as np
import polars as pl
from attrs import define, evolve, field

from privopt.arrays import Bools, Ints
from privopt.declare.column_texts import TABLE, texts_of
from privopt.declare.toml_text import exact_text
from privopt.errors import Fault, InputError, UsageError
from privopt.ledger.iso_times import read_iso_time
from privopt.numbers.sampling import Source
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.traces.draw_trace import Limit, State, Walker
from privopt_metric_dp.traces.interpolate import SLACK_STEPS, STEP_MM
from privopt_tables.charge_rows import RowCharger, RowOutputs
from privopt_tables.nearest_record import REASONS
from privopt_tables.row_forms import RowForms

__all__ = ["Tracer", "check_subject", "rank_times"]

_EXPECTED_TIMES: Final = "whole numbers, or ISO 8601 dates and times (2026-05-01T09:00:00.5Z), all of one form"
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,60}", re.ASCII)
"""A pattern for a time given as a whole number in any unit, counted from 1970 or any other moment."""

_NO_PERIOD: Final = -2
"""The trace number of a row that has no usable time and therefore belongs to no calendar period."""

MAX_HELD_STEPS: Final = 1 << 22
"""Maximum number of distances from rows' positions to outputs that are held in memory at once."""


def rank_times(column: nw.Series[Any]) -> Ints:
    """Return the rank of each row's time. Equal times have equal ranks.

    Strings are ordered by the times they represent, not alphabetically. Times are compared exactly, so different times
    always have different ranks.

    Args:
        column: The times of B rows, as numbers, dates, or strings in one format.

    Returns:
        (B,) The ranks.

    Raises:
        InputError: A row has no time, a string is not a time, or the times cannot be compared because their formats
            differ.
    """
    texts = texts_of(column)
    if texts.null_count():
        raise _row_error(column, int(texts.is_null().arg_true()[0]), "nothing", "when the row was")
    # Numbers and dates are ordered by their values. A time of day without a date has no order over several days.
    if column.dtype.is_numeric() or (column.dtype.is_temporal() and column.dtype != nw.Time):
        return np.asarray(column.rank("dense").to_numpy(), dtype=np.int64)
    # Each distinct text is read only once.
    distinct_texts = texts.unique(maintain_order=True)
    readings = [_read_time(text) for text in distinct_texts.to_list()]
    forms = [None if reading is None else reading[0] for reading in readings]
    texts_with_forms = list(zip(distinct_texts.to_list(), forms, strict=True))
    invalid_text = next((text for text, form in texts_with_forms if form is None), None)
    if invalid_text is None:
        # Times with and without a zone, for example, cannot be compared.
        invalid_text = next((text for text, form in texts_with_forms if form != forms[0]), None)
    if invalid_text is not None:
        row = int((texts == invalid_text).arg_true()[0])
        raise _row_error(column, row, "another form", _EXPECTED_TIMES)
    times = [reading[1] for reading in readings if reading is not None]
    # Two texts for the same time (10:00 and 10:00:00) get the same rank, so that their rows stay in the order of the
    # table.
    ranks = {time: number for number, time in enumerate(sorted(set(times)))}
    ranks_of_texts = [ranks[time] for time in times]
    return np.asarray(texts.replace_strict(distinct_texts, ranks_of_texts, return_dtype=pl.Int64), dtype=np.int64)


def _row_error(column: nw.Series[Any], row: int, actual: str, expectation: str) -> InputError:
    """Return the error for an invalid cell in a column.

    Args:
        column: The column that contains the cell.
        row: The row's index. The message counts the header as row 1.
        actual: A description of the cell without its value, which may be secret.
        expectation: A description of valid cells.
    """
    return InputError([Fault(TABLE, f"row {row + 2:,}, column {column.name}", actual, expectation)])


def _read_time(text: str) -> tuple[str, Fraction] | None:
    """Return a time's format and a number for sorting times in that format, or None if ``text`` is not a time."""
    if _WHOLE_NUMBER.fullmatch(text):
        return "number", Fraction(int(text))
    time = read_iso_time(text)
    if time is None:
        return None
    moment = time.moment
    # A time without a zone is treated as UTC. This is harmless, because its format ("no zone") differs from that of
    # times with a zone, and times of two formats are never compared.
    elapsed = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = Fraction(86_400 * elapsed.days + elapsed.seconds) + time.excess_seconds
    return "zone" if moment.tzinfo else "no zone", seconds


_BUDGET_SPENT, _NO_SUBJECT, _NO_TIME = map(REASONS.index, ("budget spent", "no subject", "no time"))


def check_subject(walker: Walker | None, subject: str | None, time: str | None, *, charged: bool, dashes: str) -> None:
    """Check that the subject and time columns are given if needed, and that any given column is used.

    These columns are used only by ledgers and by releases that report traces. Traces require a subject column.

    Args:
        walker: The object that draws the reports of a release along traces. None if the release does not report traces.
        subject: The subject column, or None if it is not given.
        time: The column of times, or None if it is not given.
        charged: Whether subjects are charged in a ledger.
        dashes: The prefix of option names in messages: ``--`` on the command line, and empty in Python.

    Raises:
        UsageError: A required column is not given, or a given column would not be used.
    """
    if walker is not None:
        if subject is None:
            raise UsageError(f"apply: {dashes}subject must name the column of subjects: this release reports traces")
        return
    if time is not None and not charged:
        # If the release reports no traces, times only determine the periods of a ledger.
        cure = f"{dashes}ledger FILE with it, limited by the calendar"
        raise UsageError(f"apply: {dashes}time must have {cure}: this release's reports depend on no earlier ones")
    if subject is not None and not charged:
        rule = "--subject must be used with --ledger FILE" if dashes else "ledger and subject must be given together"
        raise UsageError(f"apply: {rule}: reports are charged to subjects in a ledger")


@define(kw_only=True, eq=False)
class Tracer:
    """An object that draws reports along subjects' traces, one part of the table at a time.

    A trace is divided into segments, each of which extends from one fresh report to the next. If the ledger has a
    calendar limit, each subject has a separate trace in each calendar period, which begins with a fresh report. No
    segment may extend into the next period, because its noisy threshold would then reveal something about both periods
    although only one was charged for it.

    Attributes:
        walker: The object that draws the release's reports, and uses a private test to decide whether to repeat the
            previous one.
        subject: The subject column.
        time: The column of times, which determines the order of a subject's rows. If None, the rows must already be in
            order.
        source: The source of random bytes.
        unit: The unit of distances.
        slack_mm: The number of millimetres that the guarantee adds to the distance between two different positions,
            because tests measure distances in whole millimetres. 0 if traces consist of records only.
        charger: The object that charges each segment to a ledger. If None, segments are only counted in memory.
        forms: The formats of subjects and times.
        limit: An in-memory account of the epsilon that each subject has spent in this table, with the applicable limit.
        _state: The last report and the current segment of each trace, in the order of the trace numbers.
        _trace_numbers: The number of each trace, keyed by subject and period, in order of first occurrence.
    """

    walker: Walker
    subject: str
    time: str | None
    source: Source
    unit: str
    slack_mm: int = 0
    charger: RowCharger | None = None
    forms: RowForms = field(factory=RowForms)
    limit: Limit = field(init=False)
    _state: State = field(factory=State, init=False)
    _trace_numbers: dict[tuple[str, str | None], int] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        # This limit counts in memory for one table, whereas a ledger counts over all tables.
        self.limit = Limit(self.walker.terms.total)

    @classmethod
    def of(
        cls,
        release: MatrixRelease,
        data: MetricData,
        subject: str | None,
        time: str | None,
        source: Source,
        charger: RowCharger | None = None,
        forms: RowForms | None = None,
    ) -> Self | None:
        """Return a tracer, or None if the release reports no traces or ``subject`` is None.

        Args:
            release: The release to draw reports from.
            data: The data of the release's problem.
            subject: The subject column.
            time: The column of times, which determines the order of a subject's rows. If None, the rows must already be
                in order.
            source: The source of random bytes.
            charger: The object that charges each segment to a ledger. If None, segments are only counted in memory.
            forms: The formats of subjects and times.

        Raises:
            UsageError: The charger is set to store reports, which cannot be combined with traces.
        """
        if release.walker is None or subject is None:
            return None
        if charger is not None and charger.charge.sticky:
            # The two ways of repeating reports would contradict one another.
            raise UsageError("apply: sticky must be omitted: this release keeps reports by a private test")
        return cls(
            walker=release.walker,
            subject=subject,
            time=time,
            source=source,
            unit=data.unit,
            slack_mm=0 if data.region is None else SLACK_STEPS * STEP_MM,
            charger=charger,
            forms=forms or RowForms(),
        )

    def draw_reports(
        self,
        frame: nw.DataFrame[Any],
        records: Ints,
        reason: Ints,
        *,
        measure_steps: Callable[[Ints], Ints] | None = None,
    ) -> tuple[RowOutputs, Bools, Bools]:
        """Draw the reports for a part of the table.

        Args:
            frame: The part, with B rows.
            records: (B,) The index of each row's record among the release's matrix rows. If the guarantee covers every
                point in a region, the record is a vertex that was drawn at random for the row.
            reason: (B,) -1 for each row with a position, and otherwise the reason why it has none, as an index into
                :data:`REASONS`.
            measure_steps: A function that takes the indices of M rows and returns the distances from their positions to
                the K outputs in steps, as an array of shape (M, K). If None, tests measure distances from the rows'
                records.

        Returns:
            The reports, as described in :data:`.charge_rows.RowOutputs`, and two masks of shape (B,). The first mask
            selects the reports that repeat the subject's previous report, and the second selects the first report of
            each trace.

        Raises:
            InputError: The times cannot be ordered (see :func:`rank_times`).
        """
        trace_numbers = self._number_traces(frame)
        traced_rows = np.flatnonzero(trace_numbers >= 0)
        if self.time is not None:
            ranks = rank_times(self.forms.times(frame[self.time]))
            # The sort is stable, so that rows with equal times keep the order of the table.
            traced_rows = traced_rows[np.argsort(ranks[traced_rows], kind="stable")]
        positions, numbers = np.where(reason < 0, records, -1), trace_numbers[traced_rows]
        # Traces that begin in this part have no entry in the state yet, and therefore no last report.
        last_outputs = np.full(len(self._trace_numbers), -1, dtype=np.int64)
        last_outputs[: len(self._state.last)] = self._state.last
        row_count = len(trace_numbers)
        outputs, is_repeated = np.full(row_count, -1, dtype=np.int64), np.zeros(row_count, dtype=np.bool_)
        is_first, report_reason = np.zeros(row_count, dtype=np.bool_), np.array(reason)
        report_reason[trace_numbers < 0] = _NO_SUBJECT
        report_reason[trace_numbers == _NO_PERIOD] = _NO_TIME
        # If distances are measured, those from all rows to all outputs may not fit into memory, so rows are processed
        # in parts.
        output_count = self.walker.weights.shape[1]
        part_size = max(1, len(traced_rows) if measure_steps is None else MAX_HELD_STEPS // output_count)
        for start in range(0, max(1, len(traced_rows)), part_size):
            part = traced_rows[start : start + part_size]
            steps = None if measure_steps is None else self._measure_part(part, positions[part] >= 0, measure_steps)
            walked = self.walker.walk(
                positions[part],
                trace_numbers[part],
                self._state,
                charge=self._charge_segments,
                source=self.source,
                steps=steps,
            )
            # ``kept`` marks the reports that are repeated, and ``spent`` marks the rows for which the budget was too
            # small.
            outputs[part], is_repeated[part] = walked.outputs, walked.kept
            report_reason[part[walked.spent]] = _BUDGET_SPENT
        reported_rows = traced_rows[(outputs[traced_rows] >= 0) & (last_outputs[numbers] < 0)]
        # The rows are sorted by time, and unique() gives the first index of each number.
        is_first[reported_rows[np.unique(trace_numbers[reported_rows], return_index=True)[1]]] = True
        return (outputs[:, None], report_reason), is_repeated, is_first

    def _measure_part(self, part: Ints, has_position: Bools, measure_steps: Callable[[Ints], Ints]) -> Ints:
        """Return the distances in steps from the positions of M rows to the K outputs.

        Rows without a position get distances of 0.

        Args:
            part: (M,) The indices of the rows.
            has_position: (M,) Whether each row has a position.
            measure_steps: The function that measures the distances for rows that have a position.

        Returns:
            (M, K) The distances.
        """
        steps = np.zeros((len(part), self.walker.weights.shape[1]), dtype=np.int64)
        steps[has_position] = measure_steps(part[has_position])
        return steps

    def _number_traces(self, frame: nw.DataFrame[Any]) -> Ints:
        """Return a (B,) array with the number of each row's trace.

        A subject has one trace or, if the ledger has a calendar limit, one trace per calendar period. Traces are
        numbered from 0 in order of first occurrence in the table. A row without a subject gets -1, and a row without a
        usable time gets :data:`_NO_PERIOD` if periods are charged.
        """
        names = self.forms.subjects(frame[self.subject]).to_list()
        # Without a calendar, all rows of a subject form one trace, whose period is None.
        has_calendar = self.charger is not None and self.charger.has_calendar
        periods = self.charger.periods(frame) if self.charger is not None else [None] * len(names)
        return np.array(
            [
                -1
                if name is None
                else _NO_PERIOD
                if has_calendar and period is None
                else self._trace_numbers.setdefault((name, period), len(self._trace_numbers))
                for name, period in zip(names, periods, strict=True)
            ],
            dtype=np.int64,
        )

    def _charge_segments(self, trace_numbers: Sequence[int], epsilon: Fraction) -> Sequence[bool]:
        """Charge one segment of each trace, first in memory and then durably in the ledger, if there is one.

        A segment is granted only if both the in-memory limit and the ledger's limit allow it.

        Args:
            trace_numbers: The numbers of the traces.
            epsilon: The cost of a segment.

        Returns:
            Whether the segment of each trace was granted.
        """
        # Traces are numbered from 0 in the order of the dictionary's keys.
        known_traces = list(self._trace_numbers)
        traces = [known_traces[number] for number in trace_numbers]
        is_allowed = self.limit([name for name, _ in traces], epsilon)
        if self.charger is None or not any(is_allowed):
            return is_allowed
        # Only segments that the limit in memory allows are charged in the ledger. The ledger's answers are merged in
        # the same order.
        due = [trace for trace, allowed in zip(traces, is_allowed, strict=True) if allowed]
        cost = evolve(self.charger.cost, epsilon=epsilon)
        is_charged = iter(self.charger.charge_subjects([name for name, _ in due], cost, [period for _, period in due]))
        return [allowed and next(is_charged) for allowed in is_allowed]

    @property
    def price(self) -> str | None:
        """A sentence that states what a first report and each later segment cost, or None if there is no ledger."""
        if self.charger is None:
            return None
        terms, cost = self.walker.terms, self.charger.cost
        first_price = self.charger.price("first report", evolve(cost, epsilon=terms.report))
        return f"{first_price}; {self.charger.price('later segment', evolve(cost, epsilon=terms.segment))}"

    @property
    def sequence(self) -> str:
        """A sentence that states the guarantee for all reports about a subject together, and their cost."""
        terms = self.walker.terms
        first, segment, stay, total = (
            "" if epsilon is None else f"{exact_text(epsilon)} per {self.unit}"
            for epsilon in (terms.report, terms.segment, terms.threshold, terms.total)
        )
        total_clause = f", up to {total} in one table" if total else ""
        slack_clause = (
            f", which counts {self.slack_mm} mm more than it is if the two differ, because tests use whole millimetres"
            if self.slack_mm
            else ""
        )
        return (
            f"the guarantee for all reports of a subject: epsilon {first} for the first, {segment} for each segment "
            f"up to the next fresh one{total_clause}, times the greatest distance between two traces in that "
            f"segment{slack_clause}; one that has not ended costs {stay}, and is charged like the others; charges "
            "depend only on which rows there are and on earlier reports"
        )
