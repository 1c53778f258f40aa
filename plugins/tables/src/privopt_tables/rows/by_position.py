"""Protect rows by a certified matrix: a report of each position, or id, from the row of its record.

With a batch the random bytes follow from the batch's key, so that the same row has the same report each time (ADR 24).
"""

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

_READING_PRECISION: Final = "to the millimetre (degrees: to 1e-7, so two may be taken for up to 17.2 mm farther apart)"
_EVERYWHERE_NOTES: Final = {
    2: "what holds is between points of streets, in the lengths of ways along them: a position is read "
    f"{_READING_PRECISION} and reported as the nearest such point, so two positions, however near, may be "
    "distinguished as the streets that they are nearest to",
    3: f"what holds is between positions as they are read, {_READING_PRECISION}, in the lengths of ways inside the "
    "region; a position outside is reported as the nearest point of its rim",
}
"""What a release that holds at every point promises for positions, by the number of corners of its simplices."""


@frozen(kw_only=True, eq=False)
class PositionProtector(RowProtector):
    """Draws one report a row from a matrix, exactly as it was certified.

    Attributes:
        release: The matrix whose rows are drawn from.
        snap: Finds each row's record.
        outputs: The outputs' coordinates; None if they have none.
        tracer: Draws reports of traces; None if the release reports rows one by one.
        near: Finds further places whose stored report is repeated at a position; None if only its own place's is.
        row_key_columns: Columns of subject and id that identify a row of a batch; None if its number does.
        ways: Path lengths from any point to the outputs, for traces; None if a position is reported as its record.
        strays: Positions far from every record, so far.
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
        options: ApplyOptions,
        charger: RowCharger | None = None,
        coins: Coins | None = None,
    ) -> PositionProtector:
        """Prepare to protect tables.

        Args:
            release: The matrix to draw from.
            data: The problem's data, for coordinates and the region.
            secret: The columns that hold the secret.
            options: How the release is applied.
            charger: Charges each report to its subject; it must be opened before the first row.
            coins: The batch's random bytes; None without a batch.

        Raises:
            UsageError: A blank prefix, positions that the records do not have, an invalid distance or seed, or options
                that exclude one another.
        """
        positions = list_positions(secret, options, data)
        kind = positions[0][1].kind
        check_options(positions, options, traces=release.walker is not None)
        source = seeded(options.seed)
        places = data.records if data.region is not None or data.records.on_map is not None else None
        snapper = None
        if data.region is not None and kind != "id":
            snapper = Snapper.of(data.region, data.epsilon)
        snap = Snap(ids=release.records, places=places, region=snapper, source=source, farthest=options.max_snap)
        for _, columns in positions:
            snap.check(columns)
        outputs = _select_outputs(release.outputs.tolist(), data.outputs)
        if outputs is not None and kind == "geographic":
            outputs = on_earth(outputs)
        return cls(
            release=release,
            secret=secret,
            positions=positions,
            snap=snap,
            outputs=outputs,
            source=source,
            is_seeded=options.seed is not None,
            charger=charger,
            tracer=Tracer.of(release, data, options.subject_column, options.time, source, charger, options.forms),
            coins=coins,
            near=_make_neighbour_finder(options, snap, kind),
            ways=None if snapper is None or release.walker is None else Ways.of(data),
        )

    @property
    def first_position(self) -> Secret:
        """Columns of the row's first position: the only one with stored reports and for traces."""
        return self.positions[0][1]

    def _prefix_names(self, *names: str) -> tuple[str, ...]:
        """Return names of columns that a row has once, with the prefix of its position if it has only one."""
        prefix = self.positions[0][0] if len(self.positions) == 1 else None
        return tuple(prefixed(prefix, name) for name in names)

    def coordinate_columns(self, report: str) -> tuple[str, ...]:
        """Return names of the two columns with the places of a column's reports; none if these have no coordinates."""
        axes = () if self.outputs is None else COORDINATES[self.outputs.kind]
        return tuple(f"{report}_{axis}" for axis in axes)

    @property
    def _trace_columns(self) -> tuple[str, ...]:
        """Columns that mark a trace's repeated reports and its first ones; none without traces."""
        return () if self.tracer is None else self._prefix_names(KEPT, FIRST)

    @property
    def _mark_columns(self) -> tuple[str, ...]:
        """Columns that mark a whole table: reports drawn by a seed, or repeated ones."""
        return self._prefix_names(*((SEEDED,) if self.is_seeded else ()), *((STICKY,) if self.is_sticky else ()))

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Names of the columns that are added to the table."""
        reports = [name for report in self.report_columns for name in (report, *self.coordinate_columns(report))]
        return (*reports, *self._trace_columns, *self._mark_columns)

    def check(self, names: list[str], table: str) -> None:
        """Refuse a table as the base class does, and one without the columns that traces need."""
        super().check(names, table)
        if self.tracer is not None:
            roles = {self.tracer.subject: "whose each row is"}
            if self.tracer.time is not None:
                roles[self.tracer.time] = "when each row was"
            self.secret.check_other_columns(roles, names, table)

    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Draw for rows whose subjects were charged, if there is a ledger."""
        marks: list[Bools] = []
        if self.tracer is not None:
            rows, reason = self.snap.rows(frame, self.first_position, strays=self.strays)
            far = None if self.ways is None else partial(self._distances_to_outputs, frame)
            (output_numbers, reason), *marks = self.tracer.reports(frame, rows, reason, far=far)
        elif self.charger is None:
            output_numbers, reason = self._draw_reports(frame, first, np.arange(len(frame)))
        else:
            output_numbers, reason = self.charger.reports(
                frame,
                partial(self._draw_reports, frame, first),
                lambda rows: self._find_places(frame[rows]),
                len(self.positions),
            )
            # Stored reports come from the ledger's files, which someone may have changed.
            if not (output_numbers.min(initial=0) >= -1 and output_numbers.max(initial=0) < len(self.release.outputs)):
                raise DoesNotHoldError("kept reports: changed: an output that the release does not have")
        self.count_refusals(reason)
        columns = []
        for position, report in enumerate(self.report_columns):
            outputs = pl.Series(np.ascontiguousarray(output_numbers[:, position])).replace(-1, None)
            columns.append(pl.Series(report, self.release.outputs.tolist(), dtype=pl.String).gather(outputs))
            if self.outputs is not None and self.outputs.coordinates is not None:
                for axis, name in enumerate(self.coordinate_columns(report)):
                    columns.append(pl.Series(name, self.outputs.coordinates[:, axis]).gather(outputs))
        columns += [pl.Series(name, mark) for name, mark in zip(self._trace_columns, marks, strict=True)]
        columns += [pl.Series(name, [True]).new_from_index(0, len(frame)) for name in self._mark_columns]
        return self.replace_secret(frame, columns)

    def row_secrets(self, frame: nw.DataFrame[Any]) -> list[RowSecrets]:
        """Return ids and positions of some rows; the record of a position is the nearest one, also by its name."""
        places, secrets = self.snap.places, []
        ids = self.release.records.tolist()
        for _, columns in self.positions:
            numbers, reason = self.snap.rows(frame, columns, fixed=True)
            is_known = (reason < 0).tolist()
            record_ids = [
                ids[row] if known and row < len(ids) else None
                for row, known in zip(numbers.tolist(), is_known, strict=True)
            ]
            texts: list[list[str | None]] = [record_ids]
            row_of_id = {} if places is None else {name: row for row, name in enumerate(places.ids)}
            if places is not None and places.names is not None:
                texts.append([None if name not in row_of_id else places.names[row_of_id[name]] for name in record_ids])
            positions, is_geographic = None, columns.kind == "geographic"
            if columns.kind != "id":
                positions = np.where((reason < 0)[:, None], positions_of(frame, columns)[0], np.nan)
            elif self.outputs is not None and places is not None and places.on_map is not None:
                is_geographic = places.kind == "geographic"
                rows = [row_of_id.get(name or "", -1) for name in record_ids]
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

    def _draw_reports(self, frame: nw.DataFrame[Any], first: int, rows: Ints) -> Drawn:
        """Draw output numbers for each position of some rows: for all of a row's positions, or for none."""
        # With stored reports the strays were counted when the rows' places were looked up.
        strays = None if self.is_sticky else self.strays
        part, make_streams = frame[rows], partial(self._make_streams, frame[rows], first + rows)
        records_by_position = [
            self.snap.rows(part, columns, strays=strays, streams=make_streams("vertex", name, columns))
            for name, columns in self.positions
        ]
        reason = np.full(len(part), -1, dtype=np.int64)
        for _, position_reason in reversed(records_by_position):  # the first position's reason is the one that counts
            reason = np.where(position_reason >= 0, position_reason, reason)
        usable_rows = np.flatnonzero(reason < 0)
        output_numbers = np.full((len(part), len(self.positions)), -1, dtype=np.int64)
        for position, (name, columns) in enumerate(self.positions):
            streams = make_streams("output", name, columns)
            source = self.source if streams is None else streams.of(usable_rows)
            records = records_by_position[position][0][usable_rows]
            output_numbers[usable_rows, position] = draw_each(self.release.weights, records, source=source)
        return output_numbers, reason

    def _make_streams(
        self, frame: nw.DataFrame[Any], numbers: Ints, purpose: str, name: str | None, columns: Secret
    ) -> RowStreams | None:
        """Return the streams of random bytes for one position of some rows of a batch; None without a batch."""
        if self.coins is None:
            return None
        coins, secrets = self.coins, columns.bytes_of(frame)
        names = (
            row_names(frame, self.row_key_columns)
            if self.row_key_columns
            else [row.to_bytes(8, "big") for row in numbers.tolist()]
        )

        def read(row: int, start: int, count: int) -> bytes:
            return coins.stream(purpose, names[row], name or "", secrets[row], start, count)

        return RowStreams(read, np.arange(len(names)))

    def _distances_to_outputs(self, frame: nw.DataFrame[Any], rows: Ints) -> Ints:
        """Return (B, K) distances, in steps, from the positions of some rows to all outputs."""
        assert self.ways is not None  # protect has looked
        return self.ways.of_points(self.snap.snapped(frame[rows], self.first_position))

    def _find_places(self, frame: nw.DataFrame[Any]) -> Places:
        """Find each row's place (its record, or a vertex of its piece), why it has none, and further places nearby.

        The place is a fixed function of the position, so that all visits to it share one stored report.
        """
        numbers, reason = self.snap.rows(frame, self.first_position, fixed=True, strays=self.strays)
        if self.near is None:
            return numbers, reason, None
        return numbers, reason, self.near(positions_of(frame, self.first_position)[0], reason)

    @property
    def price(self) -> str | None:
        """What a row costs its subject; for traces what a report and a segment cost."""
        return super().price if self.tracer is None else self.tracer.price

    @property
    def sequence(self) -> str | None:
        """What holds of all reports of a subject, in words; None if nothing counts them."""
        counter = self.tracer or self.charger
        return None if counter is None else counter.sequence

    def warnings(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the base class's sentences, and one on positions far from every record."""
        return (*self.strays.note, *super().warnings(names))

    def notes(self, guarantee: Guarantee) -> tuple[str, ...]:
        """Return sentences that publishers of such a table must know about the guarantee."""
        base_notes = super().notes(guarantee)
        if self.positions[0][1].kind == "id" or guarantee.kind == NOTHING:
            return base_notes
        if self.snap.region is not None:
            return (*base_notes, _EVERYWHERE_NOTES[self.snap.region.simplices.shape[1]])
        difference = "as well as those"
        if guarantee.kind == MetricPrivacy.kind and guarantee.epsilon is not None and not describe_limits(guarantee):
            factor = f"exp({float(guarantee.epsilon):g} d)"
            difference = f"by a factor of at most {factor} in the odds, where d is the distance of those records"
        return (
            *base_notes,
            f"{BETWEEN_RECORDS}. Two positions near each other may have different nearest records, and are then "
            f"distinguished {difference}",
        )


def _make_neighbour_finder(
    options: ApplyOptions, snap: Snap, kind: str
) -> Callable[[Floats, Ints], list[list[int]]] | None:
    """Return a function that finds places near a position whose stored report is repeated; None if none shall be.

    Raises:
        UsageError: No stored reports, no positions, or less than half a cell's diagonal.
    """
    if options.charge is None or options.charge.within is None:
        return None
    if not options.charge.sticky:
        raise UsageError("sticky-within must be given with sticky: it repeats kept reports")
    if kind == "id":
        raise UsageError("sticky-within must have positions to measure from, got ids")
    return snap.near(options.charge.within, degrees=kind == "geographic")


def _select_outputs(ids: list[str], space: Space) -> Space | None:
    """Return the places of some of a space's ids; None if the space has no coordinates on a map."""
    points = space.on_map
    if points is None or list(space.ids) == ids:
        return None if points is None else space
    return evolve(space, ids=ids, coordinates=points[space.numbers(ids)], triangles=None)
