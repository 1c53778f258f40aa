"""Draw reports for rows that DuckDB or Polars passes in batches, from any of its threads."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import narwhals as nw
import polars as pl
from attrs import define, evolve, field

from privopt.declare.column_texts import REPORT
from privopt.execution import Executor
from privopt.execution.local import threads
from privopt.interfaces.cost import Cost
from privopt.ledger.charge import Charge
from privopt.ledger.ledger import Ledger
from privopt.run.verify import OpenedFolder
from privopt_metric_dp.matrix.release import matrix_of
from privopt_metric_dp.problem.read_points import COORDINATES
from privopt_tables.apply_parts import cost_of_row
from privopt_tables.charge_rows import RowCharger, check_no_calendar
from privopt_tables.options import ApplyOptions, describe_limits, positions_are_planar
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import Secret

__all__ = ["RowReports"]

SUBJECT: Final = "subject"


@define(kw_only=True, eq=False)
class _InOneThread(RowCharger):
    """Charges in the one thread in which the ledger is open, whichever thread calls.

    Everything else runs in the calling thread: Polars's threads wait for one another, so work that a thread of ours
    gave them while they wait for that thread would never end.
    """

    thread: Executor

    def charge(
        self, whose: Sequence[str], cost: Cost, periods: Sequence[str | None], times: Sequence[int] | None = None
    ) -> list[bool]:
        """Charge as the base class does, one call after the other."""
        return self.thread.submit(0, super().charge, whose, cost, periods, times).result()


@define(kw_only=True, eq=False, slots=False)
class RowReports:
    """Draws a report for each row, after the row was charged if there is a ledger.

    Attributes:
        protector: Charges and draws.
        notes: Sentences that a user of the reports must know.
    """

    protector: PositionProtector
    notes: tuple[str, ...]
    _opened: ExitStack = field(factory=ExitStack, init=False)

    @classmethod
    def of(cls, opened: OpenedFolder, purpose: str, ledger: Ledger | Path | str | None = None) -> RowReports:
        """Prepare a release.

        Args:
            opened: The release.
            purpose: The purpose of charges, in words.
            ledger: Charges each row to its subject, whatever its position; it is opened a second time if it is open.

        Raises:
            UsageError: A release without a matrix, of traces, or that cannot be charged; or a ledger whose limit is by
                the calendar.
            InputError, DoesNotHoldError: A ledger that cannot be used.
        """
        release, problem = matrix_of(opened, traces=False)
        thread, data = threads(1), problem.data
        book: Ledger | None = None
        charge: Charge | None = None
        charging: RowCharger | None = None
        planar = positions_are_planar(data)
        names = COORDINATES["planar" if planar else "geographic"]
        secret = Secret.at(names if data.records.coordinates is not None else ["id"], planar=planar)
        if ledger is not None:
            path, key = (ledger.path, ledger.key) if isinstance(ledger, Ledger) else (Path(ledger), None)
            cost = cost_of_row(opened, ApplyOptions(), purpose)
            book = thread.submit(0, _open_ledger, path, key, cost.account).result()
            charge = Charge(ledger=book, subject=SUBJECT)
            charging = _InOneThread(to=charge, cost=cost, thread=thread)
        protector = PositionProtector.of(release, data, secret, ApplyOptions(charge=charge), charging)
        mark = [f"this release: {opened.result.mark}"] if opened.result.mark else []
        made = cls(protector=protector, notes=(*describe_limits(opened.result.guarantee), *mark))
        if charging is not None and book is not None:
            thread.submit(0, made._opened.enter_context, charging.opened()).result()
            weakref.finalize(made, thread.submit, 0, book.close).atexit = False
            made.notes = (*made.notes, thread.submit(0, lambda: charging.sequence).result())
        return made

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Types of a row's columns by name: a position or an id, and a subject if there is a ledger."""
        secret_type = pl.String if self.protector.secret.kind == "id" else pl.Float64
        subject_type = {} if self.protector.charger is None else {SUBJECT: pl.String}
        return {**dict.fromkeys(self.protector.secret.columns, secret_type), **subject_type}

    @property
    def fields(self) -> Mapping[str, Any]:
        """Types of a report's parts by name: the output's id, and its coordinates if it has any."""
        axes = [column.removeprefix(f"{REPORT}_") for column in self.protector.coordinate_columns(REPORT)]
        return {"id": pl.String, **dict.fromkeys(axes, pl.Float64)}

    def __call__(self, rows: pl.DataFrame) -> pl.Series:
        """Draw a report for each row.

        Args:
            rows: (B, ...) with the columns of :attr:`arguments`.

        Returns:
            (B,) structures of :attr:`fields`; null for a row without a report.

        Raises:
            InputError, DoesNotHoldError, StoppedError: The ledger failed; nothing was drawn.
        """
        protector = evolve(self.protector, refusals=Counter())  # several threads call, and each needs its own counter
        reported_frame = protector.protect(nw.from_native(rows, eager_only=True)).to_native()
        parts = zip(self.fields, (REPORT, *self.protector.coordinate_columns(REPORT)), strict=True)
        report = pl.struct(**{name: pl.col(column) for name, column in parts})
        return reported_frame.select(pl.when(pl.col(REPORT).is_not_null()).then(report)).to_series()


def _open_ledger(path: Path, key: Path | None, account: str) -> Ledger:
    """Open and check a ledger; it is closed again if it cannot be used.

    Raises:
        UsageError: Its limit is by the calendar, and rows have no time here.
        InputError, DoesNotHoldError: It cannot be used for another reason.
    """
    with ExitStack() as stack:
        ledger = stack.enter_context(Ledger(path, key=key))
        ledger.check()
        check_no_calendar(ledger, account)
        stack.pop_all()
        return ledger
