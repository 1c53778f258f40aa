"""Tables of traces: each subject's rows in the order of time, the last report kept while it is good.

What is charged, and when, follows from which rows a subject has and from its earlier reports; these are in the table
that is published. A row without a position is charged as any other, and what it paid for waits for the next.
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
from privopt.declare.exact_text import exact_text
from privopt.errors import Fault, InputError, UsageError, cut
from privopt.ledger.iso_times import read_iso_time
from privopt.numbers.sampling import Source
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.traces.draw_trace import Limit, State, Walker
from privopt_metric_dp.traces.interpolate import SLACK_STEPS, STEP_MM
from privopt_tables.charge_rows import Drawn, RowCharger
from privopt_tables.nearest_record import REASONS
from privopt_tables.row_forms import RowForms

__all__ = ["Tracer", "check_subject", "ranks_of"]

_WANTED: Final = "whole numbers, or ISO 8601 dates and times (2026-05-01T09:00:00.5Z), all of one form"
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,60}", re.ASCII)


def ranks_of(column: nw.Series[Any]) -> Ints:
    """Return (B,) the rank of each row's time: numbers, dates and times in their order, texts by what they say.

    Different times stay different, and none is guessed.

    Raises:
        InputError: a row without a time, text that says none, or times of several forms, which have no order.
    """
    texts = texts_of(column)
    if texts.null_count():
        raise _fault(column, int(texts.is_null().arg_true()[0]), "nothing", "when the row was")
    if column.dtype.is_numeric() or (column.dtype.is_temporal() and column.dtype != nw.Time):
        return np.asarray(column.rank("dense").to_numpy(), dtype=np.int64)
    said = texts.unique(maintain_order=True)
    read = [_read(text) for text in said.to_list()]
    forms = [None if each is None else each[0] for each in read]
    odd = next((text for text, form in zip(said.to_list(), forms, strict=True) if form is None), None)
    if odd is None:
        odd = next((text for text, form in zip(said.to_list(), forms, strict=True) if form != forms[0]), None)
    if odd is not None:
        raise _fault(column, int((texts == odd).arg_true()[0]), cut(repr(odd)), _WANTED)
    times = [each[1] for each in read if each is not None]
    rank = {time: number for number, time in enumerate(sorted(set(times)))}
    return np.asarray(texts.replace_strict(said, [rank[time] for time in times], return_dtype=pl.Int64), dtype=np.int64)


def _fault(column: nw.Series[Any], row: int, got: str, wanted: str) -> InputError:
    """Return a fault of the row of that number from 0; the header is row 1, as everywhere."""
    return InputError([Fault(TABLE, f"row {row + 2:,}, column {column.name}", got, wanted)])


def _read(text: str) -> tuple[str, Fraction] | None:
    """Return the form of a time, and a number in whose order times of that form are; None where it says none."""
    if _WHOLE.fullmatch(text):
        return "number", Fraction(int(text))
    found = read_iso_time(text)
    if found is None:
        return None
    moment = found.moment
    since = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = Fraction(86_400 * since.days + since.seconds) + found.beyond
    return "zone" if moment.tzinfo else "no zone", seconds


_SPENT, _NOBODY, _NO_TIME = map(REASONS.index, ("budget spent", "no subject", "no time"))


def check_subject(walker: Walker | None, subject: str | None, time: str | None, *, charged: bool, dashes: str) -> None:
    """Refuse columns that mean nothing for a release, or the lack of those that it needs.

    Args:
        walker: of a release that reports traces.
        subject, time: columns.
        charged: whether a ledger charges the subjects.
        dashes: what options begin with where they are named.
    """
    if walker is not None:
        if subject is None:
            raise UsageError(f"apply: {dashes}subject must name the column of subjects: this release reports traces")
        return
    if time is not None and not charged:
        cure = f"{dashes}ledger FILE with it, limited by the calendar"
        raise UsageError(f"apply: {dashes}time must have {cure}: this release's reports depend on no earlier ones")
    if subject is not None and not charged:
        rule = "--subject must be used with --ledger FILE" if dashes else "ledger and subject must be given together"
        raise UsageError(f"apply: {rule}: reports are charged to subjects in a ledger")


@define(kw_only=True, eq=False)
class Tracer:
    """Draws the reports of subjects' traces, batch after batch.

    Attributes:
        walker: of the release.
        subject: column of whose each row is.
        time: column that a subject's rows are in the order of; None where they are in it.
        source: of random bytes.
        unit: of distance.
        more: mm by which the distance between two positions that differ counts more than it is.
        forms: of subjects and times.
        charging: charges each segment in a ledger, too; None to count in memory alone.
        limit: what each subject has spent in this table.

    A ledger whose limit is by the calendar ends every segment with its period: each subject has a trace in each period,
    whose first report is fresh. One threshold over two periods would reveal about both what was paid for in one.
    """

    walker: Walker
    subject: str
    time: str | None
    source: Source
    unit: str
    more: int = 0
    charging: RowCharger | None = None
    forms: RowForms = field(factory=RowForms)
    limit: Limit = field(init=False)
    _state: State = field(factory=State, init=False)
    _numbers: dict[tuple[str, str | None], int] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.limit = Limit(self.walker.terms.total)

    @classmethod
    def of(
        cls,
        release: MatrixRelease,
        data: MetricData,
        subject: str | None,
        time: str | None,
        source: Source,
        charging: RowCharger | None = None,
        forms: RowForms | None = None,
    ) -> Self | None:
        """Make a tracer for a release that reports traces; None for others."""
        if release.walker is None or subject is None:
            return None
        if charging is not None and charging.to.sticky:
            raise UsageError("apply: sticky must be omitted: this release keeps reports by a private test")
        return cls(
            walker=release.walker,
            subject=subject,
            time=time,
            source=source,
            unit=data.unit,
            more=0 if data.region is None else SLACK_STEPS * STEP_MM,
            charging=charging,
            forms=forms or RowForms(),
        )

    def reports(
        self,
        frame: nw.DataFrame[Any],
        records: Ints,
        reason: Ints,
        *,
        far: Callable[[Ints], Ints] | None = None,
    ) -> tuple[Drawn, Bools, Bools]:
        """Return reports of a part of the table.

        Args:
            frame: the part.
            records: (B,) record of each row; at every point of a region the vertex that was drawn for it.
            reason: (B,) why a row has none, as a place in :data:`REASONS`, else -1.
            far: steps (M, K) from the positions of rows (M,) to outputs; None for those from their records.

        Returns:
            The reports; (B,) whether each is the subject's last one again, and (B,) its first in time.
        """
        subjects = self._subjects(frame)
        some = np.flatnonzero(subjects >= 0)
        if self.time is not None:
            ranks = ranks_of(self.forms.times(frame[self.time]))
            some = some[np.argsort(ranks[some], kind="stable")]
        rows, whose = np.where(reason < 0, records, -1), subjects[some]
        before = np.full(len(self._numbers), -1, dtype=np.int64)
        before[: len(self._state.last)] = self._state.last
        outputs, kept = np.full(len(subjects), -1, dtype=np.int64), np.zeros(len(subjects), dtype=np.bool_)
        first, why = np.zeros(len(subjects), dtype=np.bool_), np.array(reason)
        why[subjects < 0] = _NOBODY
        why[subjects == _UNTIMED] = _NO_TIME
        size = max(1, len(some) if far is None else _STEPS // self.walker.weights.shape[1])
        for start in range(0, max(1, len(some)), size):  # rows with steps of their own in parts that fit into memory
            part = some[start : start + size]
            steps = None if far is None else self._steps(part, rows[part] >= 0, far)
            found = self.walker.walk(
                rows[part], subjects[part], self._state, charge=self._charge, source=self.source, steps=steps
            )
            outputs[part], kept[part] = found.outputs, found.kept
            why[part[found.spent]] = _SPENT
        new = some[(outputs[some] >= 0) & (before[whose] < 0)]
        first[new[np.unique(subjects[new], return_index=True)[1]]] = True
        return (outputs[:, None], why), kept, first

    def _steps(self, part: Ints, there: Bools, far: Callable[[Ints], Ints]) -> Ints:
        """(B, K) steps from the positions of rows to outputs, 0 where a row has none."""
        steps = np.zeros((len(part), self.walker.weights.shape[1]), dtype=np.int64)
        steps[there] = far(part[there])
        return steps

    def _subjects(self, frame: nw.DataFrame[Any]) -> Ints:
        """(B,) number of each row's trace: of a subject, in a period; below 0 for no one, or for no usable time."""
        names = self.forms.subjects(frame[self.subject]).to_list()
        calendar = self.charging is not None and self.charging.by_calendar
        periods = self.charging.periods(frame) if self.charging is not None else [None] * len(names)
        return np.array(
            [
                -1
                if name is None
                else _UNTIMED
                if calendar and period is None
                else self._numbers.setdefault((name, period), len(self._numbers))
                for name, period in zip(names, periods, strict=True)
            ],
            dtype=np.int64,
        )

    def _charge(self, traces: Sequence[int], epsilon: Fraction) -> Sequence[bool]:
        """Charge segments, in the ledger durably; what either refuses is refused."""
        known = list(self._numbers)
        asked = [known[trace] for trace in traces]
        allowed = self.limit([name for name, _ in asked], epsilon)
        if self.charging is None or not any(allowed):
            return allowed
        due = [trace for trace, good in zip(asked, allowed, strict=True) if good]
        cost = evolve(self.charging.cost, epsilon=epsilon)
        charged = iter(self.charging.charge([name for name, _ in due], cost, [period for _, period in due]))
        return [good and next(charged) for good in allowed]

    @property
    def price(self) -> str | None:
        """What a subject's first report costs it, and each segment after that; None where nothing is charged."""
        if self.charging is None:
            return None
        terms, cost = self.walker.terms, self.charging.cost
        first = self.charging.price("first report", evolve(cost, epsilon=terms.report))
        return f"{first}; {self.charging.price('later segment', evolve(cost, epsilon=terms.segment))}"

    @property
    def sequence(self) -> str:
        """What holds of all reports of a subject, and what is charged for it, in words."""
        terms = self.walker.terms
        first, segment, stay, total = (
            "" if epsilon is None else f"{exact_text(epsilon)} per {self.unit}"
            for epsilon in (terms.report, terms.segment, terms.threshold, terms.total)
        )
        until = f", up to {total} in one table" if total else ""
        more = (
            f", which counts {self.more} mm more than it is where the two differ, for tests go by whole millimetres"
            if self.more
            else ""
        )
        return (
            f"what holds of all reports of a subject: epsilon {first} for the first, {segment} for each segment up to "
            f"the next fresh one{until}, times the greatest distance between two traces in that segment{more}; one "
            f"that has not ended tells {stay}, and is charged like the others; charges follow from the rows that there "
            "are and from earlier reports"
        )


_UNTIMED: Final = -2
"""In place of a trace's number: a row without a usable time, which no period of the calendar holds."""

_STEPS: Final = 1 << 22
"""Steps that are held at once."""
