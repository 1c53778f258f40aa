"""A ledger of what subjects have spent: an odometer, and a filter before every draw (docs/mathematics.md, T1, T2)."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Final

from attrs import define, field
from attrs.converters import optional

from privopt.errors import BudgetSpentError, Fault, InputError, UsageError, cut
from privopt.files.log_file import Form, LogFile
from privopt.interfaces import Progress
from privopt.interfaces.cost import EPSILON, PAIR, UNITS, Amount, Cost, sum_text
from privopt.ledger.accounts import Account, Charge
from privopt.ledger.balances import SCHEMA, LedgerTransaction, Mark
from privopt.ledger.check_chain import check_chain, head_of
from privopt.ledger.entries import BEGINNING, AccountKey, Limit, Terms, micros_of, sum_of
from privopt.ledger.periods import Calendar
from privopt.ledger.subject_names import PLAIN, Names, key_at, subject_name

__all__ = ["FORM", "Ledger"]

FORM: Final = Form(name="ledger of privopt", mark=0x70764C31, schema=SCHEMA)


@define(eq=False)
class Ledger(LogFile):
    """What each subject has spent, in one file that only grows.

    A subject has an account in each unit that notions add up: epsilon, rho, or epsilon with delta. All charges are for
    one relation of neighbours (:attr:`unit`): what another one bounds does not add up to them.

    ::

        ledger = Ledger("commuters.ledger")
        ledger.set_limit(8, hours=720)
        ledger.charge("anna", Cost(epsilon="0.5", unit="per km", purpose="morning of May 1"))
        ledger.account("anna").left

    Every entry holds the SHA-256 of the one before, what its subject has spent with it, exactly, and when. A charge is
    durable before :meth:`charge` returns: draw after it. Several processes may charge at once; each transaction waits
    up to a minute for the others. Charging and asking take O(log n) each for n entries, and rely on no entry whose hash
    they have not recomputed; :meth:`check` recomputes all. Opening reads all plain names. A process has a ledger of its
    own: one that is open does not survive a fork, nor does it go to another thread.

    Attributes:
        path: of the file; if there is none, the first limit or charge makes it, for its owner alone.
        key: file with the key under which subjects' names are hashed (HMAC-SHA256), made with the first name; None for
            names as they are. A ledger names all subjects in one way.
        make: False to refuse a path where there is nothing.
        clock: nanoseconds since 1970, UTC.

    Raises:
        InputError: no ledger, or a key that is none.
        DoesNotHoldError: a ledger that is not as it was written.
        UsageError: it may not be written; a key that others may read, or another than this ledger's.
        StoppedError: the disk, or another process, is in the way.
    """

    form: Form = field(default=FORM, init=False, repr=False)
    key: Path | None = field(default=None, kw_only=True, converter=optional(Path))
    clock: Callable[[], int] = field(default=time.time_ns, kw_only=True, repr=False)
    _label: str = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        try:
            with self._open_for_reading() as book:
                self._check_key(book)
        except BaseException:
            self.close()
            raise

    def _check_key(self, book: LedgerTransaction) -> None:
        """Refuse a key other than that of the charges so far. A missing key is created at the first charge."""
        self._label = book.names
        if self.key is None:
            return
        if self._label == PLAIN:
            raise InputError([Fault(str(self.path), "subjects", "a key to hash them", "plain names, as charged")])
        if self._label or self.key.exists() or not self.make:
            book.check_names(self._names.label)

    @cached_property
    def _names(self) -> Names:
        """How subjects are named. A missing key is created with the first name."""
        return Names(None if self.key is None else key_at(self.key, make=self.make and not self._label))

    def begin(self, connection: sqlite3.Connection) -> None:
        """Write the first entry, with a random text that identifies the ledger."""
        book = LedgerTransaction(connection=connection, path=self.path, clock=self.clock)
        book.add(Terms(kind="begin", purpose=f"privopt ledger 1 {secrets.token_hex(16)}"))
        book.close()

    @contextmanager
    def _open_for_reading(self, *, make: bool = False) -> Iterator[LedgerTransaction]:
        """Open a transaction that reads."""
        with self.reading(make=make) as connection:
            yield LedgerTransaction(connection=connection, path=self.path, clock=self.clock)

    @contextmanager
    def _open_for_writing(self) -> Iterator[LedgerTransaction]:
        """Open a transaction that writes when the block ends without an error."""
        with self.writing() as connection:
            book = LedgerTransaction(connection=connection, path=self.path, clock=self.clock)
            yield book
            book.close()

    # --- charging -----------------------------------------------------------------------------------------

    def charge(self, subject: str, cost: Cost, *, alone: bool = False, period: str | None = None) -> None:
        """Charge one report to a subject, durably, before it is drawn.

        Args:
            subject: whom it is about; names of one form are one (:func:`privopt.declare.name_forms.folded`).
            cost: of the report.
            alone: refuse if the ledger knows another subject, for a name that no one chose.
            period: that it is charged to, as :class:`~privopt.ledger.periods.Calendar` names it; None for that of now
                if the limit is by the calendar.

        Raises:
            BudgetSpentError: it would pass the limit; nothing was charged: draw nothing.
            InputError: another unit or key than the ledger's.
            UsageError: no name of a subject, or one that is not alone though it must be; nothing was charged.
        """
        with self._open_for_charging(cost) as (book, terms, limit):
            name = self._names.of(subject)
            if alone and book.knows_others(name):
                reason = f"a default, {cut(subject)}, could give the same people a second budget"
                raise UsageError(f"{self.path}: knows other subjects, and {reason}; name the subject: --subject ID")
            is_charged = book.charge(book.key_of(name, period, limit, cost.account), terms, limit)
        if not is_charged:
            raise self.refusal(subject, cost, period)

    def refusal(self, subject: str, cost: Cost, period: str | None = None) -> BudgetSpentError:
        """Return the error of a refused charge: what was asked for, and what the subject has left."""
        account = self.account(subject, period=period, unit=cost.account)
        request, within = f"{cost.account} {sum_text(cost.amount)}", f" in {account.period}" if account.period else ""
        remaining = account.left_text
        actual = "no budget" if remaining is None else f"asked for {request} where {remaining} is left{within}"
        return BudgetSpentError(f"{self.path}: subject {cut(subject)}: budget spent: {actual}; nothing was charged")

    def charge_each(
        self,
        subjects: Sequence[str],
        cost: Cost,
        periods: Sequence[str | None] | None = None,
        times: Sequence[int] | None = None,
        closed: dict[AccountKey, int] | None = None,
    ) -> list[bool]:
        """Charge many reports, in order and in one transaction that is durable when this returns.

        Args:
            subjects: whom each report is about; the same one may come again.
            cost: of each.
            periods: that each is charged to, as :class:`~privopt.ledger.periods.Calendar` names them; None for that of
                now if the limit is by the calendar.
            times: by how much each one's cost is multiplied: 0 charges nothing and counts as none; None for once.
            closed: of accounts the least of ``times`` that was refused: no report of that cost, or of more, is charged.
                Refusals are added to it. None if each report is looked at by itself.

        Returns:
            Of each report whether it was charged; the others would have passed the limit: they must not be drawn.

        Raises:
            InputError: another unit or key than the ledger's; nothing was charged.
        """
        return [mark is not None for mark in self.booked(subjects, cost, periods, times, closed)]

    def charge_times(self, subject: str, times: int, cost: Cost) -> int:
        """Charge many reports to one subject, in one transaction, up to the first that would pass the limit.

        Args:
            subject: whom all are about.
            times: reports.
            cost: of each.

        Returns:
            How many were charged; no others may be drawn.

        Raises:
            InputError: another unit or key than the ledger's; nothing was charged.
        """
        with self._open_for_charging(cost) as (book, terms, limit):
            key = book.key_of(self._names.of(subject), None, limit, cost.account)
            return next((count for count in range(times) if not book.charge(key, terms, limit)), times)

    def booked(
        self,
        subjects: Sequence[str],
        cost: Cost,
        periods: Sequence[str | None] | None = None,
        times: Sequence[int] | None = None,
        closed: dict[AccountKey, int] | None = None,
    ) -> list[Mark | None]:
        """Charge like :meth:`charge_each`; returns each report's entry, None for those that were refused.

        Rows of no report are charged nothing, whatever their subject and period, and get the mark before all entries.
        """
        # Terms, names and accounts are looked up once for each different value, since tables repeat them.
        rows = list(zip(subjects, periods or [None] * len(subjects), strict=True))
        counts = times or [1] * len(rows)
        with self._open_for_charging(cost) as (book, _, limit):
            terms_by_count = {count: Terms.of_cost(cost.times(count)) for count in dict.fromkeys(counts) if count}
            charged_rows = dict.fromkeys(row for row, count in zip(rows, counts, strict=True) if count)
            names = {
                subject: self._names.of(subject) for subject in dict.fromkeys(subject for subject, _ in charged_rows)
            }
            keys = {row: book.key_of(names[row[0]], row[1], limit, cost.account) for row in charged_rows}
            marks: list[Mark | None] = []
            for row, count in zip(rows, counts, strict=True):
                if not count:
                    marks.append((0, BEGINNING))
                    continue
                key = keys[row]
                refused_count = count + 1 if closed is None else closed.get(key, count + 1)
                is_charged = count < refused_count and book.charge(key, terms_by_count[count], limit)
                if closed is not None and not is_charged:
                    closed[key] = min(count, refused_count)
                marks.append((book.head.number, book.head.hash) if is_charged and book.head else None)
            return marks

    @contextmanager
    def _open_for_charging(self, cost: Cost) -> Iterator[tuple[LedgerTransaction, Terms, Limit | None]]:
        """Open a transaction that charges a cost, after checking its relation, its unit and the names."""
        with self._open_for_writing() as book:
            relation = book.relation
            if relation not in (None, cost.unit):
                expectation = f"{relation or 'no unit'}, as charged (what another relation bounds is for another file)"
                raise InputError([Fault(str(self.path), "unit", cost.unit or "no unit", expectation)])
            limit = book.limit_of(cost.account)
            # If only other units are limited, charges of this unit would be unlimited without anyone noticing.
            if limit is None and (limited_units := book.units("limit")):
                expectation = (
                    f"one in {' or '.join(sorted(limited_units))}, which is limited, or a limit in {cost.account} too ("
                )
                expectation += f'privopt budget {self.path} --set AMOUNT --unit "{cost.account}")'
                raise InputError([Fault(str(self.path), "unit", f"a charge of {cost.account}", expectation)])
            if not book.names:
                book.add(Terms(kind="names", purpose=self._names.label))
            book.check_names(self._names.label)
            yield book, Terms.of_cost(cost), limit

    # --- asking -------------------------------------------------------------------------------------------

    @property
    def unit(self) -> str | None:
        """The relation that all amounts are for: whom, or which distance; None before the first charge."""
        with self._open_for_reading() as book:
            return book.relation

    def limit_of(self, unit: str) -> Limit | None:
        """Return the limit of each subject in a unit; None without a limit."""
        with self._open_for_reading() as book:
            return book.limit_of(unit)

    @property
    def units(self) -> tuple[str, ...]:
        """The units that have charges or limits; epsilon if there are none."""
        with self._open_for_reading() as book:
            units = book.units("charge") | book.units("limit")
        return tuple(unit for unit in UNITS if unit in units) or (EPSILON,)

    def set_limit(
        self,
        amount: Amount,
        *,
        delta: Amount | None = None,
        hours: Amount | None = None,
        per: str | None = None,
        zone: str = "UTC",
        unit: str | None = None,
    ) -> None:
        """Set or change the limit. A limit is an entry like every other, so that raising it leaves a trace.

        Args:
            amount: that each subject may spend, exactly: text, whole number or rational.
            delta: in addition, where epsilon and delta add up.
            unit: one of :data:`privopt.interfaces.cost.UNITS`; None: that of the charges, which must be one.
            hours: in each window of that length, however it lies; what all windows together add up to is not limited.
                None: once, for ever, or by the calendar.
            per: in each calendar ``"day"``, ``"week"`` or ``"month"`` in which reports' own times lie; None for no
                calendar.
            zone: of the calendar, such as Europe/Rome.

        Raises:
            UsageError: no such amounts, both a window and a calendar, or another calendar than that of charges that
                there are: they would have to be counted again.
        """
        if unit is None and delta is None and len(units := self.units) > 1:
            rule = "the unit of the limit must be given (--unit)"
            raise UsageError(f"{self.path}: {rule}, got accounts in {', '.join(units)}")
        unit = unit or (PAIR if delta is not None else self.units[0])
        calendar = None if per is None else Calendar(per, zone)
        limit = Limit(amount=amount, delta=delta, hours=hours, calendar=calendar, account=unit)
        with self._open_for_writing() as book:
            old_limit = book.limit_of(unit)
            previous = None if old_limit is None else old_limit.calendar
            if unit in book.units("charge") and previous != calendar:
                raise UsageError(
                    f"{self.path}: calendar must be {previous or 'none'}, as charged so far, got {calendar or 'none'}: "
                    "give the same --per and --zone, or begin a new ledger"
                )
            book.add(Terms.of_limit(limit))

    def _select_unit(self, unit: str | None) -> str:
        """Return the given unit, or the first one of the ledger."""
        selected = self.units[0] if unit is None else unit
        if selected not in UNITS:
            raise UsageError(f"unit must be one of {', '.join(UNITS)}, got {cut(repr(selected))}")
        return selected

    def account(
        self, subject: str, *, hours: Amount | None = None, period: str | None = None, unit: str | None = None
    ) -> Account:
        """Return what a subject has spent, and has left.

        Args:
            subject: as the caller calls it; one that was never charged has spent nothing.
            hours: ``spent`` is what it was in the window of that length that ends now; None: in all.
            period: to report on, if the limit is by the calendar; None for the current one.
            unit: of the account; None: the first of :attr:`units`.

        Raises:
            UsageError: a unit that there is not.
        """
        unit = self._select_unit(unit)
        with self._open_for_reading() as book:
            book.check_names(self._names.label)
            name, limit = self._names.of(subject), book.limit_of(unit)
            return book.account(book.key_of(name, period, limit, unit), subject_name(subject), micros_of(hours), limit)

    def accounts(self, *, hours: Amount | None = None, unit: str | None = None) -> list[Account]:
        """Return every subject's account in a unit, by the ledger's names, and by period; see :meth:`account`."""
        unit = self._select_unit(unit)
        with self._open_for_reading() as book:
            limit, micros = book.limit_of(unit), micros_of(hours)
            return [book.account(key, key.subject, micros, limit) for key in book.accounts(unit)]

    def charges(self, subject: str | None = None) -> list[Charge]:
        """List the charges, oldest first.

        Args:
            subject: whose; None for everybody's.
        """
        with self._open_for_reading() as book:
            return book.charges(None if subject is None else self._names.of(subject))

    def purposes(self) -> list[str]:
        """Return the different purposes of charges."""
        with self._open_for_reading() as book:
            rows = book.connection.execute("SELECT DISTINCT purpose FROM terms WHERE kind = 'charge'")
            return [purpose for (purpose,) in rows]

    def charges_for(self, purpose: str) -> dict[AccountKey, list[Fraction]]:
        """Return epsilon, or rho, of each charge for a purpose, oldest first, by account."""
        query = (
            "SELECT a.subject, a.unit, a.period, t.amount FROM entries e JOIN terms t ON t.id = e.terms "
            "JOIN accounts a ON a.id = e.account WHERE t.purpose = ? ORDER BY e.number"
        )
        amounts_by_account: dict[AccountKey, list[Fraction]] = {}
        with self._open_for_reading() as book:
            for *key, amount in book.connection.execute(query, (purpose,)):
                amounts_by_account.setdefault(AccountKey(*key), []).append(sum_of(amount)[0])
        return amounts_by_account

    def name_of(self, subject: str) -> str:
        """Return the ledger's name for a subject: its normal form, or a keyed hash of that."""
        return self._names.of(subject)

    def standing(self, marks: Iterable[Mark]) -> set[Mark]:
        """Return the entries that this ledger has. Entries of another ledger, or lost with a backup, are left out."""
        with self._open_for_reading() as book:
            return {(number, digest) for number, digest in set(marks) if book.hash_of(number) == digest}

    @property
    def beginning(self) -> bytes:
        """The hash of the first entry, which identifies the ledger, because the entry has a random text."""
        with self._open_for_reading(make=True) as book:
            return book.hash_of(1)

    @property
    def head(self) -> str:
        """Number and hash of the last entry, ``N:HASH``. Stored elsewhere, it shows whether the end was cut off."""
        with self._open_for_reading(make=True) as book:
            assert book.head is not None  # every ledger has the entry that it began with
            return f"{book.head.number}:{book.head.hash.hex()}"

    def check(self, *, head: str | None = None, progress: Progress | None = None) -> None:
        """Recompute every hash and every total, and ask the database for its own check.

        Args:
            head: of this ledger at an earlier time (:attr:`head`); nothing else shows that entries were cut off at the
                end.
            progress: called with how many entries are done.

        Raises:
            DoesNotHoldError: something was changed; the entry is named.
            UsageError: ``head`` is not N:HASH.
        """
        with self._open_for_reading() as book:
            check_chain(book.connection, self.path, head=None if head is None else head_of(head), progress=progress)
