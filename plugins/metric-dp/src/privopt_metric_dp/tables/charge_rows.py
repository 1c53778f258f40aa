"""Reports that are charged to their subjects: whom, before anything of a secret is looked at; kept ones once.

Which rows are charged is a function of the subjects alone (mathematics T2). Where reports are kept (T3) it is one of
which visits of a subject share a place, too, and of nothing else: rows without a position share a place of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import narwhals as nw
import numpy as np
from attrs import define, field

from privopt.arrays import Ints
from privopt.declare.column_texts import texts_of
from privopt.interfaces import Progress
from privopt.ledger.charge import Charge
from privopt.ledger.cost_of_report import sequence_of, window_text
from privopt.ledger.entries import Cost
from privopt.ledger.kept_reports import SEQUENCE, Sticky
from privopt.ledger.ledger import Ledger
from privopt.ledger.subject_columns import subjects_of
from privopt_metric_dp.tables.nearest_record import REASONS

__all__ = ["Charging", "Drawn"]


Drawn = tuple[Ints, Ints]
"""(B,) outputs, -1 for none; and (B,) why not, as a place in :data:`REASONS`, else -1."""

_SPENT, _NOBODY = REASONS.index("budget spent"), REASONS.index("no subject")


@define(kw_only=True, eq=False)
class Charging:
    """Charges rows of tables, while its ledger is open.

    Attributes:
        to: the ledger, and the column that says whom each row is about.
        cost: of each report.
        charged: rows that were charged so far.
    """

    to: Charge
    cost: Cost
    charged: int = 0
    _ledger: Ledger = field(init=False)
    _kept: Sticky | None = field(init=False)

    @contextmanager
    def opened(self, progress: Progress | None = None) -> Iterator[Self]:
        """With the ledger open, and the kept reports beside it where they are asked for.

        Raises:
            PrivoptError: a ledger, a key or kept reports that will not do.
        """
        with ExitStack() as stack:
            self._ledger = stack.enter_context(self.to.opened(progress))
            self._kept = stack.enter_context(Sticky.beside(self._ledger)) if self.to.sticky else None
            yield self

    @property
    def subject(self) -> str:
        """The column that says whom each row is about."""
        return self.to.subject or ""

    def subjects(self, frame: nw.DataFrame[Any]) -> list[str | None]:
        """Whom each row is about, as the table writes it, for the ledger to fold; None for nobody.

        Raises:
            InputError: a name that a subject cannot have.
        """
        column = frame[self.subject]
        names, texts = subjects_of(column).to_list(), texts_of(column).to_list()
        return [None if name is None else text for name, text in zip(names, texts, strict=True)]

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
        if self._kept is not None:
            outputs[some], reason[some] = self._again(self._kept, frame[some], whose, draw, places)
            return outputs, reason
        granted = some[np.array(self.charge(whose, self.cost), dtype=bool)]
        reason[some] = _SPENT
        outputs[granted], reason[granted] = draw(frame[granted])
        return outputs, reason

    def charge(self, whose: Sequence[str], cost: Cost) -> list[bool]:
        """Charge a row to each subject; whether the limit allows it."""
        granted = self._ledger.charge_each(whose, cost)
        self.charged += sum(granted)
        return granted

    def _again(
        self,
        sticky: Sticky,
        frame: nw.DataFrame[Any],
        whose: list[str],
        draw: Callable[[nw.DataFrame[Any]], Drawn],
        places: Callable[[nw.DataFrame[Any]], Drawn],
    ) -> Drawn:
        numbers, reason = places(frame)
        at = ["" if why >= 0 else str(place) for place, why in zip(numbers.tolist(), reason.tolist(), strict=True)]
        called = self._ledger.names_of(whose)
        visits = [(called[name][0], place) for name, place in zip(whose, at, strict=True)]
        with sticky.visits(self.cost.mechanism, visits) as kept:
            first = np.array(kept.first, dtype=np.int64)
            booked = self._ledger.booked([whose[number] for number in first.tolist()], self.cost)
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
        if self.to.sticky:
            return f"{SEQUENCE}{window_text(self._ledger.limit)}"
        return sequence_of(self.cost, self._ledger.limit, "row with a subject")
