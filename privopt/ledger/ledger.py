"""A ledger of the privacy budget spent by each subject, which is charged before every draw (docs/guide/repeated.md)."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

from attrs import define, field

from privopt.errors import BudgetSpentError, Fault, InputError, UsageError, cut
from privopt.files.log_file import Form, LogFile
from privopt.interfaces import Progress
from privopt.interfaces.cost import EPSILON, PAIR, UNITS, Amount, Cost, sum_text
from privopt.ledger.accounts import Account, Charge
from privopt.ledger.balances import SCHEMA, LedgerTransaction, Mark
from privopt.ledger.checkpoints import check_ledger
from privopt.ledger.entries import BEGINNING, AccountKey, Limit, Terms, micros_of
from privopt.ledger.periods import Calendar
from privopt.ledger.rotation import Rotation, check_history, has_others, predecessor_of, predecessors, rotate_file
from privopt.ledger.subject_names import PLAIN, Names, derive_column_key, key_at, key_path, subject_name

__all__ = ["FORM", "Ledger"]

FORM: Final = Form(name="ledger of privopt", mark=0x70764C31, schema=SCHEMA)


@define(eq=False)
class Ledger(LogFile):
    """A record of the privacy budget spent by each subject, in a single append-only file.

    A subject has a separate account for each unit in which costs add up: epsilon, rho, and epsilon with delta. All
    charges are for the same neighbouring relation (:attr:`unit`), because costs under different relations do not add
    up.

    ::

        ledger = Ledger("commuters.ledger")
        ledger.set_limit(8, hours=720)
        ledger.charge("anna", Cost(epsilon="0.5", unit="per km", purpose="morning of May 1"))
        ledger.account("anna").left

    Every entry contains the SHA-256 of the previous entry, the subject's exact total including this entry, and the
    time. A charge is durable once :meth:`charge` returns, so draw only after the call. Several processes can charge
    concurrently, each waiting up to a minute for the others. With n entries, charging or reading an account takes O(log
    n) time, and relies only on entries whose hashes are recomputed. Each process (even a fork) and each thread must
    open its own Ledger.

    Attributes:
        path: The ledger's file. If it is missing, it is created by the first limit or charge, accessible only to its
            owner.
        key: The file containing the key for hashing subjects' names (HMAC-SHA256), or None if names are stored in plain
            text.
        make: Whether to create the ledger and, before the first charge, the key file if they are missing.
        clock: A function that returns the time in nanoseconds since 1970, UTC.
        form: The kind of file and its tables.
        checked_from: The number of the first entry recomputed by the last :meth:`check`, or None if there has been no
            check.
        _label: The label of the scheme used to name subjects (:attr:`Names.label`), as read when the ledger was opened,
            or "" before the first charge.

    Raises:
        InputError: The file is not a ledger, the key file does not contain a key, or the key belongs to a different
            ledger.
        DoesNotHoldError: The ledger was changed after it was written.
        UsageError: The ledger is not writable, or other users can read the key file.
        StoppedError: An I/O error occurred, or another process kept writing for more than a minute.
    """

    form: Form = field(default=FORM, init=False, repr=False)
    key: Path | None = field(default=None, kw_only=True, converter=key_path)
    clock: Callable[[], int] = field(default=time.time_ns, kw_only=True, repr=False)
    checked_from: int | None = field(init=False, default=None, repr=False)
    _label: str = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Open the file, and check that its earlier charges used the same key."""
        super().__attrs_post_init__()
        try:
            with self._open_for_reading() as transaction:
                self._check_key(transaction)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        """Return the constructor call with the ledger's file and, if subjects' names are hashed, the key file."""
        return f"Ledger({str(self.path)!r}{'' if self.key is None else f', key={str(self.key)!r}'})"

    def _check_key(self, transaction: LedgerTransaction) -> None:
        """Check that the key is the one used for earlier charges, and that an existing key file is valid."""
        self._label = transaction.names
        if self.key is None:
            return
        if self._label == PLAIN:
            raise InputError([Fault(str(self.path), "subjects", "a key to hash them", "plain names, as charged")])
        # This reads the key, so that an invalid file is rejected now. The first charge may still create a missing one.
        if self._label or self.key.exists() or not self.make:
            transaction.check_names(self._names.label)

    @cached_property
    def _names(self) -> Names:
        """The naming scheme for subjects.

        If ``make`` is True and nothing has been charged yet, a missing key file is created.
        """
        return Names(None if self.key is None else key_at(self.key, make=self.make and not self._label))

    def begin(self, connection: sqlite3.Connection) -> None:
        """Write the first entry, which contains a random string identifying the ledger.

        Args:
            connection: The new database, in a transaction.
        """
        transaction = LedgerTransaction(connection=connection, path=self.path, clock=self.clock)
        transaction.add(Terms(kind="begin", purpose=f"privopt ledger 1 {secrets.token_hex(16)}"))
        transaction.close()

    @contextmanager
    def _open_for_reading(self, *, make: bool = False) -> Iterator[LedgerTransaction]:
        """Open a transaction that reads a snapshot of the ledger. A missing file is created if ``make`` is True."""
        with self.reading(make=make) as connection:
            yield LedgerTransaction(connection=connection, path=self.path, clock=self.clock)

    @contextmanager
    def _open_for_writing(self) -> Iterator[LedgerTransaction]:
        """Open a transaction that is committed if the ``with`` block ends without an error."""
        with self.writing() as connection:
            transaction = LedgerTransaction(connection=connection, path=self.path, clock=self.clock)
            transaction.check_open()
            yield transaction
            transaction.close()

    # --- charging -----------------------------------------------------------------------------------------

    def charge(self, subject: str, cost: Cost, *, alone: bool = False, period: str | None = None) -> None:
        """Durably charge a subject for one report. The report may be drawn only after this call.

        Args:
            subject: The person the report is about. Spellings of a name with the same normal form denote the same
                subject (:func:`privopt.declare.name_forms.fold_subject_name`).
            cost: The cost of the report.
            alone: Whether to raise an error if the ledger has any other subject. Set this if the name is a default.
            period: The calendar period to charge, as named by :class:`~privopt.ledger.periods.Calendar`. Defaults to
                the current one if the limit has a calendar.

        Raises:
            BudgetSpentError: The charge would exceed the limit. Nothing was charged, and nothing may be drawn.
            InputError: The cost's relation or unit, or the key, does not match the ledger. Nothing was charged.
            UsageError: The name or the period is invalid, or ``alone`` is True and the ledger has another subject.
                Nothing was charged.
        """
        with self._open_for_charging(cost) as (transaction, terms, limit):
            name = self._names.of(subject)
            if alone and has_others(transaction, name, FORM):
                reason = f"a default, {cut(subject)}, could give the same people a second budget"
                raise UsageError(f"{self.path}: has other subjects, and {reason}; name the subject: --subject ID")
            is_charged = transaction.charge(transaction.key_of(name, period, limit, cost.account), terms, limit)
        if not is_charged:
            raise self.refusal(subject, cost, period)

    def refusal(self, subject: str, cost: Cost, period: str | None = None) -> BudgetSpentError:
        """Return the error to raise for a refused charge, stating the request and the subject's remaining budget.

        Args:
            subject: The subject, as the caller names it.
            cost: The refused cost.
            period: The calendar period, such as ``2026-03``. Defaults to the current one if the limit has a calendar.
        """
        account = self.account(subject, period=period, unit=cost.account)
        request, within = f"{cost.account} {sum_text(cost.amount)}", f" in {account.period}" if account.period else ""
        remaining = account.left_text
        actual = "no budget" if remaining is None else f"asked for {request}, but {remaining} is left{within}"
        return BudgetSpentError(
            f"{self.path}: subject {self.label_of(subject)}: budget spent: {actual}; nothing was charged"
        )

    def charge_each(
        self,
        subjects: Sequence[str],
        cost: Cost,
        periods: Sequence[str | None] | None = None,
        times: Sequence[int] | None = None,
        closed: dict[AccountKey, int] | None = None,
    ) -> list[bool]:
        """Charge many reports in order, in a single transaction that is durable once this method returns.

        Args:
            subjects: The subject of each report. A subject can occur any number of times.
            cost: The cost of one report.
            periods: The calendar period in which each report is charged, as named by
                :class:`~privopt.ledger.periods.Calendar`. Defaults to the current one if the limit has a calendar.
            times: The factor by which to multiply the cost of each report (1 by default). A factor of 0 charges
                nothing.
            closed: The smallest factor refused so far, keyed by account. Reports with at least this factor are refused,
                and new refusals are added. If None, each report is checked against the limit.

        Returns:
            Whether each report was charged. Reports that were not charged must not be drawn.

        Raises:
            InputError: The cost's relation or unit, or the key, does not match the ledger. Nothing was charged.
        """
        return [mark is not None for mark in self.charge_rows(subjects, cost, periods, times, closed)]

    def charge_times(self, subject: str, times: int, cost: Cost) -> int:
        """Charge reports to one subject in a single transaction until the next one would exceed the limit.

        Args:
            subject: The subject of all reports.
            times: The maximum number of reports.
            cost: The cost of each report.

        Returns:
            The number of reports charged. No more than this may be drawn.

        Raises:
            InputError: The cost's relation or unit, or the key, does not match the ledger. Nothing was charged.
        """
        # In one transaction, no other process can use up the limit between two of the reports.
        with self._open_for_charging(cost) as (transaction, terms, limit):
            key = transaction.key_of(self._names.of(subject), None, limit, cost.account)
            # This counts the charges before the first refused one.
            return next((count for count in range(times) if not transaction.charge(key, terms, limit)), times)

    def charge_rows(
        self,
        subjects: Sequence[str],
        cost: Cost,
        periods: Sequence[str | None] | None = None,
        times: Sequence[int] | None = None,
        closed: dict[AccountKey, int] | None = None,
    ) -> list[Mark | None]:
        """Charge reports like :meth:`charge_each`, and return the mark (number and hash) of each report's entry.

        The mark of a refused report is None. Reports with a factor of 0 are not charged, regardless of subject and
        period, and get the mark (0, :data:`BEGINNING`).

        Args:
            subjects, cost, periods, times, closed: See :meth:`charge_each`.
        """
        # Terms, names and accounts are looked up once for each distinct value, because tables repeat them.
        rows = list(zip(subjects, periods or [None] * len(subjects), strict=True))
        counts = times or [1] * len(rows)
        with self._open_for_charging(cost) as (transaction, _, limit):
            terms_by_count = {count: Terms.of_cost(cost.times(count)) for count in dict.fromkeys(counts) if count}
            charged_rows = dict.fromkeys(row for row, count in zip(rows, counts, strict=True) if count)
            names = {
                subject: self._names.of(subject) for subject in dict.fromkeys(subject for subject, _ in charged_rows)
            }
            keys = {row: transaction.key_of(names[row[0]], row[1], limit, cost.account) for row in charged_rows}
            marks: list[Mark | None] = []
            for row, count in zip(rows, counts, strict=True):
                if not count:
                    marks.append((0, BEGINNING))
                    continue
                key = keys[row]
                # Factors from the smallest refused one on are refused without a lookup. count + 1 stands for none.
                refused_count = count + 1 if closed is None else closed.get(key, count + 1)
                is_charged = count < refused_count and transaction.charge(key, terms_by_count[count], limit)
                if closed is not None and not is_charged:
                    closed[key] = min(count, refused_count)
                head = transaction.head
                marks.append((head.number, head.hash) if is_charged and head else None)
            return marks

    @contextmanager
    def _open_for_charging(self, cost: Cost) -> Iterator[tuple[LedgerTransaction, Terms, Limit | None]]:
        """Open a transaction for charging a cost, after checking the cost's relation and unit and the naming scheme.

        Yields:
            The transaction, the terms of one charge, and the limit, or None if there is no limit.

        Raises:
            InputError: Earlier charges have a different relation or naming scheme, or all limits are in other units.
        """
        with self._open_for_writing() as transaction:
            relation = transaction.relation
            if relation not in (None, cost.unit):
                expectation = f"{relation or 'no unit'}, as charged (what another relation bounds is for another file)"
                raise InputError([Fault(str(self.path), "unit", cost.unit or "no unit", expectation)])
            limit = transaction.limit_of(cost.account)
            # If only other units have a limit, charges in this unit would be unlimited without anyone noticing.
            if limit is None and (limited_units := transaction.units("limit")):
                expectation = (
                    f"one in {' or '.join(sorted(limited_units))}, which is limited, or a limit in {cost.account} too ("
                )
                expectation += f'privopt budget {self.path} --set AMOUNT --unit "{cost.account}")'
                raise InputError([Fault(str(self.path), "unit", f"a charge of {cost.account}", expectation)])
            # The first charge fixes how subjects are named. A person who is named in two ways would have two budgets.
            if not transaction.names:
                transaction.add(Terms(kind="names", purpose=self._names.label))
            transaction.check_names(self._names.label)
            yield transaction, Terms.of_cost(cost), limit

    # --- queries ------------------------------------------------------------------------------------------

    @property
    def unit(self) -> str | None:
        """The unit of all amounts, such as "per client" or "per km", or None before the first charge."""
        with self._open_for_reading() as transaction:
            return transaction.relation

    def limit_of(self, unit: str) -> Limit | None:
        """Return the limit that applies to each subject in the given unit, or None if there is no limit.

        Args:
            unit: "epsilon", "rho" or "(epsilon, delta)".
        """
        with self._open_for_reading() as transaction:
            return transaction.limit_of(unit)

    @property
    def units(self) -> tuple[str, ...]:
        """The units (epsilon, rho, epsilon with delta) that have charges or limits, or epsilon if there are none."""
        with self._open_for_reading() as transaction:
            units = transaction.units("charge") | transaction.units("limit")
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
        """Set or change the limit. Every limit is recorded as a ledger entry, so raising a limit leaves a trace.

        Args:
            amount: The exact amount that each subject may spend, as a string, integer or rational number.
            delta: The delta that each subject may additionally spend, if the unit is epsilon with delta.
            unit: One of :data:`privopt.interfaces.cost.UNITS`. By default, it is epsilon with delta if a delta is
                given, and otherwise the ledger's only unit.
            hours: The length of a sliding window, or None if the limit applies to all time or to calendar periods. The
                amount may be spent in every window of this length, and the total across all windows is not limited.
            per: ``"day"``, ``"week"`` or ``"month"`` if the amount may be spent in each calendar period of this kind,
                or None if the limit does not apply to calendar periods. A report counts towards the period that
                contains its time.
            zone: The calendar's time zone, such as Europe/Rome.

        Raises:
            UsageError: An amount is invalid, both a window and a calendar are given, the unit is ambiguous, or earlier
                charges were made under a different calendar.
        """
        if unit is None and delta is None and len(units := self.units) > 1:
            rule = "the unit of the limit must be given (--unit)"
            raise UsageError(f"{self.path}: {rule}, got accounts in {', '.join(units)}")
        unit = unit or (PAIR if delta is not None else self.units[0])
        calendar = None if per is None else Calendar(per, zone)
        limit = Limit(amount=amount, delta=delta, hours=hours, calendar=calendar, account=unit)
        with self._open_for_writing() as transaction:
            old_limit = transaction.limit_of(unit)
            previous = None if old_limit is None else old_limit.calendar
            if unit in transaction.units("charge") and previous != calendar:
                raise UsageError(
                    f"{self.path}: calendar must be {previous or 'none'}, as charged so far, got {calendar or 'none'}: "
                    "give the same --per and --zone, or begin a new ledger"
                )
            transaction.add(Terms.of_limit(limit))

    def _select_unit(self, unit: str | None) -> str:
        """Return the given unit, or, if it is None, the first of the ledger's :attr:`units`.

        Raises:
            UsageError: There is no such unit.
        """
        selected = self.units[0] if unit is None else unit
        if selected not in UNITS:
            raise UsageError(f"unit must be one of {', '.join(UNITS)}, got {cut(repr(selected))}")
        return selected

    def account(
        self, subject: str, *, hours: Amount | None = None, period: str | None = None, unit: str | None = None
    ) -> Account:
        """Return a subject's account, with the amount spent and the amount remaining under the limit.

        Args:
            subject: The subject, as the caller names it. A subject that has never been charged has spent nothing.
            hours: The length in hours of a window that ends now. Only charges within it count as spent. If None, all
                charges count.
            period: The calendar period to report on. Defaults to the current one if the limit has a calendar.
            unit: The account's unit. Defaults to the first of :attr:`units`.

        Raises:
            UsageError: There is no such unit.
        """
        unit = self._select_unit(unit)
        with self._open_for_reading() as transaction:
            transaction.check_names(self._names.label)
            name, limit = self._names.of(subject), transaction.limit_of(unit)
            key = transaction.key_of(name, period, limit, unit)
            return transaction.account(key, subject_name(subject), micros_of(hours), limit)

    def accounts(self, *, hours: Amount | None = None, unit: str | None = None) -> list[Account]:
        """Return every subject's account in a unit (see :meth:`account`), sorted by name in the ledger and by period.

        Args:
            hours: The length in hours of a window that ends now. Only charges within it count as spent. If None, all
                charges count.
            unit: "epsilon", "rho" or "(epsilon, delta)". Defaults to the first of :attr:`units`.
        """
        unit = self._select_unit(unit)
        with self._open_for_reading() as transaction:
            limit, micros = transaction.limit_of(unit), micros_of(hours)
            return [transaction.account(key, key.subject, micros, limit) for key in transaction.accounts(unit)]

    def periods(self, subject: str, unit: str) -> list[str]:
        """Return the calendar periods in which a subject was charged in a unit, in chronological order.

        The list is empty if the subject was never charged for a calendar period.
        """
        with self._open_for_reading() as transaction:
            return transaction.periods(self._names.of(subject), unit)

    def charges(self, subject: str | None = None) -> list[Charge]:
        """Return the charges to a subject, or to all subjects, oldest first.

        Args:
            subject: The subject, as the caller names it. If None, the charges to all subjects are returned.
        """
        with self._open_for_reading() as transaction:
            return transaction.charges(None if subject is None else self._names.of(subject))

    def purposes(self) -> list[str]:
        """Return the distinct purposes of all charges (:attr:`Cost.purpose`), including those in archived periods."""
        with self._open_for_reading() as transaction:
            purposes: dict[str, None] = {}
            # The chain is lazy, because the archives are closed when their generator ends.
            for period in chain([transaction], (archived for _, archived in predecessors(transaction, FORM))):
                rows = period.connection.execute("SELECT DISTINCT purpose FROM terms WHERE kind = 'charge'")
                purposes |= dict.fromkeys(purpose for (purpose,) in rows)
            return list(purposes)

    def count_charges(self, mechanism: str) -> int:
        """Return the number of charges for a release's reports, not counting those in archived periods.

        Args:
            mechanism: The SHA-256 of the release, as in :attr:`Cost.mechanism`.
        """
        query = (
            "SELECT count(*) FROM entries e JOIN terms t ON t.id = e.terms WHERE t.kind = 'charge' AND t.mechanism = ?"
        )
        with self._open_for_reading() as transaction:
            (count,) = transaction.connection.execute(query, (mechanism,)).fetchone()
        return int(count)

    def charges_for(self, purpose: str) -> dict[AccountKey, list[Fraction]]:
        """Return the amounts (epsilon or rho) charged for a purpose, grouped by account, oldest first.

        Raises:
            DoesNotHoldError: The entry of one of these charges was changed.
        """
        with self._open_for_reading() as transaction:
            periods = [transaction.charges_for(purpose)]
            periods += [archived.charges_for(purpose) for _, archived in predecessors(transaction, FORM)]
        return _join_periods(periods)

    def name_of(self, subject: str) -> str:
        """Return a subject's name in the ledger, which is the normal form of the given name or a keyed hash of it."""
        return self._names.of(subject)

    def column_key(self) -> bytes:
        """Return the key for hashing columns in published tables, which is derived from the ledger's key.

        Raises:
            UsageError: The ledger has no key.
        """
        if self._names.key is None:
            raise UsageError(f"{self.path}: must hash its subjects under a key (--hash-subjects KEYFILE), got none")
        return derive_column_key(self._names.key)

    def label_of(self, subject: str) -> str:
        """Return a subject's name in the ledger, shortened for messages. It is a hash if the ledger has a key."""
        return cut(self.name_of(subject))

    def standing(self, marks: Iterable[Mark]) -> set[Mark]:
        """Return those marks (number and hash of an entry) whose entries exist in this ledger or its archived periods.

        An entry can be missing because it belongs to a different ledger, or because it was lost when a backup was
        restored.
        """
        return set(self.order_marks(marks))

    def order_marks(self, marks: Iterable[Mark]) -> list[Mark]:
        """Return those marks whose entries exist in this ledger or its archived periods, oldest entry first.

        Each period numbers its entries from 1, so numbers alone do not determine which of two charges came first.
        """
        with self._open_for_reading() as transaction:
            # Hashes are compared too, because another ledger has entries with the same numbers.
            missing = set(marks)
            ordered = sorted(mark for mark in missing if transaction.hash_of(mark[0]) == mark[1])
            missing -= {*ordered}
            # Reports that were charged in an archived period, up to the entry at which it was closed, stay charged.
            for predecessor, archived in predecessors(transaction, FORM) if missing else ():
                earlier = sorted(
                    mark for mark in missing if mark[0] <= predecessor.number and archived.hash_of(mark[0]) == mark[1]
                )
                ordered = [*earlier, *ordered]
                missing -= {*earlier}
            return ordered

    @property
    def beginning(self) -> bytes:
        """The hash of the first entry, which identifies the ledger because that entry contains a random string.

        If the ledger continues archived ledgers, this is the hash of the first entry in the oldest archive.
        """
        with self._open_for_reading(make=True) as transaction:
            predecessor = predecessor_of(transaction)
            return transaction.hash_of(1) if predecessor is None else predecessor.first

    @property
    def archive(self) -> Path | None:
        """The file of the archived period continued by this ledger, or None if the ledger was never rotated."""
        with self._open_for_reading() as transaction:
            predecessor = predecessor_of(transaction)
            return None if predecessor is None else predecessor.path

    @property
    def head(self) -> str:
        """The last entry's number and hash, as ``N:HASH``.

        Pass a saved copy to :meth:`check` to detect removed entries.
        """
        with self._open_for_reading(make=True) as transaction:
            assert transaction.head is not None  # every ledger has the entry with which it began
            return f"{transaction.head.number}:{transaction.head.hash.hex()}"

    def check(self, *, head: str | None = None, full: bool = True, progress: Progress | None = None) -> Path | None:
        """Check for changes by recomputing all hashes and totals, and run SQLite's integrity check.

        Args:
            head: An earlier :attr:`head`. Without it, the removal of entries at the end cannot be detected.
            full: Whether to check all entries rather than only those added since the last check. If ``head`` is given,
                all entries are checked.
            progress: A function to call with the number of entries checked so far.

        Returns:
            The archive that contains the entry ``head``, or None if it is in the open period or ``head`` is None.

        Raises:
            DoesNotHoldError: The ledger or an archive was changed.
            UsageError: ``head`` does not have the form ``N:HASH``.
        """
        with self._open_for_reading() as transaction:
            archive, self.checked_from = check_ledger(transaction, FORM, head=head, full=full, progress=progress)
        return archive

    def check_history(self, *, progress: Progress | None = None) -> int:
        """Check all archived periods, and the entries carried over from each one to the next. Call :meth:`check` first.

        Args:
            progress: A function to call with the number of entries checked so far.

        Returns:
            The number of archived periods.

        Raises:
            DoesNotHoldError: An archive is missing or changed, or its successor does not begin as required.
        """
        with self._open_for_reading() as transaction:
            return check_history(transaction, FORM, progress=progress)

    def rotate(
        self, *, progress: Progress | None = None, step: Callable[[str], object] = lambda name: None
    ) -> Rotation:
        """Close a period by archiving the file, and begin a new file with the charges that still count.

        The ledger is checked first, as by :meth:`check`. See :mod:`privopt.ledger.rotation`.

        Args:
            progress: A function to call with the number of entries checked so far.
            step: A function to call with the name of each step before it runs, so that tests can simulate crashes.

        Raises:
            DoesNotHoldError: The ledger was changed.
            StoppedError: Another process is using the ledger, or an I/O error occurred. Either the old or the new
                ledger is in place.
            UsageError: The ledger has no charges, or has already been archived.
        """
        with self._open_for_reading() as transaction:
            transaction.check_open()
        # The rotation locks the file through a separate connection, which this one would block.
        self.close()
        try:
            return rotate_file(self.path, self.form, self.clock, progress=progress, step=step)
        finally:
            self._connection = self._open_file()


def _join_periods(
    periods: Sequence[Mapping[AccountKey, Sequence[tuple[int, Fraction]]]],
) -> dict[AccountKey, list[Fraction]]:
    """Return the amounts charged in several periods of a ledger, grouped by account, oldest first.

    Charges in a sliding window occur in two periods, because a rotation copies them with their times. These copies are
    omitted. A charge is a copy if it is no newer than the account's last charge in an earlier period.

    Args:
        periods: For each period, the times (in microseconds since 1970) and amounts of each account's charges, newest
            period first.
    """
    joined: dict[AccountKey, list[Fraction]] = {}
    latest: dict[AccountKey, int] = {}
    for charges in reversed(periods):
        previous = dict(latest)
        for key, entries in charges.items():
            joined.setdefault(key, []).extend(amount for time, amount in entries if time > previous.get(key, -1))
            latest[key] = max(latest.get(key, -1), entries[-1][0])
    return joined
