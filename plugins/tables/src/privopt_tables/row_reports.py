"""Draw reports for rows passed in batches by DuckDB or Polars, from any of their threads (ADR 27).

The ledger is opened in its own thread, which also makes all charges.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import define, evolve, field

from privopt.arrays import Ints
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
"""The name of the argument that contains the rows' subjects."""


@define(kw_only=True, eq=False)
class _InOneThread(RowCharger):
    """A charger that makes all charges in the thread in which the ledger was opened.

    Everything else runs in the calling thread. Calling Polars in the ledger's thread could cause a deadlock, because
    Polars' own threads may be waiting for that thread.

    Attributes:
        thread: An executor whose only thread is the one that opened the ledger.
    """

    thread: Executor

    def charge_subjects(
        self, subjects: Sequence[str], cost: Cost, periods: Sequence[str | None], times: Sequence[int] | None = None
    ) -> list[bool]:
        """Charge rows as the base class does, but in the ledger's thread, where calls run one at a time."""
        return self.thread.submit(0, super().charge_subjects, subjects, cost, periods, times).result()


@define(kw_only=True, eq=False, slots=False)
class RowReports:
    """A callable that draws a report for each row. If there is a ledger, each row is charged first.

    Attributes:
        protector: The protector that charges the rows and draws the reports.
        notes: Notes for the recipient of the reports.
    """

    protector: PositionProtector
    notes: tuple[str, ...]
    _opened: ExitStack = field(factory=ExitStack, init=False)

    @classmethod
    def of(cls, opened: OpenedFolder, purpose: str, ledger: Ledger | Path | str | None = None) -> RowReports:
        """Create an instance for a release. If there is a ledger, open it in its own thread.

        Args:
            opened: The verified release.
            purpose: A description of what the charges are for, which is recorded in the ledger.
            ledger: The ledger to charge for each row, regardless of the row's position. If None, nothing is charged. A
                ledger that is already open is opened a second time, in the new thread.

        Raises:
            UsageError: The release has no matrix, reports traces or cannot be charged, or the ledger has a calendar
                limit.
            InputError: The ledger's file or its key file is invalid.
            DoesNotHoldError: The ledger was changed after it was written.
        """
        release, problem = matrix_of(opened, traces=False)
        thread, data = threads(1), problem.data
        open_ledger: Ledger | None = None
        charge: Charge | None = None
        charger: RowCharger | None = None
        planar = positions_are_planar(data)
        # The arguments are named like the records' coordinates, and in the same order.
        names = COORDINATES["planar" if planar else "geographic"]
        secret = Secret.at(names if data.records.coordinates is not None else ["id"], planar=planar)
        if ledger is not None:
            path, key = (ledger.path, ledger.key) if isinstance(ledger, Ledger) else (Path(ledger), None)
            cost = cost_of_row(opened, ApplyOptions(), purpose)
            open_ledger = thread.submit(0, _open_ledger, path, key, cost.account).result()
            charge = Charge(ledger=open_ledger, subject=SUBJECT)
            charger = _InOneThread(charge=charge, cost=cost, thread=thread)
        protector = PositionProtector.of(release, data, secret, ApplyOptions(charge=charge), charger)
        mark = [f"this release: {opened.result.mark}"] if opened.result.mark else []
        row_reports = cls(protector=protector, notes=(*describe_limits(opened.result.guarantee), *mark))
        if charger is not None and open_ledger is not None:
            thread.submit(0, row_reports._opened.enter_context, charger.open_ledger()).result()
            # The ledger is closed when this object is no longer referenced, but not when Python exits (atexit), because
            # the ledger's thread may have ended by then.
            weakref.finalize(row_reports, thread.submit, 0, open_ledger.close).atexit = False
            # Making this sentence reads the ledger, so it happens in the ledger's thread.
            row_reports.notes = (*row_reports.notes, thread.submit(0, lambda: charger.sequence).result())
        return row_reports

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The types of the input columns, keyed by name.

        These columns hold a position or an id and, if there is a ledger, a subject.
        """
        secret_type = pl.String if self.protector.secret.kind == "id" else pl.Float64
        subject_type = {} if self.protector.charger is None else {SUBJECT: pl.String}
        return {**dict.fromkeys(self.protector.secret.columns, secret_type), **subject_type}

    @property
    def fields(self) -> Mapping[str, Any]:
        """The types of a report's fields, keyed by name.

        The fields are the output's id and, if the outputs have coordinates, those coordinates.
        """
        axes = [column.removeprefix(f"{REPORT}_") for column in self.protector.coordinate_columns(REPORT)]
        return {"id": pl.String, **dict.fromkeys(axes, pl.Float64)}

    @property
    def draws_only(self) -> bool:
        """Whether :meth:`draw_outputs` can be called directly because nothing is charged."""
        return self.protector.charger is None

    def draw_outputs(self, rows: pl.DataFrame) -> Ints:
        """Draw a report for each row without charging anything.

        This method is called for a few thousand rows at a time, so it computes only what depends on the rows.

        Args:
            rows: B rows with the columns of :attr:`arguments`.

        Returns:
            (B,) The index of each row's report in :attr:`report_of_output`.
        """
        numbers = self.protector.draw_outputs(nw.from_native(rows, eager_only=True))
        return np.where(numbers < 0, len(self.report_of_output) - 1, numbers)

    @cached_property
    def report_of_output(self) -> pl.Series:
        """A series with the report for each of the K outputs, followed by a null for rows without a report.

        Each report is a struct with the fields given by :attr:`fields`.
        """
        space = self.protector.outputs
        coordinates = () if space is None or space.coordinates is None else space.coordinates.T
        columns = (self.protector.release.outputs.tolist(), *coordinates)
        reports = pl.DataFrame(dict(zip(self.fields, columns, strict=True)), schema=dict(self.fields)).to_struct(REPORT)
        return reports.extend_constant(None, 1)

    def __call__(self, rows: pl.DataFrame) -> pl.Series:
        """Draw a report for each row. If there is a ledger, each row is charged first.

        Args:
            rows: B rows with the columns of :attr:`arguments`.

        Returns:
            A series of B structs with the fields given by :attr:`fields`, or null for a row without a report.

        Raises:
            InputError, DoesNotHoldError, StoppedError: The ledger could not be charged (see :class:`.Ledger`). No
                report was drawn.
        """
        if self.draws_only:
            return self.report_of_output.gather(self.draw_outputs(rows))
        frame = nw.from_native(rows, eager_only=True)
        # Several threads may call this at once, so each call has a counter of refusals to itself.
        protector = evolve(self.protector, refusals=Counter())
        reported_frame = protector.protect(frame).to_native()
        parts = zip(self.fields, (REPORT, *self.protector.coordinate_columns(REPORT)), strict=True)
        report = pl.struct(**{name: pl.col(column) for name, column in parts})
        return reported_frame.select(pl.when(pl.col(REPORT).is_not_null()).then(report)).to_series()


def _open_ledger(path: Path, key: Path | None, account: str) -> Ledger:
    """Open and check a ledger, closing it again if it fails the checks.

    Args:
        path: The ledger's file.
        key: The file with the key under which subjects' names are hashed, or None if there is no key.
        account: The unit in which rows are charged.

    Raises:
        UsageError: The ledger has a calendar limit, which would require a time for each row.
        InputError: The ledger's file or its key file is invalid.
        DoesNotHoldError: The ledger was changed after it was written.
    """
    with ExitStack() as stack:
        ledger = stack.enter_context(Ledger(path, key=key))
        ledger.check()
        check_no_calendar(ledger, account)
        # The ledger passed its checks, so it stays open when the block ends.
        stack.pop_all()
        return ledger
