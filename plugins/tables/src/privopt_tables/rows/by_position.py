"""Draw a report from a certified matrix for each row of a table part, in place of the secret's columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import evolve, field, frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.declare.column_texts import FIRST, KEPT, STICKY, prefixed
from privopt.errors import DoesNotHoldError, UsageError
from privopt.interfaces import Guarantee
from privopt.ledger.batches import Coins, row_names
from privopt.numbers.sampling import RowStreams, draw_each, seeded
from privopt.specs import NOTHING
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.kinds import MetricPrivacy
from privopt_metric_dp.problem.read_points import COORDINATES
from privopt_metric_dp.region.snap_to_region import Snapper
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.traces.interpolate import Ways
from privopt_tables.charge_rows import Drawn, Places, RowCharger
from privopt_tables.find_positions import RowSecrets
from privopt_tables.nearest_record import Snap, Strays, on_earth
from privopt_tables.options import BETWEEN_RECORDS, ApplyOptions, check_options, describe_limits, list_positions
from privopt_tables.rows.protector import SEEDED, RowProtector
from privopt_tables.secret_columns import Secret, positions_of
from privopt_tables.trace_rows import Tracer

__all__ = ["PositionProtector"]

_READ: Final = "to the millimetre (degrees: to 1e-7, so two may be taken for up to 17.2 mm farther apart)"
_EVERYWHERE: Final = {
    2: f"what holds is between points of streets, in the lengths of ways along them: a position is read {_READ} and "
    "reported as the nearest such point, so two positions, however near, may be distinguished as the streets that they "
    "are nearest to",
    3: f"what holds is between positions as they are read, {_READ}, in the lengths of ways inside the region; "
    "a position outside is reported as the nearest point of its rim",
}
"""What a release that holds at every point promises of positions, by the corners of its simplices."""


@frozen(kw_only=True, eq=False)
class PositionProtector(RowProtector):
    """Draws one report a row from a matrix, exactly as it was certified.

    Attributes:
        release: whose rows are drawn from.
        snap: finds each row's record.
        outputs: where reports lie, where they lie anywhere.
        tracer: draws reports of traces, where the release reports these.
        near: finds the places whose kept report is given at a position too; None where a place's own is alone.
        row_key_columns: columns of subject and id by which the coins' streams know a row; None for its number.
        ways: to outputs, which these go by where positions are reported as they are; None where as their records.
        strays: positions far from every record, so far.
    """

    release: MatrixRelease
    snap: Snap
    outputs: Space | None
    tracer: Tracer | None = None
    ways: Ways | None = None
    near: Callable[[Floats, Ints], list[list[int]]] | None = None
    row_key_columns: tuple[str, str] | None = None
    strays: Strays = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "strays", Strays(reach=self.snap.reach))

    @classmethod
    def of(
        cls,
        release: MatrixRelease,
        data: MetricData,
        secret: Secret,
        asked: ApplyOptions,
        charging: RowCharger | None = None,
        coins: Coins | None = None,
    ) -> PositionProtector:
        """Prepare for tables.

        Args:
            release: what to draw from.
            data: the problem's, for coordinates and the region.
            secret: the columns that hold the secret.
            asked: how.
            charging: charges each report to its subject; to be opened before the first row.
            coins: of the batch, where there is one.

        Raises:
            UsageError: a blank prefix, positions that the records do not have, a distance or a seed that is none, or
                a seed or kept reports where they cannot be.
        """
        positions = list_positions(secret, asked, data)
        kind = positions[0][1].kind
        check_options(positions, asked, traces=release.walker is not None)
        source = seeded(asked.seed)
        places = data.records if data.region is not None or data.records.on_map is not None else None
        around = None
        if data.region is not None and kind != "id":
            around = Snapper.of(data.region, data.epsilon)
        snap = Snap(ids=release.records, places=places, region=around, source=source, farthest=asked.max_snap)
        for _, columns in positions:
            snap.check(columns)
        outputs = _located(release.outputs.tolist(), data.outputs)
        if outputs is not None and kind == "geographic":
            outputs = on_earth(outputs)
        return cls(
            release=release,
            secret=secret,
            positions=positions,
            snap=snap,
            outputs=outputs,
            source=source,
            marked=asked.seed is not None,
            charging=charging,
            tracer=Tracer.of(release, data, asked.whose, asked.time, source, charging),
            coins=coins,
            near=_near(asked, snap, kind),
            ways=None if around is None or release.walker is None else Ways.of(data),
        )

    @property
    def first_position(self) -> Secret:
        """The columns of the row's first position, the only one of kept reports and of traces."""
        return self.positions[0][1]

    def _called(self, *names: str) -> tuple[str, ...]:
        """Names of columns that a row has once, behind the prefix where its one position has one."""
        prefix = self.positions[0][0] if len(self.positions) == 1 else None
        return tuple(prefixed(prefix, name) for name in names)

    def places(self, report: str) -> tuple[str, ...]:
        """Name the two columns that say where a column's reports lie; none if reports have no coordinates."""
        ends = () if self.outputs is None else COORDINATES[self.outputs.kind]
        return tuple(f"{report}_{end}" for end in ends)

    @property
    def _traces(self) -> tuple[str, ...]:
        """Columns that say which reports are whose last one again, and whose first."""
        return () if self.tracer is None else self._called(KEPT, FIRST)

    @property
    def _marks(self) -> tuple[str, ...]:
        """Columns that mark a whole table: reports that a seed drew, or that repeat."""
        return self._called(*((SEEDED,) if self.marked else ()), *((STICKY,) if self.keeps else ()))

    @property
    def added(self) -> tuple[str, ...]:
        """Name the columns that are added to the table."""
        reports = [name for report in self.reports for name in (report, *self.places(report))]
        return (*reports, *self._traces, *self._marks)

    def check(self, names: list[str], table: str) -> None:
        """Refuse a table as any is, and one without the columns that traces need."""
        super().check(names, table)
        if self.tracer is not None:
            when = {} if self.tracer.time is None else {self.tracer.time: "when each row was"}
            self.secret.check_other_columns({self.tracer.subject: "whose each row is", **when}, names, table)

    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Draw for rows whose subjects were charged, where they are to be."""
        marks: list[Bools] = []
        if self.tracer is not None:
            rows, reason = self.snap.rows(frame, self.first_position, strays=self.strays)
            far = None if self.ways is None else partial(self._far, frame)
            (drawn, reason), *marks = self.tracer.reports(frame, rows, reason, far=far)
        elif self.charging is None:
            drawn, reason = self._drawn(frame, first, np.arange(len(frame)))
        else:
            drawn, reason = self.charging.reports(
                frame,
                partial(self._drawn, frame, first),
                lambda rows: self._places(frame[rows]),
                len(self.positions),
            )
            if not (drawn.min(initial=0) >= -1 and drawn.max(initial=0) < len(self.release.outputs)):
                raise DoesNotHoldError("kept reports: changed: an output that the release does not have")
        self.refuse(reason)
        columns = []
        for at, report in enumerate(self.reports):
            place = pl.Series(np.ascontiguousarray(drawn[:, at])).replace(-1, None)
            columns.append(pl.Series(report, self.release.outputs.tolist(), dtype=pl.String).gather(place))
            if self.outputs is not None and self.outputs.coordinates is not None:
                for axis, of_axis in enumerate(self.places(report)):
                    columns.append(pl.Series(of_axis, self.outputs.coordinates[:, axis]).gather(place))
        columns += [pl.Series(name, mark) for name, mark in zip(self._traces, marks, strict=True)]
        columns += [pl.Series(name, [True]).new_from_index(0, len(drawn)) for name in self._marks]
        return self.with_columns(frame, columns)

    def row_secrets(self, frame: nw.DataFrame[Any]) -> list[RowSecrets]:
        """Return ids and positions of some rows; the record of a position is the nearest one, also by its name."""
        places, secrets = self.snap.places, []
        ids = self.release.records.tolist()
        for _, columns in self.positions:
            numbers, reason = self.snap.rows(frame, columns, fixed=True)
            is_known = (reason < 0).tolist()
            own = [
                ids[row] if known and row < len(ids) else None
                for row, known in zip(numbers.tolist(), is_known, strict=True)
            ]
            texts: list[list[str | None]] = [own]
            row_of_id = {} if places is None else {name: row for row, name in enumerate(places.ids)}
            if places is not None and places.names is not None:
                texts.append([None if name not in row_of_id else places.names[row_of_id[name]] for name in own])
            positions, is_geographic = None, columns.kind == "geographic"
            if columns.kind != "id":
                positions = np.where((reason < 0)[:, None], positions_of(frame, columns)[0], np.nan)
            elif self.outputs is not None and places is not None and places.on_map is not None:
                is_geographic = places.kind == "geographic"
                rows = [row_of_id.get(name or "", -1) for name in own]
                positions = np.where(np.array(rows)[:, None] >= 0, places.on_map[rows], np.nan)
            secrets.append(
                RowSecrets(
                    positions=positions,
                    is_geographic=is_geographic,
                    texts=tuple(texts),
                    text_chance=1.0 / max(2, len(ids)),
                )
            )
        return secrets

    def _drawn(self, frame: nw.DataFrame[Any], first: int, rows: Ints) -> Drawn:
        """Draw a report for each position of some rows, by output number: for all of a row's positions, or none."""
        strays = None if self.keeps else self.strays  # kept ones were seen when their places were asked for
        part, streams = frame[rows], partial(self._streams, frame[rows], first + rows)
        found = [
            self.snap.rows(part, columns, strays=strays, streams=streams("vertex", name, columns))
            for name, columns in self.positions
        ]
        reason = np.full(len(part), -1, dtype=np.int64)
        for _, why in reversed(found):
            reason = np.where(why >= 0, why, reason)
        good = np.flatnonzero(reason < 0)
        drawn = np.full((len(part), len(found)), -1, dtype=np.int64)
        for position, (name, columns) in enumerate(self.positions):
            own = streams("output", name, columns)
            source = self.source if own is None else own.of(good)
            drawn[good, position] = draw_each(self.release.weights, found[position][0][good], source=source)
        return drawn, reason

    def _streams(
        self, frame: nw.DataFrame[Any], numbers: Ints, purpose: str, name: str | None, columns: Secret
    ) -> RowStreams | None:
        """Return a batch's streams for one position of rows; None without a batch."""
        if self.coins is None:
            return None
        coins, secrets = self.coins, columns.bytes_of(frame)
        rows = (
            row_names(frame, self.row_key_columns)
            if self.row_key_columns
            else [row.to_bytes(8, "big") for row in numbers.tolist()]
        )

        def read(row: int, start: int, count: int) -> bytes:
            return coins.stream(purpose, rows[row], name or "", secrets[row], start, count)

        return RowStreams(read, np.arange(len(rows)))

    def _far(self, frame: nw.DataFrame[Any], rows: Ints) -> Ints:
        """(B, K) steps from the positions of some rows to all outputs."""
        assert self.ways is not None  # the caller has looked
        return self.ways.of_points(self.snap.snapped(frame[rows], self.first_position))

    def _places(self, frame: nw.DataFrame[Any]) -> Places:
        """Find each row's place, fixed beforehand: its record, or its vertex; why it has none; and places nearby."""
        numbers, reason = self.snap.rows(frame, self.first_position, fixed=True, strays=self.strays)
        if self.near is None:
            return numbers, reason, None
        return numbers, reason, self.near(positions_of(frame, self.first_position)[0], reason)

    @property
    def price(self) -> str | None:
        """What a row costs its subject, or a segment of the trace of its rows."""
        return super().price if self.tracer is None else self.tracer.price

    @property
    def sequence(self) -> str | None:
        """What holds of all reports of a subject, where that is counted."""
        counted = self.tracer or self.charging
        return None if counted is None else counted.sequence

    def warnings(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return what any table's owner must look at, and positions that are far away."""
        return (*self.strays.note, *super().warnings(names))

    def notes(self, guarantee: Guarantee) -> tuple[str, ...]:
        """Return what publishers of such a table must know about the guarantee, a sentence each."""
        less = super().notes(guarantee)
        if self.positions[0][1].kind == "id" or guarantee.kind == NOTHING:
            return less
        if self.snap.region is not None:
            return (*less, _EVERYWHERE[self.snap.region.simplices.shape[1]])
        worth = "as well as those"
        if guarantee.kind == MetricPrivacy.kind and guarantee.epsilon is not None and not describe_limits(guarantee):
            factor = f"exp({float(guarantee.epsilon):g} d)"
            worth = f"by a factor of at most {factor} in the odds, where d is the distance of those records"
        return (
            *less,
            f"{BETWEEN_RECORDS}. Two positions near each other may have different nearest records, and are then "
            f"distinguished {worth}",
        )


def _near(asked: ApplyOptions, snap: Snap, kind: str) -> Callable[[Floats, Ints], list[list[int]]] | None:
    """Prepare to find kept reports of cells nearby, where that is asked for.

    Raises:
        UsageError: no kept reports, no positions, or less than half a cell's diagonal.
    """
    if asked.charge is None or asked.charge.within is None:
        return None
    if not asked.charge.sticky:
        raise UsageError("sticky-within must be given with sticky: it repeats kept reports")
    if kind == "id":
        raise UsageError("sticky-within must have positions to measure from, got ids")
    return snap.near(asked.charge.within, degrees=kind == "geographic")


def _located(ids: list[str], space: Space) -> Space | None:
    """Return the coordinates of some of a space's ids; None where it has none on a map."""
    points = space.on_map
    if points is None or list(space.ids) == ids:
        return None if points is None else space
    return evolve(space, ids=ids, coordinates=points[space.numbers(ids)], triangles=None)
