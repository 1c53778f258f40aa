"""A release that reports rows of tables, in Python: one of a matrix, or any that draws for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from attrs import frozen

from privopt.api.released import OpenRelease, warn_all
from privopt.errors import UsageError
from privopt.ledger.charge import Charge
from privopt.ledger.ledger import Ledger
from privopt_metric_dp.tables.application import Application
from privopt_metric_dp.tables.apply_memory import protected

__all__ = ["ReleasedRows"]

T = TypeVar("T")


@frozen(kw_only=True, eq=False, slots=False)
class ReleasedRows(OpenRelease):
    """A certified release that can draw for each row of a table."""

    def apply(
        self,
        table: T,
        *,
        id: str | None = None,
        lat: str | None = None,
        lon: str | None = None,
        x: str | None = None,
        y: str | None = None,
        geometry: str | None = None,
        max_snap: float | None = None,
        seed: int | None = None,
        ledger: Ledger | Path | str | None = None,
        subject: str | None = None,
        time: str | None = None,
        sticky: bool = False,
        prefix: str | None = None,
        positions: Mapping[str, Sequence[str]] | None = None,
        sticky_within: float | None = None,
        text: str | None = None,
        unknown: Literal["drop", "mask"] = "drop",
    ) -> T:
        """Return a table with a report in each row in place of the secret's columns; the same kind of table comes back.

        Rows without a report have none, and are counted by reason in a :class:`PrivoptWarning`; where the release
        promises less than privacy between all records, another says so. A position is reported as its nearest record,
        and what holds is between records; where the scope is "everywhere" it is reported as that very point. Metadata
        (of Arrow schemas, ``attrs`` of pandas) are omitted. A release that draws for itself takes ids of a table.

        Args:
            table: pandas, polars, pyarrow, a GeoDataFrame, a dict of columns; or an array: (B,) ids, for which the ids
                of reports come back, or (B, 2) positions, for which those of reports do.
            id, lat, lon, x, y, geometry: columns of the secret, one choice of them; a GeoDataFrame's own geometry where
                none is named. None for arrays.
            max_snap: km from every record, or from the region, beyond which a position has no report; a refusal reveals
                something of the position.
            seed: for experiments: what it draws is not private, and marked so.
            ledger: charges each row with a subject, whatever its position, durably and before anything is drawn; rows
                that would pass its limit have no report.
            subject: column that says whom each row is about: for a ledger, or where the release reports traces.
            time: column by which a subject's rows are ordered, for such a release; omitted if they are in order. For a
                ledger whose limit is by the calendar: when each row was, and so the period that it is
                charged to; rows without a usable time have no report.
            sticky: keep and repeat the first report of each subject's place, charged once: charges and refusals then
                reveal which visits shared a place.
            prefix: what the names of the added columns begin with: ``"end"`` for ``end_report``, ``end_report_lat``,
                ..., next to reports that are in the table already; each report of a row spends epsilon.
            positions: several positions of each row, in place of ``id``, ``lat`` and so on: the columns of each, two
                coordinates or one id, by the name that its added columns begin with. A row gets all its reports, or
                none, and is charged epsilon for each column of reports, whatever can be used.
            sticky_within: km from the centre of its cell up to which a kept report is repeated, with ``sticky``.
            text: column of sentences, in place of ``id`` and so on, where records are words.
            unknown: "drop" or "mask", for words of sentences that the release does not know.

        Raises:
            UsageError: a release without a matrix, positions that its records do not have, no table, no row that
                could be reported, or one of ``ledger`` and ``subject`` without the other.
            InputError: columns, or a ledger, that will not do.
        """
        if (ledger is not None and subject is None) or (sticky and ledger is None):
            raise UsageError("apply: ledger and subject must be given together: reports are charged to subjects")
        charge = None
        if ledger is not None:
            charge = Charge(ledger=ledger, subject=subject, sticky=sticky, within=sticky_within)
        elif sticky_within is not None:
            raise UsageError("apply: sticky_within must be given with a ledger and sticky: it repeats kept reports")
        asked = Application(
            max_snap=max_snap,
            seed=seed,
            charge=charge,
            subject=subject,
            time=time,
            prefix=prefix,
            positions=positions or {},
            text=text,
            unknown=unknown,
        )
        columns = {"id": id, "lat": lat, "lon": lon, "x": x, "y": y, "geometry": geometry}
        made, notes = protected(self.opened, table, columns, asked)
        warn_all(notes)
        return made
