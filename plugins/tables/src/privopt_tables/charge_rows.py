"""Charge rows to their subjects before anything secret is read.

Charges and refusals are visible, so they must not depend on secrets. Which rows are charged depends only on the
subjects and, if the ledger has a calendar limit, on the times. A row without a usable position is charged like any
other (ADR 15).

There are exceptions. If reports are stored and repeated ("sticky"), only the first visit to a place is charged, so the
charges reveal when a subject returns to a place. Rows without a position count as visits to one additional place. A row
with a sentence is charged for its known words, so the sentence is read before the charge is made, and the charge
reveals the number of these words. Rows of a trace are charged by segment (see :mod:`.trace_rows`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from functools import partial
from typing import Any, Self

import narwhals as nw
import numpy as np
from attrs import define, evolve, field

from privopt.arrays import Bools, Ints
from privopt.errors import UsageError, cut
from privopt.interfaces import Progress
from privopt.interfaces.cost import Cost
from privopt.ledger.batches import Batch
from privopt.ledger.charge import Charge
from privopt.ledger.cost_of_report import price_text, sequence_of, unit_price, window_text
from privopt.ledger.entries import AccountKey, Limit
from privopt.ledger.kept_reports import SEQUENCE, WITHIN, KeptReports
from privopt.ledger.ledger import Ledger
from privopt.ledger.periods import Calendar, periods_of
from privopt_tables.nearest_record import REASONS
from privopt_tables.row_forms import RowForms

__all__ = ["RowCharger", "RowOutputs", "RowPlaces", "check_no_calendar"]


RowOutputs = tuple[Ints, Ints]
"""The reports of B rows.

The first array, of shape (B, P), contains the output indices for the P positions in each row, or -1 where there is no
report. The second array, of shape (B,), contains the reason why a row has no report, as an index
into :data:`REASONS`, or -1 if it has a report.
"""

RowPlaces = tuple[Ints, Ints, Sequence[Sequence[int]] | None]
"""The places of B rows.

