"""Reports that are charged to their subjects: whom, before anything of a secret is looked at; kept ones once.

Which rows are charged is a function of the subjects alone (mathematics T2). Where reports are kept (T3) it is one of
which visits of a subject share a place, too, and of nothing else: rows without a position share a place of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

import narwhals as nw
import numpy as np
from attrs import define, frozen

from privopt.arrays import Ints
from privopt.declare.exact_text import exact_text
from privopt.errors import Fault, InputError, UsageError
from privopt.interfaces import Progress, Result
from privopt.registry import registry
from privopt.run.folder import SUMS, sha256
from privopt.run.ledger.entries import LONGEST, Cost, Limit
from privopt.run.ledger.ledger import Ledger
from privopt.run.ledger.sticky import SEQUENCE, Sticky
from privopt.tables.secret import TABLE, Secret, subjects_of
from privopt.tables.snap import REASONS

__all__ = [
    "STICKY",
    "ChargeRows",
    "Charging",
    "Drawn",
    "check_apart",
    "checked",
    "cost_of",
    "sequence_of",
]

STICKY: Final = "sticky"
"""The column that marks a table whose reports repeat."""

Drawn = tuple[Ints, Ints]
"""(B,) outputs, -1 for none; and (B,) why not, as a place in :data:`privopt.tables.snap.REASONS`, else -1."""

_SPENT, _NOBODY = REASONS.index("budget spent"), REASONS.index("no subject")


def cost_of(folder: Path, result: Result, purpose: str) -> Cost:
    """What one report of the release in a folder costs.

    Raises:
        UsageError: it promises nothing that could be counted.
    """
    guarantee, mark = result.guarantee, result.mark
    found = mark
    if not mark and guarantee.epsilon is None:
        found = f"{guarantee.kind}, which has no epsilon"
    elif not mark and not registry().kind("notion", guarantee.kind).load().odds:
        found = f"{guarantee.kind}, which does not add up by epsilon alone"
    if found or guarantee.epsilon is None:
        raise UsageError(f"{folder}: found {found}, wanted a release whose reports cost what can be charged")
    return Cost(
        epsilon=guarantee.epsilon,
        unit=guarantee.unit,
        notion=guarantee.kind,
        mechanism=sha256(folder / SUMS),
        purpose=purpose,
    )


def sequence_of(cost: Cost, limit: Limit | None, counted: str) -> str:
    """What holds of all reports of a subject that are drawn afresh, in words.

    Args:
        cost: of each.
        limit: of the ledger.
        counted: what is charged, whatever its position.
    """
    price = f"epsilon {exact_text(cost.epsilon)} {cost.unit}".rstrip()
    return (
        f"what holds of all reports of a subject: as much as one promises, at {price} times their number; "
        f"each {counted} counts, whatever its position, so charges and refusals tell nothing of it{_window(limit)}"
    )


def _window(limit: Limit | None) -> str:
    if limit is None or limit.hours is None:
        return ""
    return f"; the limit is of any {exact_text(limit.hours)} hours: what longer times add up to has none"


@contextmanager
def checked(
    ledger: Ledger | Path | str, *, key: Path | None = None, progress: Progress | None = None
) -> Iterator[Ledger]:
    """A ledger that is open, as whole as its owner has seen it to be; or one that is opened, and checked.

    Raises:
        DoesNotHoldError: an entry that is not as it was written.
        InputError, UsageError, StoppedError: as of :class:`Ledger`.
    """
    if isinstance(ledger, Ledger):
        yield ledger
        return
    with Ledger(ledger, key=key) as book:
        book.check(progress=progress)
        yield book


def check_apart(ledger: Path, key: Path | None, folder: Path, *files: Path) -> None:
    """Refuse a ledger or a key in the release's folder, or under the name of a file of the command.

    Raises:
        UsageError: it lies there.
    """
    for option, path in (("--ledger", ledger), ("--hash-subjects", key)):
        if path is None:
            continue
        place = path.absolute().resolve()
        if place.is_relative_to(folder.resolve()):
            raise UsageError(f"{option} {path}: lies in {folder}, which holds the release alone; name a file elsewhere")
        if place in [file.absolute().resolve() for file in files]:
            raise UsageError(f"{option} {path}: found the name of a table, wanted a file of its own")


@frozen(kw_only=True)
class ChargeRows:
    """Where and whom to charge: options of ``privopt apply``.

    Attributes:
        ledger: its file, made where there is none.
        subject: column of the table that says whom each row is about.
        sticky: keep and repeat the first report of each subject's place.
        key: file with the key under which the ledger hashes subjects; None for names as they are.
    """

    ledger: Path
    subject: str
    sticky: bool = False
    key: Path | None = None

    def opened(self, cost: Cost, *, progress: Progress | None = None) -> AbstractContextManager[Charging]:
        """Ready to charge.

        Raises:
            PrivoptError: a ledger, a key or kept reports that will not do.
        """
        return Charging.to(self.ledger, self.subject, cost, sticky=self.sticky, key=self.key, progress=progress)


@define(kw_only=True, eq=False)
class Charging:
    """Charges rows of tables.

    Attributes:
        ledger: open.
        subject: column.
        cost: of each report.
        sticky: the kept reports; None to draw for every row.
        charged: rows that were charged so far.
    """

    ledger: Ledger
    subject: str
    cost: Cost
    sticky: Sticky | None = None
    charged: int = 0

    @classmethod
    @contextmanager
    def to(
        cls,
        ledger: Ledger | Path | str,
        subject: str,
        cost: Cost,
        *,
        sticky: bool,
        key: Path | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Self]:
        """With a ledger (see :func:`checked`), and the kept reports beside it where they are asked for.

        Raises:
            DoesNotHoldError: an entry that is not as it was written.
        """
        with ExitStack() as stack:
            book = stack.enter_context(checked(ledger, key=key, progress=progress))
            kept = stack.enter_context(Sticky.beside(book)) if sticky else None
            yield cls(ledger=book, subject=subject, cost=cost, sticky=kept)

    def check(self, names: list[str], table: str, secret: Secret) -> None:
        """Refuse a table without the column, or one whose secret it is.

        Raises:
            InputError: a fault.
        """
        if self.subject not in names or self.subject in (*secret.columns, *secret.also):
            found = "no such column" if self.subject not in names else "the secret"
            wanted = "a column that says whom each row is about"
            raise InputError([Fault(table, f"column {self.subject}", found, wanted)])

    def subjects(self, frame: nw.DataFrame[Any]) -> list[str | None]:
        """Whom each row is about; None for nobody.

        Raises:
            InputError: a name that is too long.
        """
        names = subjects_of(frame[self.subject])
        long = (names.str.len_chars() > LONGEST).fill_null(value=False).arg_true()
        if len(long):
            found = f"a name of more than {LONGEST:,} characters ({len(long):,} such rows)"
            raise InputError([Fault(TABLE, f"column {self.subject}", found, "whom each row is about")])
        found_names: list[str | None] = names.to_list()
        return found_names

    def reports(
        self,
        frame: nw.DataFrame[Any],
        draw: Callable[[nw.DataFrame[Any]], Drawn],
        places: Callable[[nw.DataFrame[Any]], Drawn],
    ) -> Drawn:
        """Charge the rows of a table, durably, and then draw for those that the limit allows.

        Args:
            frame: the table.
            draw: draws a report for each row of a part of it.
            places: the place of each row of a part of it, a fixed function of its position.
        """
        names = self.subjects(frame)
        some = np.array([number for number, name in enumerate(names) if name is not None], dtype=np.int64)
        whose = [name for name in names if name is not None]
        outputs, reason = np.full(len(names), -1, dtype=np.int64), np.full(len(names), _NOBODY, dtype=np.int64)
        if self.sticky is not None:
            outputs[some], reason[some] = self._kept(self.sticky, frame[some], whose, draw, places)
            return outputs, reason
        granted = some[np.array(self.charge(whose, self.cost), dtype=bool)]
        reason[some] = _SPENT
        outputs[granted], reason[granted] = draw(frame[granted])
        return outputs, reason

    def charge(self, whose: Sequence[str], cost: Cost) -> list[bool]:
        """Charge a row to each subject; whether the limit allows it."""
        granted = self.ledger.charge_each(whose, cost)
        self.charged += sum(granted)
        return granted

    def _kept(
        self,
        sticky: Sticky,
        frame: nw.DataFrame[Any],
        whose: list[str],
        draw: Callable[[nw.DataFrame[Any]], Drawn],
        places: Callable[[nw.DataFrame[Any]], Drawn],
    ) -> Drawn:
        numbers, reason = places(frame)
        at = ["" if why >= 0 else str(place) for place, why in zip(numbers.tolist(), reason.tolist(), strict=True)]
        called = {name: self.ledger.named(name) for name in dict.fromkeys(whose)}
        visits = [(called[name], place) for name, place in zip(whose, at, strict=True)]
        with sticky.visits(self.cost.mechanism, visits) as kept:
            first = np.array(kept.first, dtype=np.int64)
            booked = self.ledger.booked([whose[number] for number in first.tolist()], self.cost)
            granted = first[np.array([mark is not None for mark in booked], dtype=bool)]
            self.charged += len(granted)
            drawn, _ = draw(frame[granted])
            marks = [mark for mark in booked if mark is not None]
            for number, output, mark in zip(granted.tolist(), drawn.tolist(), marks, strict=True):
                kept.keep(number, output, mark)
            found = [kept.report(number) for number in range(len(whose))]
        spent = np.array([output is None for output in found], dtype=bool)
        outputs = np.array([-1 if output is None else output for output in found], dtype=np.int64)
        return outputs, np.where(spent, _SPENT, reason)

    @property
    def sequence(self) -> str:
        """What holds of all reports of a subject, and what does not, in words."""
        if self.sticky is not None:
            return f"{SEQUENCE}{_window(self.ledger.limit)}"
        return sequence_of(self.cost, self.ledger.limit, "row with a subject")
