"""Charge rows to their subjects before anything secret is read; kept reports are charged once.

Which rows are charged depends on the subjects alone (mathematics T2). If reports are kept (T3), it also depends on the
visits of a subject that share a place, and on nothing else: rows without a position share a place of their own.
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

__all__ = ["Drawn", "Places", "RowCharger", "check_no_calendar"]


Drawn = tuple[Ints, Ints]
"""(B, P) outputs of the P positions of each row, -1 for none; and (B,) why not, as a place in :data:`REASONS`, else
-1."""

Places = tuple[Ints, Ints, Sequence[Sequence[int]] | None]
"""(B,) place of each row; (B,) why it has none, else -1; and further places whose kept report is given too, by row."""

_SPENT, _NOBODY, _NO_TIME = map(REASONS.index, ("budget spent", "no subject", "no time"))


@define(kw_only=True, eq=False)
class RowCharger:
    """Charges rows of tables, while its ledger is open.

    Attributes:
        to: the ledger, and the column that says whom each row is about.
        cost: of each row.
        time: column of when each row was, which a ledger whose limit is by the calendar charges it to.
        forms: of subjects and times.
        charged: rows that were charged so far.
        forms: of subjects and times.
        first_nobody: number of the first row without a subject; None if there is none, or none was read yet.
        first_no_time: the same of rows without a usable time.
        paid: of a batch, what earlier runs have charged to each account and no row was found for yet, in their order;
            None without a batch.
    """

    to: Charge
    cost: Cost
    time: str | None = None
    paid: Mapping[AccountKey, deque[Fraction]] | None = None
    forms: RowForms = field(factory=RowForms)
    charged: int = 0
    first_nobody: int | None = None
    first_no_time: int | None = None
    _ledger: Ledger = field(init=False)
    _files: ExitStack = field(init=False)
    _kept: KeptReports | None = field(default=None, init=False)
    _calendar: Calendar | None = field(init=False)
    _refused: dict[AccountKey, int] = field(factory=dict, init=False)

    @contextmanager
    def opened(self, progress: Progress | None = None) -> Iterator[Self]:
        """Open the ledger, and with the first row the kept reports next to it if they are asked for."""
        with ExitStack() as self._files:
            self._ledger = self._files.enter_context(self.to.opened(progress))
            self._calendar = None if self._limit is None else self._limit.calendar
            if self._calendar is not None and self.time is None:
                raise UsageError(f"apply: --time COLUMN must be given: {self.to.path} counts by {self._calendar}")
            yield self

    @property
    def _limit(self) -> Limit | None:
        """The limit of the unit that rows are charged in, whatever others the ledger has."""
        return self._ledger.limit_of(self.cost.account)

    @property
    def subject(self) -> str:
        """The column that says whom each row is about."""
        return self.to.subject or ""

    def begin(self, batch: Batch) -> None:
        """Charge for a batch from now on; what earlier runs of it have charged is known from the ledger.

        Raises:
            UsageError: the ledger holds charges of a batch of this name whose key is gone.
        """
        purpose = batch.purpose(self._ledger.purposes())
        self.cost = evolve(self.cost, purpose=purpose)
        self.paid = {account: deque(charges) for account, charges in self._ledger.charges_for(purpose).items()}

    def subjects(self, frame: nw.DataFrame[Any]) -> list[str | None]:
        """Return whom each row is about, each name in its one form; None for no one."""
        return list(self.forms.subjects(frame[self.subject]).to_list())

    @property
    def by_calendar(self) -> bool:
        """Whether rows are charged to periods of the calendar."""
        return self._calendar is not None

    def periods(self, frame: nw.DataFrame[Any]) -> list[str | None]:
        """Return the period that each row is charged to; None for a row without a usable time, or without a calendar.

        Raises:
            InputError: a column of numbers.
        """
        if self._calendar is None or self.time is None:
            return [None] * len(frame)
        return periods_of(self.forms.times(frame[self.time]), self._calendar)

    def look(self, frame: nw.DataFrame[Any], first: int) -> None:
        """Read subjects and times of rows without charging them, and note the first rows that have none.

        Args:
            frame: Rows of the table.
            first: Number of the first of them in the whole table.
        """
        names, periods = self.subjects(frame), self.periods(frame)
        if self.first_nobody is None and None in names:
            self.first_nobody = first + names.index(None)
        if self.first_no_time is None and self.by_calendar and None in periods:
            self.first_no_time = first + periods.index(None)

    @property
    def skipped_rows(self) -> tuple[str, ...]:
        """Say which rows were the first without a subject and without a usable time, and what was expected."""
        notes = []
        if self.first_nobody is not None:
            words = "a name (NULL, NA, None and the like name nobody; --null-names takes them for names)"
            notes.append(f"row {self.first_nobody + 2:,}, column {cut(self.subject)}: expected {words}")
        if self.first_no_time is not None:
            form = "an ISO 8601 time (--time-format names another form, such as DD/MM/YYYY HH:MM or unix)"
            if self.forms.time_format is not None:
                form = f"a time of the form {cut(self.forms.time_format)}"
            notes.append(f"row {self.first_no_time + 2:,}, column {cut(self.time or '')}: expected {form}")
        return tuple(notes)

    def reports(
        self,
        frame: nw.DataFrame[Any],
        draw: Callable[[Ints], Drawn],
        places: Callable[[Ints], Places],
        positions: int,
    ) -> Drawn:
        """Charge the rows of a table, durably, and then draw for those that the limit allows.

        Args:
            frame: the table.
            positions: that each row has.
            draw: draws the reports of some rows, by their numbers in the table.
            places: the places of some rows and those nearby, fixed functions of their positions, and why they have
                none, else -1.
        """
        if not self.to.sticky:
            granted, reason = self.granted(frame)
            outputs = np.full((len(frame), positions), -1, dtype=np.int64)
            rows = np.flatnonzero(granted)
            outputs[rows], reason[rows] = draw(rows)
            return outputs, reason
        if self._kept is None:
            self._kept = self._files.enter_context(KeptReports(self._ledger))
        outputs = np.full((len(frame), 1), -1, dtype=np.int64)
        some, whose, when, reason = self._named(frame)
        for period in sorted({*when}, key=str):  # a place is charged to the period of its first visit
            part = np.flatnonzero(np.array(when, dtype=np.str_) == str(period)).tolist()
            rows = some[part]
            outputs[rows], reason[rows] = self._again(
                self._kept, rows, [whose[number] for number in part], period, draw, places
            )
        return outputs, reason

    def _named(self, frame: nw.DataFrame[Any]) -> tuple[Ints, list[str], list[str | None], Ints]:
        """Return rows with a subject (and a period, with a calendar), whom and when, and why other rows are omitted."""
        names, periods = self.subjects(frame), self.periods(frame)
        named = np.array([name is not None for name in names], dtype=bool)
        timed = np.array([period is not None or not self.by_calendar for period in periods], dtype=bool)
        reason = np.where(named, np.where(timed, -1, _NO_TIME), _NOBODY)
        some = np.flatnonzero(reason < 0)
        return some, [names[row] or "" for row in some.tolist()], [periods[row] for row in some.tolist()], reason

    def granted(self, frame: nw.DataFrame[Any], times: Ints | None = None) -> tuple[Bools, Ints]:
        """Charge the rows of a table, durably; those alone that are granted may be drawn for.

        Args:
            frame: the table.
            times: (B,) by how much each row's cost is multiplied, 0 for a row without a draw; None for once.

        Returns:
            (B,) whether each row is granted; and (B,) why not, as a place in :data:`REASONS`, else -1.
        """
        some, whose, when, reason = self._named(frame)
        counts = None if times is None else times[some].tolist()
        allowed = self.charge if self.paid is None else partial(self._pay, self.paid)
        granted = np.zeros(len(frame), dtype=bool)
        granted[some] = allowed(whose, self.cost, when, counts)
        reason[some[~granted[some]]] = _SPENT
        return granted, reason

    def charge(
        self, whose: Sequence[str], cost: Cost, periods: Sequence[str | None], times: Sequence[int] | None = None
    ) -> list[bool]:
        """Charge a row to each subject, in a period each where there is a calendar; whether the limit allows it."""
        closed = None if self.paid is None else self._refused
        granted = self._ledger.charge_each(whose, cost, periods, times, closed)
        self.charged += sum(granted)
        return granted

    def _pay(
        self,
        paid: Mapping[AccountKey, deque[Fraction]],
        whose: Sequence[str],
        cost: Cost,
        periods: Sequence[str | None],
        times: Sequence[int] | None = None,
    ) -> list[bool]:
        """Charge the rows of a batch that no earlier run has charged.

        Rows of an account are charged in order, and none that costs as much as one that was refused before it. So the
        first row that costs what the first charge does is the row that was charged, and so on; rows between them were
        refused, and still are.
        """
        called = {name: self._ledger.name_of(name) for name in dict.fromkeys(whose)}
        unit = self.cost.account
        accounts = [AccountKey(called[name], unit, period or "") for name, period in zip(whose, periods, strict=True)]
        granted = [False] * len(whose)
        due: list[int] = []
        for number, account in enumerate(accounts):
            count, charges = 1 if times is None else times[number], paid.get(account)
            if not count:
                granted[number] = True
            elif not charges:
                due.append(number)
            elif charges[0] == count * cost.amount[0]:
                charges.popleft()
                granted[number] = True
            else:
                self._refused[account] = min(count, self._refused.get(account, count))
        allowed = self.charge(
            [whose[number] for number in due],
            cost,
            [periods[number] for number in due],
            None if times is None else [times[number] for number in due],
        )
        for number, good in zip(due, allowed, strict=True):
            granted[number] = good
        return granted

    def _again(
        self,
        sticky: KeptReports,
        rows: Ints,
        whose: list[str],
        period: str | None,
        draw: Callable[[Ints], Drawn],
        places: Callable[[Ints], Places],
    ) -> Drawn:
        numbers, reason, nearby = places(rows)
        at = ["" if why >= 0 else str(place) for place, why in zip(numbers.tolist(), reason.tolist(), strict=True)]
        called = {name: self._ledger.name_of(name) for name in set(whose)}
        visits = [(called[name], place) for name, place in zip(whose, at, strict=True)]
        near = None if nearby is None else [[str(place) for place in of] for of in nearby]
        with sticky.visits(self.cost.mechanism, visits, near) as kept:
            first = np.array(kept.first, dtype=np.int64)
            visitors = [whose[number] for number in kept.first]
            booked = self._ledger.booked(visitors, self.cost, [period] * len(visitors))
            granted = first[np.array([mark is not None for mark in booked], dtype=bool)]
            self.charged += len(granted)
            drawn, _ = draw(rows[granted])
            marks = [mark for mark in booked if mark is not None]
            for number, output, mark in zip(granted.tolist(), drawn[:, 0].tolist(), marks, strict=True):
                kept.keep(number, output, mark)
            found = [kept.report(number) for number in range(len(whose))]
        spent = np.array([output is None for output in found], dtype=bool)
        outputs = np.array([-1 if output is None else output for output in found], dtype=np.int64)
        return outputs[:, None], np.where(spent, _SPENT, reason)

    def price(self, counted: str, cost: Cost | None = None) -> str:
        """Say what ``counted`` costs its subject, and how many the limit is enough for; ``cost`` is that of a row."""
        return price_text(self.to.path, cost or self.cost, self._limit, counted)

    @property
    def sequence(self) -> str:
        """What holds of all reports of a subject, and what does not, in words."""
        if self.to.within is not None:
            return f"{SEQUENCE}; {WITHIN}{window_text(self._limit)}"
        if self.to.sticky:
            return f"{SEQUENCE}{window_text(self._limit)}"
        return sequence_of(self.cost, self._limit, "row with a subject")

    @property
    def sequence_of_words(self) -> str:
        """The same of rows whose cost is multiplied by their known words, which charges and refusals then show."""
        return (
            f"what holds of all words of a subject: as much as of one, at {unit_price(self.cost)} times their number; "
            "each row with a subject is charged for its known words, so charges and refusals show how many it has"
            f"{window_text(self._limit)}"
        )


def check_no_calendar(ledger: Ledger, account: str) -> None:
    """Refuse a ledger whose limit is by the calendar, where rows have no time.

    Args:
        ledger: that is to be charged.
        account: the unit that it is charged in.

    Raises:
        UsageError: it has such a limit.
    """
    limit = ledger.limit_of(account)
    if limit is not None and limit.calendar is not None:
        found = f"one that counts by {limit.calendar}"
        raise UsageError(f"{ledger.path} must have a limit in all or by hours, got {found}: use apply --time")
