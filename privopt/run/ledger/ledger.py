"""A ledger of what subjects have spent: an odometer, and a filter before every draw (mathematics T1, T2)."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import define, field
from attrs.converters import optional

from privopt.errors import BudgetSpentError, DoesNotHoldError, Fault, InputError, UsageError, cut
from privopt.interfaces import Progress
from privopt.run.ledger import events
from privopt.run.ledger.booking import SCHEMA, Booking, Mark
from privopt.run.ledger.check import check_chain
from privopt.run.ledger.entries import Account, Amount, Charge, Cost, Limit, Terms, amount_of
from privopt.run.ledger.file import Form, connected, made, said_by, writing
from privopt.run.ledger.names import Names

if TYPE_CHECKING:
    from opendp.mod import Measurement

__all__ = ["FORM", "Ledger"]

FORM: Final = Form(name="ledger of privopt", mark=0x70764C31, schema=SCHEMA)


def _micros(hours: Amount | None) -> int | None:
    return None if hours is None else Limit(amount=Fraction(0), hours=hours).micros


@define(eq=False)
class Ledger:
    """What each subject has spent, in one file that only grows.

    ::

        ledger = Ledger("commuters.ledger")
        ledger.set_limit(8, hours=720)
        ledger.charge("anna", Cost(epsilon="0.5", unit="per km", purpose="morning of May 1"))
        ledger.account("anna").left

    Every entry holds the SHA-256 of the one before, what its subject has spent with it, exactly, and when. A charge is
    durable before :meth:`charge` returns: draw after it. Several processes may charge at once; each transaction waits
    up to a minute for the others. Charging and asking take O(log n) each for n entries, and rely on no entry whose hash
    they have not recomputed; :meth:`check` recomputes all. A process has a ledger of its own: one that is open does not
    survive a fork, nor does it go to another thread.

    Attributes:
        path: of the file; made, for its owner alone, where there is none.
        key: file with the key under which subjects' names are hashed (HMAC-SHA256), made where there is none; None for
            names as they are. A ledger names all subjects in one way.
        make: False to refuse a path where there is nothing.
        clock: nanoseconds since 1970, UTC.

    Raises:
        InputError: no ledger, or a key that is none.
        DoesNotHoldError: a ledger that is not as it was written.
        UsageError: it may not be written; a key that others may read, or another than this ledger's.
        StoppedError: the disk, or another process, is in the way.
    """

    path: Path = field(converter=Path)
    key: Path | None = field(default=None, kw_only=True, converter=optional(Path))
    make: bool = field(default=True, kw_only=True)
    clock: Callable[[], int] = field(default=time.time_ns, kw_only=True, repr=False)
    _names: Names = field(init=False, repr=False)
    _connection: sqlite3.Connection = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.make and not self.path.exists():
            self._names = Names.by(self.key, make=True)
            made(self.path, FORM, self._begin)
        self._connection = connected(self.path, FORM)
        try:
            with self._reading() as book:
                known = book.names
            self._names = self._named_as(known)
        except BaseException:
            self.close()
            raise

    def _named_as(self, known: str) -> Names:
        """How subjects are named, where the ledger says already how."""
        if known == Names().label and self.key is not None:
            raise InputError([Fault(str(self.path), "subjects", "a key to hash them", "plain names, as charged")])
        return Names.by(self.key, make=self.make and not known)

    def _begin(self, connection: sqlite3.Connection) -> None:
        book = Booking(connection=connection, path=self.path, clock=self.clock)
        book.add(Terms(kind="begin", purpose=f"privopt ledger 1 {secrets.token_hex(16)}"))
        book.close()

    def close(self) -> None:
        """Close the file."""
        with said_by(self.path, "the database's own check"):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[Booking]:
        with said_by(self.path, "the database's own check"):
            self._connection.execute("BEGIN")
            try:
                yield Booking(connection=self._connection, path=self.path, clock=self.clock)
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def _booking(self) -> Iterator[Booking]:
        with writing(self._connection, self.path):
            book = Booking(connection=self._connection, path=self.path, clock=self.clock)
            yield book
            book.close()

    # --- charging -----------------------------------------------------------------------------------------

    def charge(self, subject: str, cost: Cost) -> None:
        """Charge one report to a subject, durably, before it is drawn.

        Raises:
            BudgetSpentError: it would pass the limit; nothing was charged: draw nothing.
            InputError: another unit or key than the ledger's.
        """
        if not self.charge_each([subject], cost)[0]:
            raise self.refusal(subject, cost)

    def refusal(self, subject: str, cost: Cost) -> BudgetSpentError:
        """The error of a charge that was refused: what it takes, and what its subject has left."""
        left = self.account(subject).left
        found = f"epsilon {cost.epsilon} where {left} is left" if left is not None else "no budget"
        return BudgetSpentError(
            f"{self.path}: subject {cut(subject)}: budget spent: found {found}; nothing was charged"
        )

    def charge_each(self, subjects: Sequence[str], cost: Cost) -> list[bool]:
        """Charge many reports, in order and in one transaction that is durable when this returns.

        Args:
            subjects: whom each report is about; the same one may come again.
            cost: of each.

        Returns:
            Of each report whether it was charged; the others would have passed the limit: they must not be drawn.

        Raises:
            InputError: another unit or key than the ledger's; nothing was charged.
        """
        return [entry is not None for entry in self.booked(subjects, cost)]

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
        with self._charging(cost) as (book, terms, limit):
            name = self._charged_as(book, subject)
            return next((done for done in range(times) if not book.charge(name, cost, terms, limit)), times)

    def booked(self, subjects: Sequence[str], cost: Cost) -> list[Mark | None]:
        """Charge like :meth:`charge_each`; returns each report's entry, None for those that were refused."""
        with self._charging(cost) as (book, terms, limit):
            names = {subject: self._charged_as(book, subject) for subject in dict.fromkeys(subjects)}
            return [
                (book.head.number, book.head.hash)
                if book.charge(names[subject], cost, terms, limit) and book.head
                else None
                for subject in subjects
            ]

    def _charged_as(self, book: Booking, subject: str) -> str:
        """The one name under which a subject is charged, however its accents are spelt.

        Raises:
            InputError: an older ledger has it under several, each with a budget of its own.
        """
        spelt = self._names.spelt(subject)
        known = [name for name in spelt if book.knows(name)] if len(spelt) > 1 else []
        if len(known) > 1:
            found = f"{len(known)} spellings of one name, each with charges of its own"
            wanted = "one: begin another ledger, with a limit that is less by what all of them spent"
            raise InputError([Fault(str(self.path), f"subject {cut(subject)}", found, wanted)])
        return known[0] if known else spelt[0]

    def _asked_as(self, book: Booking, subject: str) -> str:
        """The name under which a subject is looked up: as it is spelt here, where the ledger has that."""
        given, spelt = self._names.of(subject), self._names.spelt(subject)
        return next((name for name in (given, *spelt) if len(spelt) > 1 and book.knows(name)), spelt[0])

    def charge_disjoint(self, subjects: Sequence[str], cost: Cost) -> None:
        """Charge one release to all the subjects that it is about, each of whom is in one part of its data alone.

        Parallel composition (McSherry, SIGMOD 2009): where parts have no person in common, a person's loss is that of
        its own part. The ledger cannot see the data: that the parts are disjoint is the caller's word, and that no
        subject stands twice is checked. All are charged or none.

        Raises:
            UsageError: nobody, or a subject twice.
            BudgetSpentError: one of them has not enough left; nobody was charged.
            InputError: another unit or key than the ledger's.
        """
        whose = {subject: self._names.spelt(subject)[0] for subject in subjects}
        again = next((name for name, times in Counter(whose[each] for each in subjects).items() if times > 1), None)
        if again is not None or not subjects:
            twice = next((subject for subject, name in whose.items() if name == again), "")
            found = "nobody" if again is None else f"{cut(twice)} twice"
            raise UsageError(f"subjects: found {found}, wanted each once: parts with a person in common add up")
        with self._charging(cost) as (book, terms, limit):
            for subject in subjects:
                if not book.charge(self._charged_as(book, subject), cost, terms, limit):
                    raise BudgetSpentError(f"{self.path}: subject {cut(subject)}: budget spent; nobody was charged")

    @contextmanager
    def _charging(self, cost: Cost) -> Iterator[tuple[Booking, Terms, Limit | None]]:
        with self._booking() as book:
            known = cost.unit if book.first is None else book.first.unit
            if cost.unit != known:
                wanted = f"{known or 'none'}, as charged: a ledger has one unit, another is for another file"
                raise InputError([Fault(str(self.path), "unit", cost.unit or "none", wanted)])
            if not book.names:
                book.add(Terms(kind="names", purpose=self._names.label))
            self._check_names(book)
            yield book, Terms.charge(cost), book.limit

    def _check_names(self, book: Booking) -> None:
        if book.names and book.names != self._names.label:
            raise InputError([Fault(str(self.path), "subjects", self._names.label, f"{book.names}, as charged")])

    # --- asking -------------------------------------------------------------------------------------------

    @property
    def unit(self) -> str | None:
        """Unit of all amounts, the first charge's; None before it."""
        with self._reading() as book:
            return None if book.first is None else book.first.unit

    @property
    def limit(self) -> Limit | None:
        """What each subject may spend; None without a limit: then the ledger only counts."""
        with self._reading() as book:
            return book.limit

    def set_limit(self, amount: Amount, *, hours: Amount | None = None) -> None:
        """Make or change the limit: an entry like every other, so that nobody raises it unseen.

        Args:
            amount: that each subject may spend, exactly: text, whole number or rational.
            hours: in each window of that length, however it lies; what all windows together add up to is not limited.
                None: once, for ever.

        Raises:
            UsageError: no such amounts.
        """
        limit = Limit(amount=amount, hours=hours)
        with self._booking() as book:
            book.add(Terms.limit(limit))

    def account(self, subject: str, *, hours: Amount | None = None) -> Account:
        """What a subject has spent, and has left.

        Args:
            subject: as the caller calls it; one that was never charged has spent nothing.
            hours: ``spent`` is what it was in the window of that length that ends now; None: in all.
        """
        with self._reading() as book:
            self._check_names(book)
            return self._account(book, self._asked_as(book, subject), subject, _micros(hours), book.limit)

    def accounts(self, *, hours: Amount | None = None) -> list[Account]:
        """Every subject's account, by name as the ledger has it; see :meth:`account`."""
        with self._reading() as book:
            limit, micros = book.limit, _micros(hours)
            names = [name for (name,) in self._connection.execute("SELECT name FROM subjects ORDER BY name")]
            return [self._account(book, name, name, micros, limit) for name in names]

    def _account(self, book: Booking, name: str, subject: str, micros: int | None, limit: Limit | None) -> Account:
        _, total, count, before = book.balance(name, micros)
        left = None
        if limit is not None:
            same = limit.micros == micros
            base = before if same else book.balance(name, limit.micros)[3]
            left = max(Fraction(0), limit.amount - (total - base))
        return Account(subject=subject, spent=total - before, left=left, reports=count)

    def charges(self, subject: str | None = None) -> list[Charge]:
        """Each charge, oldest first.

        Args:
            subject: whose; None for everybody's.
        """
        whose, values = ("", ()) if subject is None else ("WHERE s.name = ? ", (self.named(subject),))
        query = "SELECT s.name, e.terms, e.time, e.number FROM entries e JOIN subjects s ON s.id = e.subject "
        known: dict[int, Cost] = {}
        found = []
        with self._reading() as book:
            for name, number, at, entry in self._connection.execute(f"{query}{whose}ORDER BY e.number", values):
                if number not in known:
                    known[number] = _cost_of(book.terms_of(number), self.path, entry)
                found.append(Charge(number=entry, subject=name, time=at, cost=known[number]))
        return found

    def to_opendp(self, subject: str) -> Measurement:
        """A subject's charges as one OpenDP measurement: see :func:`privopt.run.ledger.events.to_opendp`."""
        return events.to_opendp(charge.cost for charge in self.charges(subject))

    def to_dp_accounting(self, subject: str) -> object:
        """A subject's charges as one event of dp-accounting: see :func:`privopt.run.ledger.events.to_dp_accounting`."""
        return events.to_dp_accounting(charge.cost for charge in self.charges(subject))

    def named(self, subject: str) -> str:
        """What the ledger calls a subject: itself, or its keyed hash, by the spelling under which it was charged."""
        if len(spelt := self._names.spelt(subject)) == 1:
            return spelt[0]
        with self._reading() as book:
            return self._asked_as(book, subject)

    def standing(self, marks: Iterable[Mark]) -> set[Mark]:
        """Which of some entries are in this ledger: none of another ledger's, nor those that a backup has lost."""
        with self._reading() as book:
            return {(number, digest) for number, digest in set(marks) if book.hash_of(number) == digest}

    @property
    def beginning(self) -> bytes:
        """The hash of the first entry, which no two ledgers have in common: it holds a random text."""
        with self._reading() as book:
            return book.hash_of(1)

    @property
    def head(self) -> str:
        """Number and hash of the last entry, ``N:HASH``: kept elsewhere, it tells whether the end was cut off."""
        with self._reading() as book:
            assert book.head is not None  # every ledger has the entry that it began with
            return f"{book.head.number}:{book.head.hash.hex()}"

    def check(self, *, head: str | None = None, progress: Progress | None = None) -> None:
        """Recompute every hash and every total, and ask the database for its own check.

        Args:
            head: of this ledger at an earlier time (:attr:`head`); entries that were cut off at the end are told by
                nothing else.
            progress: called with how many entries are done.

        Raises:
            DoesNotHoldError: something was changed; the entry is named.
            UsageError: ``head`` is none.
        """
        known = None if head is None else _head_of(head)
        with self._reading():
            check_chain(self._connection, self.path, head=known, progress=progress)


def _cost_of(terms: Terms | None, path: Path, entry: int) -> Cost:
    if terms is None:
        raise DoesNotHoldError(f"{path}: entry {entry}: changed: what it was charged for is gone")
    values: dict[str, Any] = {"unit": terms.unit, "notion": terms.notion, "mechanism": terms.mechanism}
    return Cost(epsilon=amount_of(terms.amount, "epsilon"), purpose=terms.purpose, **values)


def _head_of(text: str) -> tuple[int, str]:
    number, _, digest = text.partition(":")
    if not (number.isdecimal() and len(number) < 19 and len(digest) == 64 and set(digest) <= set("0123456789abcdef")):
        raise UsageError(f"head: found {cut(repr(text))}, wanted N:HASH, as budget tells it")
    return int(number), digest