The first array, of shape (B,), contains the index of each row's place. The second array, of shape (B,), contains the
reason why a row has no place, as an index into :data:`REASONS`, or -1 if it has a place. The last entry contains one
list per row, with the indices of nearby places. The stored reports of these places may be repeated too. The last entry
is None if only the row's own place counts.
"""

_BUDGET_SPENT, _NO_SUBJECT, _NO_TIME = map(REASONS.index, ("budget spent", "no subject", "no time"))


@define(kw_only=True, eq=False)
class RowCharger:
    """A charger that charges the privacy cost of a table's rows to their subjects while the ledger is open.

    Attributes:
        charge: The settings, which name the ledger to charge and the column of subjects, and specify whether reports
            are stored and repeated (``sticky``).
        cost: The cost of one row.
        time: The column with the time of each row, which determines the period to charge if the ledger has a calendar
            limit.
        earlier_charges: In a batch, the amounts charged to each account by earlier runs, in order. An amount is removed
            when it is matched with a row. None if there is no batch.
        forms: The formats of subjects and times.
        charged_count: The number of rows charged so far.
        first_without_subject: The index of the first row without a subject. None until such a row is read.
        first_without_time: The index of the first row without a usable time. None until such a row is read.
        _ledger: The open ledger. Only set inside the ``with`` block of :meth:`open_ledger`.
        _stack: An exit stack that closes the ledger and the file of stored reports at the end of that block.
        _stored_reports: The file of stored reports. None until the first row is charged, and always None if reports are
            not stored.
        _calendar: The calendar of the ledger's limit. None if the limit does not count by calendar periods.
        _refused_counts: In a batch, the smallest multiple of the row cost that was refused for each account.
    """

    charge: Charge
    cost: Cost
    time: str | None = None
    earlier_charges: Mapping[AccountKey, deque[Fraction]] | None = None
    forms: RowForms = field(factory=RowForms)
    charged_count: int = 0
    first_without_subject: int | None = None
    first_without_time: int | None = None
    _ledger: Ledger = field(init=False)
    _stack: ExitStack = field(init=False)
    _stored_reports: KeptReports | None = field(default=None, init=False)
    _calendar: Calendar | None = field(init=False)
    _refused_counts: dict[AccountKey, int] = field(factory=dict, init=False)

    @contextmanager
    def open_ledger(self, progress: Progress | None = None) -> Iterator[Self]:
        """Open the ledger for a ``with`` block.

        The file of stored reports is opened when the first rows are charged, and closed with the ledger. ``progress``
        is called while the ledger is read and checked.

        Raises:
            UsageError: The ledger has a calendar limit but there is no column of times, the ledger is not writable, or
                other users can read its key file.
            InputError: The file is not a ledger, or its key is missing or wrong.
            DoesNotHoldError: The ledger fails verification.
            StoppedError: An I/O error occurred, or another process kept writing to the ledger for too long.
        """
        with ExitStack() as self._stack:
            self._ledger = self._stack.enter_context(self.charge.open_ledger(progress))
            # A calendar limit counts by periods such as days. Other limits count in total or by hours, and need no
            # times.
            self._calendar = None if self._limit is None else self._limit.calendar
            if self._calendar is not None and self.time is None:
                raise UsageError(f"apply: --time COLUMN must be given: {self.charge.path} counts by {self._calendar}")
            yield self

    @property
    def _limit(self) -> Limit | None:
        """The ledger's limit for the unit in which rows are charged, or None if there is no such limit."""
        return self._ledger.limit_of(self.cost.account)

    @property
    def subject(self) -> str:
        """The name of the column that identifies the subject of each row."""
        return self.charge.subject or ""

    def column_key(self) -> bytes:
        """Return the key for hashing columns, which is derived from the open ledger's key.

        Raises:
            UsageError: The ledger has no key.
        """
        return self._ledger.column_key()

    def begin(self, batch: Batch) -> None:
        """Begin or continue a batch.

        The batch's earlier charges are read from the ledger, and all later charges are attributed to the batch.

        Raises:
            UsageError: The ledger contains charges for a batch with this name under a different key, which no longer
                exists.
        """
        purpose = batch.purpose(self._ledger.purposes())
        self.cost = evolve(self.cost, purpose=purpose)
        charges_by_account = self._ledger.charges_for(purpose)
        self.earlier_charges = {account: deque(charges) for account, charges in charges_by_account.items()}

    def subjects(self, frame: nw.DataFrame[Any]) -> list[str | None]:
        """Return the normalised name of each row's subject, with None for rows without a subject."""
        return list(self.forms.subjects(frame[self.subject]).to_list())

    @property
    def has_calendar(self) -> bool:
        """Whether rows are charged to calendar periods."""
        return self._calendar is not None

    def periods(self, frame: nw.DataFrame[Any]) -> list[str | None]:
        """Return the calendar period to which each row is charged, with None for rows without a usable time.

        If the ledger has no calendar limit, every entry is None.

        Raises:
            InputError: The column of times contains numbers.
        """
        if self._calendar is None or self.time is None:
            return [None] * len(frame)
        return periods_of(self.forms.times(frame[self.time]), self._calendar)

    def note_skipped_rows(self, frame: nw.DataFrame[Any], first: int) -> None:
        """Record the first row without a subject and the first row without a usable time, without charging anyone.

        Args:
            frame: Some rows of the table.
            first: The index of the frame's first row in the whole table.

        Raises:
            InputError: The column of times contains numbers.
        """
        names, periods = self.subjects(frame), self.periods(frame)
        if self.first_without_subject is None and None in names:
            self.first_without_subject = first + names.index(None)
        if self.first_without_time is None and self.has_calendar and None in periods:
            self.first_without_time = first + periods.index(None)

    @property
    def skipped_rows(self) -> tuple[str, ...]:
        """Notes that locate the first row without a subject and the first row without a usable time.

        They also state the expected format. The tuple is empty if there are no such rows.
        """
        # Indices start from 0 and the header is row 1, so the first row of data is row 2.
        sentences = []
        if self.first_without_subject is not None:
            expectation = "a name (NULL, NA, None and the like name nobody; --null-names takes them for names)"
            row = f"row {self.first_without_subject + 2:,}, column {cut(self.subject)}"
            sentences.append(f"{row}: expected {expectation}")
        if self.first_without_time is not None:
            form = "an ISO 8601 time (--time-format names another form, such as DD/MM/YYYY HH:MM or unix)"
            if self.forms.time_format is not None:
                form = f"a time of the form {cut(self.forms.time_format)}"
            sentences.append(f"row {self.first_without_time + 2:,}, column {cut(self.time or '')}: expected {form}")
        return tuple(sentences)

    def draw_reports(
        self,
        frame: nw.DataFrame[Any],
        draw: Callable[[Ints], RowOutputs],
        find_places: Callable[[Ints], RowPlaces],
        position_count: int,
    ) -> RowOutputs:
        """Charge the rows of a table, and draw reports for those permitted by the limit.

        The charges are stored durably before any report is drawn. If reports are stored ("sticky"), only a subject's
        first visit to a place is charged. The report drawn for that visit is stored and repeated at later visits.

        Args:
            frame: Some rows of the table.
            draw: A function that draws the reports for rows, given their indices in ``frame``.
            find_places: A function that finds the places of rows, given their indices in ``frame``. It is called only
                if reports are stored. A place must be a fixed function of the row's position.
            position_count: The number P of positions in each row. It must be 1 if reports are stored.

        Returns:
            The reports of the B rows (see :data:`RowOutputs`).
        """
        if not self.charge.sticky:
            is_granted, reason = self.charge_table(frame)
            # -1 stands for no report, until one is drawn.
            outputs = np.full((len(frame), position_count), -1, dtype=np.int64)
            rows = np.flatnonzero(is_granted)
            # Reports must not be drawn before the charges are durable.
            outputs[rows], reason[rows] = draw(rows)
            return outputs, reason
        if self._stored_reports is None:
            # The file is opened with the first rows and closed with the ledger.
            self._stored_reports = self._stack.enter_context(KeptReports(self._ledger))
        # There is one column, because reports are only stored for rows with a single position (see `check_options`).
        outputs = np.full((len(frame), 1), -1, dtype=np.int64)
        chargeable_rows, subjects, periods, reason = self._chargeable_rows(frame)
        # A place is charged to the period of its first visit, so periods are processed in order. If there is no
        # calendar, the only period is None.
        for period in sorted({*periods}, key=str):
            numbers = np.flatnonzero(np.array(periods, dtype=np.str_) == str(period)).tolist()
            rows = chargeable_rows[numbers]
            outputs[rows], reason[rows] = self._repeat_stored_reports(
                self._stored_reports, rows, [subjects[number] for number in numbers], period, draw, find_places
            )
        return outputs, reason

    def _chargeable_rows(self, frame: nw.DataFrame[Any]) -> tuple[Ints, list[str], list[str | None], Ints]:
        """Find the rows that have a subject and, if the ledger counts by calendar periods, a period.

        Returns:
            The indices, subjects and periods of these rows, followed by an array of shape (B,) that covers all rows.
            This array contains an index into :data:`REASONS` for each row that cannot be charged, and -1 for each row
            that can.
        """
        names, periods = self.subjects(frame), self.periods(frame)
        has_subject = np.array([name is not None for name in names], dtype=bool)
        # Without a calendar, no row needs a period.
        has_period = np.array([period is not None or not self.has_calendar for period in periods], dtype=bool)
        reason = np.where(has_subject, np.where(has_period, -1, _NO_TIME), _NO_SUBJECT)
        rows = np.flatnonzero(reason < 0)
        return rows, [names[row] or "" for row in rows.tolist()], [periods[row] for row in rows.tolist()], reason

    def charge_table(self, frame: nw.DataFrame[Any], times: Ints | None = None) -> tuple[Bools, Ints]:
        """Charge the rows of a table, and return which rows are permitted by the limit.

        The charges are stored durably, so that reports may be drawn for these rows.

        Args:
            frame: Some rows of the table.
            times: (B,) The multiple of the row cost to charge for each row, or 0 for a row that needs no draw. If None,
                it is 1 for every row.

        Returns:
            Two arrays of shape (B,): whether each row is granted, and the reason for each refusal. A reason is an index
            into :data:`REASONS`, or -1 for a granted row.
        """
        rows, subjects, periods, reason = self._chargeable_rows(frame)
        counts = None if times is None else times[rows].tolist()
        earlier_charges = self.earlier_charges
        charge = self.charge_subjects if earlier_charges is None else partial(self._charge_unpaid, earlier_charges)
        is_granted = np.zeros(len(frame), dtype=bool)
        is_granted[rows] = charge(subjects, self.cost, periods, counts)
        reason[rows[~is_granted[rows]]] = _BUDGET_SPENT
        return is_granted, reason

    def charge_subjects(
        self, subjects: Sequence[str], cost: Cost, periods: Sequence[str | None], times: Sequence[int] | None = None
    ) -> list[bool]:
        """Charge rows to their subjects, and return whether the limit permits each row.

        By the time the method returns, the charges have been stored durably.

        Args:
            subjects: The subject of each row.
            cost: The cost of one row.
            periods: The calendar period of each row, which is None if the ledger has no calendar limit.
            times: The multiple of ``cost`` to charge for each row. If None, it is 1 for every row.
        """
        # In a batch, once a row is refused, the account stays closed to rows that cost at least as much. This lets a
        # repeated run determine which rows were charged (see _charge_unpaid).
        closed_accounts = None if self.earlier_charges is None else self._refused_counts
        is_granted = self._ledger.charge_each(subjects, cost, periods, times, closed_accounts)
        self.charged_count += sum(is_granted)
        return is_granted

    def _charge_unpaid(
        self,
        earlier_charges: Mapping[AccountKey, deque[Fraction]],
        subjects: Sequence[str],
        cost: Cost,
        periods: Sequence[str | None],
        times: Sequence[int] | None = None,
    ) -> list[bool]:
        """Charge the rows of a batch that were not charged by earlier runs, and return whether each row is granted.

        Within an account, rows are charged in order, and once a row is refused, every later row that costs at least as
        much is refused too. Earlier charges can therefore be matched with rows in order: each charge belongs to the
        next row with the same cost. Any rows in between were refused before, and are refused again.

        Args:
            earlier_charges: The amounts charged to each account by earlier runs, in order. An amount is removed when it
                is matched with a row.
            subjects: The subject of each row.
            cost: The cost of one row.
            periods: The calendar period of each row, which is None if the ledger has no calendar limit.
            times: The multiple of ``cost`` to charge for each row. If None, it is 1 for every row.
        """
        # The ledger may list its accounts under keyed hashes of the subjects' names.
        ledger_names = {name: self._ledger.name_of(name) for name in dict.fromkeys(subjects)}
        unit = self.cost.account
        accounts = [
            AccountKey(ledger_names[name], unit, period or "") for name, period in zip(subjects, periods, strict=True)
        ]
        is_granted = [False] * len(subjects)
        due: list[int] = []  # rows that have not been charged yet
        for number, account in enumerate(accounts):
            count, charges = 1 if times is None else times[number], earlier_charges.get(account)
            # A row that needs no draw, such as a sentence without known words, costs nothing.
            if not count:
                is_granted[number] = True
            # No earlier charge is left, so earlier runs ended before this row.
            elif not charges:
                due.append(number)
            elif charges[0] == count * cost.amount[0]:
                charges.popleft()
                is_granted[number] = True
            else:
                # The row was refused in an earlier run. The smallest refused multiple is recorded, because it closes
                # the account to rows that cost at least as much.
                self._refused_counts[account] = min(count, self._refused_counts.get(account, count))
        was_charged = self.charge_subjects(
            [subjects[number] for number in due],
            cost,
            [periods[number] for number in due],
            None if times is None else [times[number] for number in due],
        )
        for number, is_charged in zip(due, was_charged, strict=True):
            is_granted[number] = is_charged
        return is_granted

    def _repeat_stored_reports(
        self,
        stored_reports: KeptReports,
        rows: Ints,
        subjects: list[str],
        period: str | None,
        draw: Callable[[Ints], RowOutputs],
        find_places: Callable[[Ints], RowPlaces],
    ) -> RowOutputs:
        """Return the report stored for each row's place, and draw new reports where none is stored.

        A report is drawn only if its charge is granted. It is then stored, so that it can be repeated.

        Args:
            stored_reports: The file of stored reports.
            rows: (B,) The indices of the rows.
            subjects: The subject of each of these rows.
            period: The calendar period to which first visits are charged. None if the ledger has no calendar limit.
            draw: A function that draws the reports for rows, given their indices.
            find_places: A function that finds the places of rows, given their indices. A place must be a fixed function
                of the row's position.

        Returns:
            The reports of these rows (see :data:`RowOutputs`), with one position per row.
        """
        numbers, reason, nearby = find_places(rows)
        # Rows without a place share a place with an empty name, and are charged for it like any other row.
        place_names = [
            "" if row_reason >= 0 else str(place_number)
            for place_number, row_reason in zip(numbers.tolist(), reason.tolist(), strict=True)
        ]
        ledger_names = {name: self._ledger.name_of(name) for name in set(subjects)}
        visits = [(ledger_names[name], place_number) for name, place_number in zip(subjects, place_names, strict=True)]
        nearby_names = None if nearby is None else [[str(place_number) for place_number in places] for places in nearby]
        with stored_reports.visits(self.cost.mechanism, visits, nearby_names) as reports:
            # The first visits to places for which the subject has no stored report yet. All other visits repeat a
            # report.
            first_visits = np.array(reports.first, dtype=np.int64)
            visitors = [subjects[number] for number in reports.first]
            # A mark identifies a charge's entry in the ledger. It is None if the limit does not permit the charge.
            marks = self._ledger.charge_rows(visitors, self.cost, [period] * len(visitors))
            charged_visits = first_visits[np.array([mark is not None for mark in marks], dtype=bool)]
            self.charged_count += len(charged_visits)
            # The charges are durable by now. If the run is killed here, the next run charges for the reports again, but
            # no report is ever given without a charge.
            drawn_outputs, _ = draw(rows[charged_visits])
            entries = [mark for mark in marks if mark is not None]
            for number, output, mark in zip(
                charged_visits.tolist(), drawn_outputs[:, 0].tolist(), entries, strict=True
            ):
                reports.keep(number, output, mark)
            row_reports = [reports.report(number) for number in range(len(subjects))]
        is_refused = np.array([output is None for output in row_reports], dtype=bool)
        outputs = np.array([-1 if output is None else output for output in row_reports], dtype=np.int64)
        return outputs[:, None], np.where(is_refused, _BUDGET_SPENT, reason)

    def price(self, counted: str, cost: Cost | None = None) -> str:
        """Return a sentence that states the cost of an item, such as a row, and how many items the limit permits.

        Args:
            counted: The noun for an item, such as "row".
            cost: The cost of one item. By default, the cost of a row.
        """
        return price_text(self.charge.path, cost or self.cost, self._limit, counted)

    @property
    def sequence(self) -> str:
        """A sentence that states the guarantee for all of a subject's reports together, and the ledger's limit."""
        if self.charge.within is not None:
            return f"{SEQUENCE}; {WITHIN}{window_text(self._limit)}"
        if self.charge.sticky:
            return f"{SEQUENCE}{window_text(self._limit)}"
        return sequence_of(self.cost, self._limit, "row with a subject")

    @property
    def sequence_of_words(self) -> str:
        """A sentence that states the guarantee for all of a subject's words together.

        It applies to tables in which each known word is charged to the subject's account.
        """
        return (
            f"the guarantee for all words of a subject: that of one word, at {unit_price(self.cost)} times their "
            "number; each row with a subject is charged for its known words, so charges and refusals show how many "
            f"it has{window_text(self._limit)}"
        )


def check_no_calendar(ledger: Ledger, account: str) -> None:
    """Check that a ledger has no calendar limit, because such a limit would require a time for each row.

    Args:
        ledger: The ledger to charge.
        account: The unit in which subjects are charged.

    Raises:
        UsageError: The ledger has a calendar limit.
    """
    limit = ledger.limit_of(account)
    if limit is not None and limit.calendar is not None:
        actual = f"one that counts by {limit.calendar}"
        raise UsageError(f"{ledger.path} must have a limit in all or by hours, got {actual}: use apply --time")
